"""A damaged voice activity model is refused with a reason, or works. It never ends the process."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

import whispyx.plugins
from tests.oracle.tiny_model import TinyModel
from tests.oracle.vad_model import SmallSilero
from whispyx._core.vad.detect import VadModel
from whispyx.errors import ModelFormatError, ModelNotFoundError, ParamsError

CHILD = Path(__file__).with_name("vad_fuzz_child.py")
FEWEST_CASES = 800
TIMEOUT_S = 300


@dataclass(frozen=True)
class Result:
    name: str
    verdict: str
    outcome: str  # refused, works, cannot compute, wrong error, does not work, or killed by a signal
    message: str
    open: int  # handles that were not closed


def run_all() -> list[Result]:
    """Run every case; a child that dies is replaced by one that goes on behind the case that killed it."""
    results: list[Result] = []
    for _ in range(20):
        done = subprocess.run(
            [sys.executable, str(CHILD), str(len(results))], capture_output=True, text=True, timeout=TIMEOUT_S
        )
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        results += [Result(**start, **end) for start, end in zip(lines[::2], lines[1::2], strict=False)]
        if done.returncode == 0:
            break
        assert len(lines) % 2 == 1, f"the child ended outside a case: {done.stderr[-2000:]}"
        how = signal.Signals(-done.returncode).name if done.returncode < 0 else f"status {done.returncode}"
        results.append(Result(**lines[-1], outcome=f"killed: {how}", message=done.stderr[-500:], open=0))
    return results


@pytest.fixture(scope="module")
def results() -> list[Result]:
    found = run_all()
    print(f"\n{len(found)} damaged models: {dict(Counter(r.outcome for r in found))}")
    return found


def listed(bad: list[Result]) -> str:
    return "\n".join(f"{r.name}: {r.outcome}: {r.message}" for r in bad)


def test_there_are_enough_cases(results: list[Result]) -> None:
    assert len(results) >= FEWEST_CASES


def test_no_damaged_model_ends_the_process(results: list[Result]) -> None:
    bad = [r for r in results if r.outcome.startswith("killed")]
    assert not bad, listed(bad)


def test_every_refusal_is_a_model_format_error_with_a_reason(results: list[Result]) -> None:
    bad = [r for r in results if r.outcome == "wrong error" or (r.outcome == "refused" and len(r.message) < 20)]
    assert not bad, listed(bad)


def test_a_model_that_loads_works_or_says_that_its_values_are_no_numbers(results: list[Result]) -> None:
    bad = [r for r in results if r.outcome == "does not work"]
    assert not bad, listed(bad)


def test_what_cannot_be_right_is_refused(results: list[Result]) -> None:
    bad = [r for r in results if r.verdict == "refused" and r.outcome != "refused"]
    assert not bad, listed(bad)


def test_no_attempt_leaves_handles_open(results: list[Result]) -> None:
    assert not {r.name: r.open for r in results if r.open}


@pytest.fixture(scope="module", autouse=True)
def plugins() -> None:
    whispyx.plugins.load()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"nothing\.bin"):
        VadModel.load(tmp_path / "nothing.bin")


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match="folder"):
        VadModel.load(tmp_path)


def test_a_speech_recognition_model_is_no_voice_activity_model(tmp_path: Path) -> None:
    whisper = TinyModel(n_state=64, n_audio_ctx=40, n_text_ctx=64).write(tmp_path / "whisper.bin")
    with pytest.raises(ModelFormatError, match="not a voice activity model"):
        VadModel.load(whisper)


OTHERS = {
    "gzip": (gzip.compress(b"lmgg" * 100, mtime=0), "is a gzip archive, not .*; unpack it"),
    "a tar archive": (b"model.bin".ljust(257, b"\0") + b"ustar\0" + bytes(1000), "is a tar archive, not .*; unpack it"),
    "a zip archive": (b"PK\3\4" + bytes(100), "is a zip archive or a checkpoint"),
    "a recording": (b"RIFF\x24\0\0\0WAVEfmt " + bytes(100), r"is a sound or picture file \(RIFF\), not [^;]*$"),
    "JSON": (b'{"error": "Repository not found"}', "is JSON .*Repository not found"),
    "a web page": (b"<!DOCTYPE html><title>404</title>", "is a web page .*404.*; fetch the model again"),
    "a pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 885098\n",
        "of 885098 bytes.*git lfs",
    ),
    "text": (b"Invalid username or password.", "is plain text .*Invalid username"),
    "ONNX, as Silero's own": (b"\x08\x08\x12\x07pytorch\x1a\x052.1.0:" + bytes(100), "is an ONNX model, not [^;]*$"),
    "GGUF": (b"GGUF" + bytes(100), "is a GGUF file"),
    "a pickle": (b"\x80\x04\x95" + bytes(200), "Python pickle"),
    "a few bytes": (b"\0\1\2\xff", "only 4 bytes long"),
    "noise": (bytes(range(128, 256)) * 10, r"it starts with b'.x80.x81.x82.x83'"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_no_voice_activity_model_is_called_by_its_name(case: str, tmp_path: Path) -> None:
    content, message = OTHERS[case]
    path = tmp_path / "ggml-silero.bin"
    path.write_bytes(content)
    for source in (path, content):
        with pytest.raises(ModelFormatError, match=message) as caught:
            VadModel.load(source)
        assert "a ggml voice activity model" in str(caught.value)
        assert "(before offset 4)" in str(caught.value)


@pytest.mark.parametrize("source", [None, 3, ["x"]])
def test_a_model_is_a_path_or_bytes(source: object) -> None:
    with pytest.raises(TypeError):
        VadModel.load(source)  # type: ignore[arg-type]


@pytest.mark.parametrize("n_threads", [0, -1, 513, 2**31 - 1])
def test_V3_a_thread_count_out_of_range_is_refused(n_threads: int) -> None:
    with pytest.raises(ParamsError, match="n_threads"):
        VadModel.load(SmallSilero().to_bytes(), n_threads=n_threads)
