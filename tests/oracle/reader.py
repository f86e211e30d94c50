"""Reads a legacy ggml Whisper file: eleven settings, mel filters, vocabulary, tensor records."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .quants import BY_TENSOR_TYPE, decode

MAGIC = 0x67676D6C
SETTINGS = (
    "n_vocab",
    "n_audio_ctx",
    "n_audio_state",
    "n_audio_head",
    "n_audio_layer",
    "n_text_ctx",
    "n_text_state",
    "n_text_head",
    "n_text_layer",
    "n_mels",
    "ftype",
)


@dataclass(frozen=True)
class ModelFile:
    """A model in memory: settings by name, filters `(n_mels, 201)`, stored tokens, tensors as float32."""

    settings: dict[str, int]
    filters: npt.NDArray[np.float32]
    tokens: list[bytes]
    tensors: dict[str, npt.NDArray[np.float32]]
    types: dict[str, str]

    def __getitem__(self, name: str) -> npt.NDArray[np.float32]:
        return self.tensors[name]


def read_model(path: str | Path, with_tensors: bool = True) -> ModelFile:
    """Read the file at `path`. Tensors come back in the usual order, slowest axis first: a matrix is (out, in)."""
    data = Path(path).read_bytes()
    magic, *values = struct.unpack_from("<I11i", data, 0)
    if magic != MAGIC:
        raise ValueError(f"{path}: not a legacy ggml file (magic {magic:#x})")
    at = 48
    n_mel, n_fft = struct.unpack_from("<2i", data, at)
    at += 8
    filters = np.frombuffer(data, "<f4", n_mel * n_fft, at).reshape(n_mel, n_fft)
    at += filters.nbytes
    (n_tokens,) = struct.unpack_from("<i", data, at)
    at += 4
    tokens = []
    for _ in range(n_tokens):
        (length,) = struct.unpack_from("<I", data, at)
        tokens.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    tensors, types = {}, {}
    while with_tensors and at < len(data):
        n_dims, name_length, tensor_type = struct.unpack_from("<3i", data, at)
        dims = struct.unpack_from(f"<{n_dims}i", data, at + 12)
        at += 12 + 4 * n_dims
        name = data[at : at + name_length].decode()
        at += name_length
        encoding = BY_TENSOR_TYPE[tensor_type]
        n_bytes = int(np.prod(dims)) // encoding.block * encoding.block_bytes
        tensors[name] = decode(encoding, data[at : at + n_bytes]).reshape(dims[::-1])
        types[name] = encoding.name
        at += n_bytes
    return ModelFile(dict(zip(SETTINGS, values, strict=True)), filters, tokens, tensors, types)
