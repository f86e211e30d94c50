"""Memory does not grow with the number of jobs or models. Each measurement is a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests import data
from tests.oracle.tiny_model import TinyModel, speechlike

CHILD = Path(__file__).with_name("memory_child.py")
ROOT = CHILD.parent.parent.parent
N_JOBS, SETTLED_AFTER, JOBS_MAY_ADD_KB = 200, 20, 5 * 1024
N_MODELS, MODELS_MAY_ADD_KB = 30, 10 * 1024


def measure(*arguments: str) -> list[Any]:
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    done = subprocess.run(
        [sys.executable, str(CHILD), *arguments],
        capture_output=True,
        text=True,
        timeout=1800,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stderr[-2000:]}"
    readings: list[Any] = json.loads(done.stdout)
    return readings


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel(seed=3).write(tmp_path_factory.mktemp("memory") / "tiny.bin")


def assert_jobs_leave_nothing(model: Path, samples: np.ndarray, folder: Path) -> None:
    np.save(folder / "sound.npy", samples)
    readings = measure("transcribe", str(model), str(folder / "sound.npy"), str(N_JOBS))
    assert len(readings) == N_JOBS
    grown = readings[-1] - readings[SETTLED_AFTER - 1]
    print(f"{readings[SETTLED_AFTER - 1]} kB after {SETTLED_AFTER} jobs, {grown:+} kB after {N_JOBS}")
    assert grown <= JOBS_MAY_ADD_KB


def test_200_transcriptions_leave_nothing_behind(tiny: Path, tmp_path: Path) -> None:
    assert_jobs_leave_nothing(tiny, speechlike(41.0, 3), tmp_path)


@pytest.mark.skipif(
    os.environ.get("WHISPYX_SLOW_TESTS", "") in ("", "0"), reason="takes minutes: set WHISPYX_SLOW_TESTS=1"
)
def test_200_transcriptions_of_speech_leave_nothing_behind(tmp_path: Path) -> None:
    samples, _ = soundfile.read(data.or_skip(data.jfk_wav), dtype="float32")
    assert_jobs_leave_nothing(data.or_skip(data.model_file, "tiny.en"), samples, tmp_path)


def assert_models_leave_nothing(model: Path) -> None:
    readings = measure("models", str(model), str(N_MODELS))
    grown = readings[-1] - readings[0]
    print(f"{readings[0]} kB after the first model, {grown:+} kB after {N_MODELS} more")
    assert grown <= MODELS_MAY_ADD_KB


def test_30_models_leave_nothing_behind(tiny: Path) -> None:
    assert_models_leave_nothing(tiny)


def test_30_real_models_leave_nothing_behind() -> None:
    assert_models_leave_nothing(data.or_skip(data.model_file, "tiny.en"))


def test_a_state_that_ran_out_of_memory_works_again(tiny: Path) -> None:
    ended = measure("limited", str(tiny))
    assert {end for _, end, _ in ended} <= {"done", "ComputeMemoryError", "MemoryError"}, ended
    for kind in ("beams", "logits"):  # alignment needs little more than what is there
        assert any(end != "done" for job, end, _ in ended if job == kind), f"no limit was low enough for {kind}"
    assert {after for _, _, after in ended} == {"same"}, ended
