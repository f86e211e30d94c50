"""Sound files of every rate, width and channel count; broken ones; pipes and file objects."""

from __future__ import annotations

import io
import logging
import os
import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import data
from whispyx import audio
from whispyx.audio import load
from whispyx.errors import AudioError

TONE_HZ = 440.0
EDGE = 400
"""Samples at both ends that a resampler's filter has no neighbours for."""

# A resampler of high quality keeps a tone far inside its pass band to better than -90 dB.
RESAMPLED = 10 ** (-90 / 20)


def tone(rate: int, seconds: float = 1.0, amplitude: float = 0.5) -> npt.NDArray[np.float64]:
    wave: npt.NDArray[np.float64] = amplitude * np.sin(2 * np.pi * TONE_HZ / rate * np.arange(round(rate * seconds)))
    return wave


def encoded(samples: npt.NDArray[Any], rate: int, kind: str = "WAV", subtype: str | None = None) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format=kind, subtype=subtype)
    return out.getvalue()


@pytest.mark.parametrize(
    ("kind", "subtype", "step"),
    [
        ("WAV", "PCM_16", 2.0**-15),
        ("WAV", "PCM_24", 2.0**-23),
        ("WAV", "PCM_32", 2.0**-24),
        ("WAV", "PCM_U8", 2.0**-7),
        ("WAV", "FLOAT", 2.0**-24),
        ("WAV", "DOUBLE", 2.0**-24),
        ("FLAC", "PCM_16", 2.0**-15),
        ("AIFF", "PCM_16", 2.0**-15),
        ("W64", "PCM_16", 2.0**-15),
    ],
)
def test_samples_keep_the_precision_of_the_file(kind: str, subtype: str, step: float) -> None:
    expected = tone(16000)
    samples = load(encoded(expected, 16000, kind, subtype))
    assert samples.dtype == np.float32
    assert samples.shape == expected.shape
    assert np.abs(samples - expected).max() <= step


@pytest.mark.parametrize("kind", ["OGG", "MP3"])
def test_lossy_formats_are_read(kind: str) -> None:
    samples = load(encoded(tone(16000), 16000, kind))
    assert abs(len(samples) - 16000) <= 1200  # an MP3 encoder pads to whole frames of 576 samples
    middle = samples[4000:12000]
    assert abs(np.sqrt(np.mean(middle**2)) - 0.5 / np.sqrt(2)) < 0.02


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 24000, 32000, 44100, 48000, 96000])
def test_a_tone_stays_the_same_tone_at_16_khz(rate: int) -> None:
    samples = load(encoded(tone(rate), rate, "WAV", "DOUBLE"))
    assert abs(len(samples) - 16000) <= 1
    expected = tone(16000)[EDGE:-EDGE]
    assert np.abs(samples[EDGE : len(expected) + EDGE] - expected).max() < RESAMPLED


def test_what_16_khz_cannot_hold_is_filtered_out() -> None:
    rate = 48000
    hiss = 0.5 * np.sin(2 * np.pi * 12000.0 / rate * np.arange(rate))
    samples = load(encoded(hiss, rate, "WAV", "FLOAT"))
    assert np.abs(samples[EDGE:-EDGE]).max() < RESAMPLED


@pytest.mark.parametrize("channels", [2, 3, 6])
def test_channels_are_averaged(channels: int) -> None:
    rng = np.random.default_rng(1)
    frames = rng.uniform(-1, 1, (1000, channels)).astype(np.float32)
    samples = load(encoded(frames, 16000, "WAV", "FLOAT"))
    np.testing.assert_allclose(samples, frames.astype(np.float64).mean(axis=1), atol=1e-6)


@pytest.mark.parametrize("rate", [16000, 44100])
def test_the_size_of_the_blocks_does_not_matter(rate: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    content = encoded(rng.uniform(-1, 1, (5000, 2)), rate, "WAV", "FLOAT")
    whole = load(content)
    for block in (1, 7, 441, 4999):
        monkeypatch.setattr(audio, "_BLOCK", block)
        np.testing.assert_allclose(load(content), whole, atol=1e-6)


def test_a_path_bytes_and_objects_give_the_same(tmp_path: Path) -> None:
    content = encoded(tone(22050), 22050)
    path = tmp_path / "тест ü 日本" / "привет мир.wav"
    path.parent.mkdir()
    path.write_bytes(content)
    expected = load(path)
    assert len(expected) > 15000
    assert np.array_equal(load(str(path)), expected)
    assert np.array_equal(load(content), expected)
    assert np.array_equal(load(bytearray(content)), expected)
    assert np.array_equal(load(memoryview(content)), expected)
    assert np.array_equal(load(io.BytesIO(content)), expected)
    with path.open("rb") as file:
        assert np.array_equal(load(file), expected)


@pytest.mark.skipif(os.name != "posix", reason="only POSIX file names can be any bytes")
def test_a_name_that_is_not_text_is_opened_and_shown(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.wav")
    Path(path).write_bytes(encoded(tone(16000), 16000))
    assert len(load(path)) == 16000
    Path(path).write_bytes(b"no sound")
    with pytest.raises(AudioError) as caught:
        load(path)
    assert r"\xff.wav" in str(caught.value)
    str(caught.value).encode("utf-8")


def test_a_file_object_is_read_from_where_it_stands() -> None:
    content = encoded(tone(16000), 16000)
    file = io.BytesIO(b"header of something else" + content)
    file.seek(len(b"header of something else"))
    assert np.array_equal(load(file), load(content))


class Stream:
    """Cannot seek, gives a few bytes at a time, and may fail."""

    def __init__(self, content: bytes, failure: Exception | None = None) -> None:
        self._rest = content
        self._failure = failure

    def read(self, size: int = -1) -> bytes:
        if not self._rest and self._failure:
            raise self._failure
        now, self._rest = self._rest[:1000], self._rest[1000:]
        return now


def test_a_stream_that_cannot_seek_is_read() -> None:
    content = encoded(tone(16000), 16000)
    assert np.array_equal(load(Stream(content)), load(content))  # type: ignore[arg-type]


def test_an_exception_from_a_stream_reaches_the_caller() -> None:
    content = encoded(tone(16000), 16000)
    with pytest.raises(ConnectionResetError, match="gone"):
        load(Stream(content, ConnectionResetError("gone")))  # type: ignore[arg-type]


def test_a_text_file_object_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("text")
    with path.open() as file, pytest.raises(AudioError, match="open it in binary mode"):
        load(file)  # type: ignore[arg-type]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_named_pipe_is_read(tmp_path: Path) -> None:
    content = encoded(tone(16000), 16000)
    path = tmp_path / "pipe.wav"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(content,))
    writer.start()
    samples = load(path)
    writer.join()
    assert np.array_equal(samples, load(content))


# ---------------------------------------------------------------------------------------------------- broken


def test_a_missing_file_a_folder_and_an_empty_file_are_said(tmp_path: Path) -> None:
    with pytest.raises(AudioError, match="No such file"):
        load(tmp_path / "nothing.wav")
    with pytest.raises(AudioError, match="directory"):
        load(tmp_path)
    (tmp_path / "empty.wav").write_bytes(b"")
    with pytest.raises(AudioError, match=r"empty\.wav is empty"):
        load(tmp_path / "empty.wav")
    with pytest.raises(AudioError, match="is empty"):
        load(b"")
    with pytest.raises(AudioError, match="null"):
        load("a\0b.wav")


def test_what_is_no_sound_is_said_with_advice(tmp_path: Path) -> None:
    (tmp_path / "x.m4a").write_bytes(b"\0\0\0\x20ftypM4A " + bytes(100))
    with pytest.raises(AudioError, match=r"x\.m4a is not a sound file that can be read: .*convert it"):
        load(tmp_path / "x.m4a")


def test_a_header_without_samples_gives_none() -> None:
    content = encoded(tone(16000), 16000)
    assert load(content[:44]).shape == (0,)
    assert load(encoded(np.empty(0), 44100)).shape == (0,)


def test_a_cut_file_gives_what_exists_and_warns(caplog: pytest.LogCaptureFixture) -> None:
    content = encoded(tone(16000), 16000)
    with caplog.at_level(logging.WARNING, "whispyx.audio"):
        samples = load(content[: 44 + 2 * 5000])
        assert np.array_equal(samples, load(content)[:5000])
    assert [record.getMessage() for record in caplog.records] == [
        "the sound data is shorter than its header says; 5000 frames exist"
    ]


@pytest.mark.parametrize("format", ["AIFF", "AU", "W64", "RF64", "MP3"])
def test_cut_files_of_other_formats_warn_too(caplog: pytest.LogCaptureFixture, format: str) -> None:
    content = encoded(tone(64000), 16000, format)
    with caplog.at_level(logging.WARNING, "whispyx.audio"):
        whole = load(content)
        assert caplog.records == []
        assert 0 < len(load(content[: len(content) // 2])) < 0.6 * len(whole)
    assert len(caplog.records) == 1 and "frames" in caplog.records[0].getMessage()


@pytest.mark.parametrize("length", [0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF024])
def test_a_wav_file_whose_writer_did_not_know_its_length_is_whole(
    caplog: pytest.LogCaptureFixture, length: int
) -> None:
    content = bytearray(encoded(tone(16000), 16000))  # what ffmpeg and sox write to a pipe
    content[4:8] = content[40:44] = length.to_bytes(4, "little")
    with caplog.at_level(logging.WARNING, "whispyx.audio"):
        assert len(load(bytes(content))) == 16000
    assert caplog.records == []


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device_is_no_sound_file(device: str) -> None:
    with pytest.raises(AudioError, match="is a device"):
        load(device)


def test_a_view_of_bytes_that_do_not_lie_together_is_read() -> None:
    content = encoded(tone(16000), 16000)
    spread = bytes(value for byte in content for value in (byte, 0))
    assert np.array_equal(load(memoryview(spread)[::2]), load(content))


def test_a_whole_file_of_odd_length_does_not_warn(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "whispyx.audio"):
        load(encoded(tone(16000)[:-1], 16000, "WAV", "PCM_U8"))
        load(encoded(tone(16000)[:-1], 48000, "WAV", "PCM_24"))
    assert caplog.records == []


def wav_header(rate: int, channels: int, n_bytes: int) -> bytes:
    block = 2 * channels
    return (
        struct.pack("<4sI4s4sI", b"RIFF", 36 + n_bytes, b"WAVE", b"fmt ", 16)
        + struct.pack("<HHIIHH", 1, channels, rate, min(rate * block, 2**32 - 1), block, 16)
        + struct.pack("<4sI", b"data", n_bytes)
    )


@pytest.mark.parametrize("rate", [1, 999, 1_000_001, 4_000_000_000])
def test_absurd_rates_are_refused(rate: int) -> None:
    with pytest.raises(AudioError, match=r"1000 to 1000000 Hz|not a sound file"):
        load(wav_header(rate, 1, 200) + bytes(200))


def test_absurd_channel_counts_are_refused() -> None:
    with pytest.raises(AudioError, match=r"65 channels|not a sound file"):
        load(wav_header(16000, 65, 1300) + bytes(1300))


def test_a_length_of_four_gigabytes_is_not_believed() -> None:
    # what programs write into a pipe, where they cannot come back to correct it
    samples = load(wav_header(16000, 1, 0xFFFFFFFF - 36) + bytes(200))
    assert samples.shape == (100,)


@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (np.inf, "infinite"), (-np.inf, "infinite")])
@pytest.mark.parametrize("channels", [1, 2])
def test_a_bad_sample_in_a_file_is_located(value: float, name: str, channels: int) -> None:
    frames = np.zeros((50000, channels), np.float32)
    frames[44100, -1] = value
    frames[44101] = np.nan
    with pytest.raises(AudioError, match=r"sample 44100 \(at 1\.000 s\)") as caught:
        load(encoded(frames, 44100, "WAV", "FLOAT"))
    assert name in str(caught.value)
    assert ("channel 1" in str(caught.value)) == (channels == 2)


KINDS = {kind: encoded(tone(16000, 0.3), 16000, kind) for kind in ("WAV", "FLAC", "OGG", "MP3", "AIFF")}


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(KINDS)), st.data())
def test_a_damaged_file_gives_samples_or_an_error(kind: str, draw: st.DataObject) -> None:
    content = bytearray(KINDS[kind])
    for _ in range(draw.draw(st.integers(1, 4))):
        place = draw.draw(st.one_of(st.integers(0, 100), st.integers(0, len(content) - 1)))
        content[place] = draw.draw(st.integers(0, 255))
    del content[draw.draw(st.integers(0, len(content))) :]
    try:
        samples = load(bytes(content))
    except AudioError:
        return
    assert samples.dtype == np.float32
    assert samples.ndim == 1
    assert np.isfinite(samples).all()


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_noise_is_never_anything_but_an_error_or_samples(content: bytes) -> None:
    try:
        assert load(content).dtype == np.float32
    except AudioError as error:
        assert str(error)


def test_real_opus_and_mp3_files_have_their_length() -> None:
    opus, mp3 = (load(data.or_skip(data.silero_clip, kind)) for kind in ("opus", "mp3"))
    # The last Ogg page ends at 387384 and the header skips 312, both of 48000 a second.
    assert len(opus) == (387384 - 312) * 16000 // 48000
    # Its Info header counts 98 frames of 1152 samples at 44100 a second; the encoder's delay and padding are cut off.
    assert 97 * 1152 * 16000 // 44100 <= len(mp3) <= 98 * 1152 * 16000 / 44100
    assert min(np.abs(opus).max(), np.abs(mp3).max()) > 0.1


@pytest.mark.parametrize("kind", ["opus", "mp3"])
def test_real_compressed_files_do_not_depend_on_the_size_of_the_blocks(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = data.or_skip(data.silero_clip, kind)
    whole = load(path)
    monkeypatch.setattr(audio, "_BLOCK", 5000)
    np.testing.assert_allclose(load(path), whole, atol=1e-5)


def test_jfk_is_eleven_seconds_as_wav_and_as_mp3() -> None:
    assert len(load(data.or_skip(data.jfk_wav))) == 176000
    assert abs(len(load(data.or_skip(data.jfk_mp3))) - 176000) < 3000
