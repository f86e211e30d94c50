"""`whispyx devices`, `convert`, `fetch` and `demo`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whispyx import AudioError, ModelNotFoundError
from whispyx.cli import main

from .fakes import FakeEngine, FakeSegment, seconds_of_audio

Install = Callable[[FakeEngine], FakeEngine]
Capture = pytest.CaptureFixture[str]


def test_devices_lists_the_cpu(capsys: Capture) -> None:
    assert main(["devices", "--json"]) == 0
    devices = json.loads(capsys.readouterr().out)["devices"]
    assert [device["kind"] for device in devices][-1] == "CPU"
    assert devices[-1]["memory_total"] > 0 and devices[-1]["selected"] is True
    assert main(["devices"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == ["device", "kind", "backend", "memory", "description"]
    assert devices[-1]["name"] in table[len(devices)]


def test_devices_of_an_unknown_backend_are_an_error(capsys: Capture) -> None:
    assert main(["devices", "--backend", "vulkna"]) == 4
    assert "vulkna" in capsys.readouterr().err


def test_fetch_prints_the_paths_and_goes_on_after_a_failure(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def resolve(name: str, *, progress: Any = None) -> Path:
        if name == "gone":
            raise ModelNotFoundError("no source has gone")
        return Path(f"/cache/ggml-{name}.bin")

    monkeypatch.setattr("whispyx.models.resolve", resolve)
    assert main(["fetch", "tiny.en"]) == 0
    assert capsys.readouterr().out == "/cache/ggml-tiny.en.bin\n"
    assert main(["fetch", "gone", "base"]) == 3
    assert capsys.readouterr() == ("/cache/ggml-base.bin\n", "whispyx: no source has gone\n")


def test_fetch_of_an_unknown_name_offers_near_ones(capsys: Capture) -> None:
    assert main(["fetch", "tyni.en"]) == 3
    assert "tiny.en" in capsys.readouterr().err


def test_convert_of_no_folder_is_a_model_error_and_writes_nothing(tmp_path: Path, capsys: Capture) -> None:
    assert main(["convert", str(tmp_path / "none"), str(tmp_path / "out.bin")]) == 3
    assert "none" in capsys.readouterr().err and list(tmp_path.iterdir()) == []
    assert main(["convert", "a", "b", "--dtype", "q9"]) == 2


def samples(found: dict[str, Path], asked: list[str]) -> Callable[..., Path]:
    def sample(name: str, *, progress: Any = None) -> Path:
        asked.append(name)
        if name not in found:
            raise AudioError("the package index is out of reach")
        return found[name]

    return sample


class AnySound(FakeEngine):
    def load_audio(self, audio: Any, sample_rate: float | None) -> Any:
        return seconds_of_audio(11.0)


def test_demo_prints_text_times_backend_and_speed(
    install: Install, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    install(AnySound((FakeSegment(0, 1050, b" And so, my fellow Americans"),)))
    asked: list[str] = []
    monkeypatch.setattr("whispyx.models.sample", samples({"jfk": Path("jfk.wav")}, asked))
    assert main(["demo"]) == 0
    out, err = capsys.readouterr()
    assert "[00:00:00.000 --> 00:00:10.500]  And so, my fellow Americans\n" in out
    assert "tiny.en" in out and "jfk.wav" in out and "GPU0; CPU" in out and "times real time" in out
    assert asked == ["jfk"] and err == ""


def test_demo_says_when_the_synthetic_sentence_stands_in(
    install: Install, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    install(AnySound())
    asked: list[str] = []
    monkeypatch.setattr("whispyx.models.sample", samples({"synthetic": Path("synthetic.flac")}, asked))
    assert main(["demo"]) == 0
    out, err = capsys.readouterr()
    assert "synthetic.flac: a synthetic sentence, since the recording could not be fetched" in out
    assert "package index is out of reach" in err and asked == ["jfk", "synthetic"]


def test_demo_without_a_model_ends_with_the_code_for_models(
    install: Install, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    class NoModel(AnySound):
        def open(self, *args: Any, **kwargs: Any) -> Any:
            raise ModelNotFoundError("no source has tiny.en")

    install(NoModel())
    assert main(["demo"]) == 3
    assert capsys.readouterr().err == "whispyx: no source has tiny.en\n"
