"""The path through the costs: against plain Python, and against trying every path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle.align import cost_matrix, dtw_path, median_filter, row_starts
from whispyx._core.align.dtw import costs_of, starts_of
from whispyx.errors import ParamsError


def weights(n_heads: int, n_tokens: int, n_frames: int, seed: int = 0) -> Any:
    x = np.exp(np.random.default_rng(seed).normal(0, 3, (n_heads, n_tokens, n_frames)))
    return (x / x.sum(axis=-1, keepdims=True)).astype(np.float32)


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 4), st.integers(1, 12), st.integers(1, 40), st.integers(0, 999))
def test_costs_equal_the_oracle(n_heads: int, n_tokens: int, n_frames: int, seed: int) -> None:
    w = weights(n_heads, n_tokens, n_frames, seed)
    np.testing.assert_allclose(costs_of(w), cost_matrix(w.astype(np.float64)), rtol=1e-4, atol=1e-4)


def test_costs_leave_the_weights_alone() -> None:
    w = weights(2, 3, 20)
    before = w.copy()
    costs_of(w)
    assert np.array_equal(w, before)


@pytest.mark.parametrize("n_frames", range(1, 12))
def test_T2_short_windows_have_costs(n_frames: int) -> None:
    """whisper.cpp ends the process below 8 frames. Up to 3 are too few to mirror and stay as they are."""
    w = weights(2, 4, n_frames)
    costs = costs_of(w)
    assert np.isfinite(costs).all()
    np.testing.assert_allclose(costs, cost_matrix(w.astype(np.float64)), rtol=1e-4, atol=1e-4)
    assert starts_of(costs[1:-1])[0] == 0


def test_the_oracle_mirrors_at_the_border() -> None:
    x = np.array([5.0, 1, 4, 2, 9, 3, 7, 8])
    padded = np.array([2.0, 4, 1, *x, 7, 3, 9])
    assert median_filter(x).tolist() == [np.median(padded[i : i + 7]) for i in range(8)]


def all_paths(n: int, m: int) -> Iterator[list[tuple[int, int]]]:
    if (n, m) == (1, 1):
        yield [(0, 0)]
        return
    for dn, dm in ((1, 1), (1, 0), (0, 1)):
        if n - dn >= 1 and m - dm >= 1:
            for path in all_paths(n - dn, m - dm):
                yield [*path, (n - 1, m - 1)]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 10**6))
def test_the_path_is_the_cheapest_of_all(n: int, m: int, seed: int) -> None:
    cost = np.random.default_rng(seed).normal(0, 1, (n, m))
    best = min(all_paths(n, m), key=lambda path: sum(cost[i, j] for i, j in path))
    assert starts_of(cost).tolist() == row_starts(best, n)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 14), st.integers(0, 10**6))
def test_ties_are_broken_as_in_the_oracle(n: int, m: int, seed: int) -> None:
    """Few different costs, so that many paths are equal."""
    cost = np.random.default_rng(seed).integers(-1, 2, (n, m)).astype(np.float64)
    starts = starts_of(cost).tolist()
    assert starts == row_starts(dtw_path(cost), n)
    assert starts == sorted(starts) and starts[0] == 0


def test_where_all_is_equal_the_last_row_takes_the_frames() -> None:
    """On a tie the path comes from the frame before, as in whisper.cpp."""
    assert starts_of(np.zeros((3, 6))).tolist() == [0, 0, 0]
    assert starts_of(-2 * np.eye(4) + 1).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_T5_what_is_no_number_is_refused(bad: float) -> None:
    """In whisper.cpp it leads the way back out of its array."""
    w = weights(1, 3, 10)
    w[0, 1, 4] = bad
    with pytest.raises(ParamsError):
        costs_of(w)
    cost = np.zeros((3, 10))
    cost[1, 4] = bad
    with pytest.raises(ParamsError):
        starts_of(cost)


@pytest.mark.parametrize("shape", [(0, 3, 4), (1, 0, 4), (1, 3, 0), (3, 4)])
def test_empty_weights_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ParamsError):
        costs_of(np.zeros(shape, np.float32))


def test_T3_a_path_may_be_long() -> None:
    cost = np.random.default_rng(0).normal(0, 1, (440, 1500))
    starts = starts_of(cost)
    assert len(starts) == 440 and (np.diff(starts) >= 0).all()
