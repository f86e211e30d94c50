"""Regions of speech: each rule on probabilities made by hand, with the result worked out by hand."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle import vad as oracle
from whispyx._core.params import VadParams
from whispyx._core.vad.regions import regions, to_cs
from whispyx.errors import ParamsError

W = 512
PLAIN = {"speech_pad_ms": 0, "min_speech_duration_ms": 0}


def probs(*runs: tuple[float, int]) -> npt.NDArray[np.float32]:
    """Probabilities from (value, number of windows) pairs."""
    return np.concatenate([np.full(n, value, np.float32) for value, n in runs])


def windows(sequence: npt.NDArray[np.float32], **params: float) -> list[tuple[float, float]]:
    """Regions in windows instead of samples."""
    found = regions(sequence, VadParams(**{**PLAIN, **params}))
    return [(start / W, stop / W) for start, stop in found]


def test_no_windows_have_no_regions() -> None:
    assert regions(np.empty(0, np.float32), VadParams()) == []


def test_silence_has_no_regions() -> None:
    assert regions(probs((0.1, 100)), VadParams()) == []


def test_a_region_begins_at_the_first_window_at_the_threshold() -> None:
    assert windows(probs((0.49, 5), (0.5, 10), (0.0, 10))) == [(5, 15)]


def test_a_region_ends_where_the_probability_fell_below_the_lower_threshold() -> None:
    # 0.4 is below the threshold of 0.5, but not below 0.35.
    assert windows(probs((0.9, 10), (0.4, 10), (0.3, 10))) == [(0, 20)]


def test_the_lower_threshold_is_never_below_a_hundredth() -> None:
    assert windows(probs((0.9, 10), (0.009, 10)), threshold=0.05) == [(0, 10)]
    assert windows(probs((0.9, 10), (0.011, 10)), threshold=0.05) == [(0, 20)]


def test_a_pause_shorter_than_the_shortest_silence_does_not_end_a_region() -> None:
    # 100 ms are 1600 samples: the fourth silent window is 1536 behind the first, the fifth 2048.
    assert windows(probs((0.9, 10), (0.0, 4), (0.9, 10), (0.0, 20))) == [(0, 24)]


def test_regions_with_less_than_200_ms_between_them_are_joined() -> None:
    # 3200 samples: six windows are 3072, seven 3584.
    assert windows(probs((0.9, 10), (0.0, 6), (0.9, 10), (0.0, 20))) == [(0, 26)]
    assert windows(probs((0.9, 10), (0.0, 7), (0.9, 10), (0.0, 20))) == [(0, 10), (17, 27)]


def test_speech_that_is_too_short_is_dropped_before_it_can_be_joined() -> None:
    # 250 ms are 4000 samples, so that a region needs eight windows: 4096.
    sequence = probs((0.9, 7), (0.0, 5), (0.9, 8), (0.0, 20))
    assert windows(sequence, min_speech_duration_ms=250) == [(12, 20)]


def test_speech_of_exactly_the_shortest_duration_is_dropped_too() -> None:
    sequence = probs((0.0, 3), (0.9, 4), (0.0, 20))
    assert windows(sequence, min_speech_duration_ms=128) == []  # 2048 samples
    assert windows(sequence, min_speech_duration_ms=127) == [(3, 7)]


def test_speech_up_to_the_end_ends_with_the_last_window() -> None:
    assert windows(probs((0.0, 5), (0.9, 10))) == [(5, 15)]


def test_speech_at_the_end_that_is_too_short_is_dropped() -> None:
    assert windows(probs((0.0, 5), (0.9, 7)), min_speech_duration_ms=250) == []


def test_regions_are_padded_within_the_recording() -> None:
    sequence = probs((0.9, 10), (0.0, 20), (0.9, 10))
    # 30 ms are 480 samples.
    assert regions(sequence, VadParams()) == [(0, 5120 + 480), (15360 - 480, 20480)]


def test_neighbours_with_too_little_between_them_share_it() -> None:
    sequence = probs((0.0, 20), (0.9, 10), (0.0, 7), (0.9, 10), (0.0, 20))
    # Between 30 and 37 windows there are 3584 samples, less than twice the pad of 2400.
    found = regions(sequence, VadParams(speech_pad_ms=150))
    assert found == [(10240 - 2400, 15360 + 1792), (18944 - 1792, 24064 + 2400)]


def test_an_unlimited_region_is_never_cut() -> None:
    assert windows(probs((0.9, 5000))) == [(0, 5000)]
    assert windows(probs((0.9, 5000)), max_speech_duration_s=0.0) == [(0, 5000)]
    assert windows(probs((0.9, 5000)), max_speech_duration_s=100001.0) == [(0, 5000)]


def test_a_region_that_is_too_long_is_cut_at_its_last_pause() -> None:
    # 2 s are 32000 samples less a window: 61.5 windows. The pause of eight windows is one that a cut may use (more
    # than 98 ms), too short to end the region with a shortest silence of 300 ms, and too long to be joined again.
    # Without the limit the two are one region.
    sequence = probs((0.9, 30), (0.0, 8), (0.9, 50), (0.0, 30))
    assert windows(sequence, min_silence_duration_ms=300) == [(0, 88)]
    cut = windows(sequence, max_speech_duration_s=2.0, min_silence_duration_ms=300)
    assert cut == [(0, 30), (38, 88)]


def test_a_cut_without_a_pause_is_undone_where_speech_goes_on() -> None:
    # The region ends after window 62 and the next one begins one window later: they are joined.
    assert windows(probs((0.9, 200)), max_speech_duration_s=2.0) == [(0, 200)]


def test_V5_fractions_of_a_second_count() -> None:
    # Cut windows at 1.9 s: 30400 - 512 = 29888 samples, 58.4 windows; so the region of 59 windows is cut at window 59,
    # where silence begins, and loses the windows of 0.4 that would have belonged to it.
    sequence = probs((0.9, 59), (0.4, 10), (0.0, 20))
    assert windows(sequence, max_speech_duration_s=1.9) == [(0, 59)]
    assert windows(sequence, max_speech_duration_s=3.0) == [(0, 69)]
    # At 2 s: 61.5 windows.
    assert windows(sequence, max_speech_duration_s=2.0) == [(0, 62)]


def test_V5_less_than_a_second_is_a_limit_too() -> None:
    # 0.5 s: 8000 - 512 = 7488 samples, 14.6 windows.
    assert windows(probs((0.9, 12), (0.4, 10), (0.0, 20)), max_speech_duration_s=0.5) == [(0, 15)]


def test_V5_a_limit_shorter_than_a_window_cuts_at_every_window() -> None:
    assert windows(probs((0.9, 1), (0.4, 10), (0.0, 20)), max_speech_duration_s=0.01) == [(0, 1)]


def test_hundredths_of_a_second_are_rounded_half_up() -> None:
    assert to_cs([(79, 80), (239, 240), (512, 1024)]) == [(0, 1), (1, 2), (3, 6)]


def test_the_shortest_speech_is_in_milliseconds() -> None:
    # A region of four windows (128 ms) stays with a minimum of 100 ms, and goes with one of 130 ms.
    sequence = probs((0.0, 5), (0.9, 4), (0.0, 20))
    assert windows(sequence, min_speech_duration_ms=100) == [(5, 9)]
    assert windows(sequence, min_speech_duration_ms=130) == []


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros(3),
        np.zeros((2, 2), np.float32),
        np.array([0.1, np.nan], np.float32),
        [0.1, 0.2],
        "speech",
        None,
    ],
)
def test_probabilities_must_be_a_float32_array_without_nan(bad: object) -> None:
    with pytest.raises(ParamsError):
        regions(bad, VadParams())  # type: ignore[arg-type]


def test_a_window_has_at_least_one_sample() -> None:
    with pytest.raises(ParamsError):
        regions(probs((0.9, 3)), VadParams(), 0)


RUNS = st.lists(st.tuples(st.sampled_from([0.0, 0.2, 0.36, 0.5, 0.9]), st.integers(1, 40)), max_size=25)


@settings(deadline=None, max_examples=300)
@given(
    runs=RUNS,
    threshold=st.sampled_from([0.005, 0.16, 0.4, 0.5, 0.95]),
    speech=st.integers(0, 600),
    silence=st.integers(0, 600),
    longest=st.one_of(st.floats(0.0, 5.0), st.just(3.4e38)),
    pad=st.integers(0, 300),
)
def test_regions_are_those_of_the_oracle(
    runs: list[tuple[float, int]], threshold: float, speech: int, silence: int, longest: float, pad: int
) -> None:
    sequence = probs(*runs) if runs else np.empty(0, np.float32)
    ours = regions(
        sequence,
        VadParams(
            threshold=threshold,
            min_speech_duration_ms=speech,
            min_silence_duration_ms=silence,
            max_speech_duration_s=longest,
            speech_pad_ms=pad,
        ),
    )
    assert ours == oracle.regions(sequence, oracle.Settings(threshold, speech, silence, longest, pad))
    # They lie within the windows, in order, and do not overlap.
    flat = [at for region in ours for at in region]
    assert flat == sorted(flat)
    assert not flat or (flat[0] >= 0 and flat[-1] <= W * len(sequence))
