"""OpenAI's checkpoints (`tiny.en.pt`): a dict of sizes and a dict of tensors, saved with `torch.save`."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from whispyx.errors import ModelFormatError
from whispyx.models.convert.layout import all_tensors

from .documents import shown
from .known_tokens import known_tokens
from .manifest import GGML_TYPES, Blob, Manifest, Settings, Tensor, Vocabulary
from .pickles import SavedTensor, described
from .rules import check_settings
from .torch_zip import TorchFile

__all__ = ["read_checkpoint", "sinusoids"]

_DIMS: Final = tuple(field.name for field in fields(Settings))
_MAX_SIZE: Final = 1 << 24
_MAX_TABLE_BYTES: Final = 64 << 20  # 8 times the table of the largest Whisper
_POSITIONS: Final = "encoder.positional_embedding"


def sinusoids(n_ctx: int, n_state: int) -> npt.NDArray[np.float32]:
    """Make the encoder's table of positions, which is the same for every Whisper of these sizes.

    Parameters
    ----------
    n_ctx : int
        Positions.
    n_state : int
        Width, even and at least 4.

    Returns
    -------
    numpy.ndarray
        float32, shape (n_ctx, n_state): sines of each position, then cosines, of wavelengths from 2π to 20000π.

    Notes
    -----
    Vaswani et al., "Attention is all you need" (2017), with sines and cosines side by side, not interleaved. The tables
    of published models, which are f16, agree with exact values; float32 angles would be wrong by 3e-4 at the end.
    """
    half = n_state // 2
    rates = np.exp(-np.log(10000.0) / (half - 1) * np.arange(half))
    angles = np.arange(n_ctx)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def _settings(blob: Blob, content: dict[object, object]) -> Settings:
    dims = content.get("dims")
    if not isinstance(dims, dict):
        raise ModelFormatError(f"{blob.name}: 'dims' should be a dict of sizes, not {described(dims)}")
    missing = [name for name in _DIMS if name not in dims]
    extra = [name for name in dims if name not in _DIMS]
    if missing or extra:
        raise ModelFormatError(f"{blob.name}: sizes are missing in 'dims' {shown(missing)} or unknown {shown(extra)}")
    for name in _DIMS:
        if type(dims[name]) is not int or not 0 < dims[name] <= _MAX_SIZE:
            raise ModelFormatError(
                f"{blob.name}: dims[{name!r}] is {described(dims[name])}; a number from 1 to {_MAX_SIZE} is expected"
            )
    settings = Settings(**{name: dims[name] for name in _DIMS})
    check_settings(settings, blob.name)
    if settings.n_audio_state != settings.n_text_state:
        raise ModelFormatError(
            f"{blob.name}: encoder and decoder differ in width ({settings.n_audio_state} and {settings.n_text_state})"
        )
    return settings


def _tensors(file: TorchFile, state: dict[object, object], settings: Settings) -> dict[str, Tensor]:
    """Place every tensor but the encoder's positions, which may be missing."""
    tensors: dict[str, Tensor] = {}
    missing = []
    for plan in all_tensors(settings):
        name = plan.name
        saved = state.get(name)
        if saved is None:
            if name != _POSITIONS:
                missing.append(name)
            if len(missing) > len(state):  # these are other sizes than those of the tensors: do not list a million
                break
            continue
        if not isinstance(saved, SavedTensor):
            raise ModelFormatError(f"{file.blob.name}: {name!r} should be a tensor, not {described(saved)}")
        # ggml's bias of a convolution is a column, to be added to (n_state, n_ctx).
        shape = plan.shape[:1] if name.endswith((".conv1.bias", ".conv2.bias")) else plan.shape
        if saved.shape != shape:
            raise ModelFormatError(
                f"{file.blob.name}: tensor {name!r} should have the shape {shape}, but has {saved.shape}"
            )
        tensors[name] = replace(file.tensor(name, saved), shape=plan.shape)
    # Masks follow from the sizes; they are constants that some versions saved.
    extra = [name for name in state if name not in tensors and not str(name).endswith("mask")]
    if missing or extra:
        raise ModelFormatError(
            f"{file.blob.name}: tensors are missing {shown(missing)} or are not Whisper's {shown(extra)}"
        )
    return tensors


def _refuse_overlaps(blob: Blob, tensors: dict[str, Tensor]) -> None:
    """Tensors share storages, but not values: else a small file could stand for a model of any size."""
    end, previous = 0, ""
    for tensor in sorted(tensors.values(), key=lambda tensor: tensor.offset):
        if tensor.offset < end:
            raise ModelFormatError(f"{blob.name}: the tensors {previous!r} and {tensor.name!r} share values")
        end, previous = tensor.offset + tensor.n_bytes, tensor.name


def _add_positions(blobs: list[Blob], tensors: dict[str, Tensor], settings: Settings) -> None:
    shape = (settings.n_audio_ctx, settings.n_audio_state)
    n_bytes = 4 * shape[0] * shape[1]
    if shape[1] < 4 or shape[1] % 2 or n_bytes > _MAX_TABLE_BYTES:
        raise ModelFormatError(f"{blobs[0].name}: {_POSITIONS!r} is missing, and no table of shape {shape} can be made")
    table = Blob(sinusoids(*shape).astype("<f4").tobytes(), f"{_POSITIONS} of {blobs[0].name}")
    tensors[_POSITIONS] = Tensor(_POSITIONS, shape, GGML_TYPES["f32"], len(blobs), 0, n_bytes)
    blobs.append(table)


def read_checkpoint(blob: Blob) -> Manifest:
    """Read the headers of an OpenAI checkpoint. Nothing that it holds is run.

    Parameters
    ----------
    blob : Blob
        A file of `torch.save` with {"dims": …, "model_state_dict": …}; other keys are ignored. Tensors are f16, bf16
        or f32.

    Returns
    -------
    Manifest
        Its first blob is `blob`. A checkpoint holds no vocabulary: the tokens are those of all published models of this
        n_vocab. Where the encoder's table of positions is missing, it is computed, and a second blob in memory.

    Raises
    ------
    ModelFormatError
        The file is another kind, damaged, or names anything beside tensors and dicts; sizes are missing or disagree
        with the tensors; a tensor is missing, extra, misshapen, of another type, or shares values with another; the
        vocabulary is not one of Whisper's.
    """
    file = TorchFile.read(blob)
    content = file.content
    if not isinstance(content, dict) or not isinstance(content.get("model_state_dict"), dict) or "dims" not in content:
        raise ModelFormatError(f"{blob.name}: {_other_content(content)}")
    settings = _settings(blob, content)
    tokens = known_tokens(settings.n_vocab)
    if tokens is None:
        raise ModelFormatError(
            f"{blob.name}: a checkpoint holds no vocabulary, and that of {settings.n_vocab} tokens is not known "
            "(expected 51864, 51865 or 51866)"
        )
    tensors = _tensors(file, content["model_state_dict"], settings)
    _refuse_overlaps(blob, tensors)
    blobs = [blob]
    if _POSITIONS not in tensors:
        _add_positions(blobs, tensors, settings)
    return Manifest("openai", blobs, settings, Vocabulary(tokens), tensors)


def _other_content(content: object) -> str:
    expected = "an OpenAI checkpoint has 'dims' and 'model_state_dict'"
    if not isinstance(content, dict):
        return f"it holds a {type(content).__name__}; {expected}"
    keys = shown(list(itertools.islice(content, 9)))
    if content and all(isinstance(value, SavedTensor) for value in content.values()):
        return (
            f"it holds tensors without the model's sizes, {keys}; {expected}. If config.json lies beside it, it is a "
            "part of a Hugging Face model: save that with safetensors, and name the folder"
        )
    return f"it holds {keys}; {expected}"
