"""Whisper's encoder as an OpenVINO graph, made from the weights of a model in any format.

The network is that of Radford et al. 2022: two convolutions, positions, blocks of self-attention and an MLP, with the
exact GELU that the models were trained with (ggml computes its tanh form). The graph is written for whole windows, as
whisper.cpp wants it, but nothing in it depends on the length: it can be reshaped to shorter ones.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from whispyx._core.weightfile import WeightFile
from whispyx.errors import ModelError, ModelFormatError, ParamsError
from whispyx.models.formats.opening import open_model

from ._openvino import runtime

__all__ = ["STORAGE", "build", "encoder_path", "fingerprint", "path_text", "write"]

logger = logging.getLogger("whispyx.encoders")

STORAGE: Final = ("f16", "bf16", "f32")
"""How weights may be stored in the file."""

SUFFIX: Final = "-encoder-openvino.xml"
LN_EPS: Final = 1e-5

Progress = Callable[[int, "int | None", str], None]
"""Called with (bytes done, bytes in all, a word for the work)."""


def path_text(value: object, what: str) -> str:
    """Return a path that a caller gave as text; ParamsError for what cannot be one."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise ParamsError(f"{what} is a str or a path, not {value!r}")
    if "\0" in text:
        raise ParamsError(f"{what} is {text!r}; no path holds a null character")
    return text


def encoder_path(model: str | os.PathLike[str], suffix: str = SUFFIX) -> str:
    """Return where whisper.cpp looks for the encoder of a model: its path with another ending."""
    folder, name = os.path.split(path_text(model, "the model's path"))
    return os.path.join(folder, (name.rpartition(".")[0] or name) + suffix)


def fingerprint(weights: WeightFile) -> str:
    """Return a number that tells networks apart, whatever the types of their weights: what a state checks."""
    return weights.fingerprint()


class _Graph:
    """The pieces of the network as OpenVINO operations."""

    def __init__(self, weights: WeightFile, storage: str, progress: Progress | None) -> None:
        self.ov = runtime()
        self.ops = self.ov.opset13
        self.weights, self.storage, self.progress = weights, storage, progress
        hp = weights.hparams
        self.n_state, self.n_head = hp.n_audio_state, hp.n_audio_head
        self.done = 0
        self.total = 12 * hp.n_audio_layer * hp.n_audio_state**2  # values in the matrices of the blocks

    def constant(self, values: Any, dtype: Any = np.float32) -> Any:
        return self.ops.constant(np.asarray(values, dtype))

    def numbers(self, *values: int) -> Any:
        return self.constant(values, np.int64)

    def plain(self, name: str, *shape: int) -> Any:
        """A tensor that is always stored as float32."""
        values = self.weights.read(name)
        return self.constant(values.reshape(shape) if shape else values)

    def weight(self, name: str) -> Any:
        """A matrix or convolution kernel in the chosen storage, as float32."""
        values = self.weights.read(name)
        if not np.isfinite(values).all():
            raise ModelFormatError(f"{self.weights.name}: {name} holds values that are not finite")
        self.done += values.size if values.ndim == 2 else 0
        if self.progress is not None:
            self.progress(2 * self.done, 2 * self.total, "convert")
        if self.storage == "f32":
            return self.constant(values)
        if self.storage == "f16":
            with np.errstate(over="ignore"):
                small = values.astype(np.float16)
            if not np.isfinite(small).all():
                raise ModelFormatError(f"{self.weights.name}: {name} has values too large for f16; take bf16 or f32")
            stored = self.constant(small, np.float16)
        else:
            tensor = self.ov.Tensor(self.ov.Type.bf16, self.ov.Shape(values.shape))
            tensor.data.view(np.uint16)[...] = _bf16(values)
            stored = self.ov.op.Constant(tensor)
        found = self.ops.convert(stored, "f32")
        found.get_rt_info()["decompression_0"] = ""  # OpenVINO keeps such constants small until they are used
        return found

    def convolution(self, x: Any, name: str, stride: int) -> Any:
        """x (1, n_in, n) -> (1, n_state, n / stride), with its GELU."""
        x = self.ops.convolution(x, self.weight(f"{name}.weight"), [stride], [1], [1], [1])
        return self.ops.gelu(self.ops.add(x, self.plain(f"{name}.bias", 1, self.n_state, 1)), "erf")

    def norm(self, x: Any, name: str) -> Any:
        x = self.ops.mvn(x, self.numbers(-1), True, LN_EPS, "inside_sqrt")
        return self.ops.add(self.ops.multiply(x, self.plain(f"{name}.weight")), self.plain(f"{name}.bias"))

    def linear(self, x: Any, name: str, bias: bool = True) -> Any:
        x = self.ops.matmul(x, self.weight(f"{name}.weight"), False, True)
        return self.ops.add(x, self.plain(f"{name}.bias")) if bias else x

    def positions(self, x: Any) -> Any:
        """x (1, n_ctx, n_state) with the positional embedding of its n_ctx positions added."""
        n = self.ops.gather(self.ops.shape_of(x), self.numbers(1), self.constant(0, np.int64))
        table = self.plain("encoder.positional_embedding")
        return self.ops.add(x, self.ops.slice(table, self.numbers(0), n, self.numbers(1), self.numbers(0)))

    def by_head(self, x: Any) -> Any:
        """x (1, n_ctx, n_state) -> (1, n_head, n_ctx, d)."""
        x = self.ops.reshape(x, self.numbers(0, 0, self.n_head, self.n_state // self.n_head), True)
        return self.ops.transpose(x, self.numbers(0, 2, 1, 3))

    def attention(self, x: Any, name: str) -> Any:
        q, k, v = (self.by_head(self.linear(x, f"{name}.{part}", part != "key")) for part in ("query", "key", "value"))
        y = self.ops.transpose(self.ops.scaled_dot_product_attention(q, k, v), self.numbers(0, 2, 1, 3))
        return self.linear(self.ops.reshape(y, self.numbers(0, 0, self.n_state), True), f"{name}.out")

    def block(self, x: Any, name: str) -> Any:
        x = self.ops.add(x, self.attention(self.norm(x, f"{name}.attn_ln"), f"{name}.attn"))
        y = self.ops.gelu(self.linear(self.norm(x, f"{name}.mlp_ln"), f"{name}.mlp.0"), "erf")
        return self.ops.add(x, self.linear(y, f"{name}.mlp.2"))


def _bf16(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Round float32 to the nearest bfloat16, ties to even; returns its bits."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def build(weights: WeightFile, storage: str = "f16", progress: Progress | None = None) -> Any:
    """Return the encoder of a model as an ``openvino.Model``: mel (1, n_mels, 2 * n_ctx) -> (1, n_ctx, n_state).

    Parameters
    ----------
    weights
        The model.
    storage : {"f16", "bf16", "f32"}
        Type of the matrices.
    progress : callable or None
        Called with (bytes done, bytes in all, "convert").

    Raises
    ------
    ParamsError
        `storage` is unknown.
    ModelFormatError
        A value is not finite or too large.
    BackendError
        OpenVINO is not installed.
    """
    if storage not in STORAGE:
        raise ParamsError(f"storage {storage!r} is unknown (expected one of {', '.join(STORAGE)})")
    hp = weights.hparams
    g = _Graph(weights, storage, progress)
    mel = g.ops.parameter([1, hp.n_mels, 2 * hp.n_audio_ctx], np.float32, name="mel")
    x = g.convolution(g.convolution(mel, "encoder.conv1", 1), "encoder.conv2", 2)
    x = g.positions(g.ops.transpose(x, g.numbers(0, 2, 1)))
    for i in range(hp.n_audio_layer):
        x = g.block(x, f"encoder.blocks.{i}")
    x = g.norm(x, "encoder.ln_post")
    mel.output(0).set_names({"mel"})
    x.output(0).set_names({"output_features"})
    model = g.ov.Model([x], [mel], "whisper_encoder")
    model.set_rt_info(storage, ["whispyx", "storage"])
    model.set_rt_info(fingerprint(weights), ["whispyx", "weights"])
    return model


def write(
    model: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    storage: str = "f16",
    progress: Progress | None = None,
) -> Path:
    """Write the encoder of a model as OpenVINO files: ``NAME.xml`` and, beside it, ``NAME.bin``.

    Parameters
    ----------
    model : path
        A model in any format: a file, or a folder.
    out : path or None
        The ``.xml`` file, or a folder for it. None: beside the model, where whisper.cpp and whispyx look for it.
    storage, progress
        As for `build`.

    Returns
    -------
    Path
        The ``.xml`` file.

    Raises
    ------
    ParamsError
        `storage` is unknown, or `out` does not end in ``.xml``.
    ModelError
        The model cannot be read, or the files cannot be written.
    BackendError
        OpenVINO is not installed.
    """
    path = Path(encoder_path(model))
    if out is not None:
        out = path_text(out, "out")
        path = Path(out) / path.name if os.path.isdir(out) else Path(out)
    if path.suffix != ".xml":
        raise ParamsError(f"{path} must end in .xml; the weights go into a .bin file beside it")
    ov = runtime()
    with WeightFile(open_model(model)) as weights:
        graph = build(weights, storage, progress)
    # Both files get their names when they are complete. Between the two the .xml is missing, never the .bin.
    part = path.with_name(f".whispyx-{secrets.token_hex(8)}.xml")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        ov.serialize(graph, str(part), str(part.with_suffix(".bin")))
        path.unlink(missing_ok=True)
        part.with_suffix(".bin").replace(path.with_suffix(".bin"))
        part.replace(path)
    except (OSError, RuntimeError) as error:
        raise ModelError(f"{path} could not be written: {error}") from error
    finally:
        for left in (part, part.with_suffix(".bin")):
            left.unlink(missing_ok=True)
    logger.info("wrote %s (%s)", path, storage)
    return path
