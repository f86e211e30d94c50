"""One build at a time in one folder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["one_at_a_time"]


@contextlib.contextmanager
def one_at_a_time(lock: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the file `lock`; when another process has it, call `waiting` and wait for it to end."""
    try:
        import fcntl
    except ImportError:  # no such lock on this system: builds are not started twice by accident there either
        yield
        return
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
