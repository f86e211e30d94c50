"""Recordings: one that is shipped, one that is fetched by package name and checksum."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import soundfile

from whispyx.audio import load
from whispyx.errors import AudioError, ModelError, ParamsError
from whispyx.models import SAMPLES, sample, samples
from whispyx.models.packages import fetch_files
from whispyx.models.samples import Sample

from .fake_packages import make_sdist, sha256

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def packages(tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


def test_the_shipped_sentence_is_three_seconds_of_16_khz() -> None:
    path = sample("synthetic")
    info = soundfile.info(path)
    assert (info.samplerate, info.channels, info.format) == (16000, 1, "FLAC")
    assert 2.5 < info.duration < 3.5
    assert path.stat().st_size < 100_000
    assert np.abs(load(path)).max() > 0.1


def test_its_text_is_the_one_it_was_made_from() -> None:
    script = (ROOT / "whispyx" / "data" / "make_synthetic.sh").read_text("utf-8")
    assert f'"{SAMPLES["synthetic"].text}"' in script


def test_an_unknown_sample_is_refused() -> None:
    with pytest.raises(ParamsError, match="jfk, synthetic"):
        sample("fjk")


@pytest.mark.usefixtures("empty_cache")
def test_offline_a_sample_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHISPYX_OFFLINE", "1")
    with pytest.raises(AudioError, match="WHISPYX_OFFLINE"):
        sample("jfk")


def test_a_sample_is_fetched_once(packages: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = b"RIFF and so on"
    make_sdist(packages, {"sounds/a.wav": sound, "sounds/b.wav": b"other"})
    monkeypatch.setitem(
        samples.SAMPLES, "a", Sample("a.wav", "words", "", "whispyx-test-sounds==1.0", "sounds/a.wav", sha256(sound))
    )
    path = sample("a")
    assert path == empty_cache / "samples" / "a.wav"
    assert path.read_bytes() == sound
    assert sorted(file.name for file in path.parent.iterdir()) == [".locks", "a.wav", "a.wav.json"]
    monkeypatch.setenv("WHISPYX_OFFLINE", "1")
    assert sample("a") == path


def test_a_damaged_sample_is_fetched_again(packages: Path, empty_cache: Path) -> None:
    folder = empty_cache / "samples"
    make_sdist(packages, {"x.wav": b"sound"})
    files = {"x.wav": sha256(b"sound")}
    path = fetch_files("whispyx-test-sounds==1.0", files, folder)["x.wav"]
    path.write_bytes(b"soun")
    assert fetch_files("whispyx-test-sounds==1.0", files, folder)["x.wav"].read_bytes() == b"sound"


def test_another_file_or_none_is_refused(packages: Path, empty_cache: Path) -> None:
    make_sdist(packages, {"x.wav": b"sound"})
    folder = empty_cache / "samples"
    with pytest.raises(ModelError, match=r"x\.wav of .* is not the file"):
        fetch_files("whispyx-test-sounds==1.0", {"x.wav": "0" * 64}, folder)
    with pytest.raises(ModelError, match=r"does not hold y\.wav"):
        fetch_files("whispyx-test-sounds==1.0", {"y.wav": "0" * 64}, folder)
    assert [path.name for path in folder.iterdir()] == [".locks"]


def test_a_failed_fetch_says_what_pip_said(packages: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AudioError, match=r"No matching distribution found for pywhispercpp==1\.5\.1"):
        sample("jfk")
