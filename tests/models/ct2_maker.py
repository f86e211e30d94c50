"""Writes CTranslate2 Whisper folders of tiny size with random weights."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

WIDTH, HEADS, N_AUDIO_CTX, N_TEXT_CTX = 8, 2, 12, 6
TYPE_IDS = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4, "bfloat16": 5}

Array = npt.NDArray[Any]


@dataclass
class Ct2Model:
    """What goes into `model.bin`. `bfloat16` names the uint16 arrays that hold such values."""

    arrays: dict[str, Array] = field(default_factory=dict)
    bfloat16: set[str] = field(default_factory=set)
    aliases: dict[str, str] = field(default_factory=dict)
    version: int = 6
    spec: str = "WhisperSpec"

    def encoded(self) -> bytes:
        """The bytes of the file."""
        parts = [struct.pack("<I", self.version), text(self.spec), struct.pack("<II", 3, len(self.arrays))]
        for name, array in self.arrays.items():
            type_id = TYPE_IDS["bfloat16" if name in self.bfloat16 else array.dtype.name]
            header = struct.pack(f"<B{array.ndim}IBI", array.ndim, *array.shape, type_id, array.nbytes)
            parts += [text(name), header, array.tobytes()]
        parts.append(struct.pack("<I", len(self.aliases)))
        parts += [text(alias) + text(name) for alias, name in self.aliases.items()]
        return b"".join(parts)


def text(value: str) -> bytes:
    raw = value.encode() + b"\0"
    return struct.pack("<H", len(raw)) + raw


def random_model(
    *, n_vocab: int = 51864, n_mels: int = 80, n_audio_layer: int = 2, n_text_layer: int = 1, dtype: str = "float16"
) -> Ct2Model:
    """A model with every variable that Whisper has."""
    rng = np.random.default_rng(7)
    arrays: dict[str, Array] = {}

    def put(name: str, *shape: int) -> None:
        arrays[name] = rng.standard_normal(shape, np.float32).astype(dtype)

    def linear(name: str, rows: int, columns: int) -> None:
        put(f"{name}/weight", rows, columns)
        put(f"{name}/bias", rows)

    def norm(name: str) -> None:
        put(f"{name}/gamma", WIDTH)
        put(f"{name}/beta", WIDTH)

    for side, n_layer in (("encoder", n_audio_layer), ("decoder", n_text_layer)):
        put(f"{side}/position_encodings/encodings", N_AUDIO_CTX if side == "encoder" else N_TEXT_CTX, WIDTH)
        norm(f"{side}/layer_norm")
        arrays[f"{side}/num_heads"] = np.array(HEADS, np.int16)
        for index in range(n_layer):
            layer = f"{side}/layer_{index}"
            norm(f"{layer}/self_attention/layer_norm")
            linear(f"{layer}/self_attention/linear_0", 3 * WIDTH, WIDTH)
            linear(f"{layer}/self_attention/linear_1", WIDTH, WIDTH)
            if side == "decoder":
                norm(f"{layer}/attention/layer_norm")
                linear(f"{layer}/attention/linear_0", WIDTH, WIDTH)
                linear(f"{layer}/attention/linear_1", 2 * WIDTH, WIDTH)
                linear(f"{layer}/attention/linear_2", WIDTH, WIDTH)
            norm(f"{layer}/ffn/layer_norm")
            linear(f"{layer}/ffn/linear_0", 4 * WIDTH, WIDTH)
            linear(f"{layer}/ffn/linear_1", WIDTH, 4 * WIDTH)
    put("encoder/conv1/weight", WIDTH, n_mels, 3)
    put("encoder/conv1/bias", WIDTH)
    put("encoder/conv2/weight", WIDTH, WIDTH, 3)
    put("encoder/conv2/bias", WIDTH)
    put("decoder/embeddings/weight", n_vocab, WIDTH)
    arrays["decoder/activation"] = np.array(3, np.int8)
    arrays["decoder/pre_norm"] = np.array(1, np.int8)
    return Ct2Model(arrays, aliases={"decoder/projection/weight": "decoder/embeddings/weight"})


def vocabulary(n_tokens: int) -> list[str]:
    """Distinct tokens in GPT-2's byte alphabet: digits, with a leading space (Ġ) before every other one."""
    return [f"{'Ġ' * (number % 2)}{number}" for number in range(n_tokens)]


def write_folder(folder: Path, model: Ct2Model, tokens: Mapping[str, Any] | None = None) -> Path:
    """Write `model.bin` and, unless `tokens` gives other files by name, a `tokenizer.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.bin").write_bytes(model.encoded())
    if tokens is None:
        n_tokens = 50256 if len(model.arrays.get("decoder/embeddings/weight", ())) == 51864 else 50257
        tokens = {"tokenizer.json": {"model": {"vocab": {text: i for i, text in enumerate(vocabulary(n_tokens))}}}}
    for name, content in tokens.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return folder
