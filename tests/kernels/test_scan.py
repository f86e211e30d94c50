"""The pass over a row of logits, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.sets import each_library, ffi, pointer

# exp in f32 (2e-7, and 1e-6 where exp is tiny and does not count), sums of 1024 in f32.
SUM_ERROR = 2e-6
SIZES = [
    (1, 0),
    (1, 1),
    (2, 1),
    (17, 9),
    (63, 62),
    (64, 0),
    (1025, 1000),
    (51864, 50363),
    (51865, 50364),
    (51866, 51866),
]


def scan(library, row: np.ndarray, beg: int):
    """Scan a row that ends where its memory ends as far as numpy can tell."""
    found = ffi.new("wx_scan *")
    library.table.scan(pointer(row, "float *"), len(row), beg, found)
    return found


def check_part(part: np.ndarray, top: float, arg: int, total: float | None) -> None:
    if not len(part) or part.max() == -np.inf:
        assert top == -np.inf
        assert total is None or total == 0.0
        return
    assert top == part.max()
    assert arg == part.argmax()
    if total is not None:
        np.testing.assert_allclose(total, np.exp(part.astype(np.float64) - top).sum(), rtol=SUM_ERROR)


def check(library, row: np.ndarray, beg: int) -> None:
    found = scan(library, row, beg)
    check_part(row, found.top, found.arg, found.total)
    check_part(row[beg:], found.time_top, found.time_arg - beg, found.time_total)
    check_part(row[:beg], found.text_top, found.text_arg, None)


@each_library
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("width", [0.1, 3.0, 40.0])
def test_largest_and_sums_are_those_of_the_row(library, size, width) -> None:
    n, beg = size
    row = np.random.default_rng(n).normal(-5, width, n).astype(np.float32)
    check(library, row, beg)
    row[np.random.default_rng(n + 1).random(n) < 0.3] = -np.inf
    check(library, row, beg)


@each_library
def test_the_first_of_equal_values_is_taken(library) -> None:
    row = np.zeros(1000, dtype=np.float32)
    row[[77, 78, 500, 990]] = 2.0
    found = scan(library, row, 600)
    assert (found.arg, found.text_arg, found.time_arg) == (77, 77, 990)


@each_library
def test_a_row_without_candidates_has_no_top(library) -> None:
    found = scan(library, np.full(333, -np.inf, dtype=np.float32), 300)
    assert found.top == found.text_top == found.time_top == -np.inf
    assert found.total == found.time_total == 0.0


@each_library
@pytest.mark.parametrize("at", [0, 100, 299, 300, 332])
@pytest.mark.parametrize("others", [0.0, -np.inf])
def test_no_number_makes_no_total(library, at, others) -> None:
    row = np.full(333, others, dtype=np.float32)
    row[at] = np.nan
    found = scan(library, row, 300)
    assert np.isnan(found.total)
    row[at] = np.inf
    assert not 0 < scan(library, row, 300).total < np.inf


@each_library
def test_neighbours_in_memory_are_not_read_as_logits(library) -> None:
    memory = np.full(200, 1000.0, dtype=np.float32)
    row = memory[50:117]
    row[:] = np.linspace(-1, 1, 67)
    check(library, row, 60)
