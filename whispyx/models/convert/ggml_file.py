"""Writer of legacy ggml model files. Everything is little endian and packed."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from whispyx._files import WholeFile
from whispyx._weight_types import FILE_TYPES, GGML_TYPES
from whispyx.errors import ModelFormatError

__all__ = ["DTYPES", "Dtype", "tensor_bytes", "write_header", "write_tensor"]

Dtype = Literal["f32", "f16", "bf16"]
DTYPES: Final[tuple[Dtype, ...]] = ("f16", "f32", "bf16")

_MAGIC: Final = 0x67676D6C
_ITEM_SIZE: Final[dict[Dtype, int]] = {"f32": 4, "f16": 2, "bf16": 2}


def write_header(
    out: WholeFile,
    settings: Sequence[int],
    dtype: Dtype,
    filters: npt.NDArray[np.float32],
    tokens: Sequence[bytes],
) -> None:
    """Write magic, settings (10 numbers), file type, filters and vocabulary."""
    out.write(struct.pack(f"<I{len(settings)}ii", _MAGIC, *settings, FILE_TYPES[dtype]))
    out.write(struct.pack("<2i", *filters.shape))
    out.write(np.ascontiguousarray(filters, "<f4").tobytes())
    out.write(struct.pack("<i", len(tokens)))
    out.write(b"".join(struct.pack("<I", len(token)) + token for token in tokens))


def _to_bf16(values: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
    """Round finite float32 values to the nearest bfloat16, ties to even."""
    bits = values.view(np.uint32)
    rounded: npt.NDArray[Any] = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype("<u2")
    return rounded


def _encode(name: str, values: npt.NDArray[Any], dtype: Dtype) -> npt.NDArray[Any]:
    if dtype == "bf16":
        return _to_bf16(np.ascontiguousarray(values, np.float32))
    if dtype == "f32":
        return values.astype("<f4", copy=False)
    with np.errstate(over="ignore"):
        encoded = values.astype("<f2", copy=False)
    if not np.all(np.isfinite(encoded)):
        raise ModelFormatError(f"{name!r} holds values that float16 cannot; convert to bf16 or f32 instead")
    return encoded


def write_tensor(
    out: WholeFile, name: str, shape: Sequence[int], dtype: Dtype, blocks: Iterable[npt.NDArray[Any]]
) -> int:
    """Write one tensor record.

    Parameters
    ----------
    out : WholeFile
    name : str
    shape : sequence of int
        Slowest axis first; the file has the reverse order.
    dtype : str
        Type to store.
    blocks : iterable of numpy.ndarray
        float32 or float16 values, flat, in order.

    Returns
    -------
    int
        Bytes of data written.
    """
    raw = name.encode("utf-8")
    out.write(struct.pack(f"<3i{len(shape)}i", len(shape), len(raw), GGML_TYPES[dtype], *reversed(shape)))
    out.write(raw)
    done = 0
    for block in blocks:
        encoded = _encode(name, block, dtype)
        out.write(encoded.data)
        done += encoded.nbytes
    expected = tensor_bytes(shape, dtype)
    if done != expected:
        raise ModelFormatError(f"{name!r} got {done} bytes of data; its shape {tuple(shape)} needs {expected}")
    return done


def tensor_bytes(shape: Sequence[int], dtype: Dtype) -> int:
    """Return the bytes of data of a tensor."""
    return math.prod(shape) * _ITEM_SIZE[dtype]
