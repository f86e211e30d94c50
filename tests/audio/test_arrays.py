"""Arrays of samples: types, layouts, shapes, rates, and what is refused."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from whispyx.audio import load
from whispyx.errors import AudioError

FINITE = st.floats(-1e6, 1e6, width=32)


def ramp(n: int = 1000) -> npt.NDArray[np.float32]:
    return np.linspace(-1, 1, n, dtype=np.float32)


def test_float32_mono_at_16_khz_is_not_copied() -> None:
    samples = ramp()
    assert load(samples) is samples
    frozen = ramp()
    frozen.flags.writeable = False
    assert load(frozen) is frozen


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.int16, st.integers(0, 300)))
def test_int16_has_full_scale_32768(samples: npt.NDArray[np.int16]) -> None:
    assert np.array_equal(load(samples), samples.astype(np.float64) / 32768)


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.int32, st.integers(0, 300)))
def test_int32_has_full_scale_2_to_the_31_and_is_rounded_once(samples: npt.NDArray[np.int32]) -> None:
    assert np.array_equal(load(samples), (samples.astype(np.float64) / 2**31).astype(np.float32))


def test_8_bits_follow_the_conventions_of_sound_files() -> None:
    assert load(np.array([0, 128, 255], np.uint8)).tolist() == [-1.0, 0.0, 127 / 128]
    assert load(np.array([-128, 0, 127], np.int8)).tolist() == [-1.0, 0.0, 127 / 128]


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.float64, st.integers(0, 300), elements=FINITE))
def test_float64_and_float16_are_converted(samples: npt.NDArray[np.float64]) -> None:
    assert np.array_equal(load(samples), samples.astype(np.float32))
    with np.errstate(over="ignore"):
        half = samples.astype(np.float16)
    half = half[np.isfinite(half)]
    assert np.array_equal(load(half), half.astype(np.float32))


@settings(max_examples=40, deadline=None)
@given(hnp.arrays(st.sampled_from([np.int16, np.float32]), st.integers(1, 200), elements=st.integers(-1000, 1000)))
def test_the_layout_in_memory_does_not_matter(samples: npt.NDArray[Any]) -> None:
    expected = load(samples)
    wide = np.zeros(2 * len(samples), samples.dtype)
    wide[::2] = samples
    unaligned = np.frombuffer(b"x" + samples.tobytes(), np.uint8)[1:].view(samples.dtype)
    frozen = samples.copy()
    frozen.flags.writeable = False
    for other in (
        samples[::-1][::-1],
        wide[::2],
        samples.astype(samples.dtype.newbyteorder(">")),
        unaligned,
        frozen,
        np.asfortranarray(samples[:, None]),
        samples.data,
        array.array({"h": "h", "f": "f"}[samples.dtype.char], samples.tobytes()),
    ):
        found = load(other)
        assert found.dtype == np.float32
        assert found.flags.c_contiguous
        assert np.array_equal(found, expected)


def test_a_list_of_floats_is_an_array() -> None:
    assert load([0.0, 0.5, -0.25]).tolist() == [0.0, 0.5, -0.25]
    assert load((0.5, 1)).tolist() == [0.5, 1.0]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(7, 200), st.sampled_from([np.int16, np.float32]))
def test_channels_are_averaged_on_either_axis(channels: int, n: int, dtype: Any) -> None:
    frames = np.random.default_rng(n).integers(-1000, 1000, (n, channels)).astype(dtype)
    scale = 32768 if dtype == np.int16 else 1
    expected = frames.astype(np.float64).mean(axis=1) / scale
    for form in (frames, frames.T, np.asfortranarray(frames), np.ascontiguousarray(frames.T), frames[::-1][::-1]):
        np.testing.assert_allclose(load(form), expected, rtol=1e-5, atol=1e-5)


def test_of_equal_axes_the_last_is_the_channels() -> None:
    assert load(np.array([[0.0, 1.0], [0.5, 0.5]])).tolist() == [0.5, 0.5]
    assert load(np.array([[0.0, 0.0], [1.0, 1.0]])).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("shape", [(0,), (0, 2), (2, 0)])
def test_no_samples_give_no_samples(shape: tuple[int, ...]) -> None:
    for dtype in (np.float32, np.int16, np.float64):
        found = load(np.empty(shape, dtype))
        assert found.shape == (0,)
        assert found.dtype == np.float32
    assert load([]).shape == (0,)


@pytest.mark.parametrize("n", [1, 2, 79, 80, 160, 399, 401, 1601, 15839, 16000])
def test_tiny_lengths_are_kept(n: int) -> None:
    assert np.array_equal(load(ramp(16000)[:n]), ramp(16000)[:n])
    assert abs(len(load(ramp(16000)[:n], sample_rate=8000)) - 2 * n) <= 1


@pytest.mark.parametrize("rate", [8000, 44100, 48000, 22050.5])
def test_a_rate_is_converted(rate: float) -> None:
    n = round(rate)
    tone = np.sin(2 * np.pi * 300 / rate * np.arange(n))
    samples = load(tone, sample_rate=rate)
    assert abs(len(samples) - 16000) <= 2
    expected = np.sin(2 * np.pi * 300 / 16000 * np.arange(len(samples)))
    assert np.abs(samples - expected)[400:-400].max() < 1e-4


def test_stereo_int16_at_44100_is_converted_in_one_go() -> None:
    wave = np.round(20000 * np.sin(2 * np.pi * 300 / 44100 * np.arange(44100))).astype(np.int16)
    stereo = np.stack([wave, wave], axis=1)
    np.testing.assert_allclose(load(stereo, sample_rate=44100), load(wave, sample_rate=44100), atol=1e-6)


@pytest.mark.parametrize("rate", [0, -16000, 1, 10**9, float("nan"), "16000", True, 1j])
def test_a_wrong_rate_is_refused(rate: Any) -> None:
    with pytest.raises(AudioError, match="1000 to 1000000 Hz"):
        load(ramp(), sample_rate=rate)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (np.array([0.1, None]), "type object"),
        (np.array([1j]), "type complex128"),
        (np.array([True]), "type bool"),
        (np.array(["a"]), "are not audio"),
        (np.zeros(3, "M8[s]"), "are not audio"),
        (np.zeros(3, [("a", "f4")]), "are not audio"),
        (np.zeros(3, np.uint16), "type uint16"),
        (np.zeros(3, np.int64), r"type int64 .*numpy\.array"),
        ([1, 2, 3], r"type int64 .*numpy\.array"),
        ([[1.0], [1.0, 2.0]], "cannot be read as audio"),
        (0.5, r"should have the shape .* not \(\)"),
        (np.zeros((2, 3, 4)), r"not \(2, 3, 4\)"),
        (np.zeros((100, 65)), "at most 64 channels"),
        (None, "type object"),
        ({"a": 1}, "type object"),
    ],
)
def test_what_is_no_audio_is_refused(wrong: Any, reason: str) -> None:
    with pytest.raises(AudioError, match=reason):
        load(wrong)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 999), st.sampled_from([np.nan, np.inf, -np.inf]), st.sampled_from([np.float32, np.float64]))
def test_the_first_bad_sample_is_named(index: int, value: float, dtype: Any) -> None:
    samples = ramp().astype(dtype)
    samples[index] = value
    samples[index + 1 :: 3] = np.nan
    name = "NaN" if np.isnan(value) else "infinite"
    with pytest.raises(AudioError, match=rf"sample {index} \(at {index / 16000:.3f} s\) is {name}") as caught:
        load(samples)
    assert isinstance(caught.value, ValueError)


def test_the_place_of_a_bad_sample_counts_frames_of_the_given_rate() -> None:
    samples = np.zeros((1000, 2), np.float32)
    samples[800, 1] = np.nan
    with pytest.raises(AudioError, match=r"sample 800 \(at 0\.100 s\) of channel 1 is NaN"):
        load(samples, sample_rate=8000)


def test_loud_samples_are_kept_and_absurd_ones_refused() -> None:
    loud = ramp() * np.float32(1e6)
    assert np.array_equal(load(loud), loud)
    quiet = np.full(100, 1e-30, np.float32)
    assert np.array_equal(load(quiet), quiet)
    with pytest.raises(AudioError, match=r"sample 1 .* 1e\+16, which is no sound"):
        load(np.array([0.0, 1e16]))
    with pytest.raises(AudioError, match=r"sample 1 .* infinite"):
        load(np.array([0.0, 1e300]))  # more than float32 holds


def test_a_subclass_and_the_array_protocol_work() -> None:
    class Wrapped:
        def __array__(self, dtype: Any = None, copy: Any = None) -> npt.NDArray[np.float32]:
            return ramp()

    assert np.array_equal(load(Wrapped()), ramp())  # type: ignore[arg-type]
    masked = np.ma.masked_array(ramp(), mask=False)
    assert np.array_equal(load(masked), ramp())
