"""A real model with the checks of the trials around every call. Used inside the child processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

import whispyx.plugins
from tests import data
from tests.trials import checks, sounds
from whispyx._core.context import Context
from whispyx._core.params import FullParams
from whispyx._core.run import FullRun
from whispyx._core.state import State


def files(*models: str) -> None:
    """Fetch and make everything in the test's own process, or skip."""
    for model in models:
        data.or_skip(data.model_file, model)
    data.or_skip(sounds.folder)


def hear(name: str | Path) -> Any:
    """Samples of a sound: float32 (n,), 16 kHz."""
    samples, rate = soundfile.read(sounds.wav(name) if isinstance(name, str) else name, dtype="float32")
    assert rate == checks.RATE and samples.ndim == 1
    return samples


def text_of(result: Any) -> str:
    return b"".join(segment.text for segment in result.segments).decode("utf-8")


class Bench:
    """A context and a state; `run` checks I1 to I4 in every result, `close` checks I6.

    Parameters
    ----------
    model : str
        "tiny.en" or "base".
    """

    def __init__(self, model: str) -> None:
        whispyx.plugins.load()
        self.ctx = Context.load(str(data.model_file(model)))
        self.state = self.ctx.new_state()
        self.hello = hear("hello")
        self.before = self.run(self.hello).segments
        assert self.before, "the model hears nothing in 'hello'"

    @property
    def eot(self) -> int:
        return self.ctx.vocab.eot

    def run(self, sound: Any, state: State | None = None, full: Callable[..., Any] | None = None, **params: Any) -> Any:
        """Recognise a sound (by name or as samples) and check the result."""
        samples = hear(sound) if isinstance(sound, str) else sound
        made = FullParams(**params)
        if full is None:
            result = FullRun(self.ctx, state or self.state, made, samples).run()
        else:
            result = full(self.ctx, state or self.state, made, samples)
        try:
            checks.check_segments(result.segments, len(samples), self.eot)
        except checks.Broken as broken:
            shown = sound if isinstance(sound, str) else f"{len(samples)} samples"
            raise checks.Broken(f"{broken} [{shown}, {params}]") from broken
        return result

    def refused(self, kind: type[BaseException], sound: Any, **params: Any) -> BaseException:
        """Return the exception of a call that must fail, after the model has shown that it still works."""
        try:
            self.run(sound, **params)
        except kind as error:
            self.works_as_before()
            return error
        raise AssertionError(f"{params} was not refused with {kind.__name__}")

    def works_as_before(self) -> None:
        """I6."""
        if self.run(self.hello).segments != self.before:
            raise checks.Broken("I6: 'hello' is transcribed in another way than at first")

    def close(self) -> None:
        self.works_as_before()
        self.state.close()
        self.ctx.close()


@contextlib.contextmanager
def bench(model: str) -> Iterator[Bench]:
    made = Bench(model)
    yield made
    made.close()


def noise(n_samples: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).normal(0, 0.05, n_samples).astype(np.float32)
