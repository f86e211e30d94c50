"""ggml tensor encodings in NumPy: bytes to float32 for every type we test, and float32 to bytes for the simple ones.

A quantised row is cut into blocks of 32 (or 256, the K types) weights. Each decoder below takes an array of raw
blocks `(n_blocks, bytes_per_block)` and returns the weights `(n_blocks, weights_per_block)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def _half(blocks: Bytes, at: int) -> Floats:
    """Read one float16 per block at byte `at`; the result is `(n_blocks, 1)` so that it spreads over the weights."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Bytes) -> Floats:
    """Unpack 4-bit values: the low halves of all bytes come first, then the high halves."""
    return np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.float32)


def _fifth_bits(blocks: Bytes, at: int) -> Floats:
    """Unpack 32 bits, least significant first, as 0 or 16."""
    return np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little").astype(np.float32) * 16


def _q4_0(b: Bytes) -> Floats:
    return _half(b, 0) * (_nibbles(b[:, 2:]) - 8)


def _q4_1(b: Bytes) -> Floats:
    return _half(b, 0) * _nibbles(b[:, 4:]) + _half(b, 2)


def _q5_0(b: Bytes) -> Floats:
    return _half(b, 0) * (_nibbles(b[:, 6:]) + _fifth_bits(b, 2) - 16)


def _q5_1(b: Bytes) -> Floats:
    return _half(b, 0) * (_nibbles(b[:, 8:]) + _fifth_bits(b, 4)) + _half(b, 2)


def _q8_0(b: Bytes) -> Floats:
    return _half(b, 0) * np.ascontiguousarray(b[:, 2:]).view(np.int8).astype(np.float32)


def _two_bit_planes(packed: Bytes) -> Bytes:
    """Unpack 64 bytes to 256 two-bit values: two runs of 32 bytes, each read four times with a growing shift."""
    runs = packed.reshape(-1, 2, 1, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    return ((runs >> shifts) & 3).astype(np.uint8).reshape(len(packed), 256)


def _q2_k(b: Bytes) -> Floats:
    scales, levels = b[:, :16], _two_bit_planes(b[:, 16:80]).reshape(-1, 16, 16).astype(np.float32)
    d, dmin = _half(b, 80)[..., None], _half(b, 82)[..., None]
    slope = (scales & 15).astype(np.float32)[..., None]
    floor = (scales >> 4).astype(np.float32)[..., None]
    return (d * slope * levels - dmin * floor).reshape(-1, 256)


def _q3_k(b: Bytes) -> Floats:
    high = b[:, None, :32] >> np.arange(8, dtype=np.uint8)[None, :, None] & 1  # bit plane k belongs to weights 32k...
    levels = _two_bit_planes(b[:, 32:96]).astype(np.float32) + 4 * high.reshape(-1, 256) - 4
    packed = b[:, 96:108]
    low = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1)
    top = (packed[:, None, 8:12] >> np.array([0, 2, 4, 6], np.uint8)[None, :, None] & 3).reshape(-1, 16)
    scales = (low | top << 4).astype(np.float32) - 32
    return (_half(b, 108)[..., None] * scales[..., None] * levels.reshape(-1, 16, 16)).reshape(-1, 256)


def _six_bit_pairs(packed: Bytes) -> tuple[Floats, Floats]:
    """Unpack the 12 bytes that hold eight 6-bit scales and eight 6-bit minimums (q4_K and q5_K)."""
    first, second, last = packed[:, :4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, (last & 15) | (first >> 6) << 4], axis=1)
    floors = np.concatenate([second & 63, (last >> 4) | (second >> 6) << 4], axis=1)
    return scales.astype(np.float32)[..., None], floors.astype(np.float32)[..., None]


def _nibble_runs(packed: Bytes) -> Floats:
    """Unpack 128 bytes to 8 groups of 32: each run of 32 bytes gives its low halves, then its high halves."""
    runs = packed.reshape(-1, 4, 32)
    return np.stack([runs & 15, runs >> 4], axis=2).reshape(-1, 8, 32).astype(np.float32)


def _q4_k(b: Bytes) -> Floats:
    scales, floors = _six_bit_pairs(b[:, 4:16])
    d, dmin = _half(b, 0)[..., None], _half(b, 2)[..., None]
    return (d * scales * _nibble_runs(b[:, 16:]) - dmin * floors).reshape(-1, 256)


def _q5_k(b: Bytes) -> Floats:
    scales, floors = _six_bit_pairs(b[:, 4:16])
    d, dmin = _half(b, 0)[..., None], _half(b, 2)[..., None]
    fifth = b[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[None, :, None] & 1
    return (d * scales * (_nibble_runs(b[:, 48:]) + 16 * fifth) - dmin * floors).reshape(-1, 256)


def _q6_k(b: Bytes) -> Floats:
    halves_low, halves_high = b[:, :128].reshape(-1, 2, 2, 32), b[:, 128:192].reshape(-1, 2, 1, 32)
    low = np.concatenate([halves_low & 15, halves_low >> 4], axis=2)
    high = halves_high >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1) & 3
    levels = (low | high << 4).astype(np.float32).reshape(-1, 16, 16) - 32
    scales = np.ascontiguousarray(b[:, 192:208]).view(np.int8).astype(np.float32)[..., None]
    return (_half(b, 208)[..., None] * scales * levels).reshape(-1, 256)


@dataclass(frozen=True)
class Encoding:
    """How ggml stores a tensor: its number in a tensor record, the file type number of a model made of it, blocks."""

    name: str
    tensor_type: int
    file_type: int
    block: int
    block_bytes: int
    decode: Callable[[Bytes], Floats]
    half_fields: tuple[int, ...] = ()  # byte offsets of float16 scale fields, for the random blocks of the writer


def _f32(b: Bytes) -> Floats:
    return np.ascontiguousarray(b).view("<f4").astype(np.float32)


def _f16(b: Bytes) -> Floats:
    return np.ascontiguousarray(b).view("<f2").astype(np.float32)


def _bf16(b: Bytes) -> Floats:
    return (np.ascontiguousarray(b).view("<u2").astype(np.uint32) << 16).view(np.float32)


ENCODINGS: dict[str, Encoding] = {
    e.name: e
    for e in (
        Encoding("f32", 0, 0, 1, 4, _f32),
        Encoding("f16", 1, 1, 1, 2, _f16),
        Encoding("bf16", 30, 24, 1, 2, _bf16),
        Encoding("q4_0", 2, 2, 32, 18, _q4_0, (0,)),
        Encoding("q4_1", 3, 3, 32, 20, _q4_1, (0, 2)),
        Encoding("q5_0", 6, 8, 32, 22, _q5_0, (0,)),
        Encoding("q5_1", 7, 9, 32, 24, _q5_1, (0, 2)),
        Encoding("q8_0", 8, 7, 32, 34, _q8_0, (0,)),
        Encoding("q2_k", 10, 10, 256, 84, _q2_k, (80, 82)),
        Encoding("q3_k", 11, 11, 256, 110, _q3_k, (108,)),
        Encoding("q4_k", 12, 12, 256, 144, _q4_k, (0, 2)),
        Encoding("q5_k", 13, 13, 256, 176, _q5_k, (0, 2)),
        Encoding("q6_k", 14, 14, 256, 210, _q6_k, (208,)),
    )
}
BY_TENSOR_TYPE = {e.tensor_type: e for e in ENCODINGS.values()}


def decode(encoding: Encoding, data: bytes) -> Floats:
    """Turn the bytes of a whole tensor into a flat float32 array."""
    blocks = np.frombuffer(data, np.uint8).reshape(-1, encoding.block_bytes)
    return encoding.decode(blocks).reshape(-1)


def encode(name: str, weights: npt.NDArray[Any]) -> bytes:
    """Turn weights into the bytes of encoding `name` (not the K types, see `random_blocks`)."""
    w = np.ascontiguousarray(weights, np.float32).reshape(-1)
    if name == "f32":
        return w.astype("<f4").tobytes()
    if name == "f16":
        return w.astype("<f2").tobytes()
    if name == "bf16":
        bits = w.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()  # round to nearest, ties to even
    rows = w.reshape(-1, 32)
    levels = {"q4_0": 16, "q4_1": 16, "q5_0": 32, "q5_1": 32, "q8_0": 256}[name]
    if name in ("q4_1", "q5_1"):
        floor = rows.min(axis=1, keepdims=True).astype("<f2")
        step = ((rows.max(axis=1, keepdims=True) - floor.astype(np.float32)) / (levels - 1)).astype("<f2")
        shift, head = floor.astype(np.float32), np.concatenate([step.view(np.uint8), floor.view(np.uint8)], axis=1)
    else:
        step = (np.abs(rows).max(axis=1, keepdims=True) / (levels / 2 - 1)).astype("<f2")
        shift, head = -step.astype(np.float32) * (levels // 2), step.view(np.uint8)
    scale = step.astype(np.float32)
    q = np.clip(np.rint((rows - shift) / np.where(scale > 0, scale, 1)), 0, levels - 1).astype(np.uint8)
    if name == "q8_0":
        return np.concatenate([head, (q.astype(np.int16) - 128).astype(np.int8).view(np.uint8)], axis=1).tobytes()
    packed = (q[:, :16] & 15) | (q[:, 16:] & 15) << 4
    if levels == 32:
        head = np.concatenate([head, np.packbits(q >> 4, axis=1, bitorder="little")], axis=1)
    return np.concatenate([head, packed], axis=1).tobytes()


def random_blocks(name: str, n_weights: int, std: float, rng: np.random.Generator) -> bytes:
    """Make blocks of any encoding out of random bits, scaled so that the weights spread by about `std`.

    The scale fields of all blocks get one value; which weights come out is whatever `decode` says of the bits.
    """
    e = ENCODINGS[name]
    blocks = rng.integers(0, 256, (n_weights // e.block, e.block_bytes), np.uint8)
    for at in e.half_fields:
        blocks[:, at : at + 2] = np.array([1.0], "<f2").view(np.uint8)
    scale = np.array([std / float(e.decode(blocks[:64]).std())], "<f2")
    for at in e.half_fields:
        blocks[:, at : at + 2] = scale.view(np.uint8)
    return blocks.tobytes()
