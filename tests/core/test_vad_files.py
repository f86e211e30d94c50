"""A damaged voice activity model is refused with a reason, or works. It never ends the process."""

from __future__ import annotations

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


@pytest.mark.parametrize("source", [None, 3, ["x"]])
def test_a_model_is_a_path_or_bytes(source: object) -> None:
    with pytest.raises(TypeError):
        VadModel.load(source)  # type: ignore[arg-type]


@pytest.mark.parametrize("n_threads", [0, -1, 513, 2**31 - 1])
def test_V3_a_thread_count_out_of_range_is_refused(n_threads: int) -> None:
    with pytest.raises(ParamsError, match="n_threads"):
        VadModel.load(SmallSilero().to_bytes(), n_threads=n_threads)
