"""The standard descriptors of a process: all three are there, and descriptor 1 carries our output alone.

Drivers and the libraries beneath plugins print on descriptor 1 whenever they like. What a program reads from the
command must hold none of it, so the command moves its own output to another descriptor and lets 1 be standard error.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress

__all__ = ["above_standard", "fill_closed", "keep_stdout"]


def fill_closed() -> None:
    """Put the null device where the caller closed a standard descriptor.

    Whatever is opened next would get that number, and a child process would lose it or take it for something else.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)


def above_standard(number: int) -> int:
    """Return a descriptor for the same thing that is none of the standard ones, which a child replaces."""
    if number > 2:
        return number
    moved = above_standard(os.dup(number))
    os.close(number)
    return moved


def keep_stdout() -> Callable[[], None]:
    """Keep standard output for what Python writes; what others write to descriptor 1 goes to standard error.

    Returns
    -------
    callable
        Puts everything back. Does nothing where nothing was changed: `sys.stdout` was not descriptor 1.
    """
    before = sys.stdout
    if not isinstance(before, io.TextIOWrapper) or _number(before) != 1:
        return lambda: None
    before.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
    except OSError:  # there is no standard error either
        os.close(kept)
        return lambda: None
    ours = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(kept, "w")),
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )
    sys.stdout = ours

    def undo() -> None:
        if sys.stdout is ours:
            sys.stdout = before
        _flush_libraries()
        with suppress(OSError, ValueError):
            ours.flush()
        os.dup2(kept, 1)
        with suppress(OSError, ValueError):
            ours.close()

    return undo


def _number(stream: io.TextIOWrapper) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError):  # it is no file, or closed
        return None


def _flush_libraries() -> None:
    """Have C's streams written to where descriptor 1 leads now, not to where it will lead when the process ends."""
    if os.name != "posix":
        return
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).fflush(None)
