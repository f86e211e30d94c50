"""Packed matrices times activations, against float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.kernels.sets import (
    BF16,
    F16,
    F32,
    G8,
    I8,
    KINDS,
    N4,
    Q8,
    each_library,
    from_bf16,
    rounded_bf16,
    to_bf16,
)

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
GROUP = 64  # inputs that share a scale in G8 (WX_G8_INPUTS)
# f32 sums of K products of size <= 1 drift by about sqrt(K) ulp of the sum.
F32_ERROR = 4e-6
# int8: what is left when the rounded numbers are compared.
I8_ERROR = 1e-5


def quantised(w: np.ndarray) -> np.ndarray:
    """Return weights as the int8 kernels see them: whole multiples of largest / 127."""
    largest = np.abs(w).max(axis=1, keepdims=True)
    inverse = np.float32(127) / np.maximum(largest, np.float32(1e-30))
    return np.rint(w * inverse) * (largest / np.float32(127)).astype(np.float64)


def in_steps(x: np.ndarray) -> np.ndarray:
    """Return activations as the int8 kernels see them: 255 steps from the least to the largest, 0 being one of them."""
    least, most = np.minimum(x.min(axis=1, keepdims=True), 0), np.maximum(x.max(axis=1, keepdims=True), 0)
    inverse = np.float32(255) / np.maximum(most - least, np.float32(1e-30))
    zero = np.rint(-least * inverse)
    whole = np.clip(np.rint(x * inverse) + zero, 0, 255) - zero
    return whole * ((most - least) / np.float32(255)).astype(np.float64)


def in_groups(x: np.ndarray, rounded: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return rows as G8 products see them: every GROUP inputs are rounded by themselves."""
    groups = np.pad(x, ((0, 0), (0, -x.shape[1] % GROUP))).reshape(-1, GROUP)
    return rounded(groups).reshape(len(x), -1)[:, : x.shape[1]]


def in_blocks(w: np.ndarray) -> np.ndarray:
    """Return weights as a Q8 matrix holds them: multiples of largest / 127 of each 32 inputs, as f16, rounded up."""
    n_out, n_in = w.shape
    blocks = np.pad(w, ((0, 0), (0, -n_in % 32))).reshape(n_out, -1, 32)
    exact = np.abs(blocks).max(axis=2, keepdims=True) / np.float32(127)
    scale = exact.astype(np.float16)
    scale = np.where(scale < exact, np.nextafter(scale, np.float16(np.inf)), scale).astype(np.float32)
    inverse = np.float32(1) / np.where(scale > 0, scale, np.float32(np.inf))
    whole = np.clip(np.rint(blocks * inverse), -127, 127)
    return (whole * scale.astype(np.float64)).reshape(n_out, -1)[:, :n_in]


def in_16_bits(x: np.ndarray) -> np.ndarray:
    """Return rows as Q8 products see them: whole multiples of largest / 32639."""
    largest = np.maximum(np.abs(x).max(axis=1, keepdims=True), np.float32(1e-30))
    return np.rint(x * (np.float32(32639) / largest)) * (largest / np.float32(32639)).astype(np.float64)


def in_nibbles(w: np.ndarray) -> np.ndarray:
    """Return weights as an N4 matrix holds them: the one of 32 inputs furthest from 0 is -8 steps of an f16 scale."""
    n_out, n_in = w.shape
    blocks = np.pad(w, ((0, 0), (0, -n_in % 32))).reshape(n_out, -1, 32)
    low, high = blocks.min(axis=2, keepdims=True), blocks.max(axis=2, keepdims=True)
    scale = (np.where(-low > high, low, high) / np.float32(-8)).astype(np.float16).astype(np.float32)
    inverse = np.float32(1) / np.where(scale != 0, scale, np.float32(np.inf))
    whole = np.clip(np.rint(blocks * inverse), -8, 7)
    return (whole * scale.astype(np.float64)).reshape(n_out, -1)[:, :n_in]


def in_signed_groups(x: np.ndarray) -> np.ndarray:
    """Return rows as N4 products see them: every GROUP inputs are whole multiples of their largest / 127."""

    def rounded(groups: np.ndarray) -> np.ndarray:
        largest = np.maximum(np.abs(groups).max(axis=1, keepdims=True), np.float32(1e-30))
        return np.rint(groups * (np.float32(127) / largest)) * (largest / np.float32(127)).astype(np.float64)

    return in_groups(x, rounded)


def data(n: int, n_out: int, n_in: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(n * 7919 + n_out * 31 + n_in)
    draw = lambda *shape: random.uniform(-1, 1, shape).astype(np.float32)  # noqa: E731
    return draw(n, n_in), draw(n_out, n_in), draw(n_out)


def expected(library, kind: str, x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
    if kind == "i8":
        x, w = in_steps(x), quantised(w)
    elif kind == "g8":
        x, w = in_groups(x, in_steps), in_groups(w, quantised)
    elif kind == "q8":
        x, w = in_16_bits(x), in_blocks(w)
    elif kind == "n4":
        x, w = in_signed_groups(x), in_nibbles(w)
    elif kind == "bf16":
        w = rounded_bf16(w)
        x = rounded_bf16(x) if library.name == "avx512-bf16" else x
    return x.astype(np.float64) @ w.astype(np.float64).T + bias


@each_library
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s)))
def test_products_are_those_of_the_rounded_numbers(library, kind, shape) -> None:
    x, w, bias = data(*shape)
    found = library.pack(w, KINDS[kind]).times(x, bias)
    size = np.sqrt(shape[2]) + 1
    error = np.abs(found - expected(library, kind, x, w, bias)).max() / size
    assert error < (I8_ERROR if kind in ("i8", "g8", "n4") else F32_ERROR), error


@each_library
def test_weights_in_8_bits_by_the_block_stay_what_they_are(library) -> None:
    """Weights of a q8_0 file, and any that are whole steps of their block's f16 scale."""
    random = np.random.default_rng(5)
    whole = random.integers(-127, 128, (70, 3, 32))
    whole[:, :, 7] = 127  # a block's largest number is 127 steps
    scale = random.uniform(1e-3, 2e-3, (70, 3, 1)).astype(np.float16)
    w = (whole * scale.astype(np.float32)).astype(np.float32).reshape(70, 96)
    unit = np.eye(96, dtype=np.float32)
    np.testing.assert_allclose(library.pack(w, Q8).times(unit), w.T, rtol=3e-7)


@each_library
def test_activations_of_very_different_sizes_keep_16_bits(library) -> None:
    """One large number, as layers of speech models have, costs the small ones beside it little."""
    x, w, bias = data(4, 64, 512)
    x[:, 5] = 300
    found = library.pack(w, Q8).times(x, bias)
    exact = x.astype(np.float64) @ in_blocks(w).T + bias
    # A step is 300 / 32639; 512 of half of one, with random signs, times weights below 1.
    assert np.abs(found - exact).max() < 300 / 32639 * 512**0.5


@each_library
@pytest.mark.parametrize("large", [300.0, -300.0])
def test_a_large_number_makes_only_its_own_group_coarse(library, large) -> None:
    x, w, bias = data(9, 70, 200)
    w[:, :GROUP] = 0
    small = library.pack(w, G8).times(x, bias)
    x[:, 5] = large
    np.testing.assert_array_equal(library.pack(w, G8).times(x, bias), small)
    x[:, :GROUP] = 0
    w[:, 5] = large
    np.testing.assert_array_equal(library.pack(w, G8).times(x, bias), small)


@each_library
@pytest.mark.parametrize("kind", ["i8", "g8"])
@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_of_one_sign_have_all_steps(library, kind, sign) -> None:
    x, _, _ = data(9, 1, 200)
    x = sign * np.abs(x)
    found = library.pack(np.eye(200, dtype=np.float32), KINDS[kind]).times(x)
    # Half a step of 255; 127 of them would leave twice as much.
    assert np.abs(found - x).max() <= 0.5001 / 255 * np.abs(x).max()


@each_library
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_does_not_depend_on_its_batch_or_the_threads(library, kind) -> None:
    x, w, bias = data(23, 200, 150)
    packed = library.pack(w, KINDS[kind])
    together = packed.times(x, bias)
    for n_threads in (2, 3, 7):
        np.testing.assert_array_equal(packed.times(x, bias, n_threads), together)
    for n in (1, 2, 5, 6, 7, 8, 13):
        np.testing.assert_array_equal(packed.times(x[:n], bias), together[:n])
    np.testing.assert_array_equal(packed.times(np.tile(x, (9, 1)), bias, 2), np.tile(together, (9, 1)))


@each_library
@pytest.mark.parametrize("kind", KINDS)
def test_sources_of_every_type_and_a_factor(library, kind) -> None:
    x, w, _ = data(3, 70, 90)
    halves = w.astype(np.float16)
    np.testing.assert_array_equal(
        library.pack(halves, KINDS[kind], F16).times(x),
        library.pack(halves.astype(np.float32), KINDS[kind]).times(x),
    )
    bits = to_bf16(w)
    np.testing.assert_array_equal(
        library.pack(bits, KINDS[kind], BF16).times(x), library.pack(from_bf16(bits), KINDS[kind]).times(x)
    )
    # A power of two changes no digit.
    np.testing.assert_array_equal(
        library.pack(w, KINDS[kind], F32, 0.125).times(x),
        library.pack(w * np.float32(0.125), KINDS[kind]).times(x),
    )


PARTS = {"three": (48, 48, 48), "a rest": (64, 64, 22), "between": (1, 100, 29), "row by row": (1,) * 70}


@each_library
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("n_in", [40, 523])
def test_a_matrix_may_be_packed_in_parts(library, kind, parts, n_in) -> None:
    x, w, _ = data(4, sum(parts), n_in)
    whole = library.pack(w, KINDS[kind])
    pieces = library.empty(KINDS[kind], *w.shape)
    first = 0
    for n in parts:
        pieces.put(first, np.ascontiguousarray(w[first : first + n]))
        first += n
    np.testing.assert_array_equal(pieces.times(x), whole.times(x))
    np.testing.assert_array_equal(pieces.data, whole.data)


@each_library
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_no_number_shows_in_its_row_and_nowhere_else(library, kind, odd) -> None:
    x, w, bias = data(8, 130, 64)
    packed = library.pack(w, KINDS[kind])
    clean = packed.times(x, bias)
    x[3, 20] = odd
    found = packed.times(x, bias)
    assert not np.isfinite(found[3]).any()
    np.testing.assert_array_equal(np.delete(found, 3, axis=0), np.delete(clean, 3, axis=0))


@each_library
@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_weights_of_zeros(library, kind) -> None:
    x, w, bias = data(5, 66, 48)
    x[2] = 0
    w[65] = 0
    found = library.pack(w, KINDS[kind]).times(x, bias)
    np.testing.assert_array_equal(found[2], bias)
    np.testing.assert_array_equal(found[:, 65], np.repeat(bias[65], 5))


@each_library
def test_the_largest_sums_of_int8_fit(library) -> None:
    ones = np.ones((1, 5120), dtype=np.float32)
    packed = library.pack(np.concatenate([ones, -ones]), I8)
    np.testing.assert_allclose(packed.times(np.concatenate([ones, -ones])), [[5120, -5120], [-5120, 5120]], rtol=1e-6)


@each_library
@pytest.mark.parametrize("n_in", [32, 5120])
def test_the_largest_sums_of_blocks_fit(library, n_in) -> None:
    ones = np.ones((1, n_in), dtype=np.float32)
    packed = library.pack(np.concatenate([ones, -ones]), Q8)
    rows = np.concatenate([ones, -ones])
    np.testing.assert_allclose(packed.times(rows), [[n_in, -n_in], [-n_in, n_in]], rtol=1e-3)


@each_library
@pytest.mark.parametrize("n_in", [32, 5120])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_sums_of_nibbles_fit(library, n_in, sign) -> None:
    w = np.full((1, n_in), -0.97 * sign, dtype=np.float32)
    w[:, ::32] = sign  # -8 steps, so that all others are +7: 15 when 8 is added
    ones = np.ones((1, n_in), dtype=np.float32)
    truth = sign * (n_in / 32 - 7 / 8 * (n_in - n_in / 32))
    found = library.pack(w, N4).times(np.concatenate([ones, -ones]))
    np.testing.assert_allclose(found, [[truth], [-truth]], rtol=1e-5)


@each_library
@pytest.mark.parametrize("shape", [(1, 70, 40), (7, 200, 523)], ids=str)
def test_rows_that_lie_around_another_one_are_packed_as_what_they_differ_by(library, shape) -> None:
    x, w, bias = data(*shape)
    around = np.linspace(-3, 5, shape[2], dtype=np.float32)
    found = library.pack(w + around, N4, around=around).times(x, bias, 2)
    differ = (w + around) - around
    truth = expected(library, "n4", x, differ, bias) + x.astype(np.float64) @ around.astype(np.float64)[:, None]
    assert np.abs(found - truth).max() < 1e-4


@each_library
def test_weights_that_are_no_numbers_show(library) -> None:
    """In 4 bits a block hands them on by its scale; the other outputs stay as they are."""
    x, w, bias = data(3, 70, 96)
    clean = library.pack(w, N4).times(x, bias)
    for odd in (np.nan, np.inf, -np.inf, 1e30):
        w[17, 40] = odd
        found = library.pack(w, N4).times(x, bias)
        assert not np.isfinite(found[:, 17]).any()
        np.testing.assert_array_equal(np.delete(found, 17, axis=1), np.delete(clean, 17, axis=1))


@each_library
@pytest.mark.parametrize("kind", KINDS)
def test_the_peak_loop_ends_and_counts(library, kind) -> None:
    least = 1e6 if library.emulated else 1e9
    assert least < library.table.peak(KINDS[kind], 0.01) < 1e14
