"""The working memories of one model: handed out one per job, kept for the next job, bounded in number."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from .errors import BackendError, ComputeError, StateError

__all__ = ["StatePool"]


class Closable(Protocol):
    @property
    def lost(self) -> bool: ...

    def close(self) -> None: ...


S = TypeVar("S", bound=Closable)


class StatePool(Generic[S]):
    """Lends out states to jobs.

    A state holds caches of many megabytes and takes a while to make, so a job reuses an idle one when there is one. At
    most `max_jobs` states are out at a time, further jobs wait their turn, and at most `max_idle` are kept afterwards.
    A state whose computation failed is not used again.

    Parameters
    ----------
    make : callable
        Makes a state.
    max_jobs : int
        Most states in use at once.
    max_idle : int
        Most unused states kept.
    """

    def __init__(self, make: Callable[[], S], max_jobs: int, max_idle: int) -> None:
        self._make = make
        self._max_jobs = max_jobs
        self._max_idle = max_idle
        self._idle: list[S] = []
        self._n_busy = 0
        self._closed = False
        self._changed = threading.Condition()
        self._mine = threading.local()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @contextmanager
    def lend(self) -> Iterator[S]:
        """Lend a state for the length of the block.

        A job started from within a callback of another job on the same thread never waits: the outer one cannot end
        before it does.

        Raises
        ------
        StateError
            The pool is closed, or was closed while the job waited.
        """
        depth: int = getattr(self._mine, "depth", 0)
        with self._changed:
            while not self._closed and depth == 0 and self._n_busy >= self._max_jobs:
                self._changed.wait()
            if self._closed:
                raise StateError("the model is closed: make a new Model")
            state = self._idle.pop() if self._idle else None
            self._n_busy += 1
        self._mine.depth = depth + 1
        sound = True
        try:
            if state is not None and state.lost:  # its device has gone while nobody looked
                old, state = state, None
                old.close()
            if state is None:
                state = self._make()
            yield state
        except (ComputeError, BackendError):
            sound = False
            raise
        finally:
            self._mine.depth = depth
            self._give_back(state, sound)

    def _give_back(self, state: S | None, sound: bool) -> None:
        with self._changed:
            self._n_busy -= 1
            if state is not None and sound and not self._closed and len(self._idle) < self._max_idle:
                self._idle.append(state)
                state = None
            self._changed.notify()
        if state is not None:
            state.close()

    def close(self) -> None:
        """Close the idle states now and the busy ones when their jobs end. Closing twice is fine."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        for state in idle:
            state.close()
