"""Packed matrices times activations, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.library import TYPES, each_library, rounded_bf16

# Sizes: one of everything, odd ones, whole and broken panels and tiles, a layer of base.
SHAPES = [
    (1, 1, 1),
    (1, 3, 5),
    (2, 63, 7),
    (5, 64, 33),
    (6, 65, 64),
    (7, 130, 98),
    (13, 200, 257),
    (97, 96, 512),
    (150, 512, 80),
]
# f32 sums of K products of size <= 1 drift by about sqrt(K) ulp of the sum.
F32_ERROR = 4e-6
# int8: steps of weights and activations are 1/127 of the largest; what is left is compared with the rounded numbers.
I8_ERROR = 1e-5


def quantised(x: np.ndarray) -> np.ndarray:
    """Return rows as the int8 kernels see them: whole multiples of largest / 127."""
    scale = np.abs(x).max(axis=1, keepdims=True).astype(np.float32) / np.float32(127)
    inverse = np.float32(127) / np.maximum(np.abs(x).max(axis=1, keepdims=True).astype(np.float32), np.float32(1e-30))
    return np.rint(x * inverse).astype(np.float64) * scale.astype(np.float64)


def data(n: int, n_out: int, n_in: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(n * 7919 + n_out * 31 + n_in)
    draw = lambda *shape: random.uniform(-1, 1, shape).astype(np.float32)  # noqa: E731
    return draw(n, n_in), draw(n_out, n_in), draw(n_out)


def expected(library, kind: str, x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
    if kind == "i8":
        x, w = quantised(x), quantised(w)
    elif kind == "bf16":
        w = rounded_bf16(w)
        x = rounded_bf16(x) if library.name == "avx512-bf16" else x
    return x.astype(np.float64) @ w.astype(np.float64).T + bias


@each_library
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s)))
def test_products_are_those_of_the_rounded_numbers(library, kind, shape) -> None:
    x, w, bias = data(*shape)
    found = library.pack(w, TYPES[kind]).times(x, bias)
    size = np.sqrt(shape[2]) + 1
    error = np.abs(found - expected(library, kind, x, w, bias)).max() / size
    assert error < (I8_ERROR if kind == "i8" else F32_ERROR), error
