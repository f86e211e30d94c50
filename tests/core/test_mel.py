"""The spectrogram on several threads."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from whispyx._core import mel

RNG = np.random.default_rng(0)
FILTERS = np.abs(RNG.normal(size=(80, 201))).astype(np.float32)
SOUND = RNG.normal(0, 0.1, 16000 * 100).astype(np.float32)  # more frames than one task takes


def test_threads_do_not_change_the_spectrogram() -> None:
    np.testing.assert_array_equal(mel.log_mel(SOUND, FILTERS, 3), mel.log_mel(SOUND, FILTERS, 1))


def test_a_system_that_starts_no_threads_computes_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(ThreadPoolExecutor):
        def submit(self, *_: Any, **__: Any) -> Future[Any]:
            raise RuntimeError("can't start new thread")

    alone = mel.log_mel(SOUND, FILTERS, 1)
    monkeypatch.setattr("concurrent.futures.ThreadPoolExecutor", Refusing)
    np.testing.assert_array_equal(mel.log_mel(SOUND, FILTERS, 3), alone)
