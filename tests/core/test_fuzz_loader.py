"""A damaged model file is refused with a reason, or works. It never ends the process and never eats the memory."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.oracle.damage import cases
from tests.oracle.tiny_model import TinyModel

CHILD = Path(__file__).with_name("fuzz_child.py")
FEWEST_CASES = 300
EXTRA_MEMORY_KB = 200 * 1024  # on top of twice the file: compute buffers of a model that works
TIMEOUT_S = 900


@dataclass(frozen=True)
class Result:
    name: str
    outcome: str  # refused, works, cannot compute, wrong error, does not work, or killed by a signal
    message: str
    verdict: str
    grown_kb: int


def run_all(model: Path) -> list[Result]:
    """Run every case; a child that dies is replaced by one that goes on behind the case that killed it."""
    results: list[Result] = []
    deaths = 0
    while True:
        command = [sys.executable, str(CHILD), str(model), str(len(results))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        for start, end in zip(lines[::2], lines[1::2], strict=False):
            results.append(Result(start["name"], end["outcome"], end["message"], end["verdict"], end["grown_kb"]))
        if done.returncode == 0:
            return results
        assert len(lines) % 2 == 1, f"the child ended outside a case: {done.stderr[-2000:]}"
        code = done.returncode
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        results.append(Result(lines[-1]["name"], f"killed: {how}", done.stderr[-500:], "either", 0))
        deaths += 1
        if deaths == 20:
            return results  # enough to see


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel(n_state=64, n_audio_ctx=40, n_text_ctx=64).write(tmp_path_factory.mktemp("fuzz") / "tiny.bin")


@pytest.fixture(scope="module")
def results(model: Path) -> list[Result]:
    found = run_all(model)
    print(f"\n{len(found)} damaged models: {dict(Counter(r.outcome for r in found))}")
    return found


def listed(bad: list[Result]) -> str:
    return "\n".join(f"{r.name}: {r.outcome}: {r.message}" for r in bad)


def test_there_are_enough_cases(model: Path, results: list[Result]) -> None:
    assert len(results) >= FEWEST_CASES
    assert len({case.name for case in cases(model.read_bytes())}) == len(results)


def test_no_damaged_model_ends_the_process(results: list[Result]) -> None:
    bad = [r for r in results if r.outcome.startswith("killed")]
    assert not bad, listed(bad)


def test_every_refusal_is_a_model_format_error(results: list[Result]) -> None:
    bad = [r for r in results if r.outcome == "wrong error"]
    assert not bad, listed(bad)


def test_every_refusal_gives_a_reason(results: list[Result]) -> None:
    bad = [r for r in results if r.outcome == "refused" and len(r.message) < 20]
    assert not bad, listed(bad)


def test_a_model_that_loads_works(results: list[Result]) -> None:
    bad = [r for r in results if r.outcome == "does not work"]
    assert not bad, listed(bad)


def test_only_weights_that_are_not_numbers_cannot_be_computed_with(results: list[Result]) -> None:
    assert {r.name for r in results if r.outcome == "cannot compute"} <= {"weights that are not numbers"}


def test_what_cannot_be_right_is_refused(results: list[Result]) -> None:
    bad = [r for r in results if r.verdict == "refused" and r.outcome == "works"]
    assert not bad, listed(bad)


def test_memory_stays_within_bounds(model: Path, results: list[Result]) -> None:
    limit = 2 * model.stat().st_size // 1024 + EXTRA_MEMORY_KB
    bad = [r for r in results if r.grown_kb > limit]
    assert not bad, "\n".join(f"{r.name}: {r.grown_kb} kB" for r in bad)


def test_files_that_are_something_else_are_named(results: list[Result]) -> None:
    """The message says what a well-known file is, and shows how any other one begins."""
    words = {"lfs pointer": "lfs", "gguf": "gguf", "zip": "zip", "empty": "empty", "html": "html", "plain text": "acce"}
    said = {r.name.removeprefix("foreign: "): r.message.lower() for r in results if r.name.startswith("foreign")}
    assert not {name: said[name] for name, word in words.items() if word not in said[name]}
