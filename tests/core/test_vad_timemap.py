"""Cutting a recording down to its speech, and mapping times back: every number here is worked out by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whispyx._core.vad.timemap import TimeMap, gather
from whispyx.errors import AudioError, ParamsError

# Two regions, 1.00 to 2.00 s and 5.00 to 7.00 s of 10 s. What is left: 1.0 s and 0.1 s of overlap, 0.1 s of silence,
# 2.0 s.
N = 160000
REGIONS = [(100, 200), (500, 700)]
POINTS = [(0, 100), (100, 200), (110, 200), (120, 500), (320, 700)]
PIECES = [(0, 100, 100, 200), (120, 320, 500, 700)]


@pytest.fixture
def ramp() -> npt.NDArray[np.float32]:
    """A recording in which each sample tells where it was."""
    return np.arange(N, dtype=np.float32)


@pytest.fixture
def times(ramp: npt.NDArray[np.float32]) -> TimeMap:
    return gather(ramp, REGIONS, 0.1)[1]


def test_regions_are_copied_with_their_overlap_and_silence_between_them(ramp: npt.NDArray[np.float32]) -> None:
    heard, _ = gather(ramp, REGIONS, 0.1)
    expected = np.concatenate([ramp[16000 : 32000 + 1600], np.zeros(1600, np.float32), ramp[80000:112000]])
    np.testing.assert_array_equal(heard, expected)


def test_the_last_region_gets_no_overlap_and_no_silence(ramp: npt.NDArray[np.float32]) -> None:
    heard, times = gather(ramp, [(100, 200)], 0.5)
    np.testing.assert_array_equal(heard, ramp[16000:32000])
    assert times.points == [(0, 100), (100, 200)]


def test_copies_end_one_sample_before_the_recording(ramp: npt.NDArray[np.float32]) -> None:
    heard, times = gather(ramp, [(900, 1003)], 0.1)
    np.testing.assert_array_equal(heard, ramp[144000 : N - 1])
    assert times.pieces == [(0, 100, 900, 1003)]


def test_V8_an_overlap_past_the_end_is_cut_off(ramp: npt.NDArray[np.float32]) -> None:
    heard, _ = gather(ramp, [(800, 900), (950, 1000)], 5.0)
    first, silence, last = ramp[128000 : N - 1], np.zeros(1600, np.float32), ramp[152000 : N - 1]
    np.testing.assert_array_equal(heard, np.concatenate([first, silence, last]))


def test_V8_an_overlap_does_not_move_the_times_behind_it(ramp: npt.NDArray[np.float32]) -> None:
    # 1 s of the first region, 0.5 s copied beyond it, 0.1 s of silence.
    times = gather(ramp, REGIONS, 0.5)[1]
    assert times.pieces == [(0, 100, 100, 200), (160, 360, 500, 700)]
    assert times.segment_t0(160) == 500 and times.segment_t1(260) == 600
    assert times.token_t0(160) == 500 and times.token_t1(260) == 600


def test_a_region_behind_the_recording_is_left_out(ramp: npt.NDArray[np.float32]) -> None:
    heard, times = gather(ramp, [(100, 200), (1001, 1002)], 0.0)
    np.testing.assert_array_equal(heard[:16000], ramp[16000:32000])
    assert heard.size == 17600 and not heard[16000:].any()
    assert times.n_pieces == 1


def test_without_regions_nothing_is_left_and_times_stay(ramp: npt.NDArray[np.float32]) -> None:
    heard, times = gather(ramp, [], 0.1)
    assert heard.size == 0 and heard.dtype == np.float32
    assert times.segment(3, 7) == (3, 7)
    assert times.token(3, 3) == (3, 3)
    assert times.seconds(1.25) == 1.25


@pytest.mark.parametrize("n", [0, 1])
def test_a_recording_of_one_sample_or_none_has_nothing_to_copy(n: int) -> None:
    heard, times = gather(np.zeros(n, np.float32), [(0, 3)], 0.1)
    assert heard.size == 0 and times.n_pieces == 0


def test_points_and_pieces(times: TimeMap) -> None:
    assert times.points == POINTS
    assert times.pieces == PIECES


def test_without_overlap_there_is_one_point_less(ramp: npt.NDArray[np.float32]) -> None:
    # The end of the region and the start of the silence are one.
    assert gather(ramp, REGIONS, 0.0)[1].points == [(0, 100), (100, 200), (110, 500), (310, 700)]


@pytest.mark.parametrize(
    ("heard", "true"),
    [
        (0, 100),
        (50, 150),
        (100, 200),
        (105, 200),  # in the overlap
        (110, 200),
        (111, 230),  # in the silence: 3 s go by in 0.1 s
        (119, 470),
        (120, 500),
        (121, 501),
        (320, 700),
        (321, 700),
        (100000, 700),
        (-5, 100),
    ],
)
def test_ends_of_segments_are_interpolated_between_points(times: TimeMap, heard: int, true: int) -> None:
    assert times.segment_t0(heard) == true
    assert times.segment_t1(heard) == true


def test_interpolation_rounds_down(ramp: npt.NDArray[np.float32]) -> None:
    # The silence takes 10 of the 335 hundredths that are left out: 33.5 to each.
    times = gather(ramp, [(100, 200), (535, 700)], 0.0)[1]
    assert times.segment_t0(101) == 233
    assert times.segment_t0(102) == 267


def test_V6_a_mapped_segment_lasts_at_least_100_ms(times: TimeMap) -> None:
    assert times.segment(50, 55) == (150, 160)
    assert times.segment(50, 60) == (150, 160)
    assert times.segment(50, 61) == (150, 161)
    assert times.segment(320, 320) == (700, 710)


@pytest.mark.parametrize(
    ("heard", "true"),
    [
        (0, 100),
        (50, 150),
        (100, 200),
        (105, 200),  # nearer to the end of the first region
        (110, 200),  # as far from both: the earlier one
        (111, 500),
        (119, 500),
        (120, 500),
        (121, 501),
        (320, 700),
        (400, 700),
        (-1, -1),  # no time
    ],
)
def test_V7_tokens_are_mapped_within_their_region(times: TimeMap, heard: int, true: int) -> None:
    assert times.token_t0(heard) == true
    assert times.token_t1(heard) == true


def test_V7_a_mapped_token_lasts_at_least_10_ms(times: TimeMap) -> None:
    assert times.token(50, 50) == (150, 151)
    assert times.token(106, 109) == (200, 201)
    assert times.token(105, 115) == (200, 500)
    assert times.token(-1, -1) == (-1, -1)


def test_V7_ends_of_words_are_mapped_without_rounding(times: TimeMap) -> None:
    assert times.seconds(0.505) == pytest.approx(1.505)
    assert times.seconds(1.04) == pytest.approx(2.0)
    assert times.seconds(1.16) == pytest.approx(5.0)
    assert times.seconds(1.2125) == pytest.approx(5.0125)
    assert times.seconds(99.0) == pytest.approx(7.0)
    assert times.seconds(-1.0) == -1.0


def test_a_region_that_is_copied_only_in_part_is_stretched(ramp: npt.NDArray[np.float32]) -> None:
    # Its last window is past the recording's end: 0.50 s of sound stand for 0.60 s.
    times = gather(ramp, [(950, 1010)], 0.1)[1]
    assert times.token_t0(25) == 950 + 25 * 60 // 50


@pytest.mark.parametrize(
    "regions",
    [
        [(200, 100)],
        [(-1, 100)],
        [(100, 200), (150, 300)],
        [(0, 2**50)],
    ],
)
def test_regions_must_be_in_order(regions: list[tuple[int, int]]) -> None:
    with pytest.raises(ParamsError):
        gather(np.zeros(16000, np.float32), regions, 0.1)


@pytest.mark.parametrize("overlap", [-0.1, float("nan"), float("inf"), 1e6])
def test_an_overlap_must_be_a_sensible_time(overlap: float) -> None:
    with pytest.raises(ParamsError):
        gather(np.zeros(16000, np.float32), [(0, 50)], overlap)


@pytest.mark.parametrize("bad", [np.zeros(100), np.zeros((2, 3), np.float32), np.array([np.nan], np.float32)])
def test_samples_must_be_finite_float32(bad: npt.NDArray[np.float32]) -> None:
    with pytest.raises(AudioError):
        gather(bad, [(0, 50)], 0.1)


@pytest.mark.parametrize("bad", [2**50, -(2**50)])
def test_absurd_times_are_refused(times: TimeMap, bad: int) -> None:
    for ask in (times.segment_t0, times.segment_t1, times.token_t0, times.token_t1):
        with pytest.raises(ParamsError):
            ask(bad)
    for pair in (times.segment, times.token):
        with pytest.raises(ParamsError):
            pair(0, bad)
    with pytest.raises(ParamsError):
        times.seconds(float("nan"))


LENGTHS = st.lists(st.integers(0, 300), min_size=2, max_size=12)


@settings(deadline=None, max_examples=200)
@given(LENGTHS, st.integers(0, 40000), st.sampled_from([0.0, 0.1, 0.37, 3.0]))
def test_maps_never_go_back_in_time_and_stay_within_their_regions(
    lengths: list[int], n_samples: int, overlap: float
) -> None:
    marks = [int(mark) for mark in np.cumsum(lengths)]
    regions = list(zip(marks[::2], marks[1::2], strict=False))
    heard, times = gather(np.ones(n_samples, np.float32), regions, overlap)
    ends = range(heard.size // 160 + 10)
    for ask in (times.segment_t0, times.token_t0):
        mapped = [ask(at) for at in ends]
        assert mapped == sorted(mapped)
    if times.n_pieces:
        allowed = {t for a, b, c, d in times.pieces for t in range(c, d + 1)}
        assert {times.token_t0(at) for at in ends} <= allowed
    exact = [times.seconds(at / 100) for at in ends]
    assert all(a <= b + 1e-9 for a, b in pairwise(exact))
