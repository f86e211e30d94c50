"""System information, log lines, timings, micro-benchmarks, and taking the extension's place."""

from __future__ import annotations

import logging
import sys
from types import ModuleType
from typing import Any

from whispyx import capi
from whispyx.compat.pywhispercpp._structs import opened, whisper_context
from whispyx.compat.pywhispercpp._values import as_callback, as_int

EXTENSION = "_pywhispercpp"


class _Log:
    """Whether a program has asked for the log lines."""

    taken = False


def whisper_log_set(callback: Any = None) -> None:
    """Have callback(level, text) called with every log line; None: back to Python's logging."""
    function = as_callback("callback", callback)
    _Log.taken = function is not None
    if function is None:
        capi.whisper_log_set(None)
    else:
        capi.whisper_log_set(lambda level, text, _: function(int(level), text))


def _to_stderr(_level: int, text: str, _data: Any) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)


def whisper_print_timings(ctx: Any) -> None:
    """Print where the time went, to standard error unless a log callback is set."""
    held = opened(whisper_context, ctx)
    if _Log.taken:
        capi.whisper_print_timings(held)
        return
    capi.whisper_log_set(_to_stderr)
    try:
        capi.whisper_print_timings(held)
    finally:
        capi.whisper_log_set(None)


def whisper_reset_timings(ctx: Any) -> None:
    """Set times and counts to zero."""
    capi.whisper_reset_timings(opened(whisper_context, ctx))


def whisper_print_system_info() -> str:
    """One line about devices and what they can do."""
    return capi.whisper_print_system_info()


def whisper_bench_memcpy(n_threads: Any) -> int:
    """Print how fast memory is copied."""
    return capi.whisper_bench_memcpy(as_int("n_threads", n_threads))


def whisper_bench_ggml_mul_mat(n_threads: Any) -> int:
    """Print how fast matrices are multiplied."""
    return capi.whisper_bench_ggml_mul_mat(as_int("n_threads", n_threads))


class _Console(logging.Handler):
    """Writes warnings and errors to standard error, as the extension does, until the program sets up logging."""

    def emit(self, record: logging.LogRecord) -> None:
        if sys.stderr is not None and not logging.getLogger().handlers:
            print(self.format(record), file=sys.stderr)


_CONSOLE = _Console(logging.WARNING)


def install() -> ModuleType:
    """Take the place of pywhispercpp's extension module: `import pywhispercpp` after this runs on whispyx.

    Raises
    ------
    ImportError
        The extension itself was imported before; it and its libraries cannot be taken out of a process.
    """
    own = sys.modules["whispyx.compat.pywhispercpp"]
    present = sys.modules.get(EXTENSION)
    if present is not None and present is not own:
        raise ImportError(f"{EXTENSION} is loaded already; install whispyx in its place before importing pywhispercpp")
    sys.modules[EXTENSION] = own
    logging.getLogger("whispyx").addHandler(_CONSOLE)  # a handler is added once, however often
    return own
