"""The opaque structs of whisper.h as classes. Only the functions of this package look inside.

A freed object refuses every further use with StateError, except being freed again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from whispyx._core.context import Context
from whispyx._core.results import SegmentData
from whispyx._core.state import State
from whispyx.capi._clock import Clock
from whispyx.errors import StateError

if TYPE_CHECKING:
    from whispyx._core.parallel import ParallelRun
    from whispyx._core.run import FullRun
    from whispyx._core.vad.detect import VadModel

__all__ = ["whisper_context", "whisper_state", "whisper_vad_context", "whisper_vad_segments"]


class Opaque:
    """What can be freed, once or more often."""

    __slots__ = ("freed",)

    def __init__(self) -> None:
        self.freed = False

    def check(self, function: str) -> None:
        """Refuse the use of what was freed."""
        if self.freed:
            raise StateError(f"{function}: the {type(self).__name__} was freed")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{' (freed)' if self.freed else ''} at {id(self):#x}>"


Freed = TypeVar("Freed", bound=Opaque)


class whisper_context(Opaque):
    """A model, and its default state unless it was made by a `_no_state` function."""

    __slots__ = ("__weakref__", "core", "dtw", "dtw_error", "state")

    def __init__(self, core: Context) -> None:
        super().__init__()
        self.core = core
        self.state: whisper_state | None = None
        self.dtw = False
        self.dtw_error: str | None = None  # why states cannot be made


class whisper_state(Opaque):
    """Working memory for one job at a time, and the results of the last one."""

    __slots__ = (
        "__weakref__",
        "_lock",
        "clock",
        "core",
        "ctx",
        "found",
        "has_own_mel",
        "lang_id",
        "run",
        "vad_segments",
    )

    def __init__(self, ctx: whisper_context, core: State) -> None:
        super().__init__()
        self.ctx, self.core = ctx, core
        self.run: FullRun | ParallelRun | None = None  # while it goes on
        self.found: Sequence[SegmentData] = ()
        self.vad_segments: Sequence[tuple[int, int]] = ()
        self.lang_id = 0
        self.has_own_mel = False  # put there by whisper_pcm_to_mel or whisper_set_mel, not left over by whisper_full
        self.clock = Clock()
        self._lock = threading.Lock()

    @property
    def segments(self) -> Sequence[SegmentData]:
        """What the last run found, or the running one so far."""
        run = self.run
        return self.found if run is None else run.segments

    @contextmanager
    def job(self, function: str) -> Iterator[State]:
        """Hold the state for the length of a job."""
        self.check(function)
        if not self._lock.acquire(blocking=False):
            raise StateError(f"{function}: the state is in use: one job at a time; make a state for each thread")
        try:
            yield self.core
        finally:
            self._lock.release()


class whisper_vad_context(Opaque):
    """A voice activity model with its recurrent state and the probabilities of the last call."""

    __slots__ = ("__weakref__", "_lock", "core")

    def __init__(self, core: VadModel) -> None:
        super().__init__()
        self.core = core
        self._lock = threading.Lock()

    @contextmanager
    def job(self, function: str) -> Iterator[VadModel]:
        """Hold the model for the length of a job."""
        self.check(function)
        if not self._lock.acquire(blocking=False):
            raise StateError(f"{function}: the whisper_vad_context is in use: one job at a time")
        try:
            yield self.core
        finally:
            self._lock.release()


class whisper_vad_segments(Opaque):
    """Where speech is: start and end of each segment in units of 10 ms."""

    __slots__ = ("__weakref__", "spans")

    def __init__(self, spans: Sequence[tuple[float, float]]) -> None:
        super().__init__()
        self.spans = tuple(spans)


def context_of(ctx: whisper_context | None, function: str) -> Context:
    """Return the model behind `ctx`.

    Raises
    ------
    StateError
        It is None or was freed.
    TypeError
        It is something else.
    """
    if ctx is None:
        raise StateError(f"{function}: the context is NULL")
    if not isinstance(ctx, whisper_context):
        raise TypeError(f"{function}: a whisper_context is needed, not {ctx!r}")
    ctx.check(function)
    return ctx.core


def default_state(ctx: whisper_context | None, function: str) -> whisper_state:
    """Return the context's own state.

    Raises
    ------
    StateError
        There is no context, or it was made without a state, or it was freed.
    """
    context_of(ctx, function)
    assert ctx is not None
    if ctx.state is None:
        raise StateError(f"{function}: the context was made without a state; use the function that takes one")
    return ctx.state


def state_of(state: whisper_state | None, function: str) -> whisper_state:
    """Return `state` after checking it.

    Raises
    ------
    StateError
        It is None or was freed, itself or with its context.
    TypeError
        It is something else.
    """
    if state is None:
        raise StateError(f"{function}: the state is NULL")
    if not isinstance(state, whisper_state):
        raise TypeError(f"{function}: a whisper_state is needed, not {state!r}")
    state.check(function)
    state.ctx.check(function)
    return state


def state_in(ctx: whisper_context | None, state: whisper_state | None, function: str) -> whisper_state:
    """Return `state` after checking both, and that the state was made from the context.

    Raises
    ------
    StateError
        One of them is None or was freed, or the state belongs to another context.
    TypeError
        One of them is something else.
    """
    context_of(ctx, function)
    held = state_of(state, function)
    if held.ctx is not ctx:
        raise StateError(f"{function}: the state was made from another context")
    return held


def to_free(kind: type[Freed], value: Freed | None, function: str) -> Freed | None:
    """Return what is to be freed, None when that is nothing or was done before.

    Raises
    ------
    TypeError
        It is something else.
    """
    if value is None:
        return None
    if not isinstance(value, kind):
        raise TypeError(f"{function}: a {kind.__name__} is needed, not {value!r}")
    return None if value.freed else value
