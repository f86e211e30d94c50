"""Where the log lines of whispyx go when a program asks for them the way of the C API."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Final

from whispyx.capi.constants import (
    GGML_LOG_LEVEL_DEBUG,
    GGML_LOG_LEVEL_ERROR,
    GGML_LOG_LEVEL_INFO,
    GGML_LOG_LEVEL_WARN,
    ggml_log_level,
)

if TYPE_CHECKING:
    from whispyx.capi.constants import ggml_log_callback

log: Final = logging.getLogger("whispyx.capi")
"""What the functions of this package have to say."""

_whole: Final = logging.getLogger("whispyx")


def level_of(level: int) -> ggml_log_level:
    """Return ggml's level for one of `logging`."""
    if level >= logging.ERROR:
        return GGML_LOG_LEVEL_ERROR
    if level >= logging.WARNING:
        return GGML_LOG_LEVEL_WARN
    return GGML_LOG_LEVEL_INFO if level >= logging.INFO else GGML_LOG_LEVEL_DEBUG


class LastResort(logging.Handler):
    """Warnings and errors go to standard error, as in C, as long as the program has set up no log."""

    def emit(self, record: logging.LogRecord) -> None:
        others = [*logging.getLogger().handlers, *_whole.handlers, *(one for one in log.handlers if one is not self)]
        if all(isinstance(one, logging.NullHandler) for one in others):
            try:
                sys.stderr.write(f"{self.format(record)}\n")
            except Exception:
                self.handleError(record)


log.addHandler(LastResort(logging.WARNING))


def say(text: str) -> None:
    """Log a line that was asked for; where the log takes no such lines, write it to standard error."""
    if log.isEnabledFor(logging.INFO):
        log.info("%s", text)
    else:
        print(text, file=sys.stderr)


class Sink(logging.Handler):
    """Hands every record on to a log callback of the C API."""

    def __init__(self, callback: ggml_log_callback, user_data: Any) -> None:
        super().__init__()
        self.callback, self.user_data = callback, user_data

    def emit(self, record: logging.LogRecord) -> None:
        # Lines also come from threads that no caller waits for: logging has its own way to report what fails here.
        try:
            self.callback(level_of(record.levelno), f"{self.format(record)}\n", self.user_data)
        except Exception:
            self.handleError(record)


class _Route:
    """What is installed now, and how the logger was before."""

    sink: Sink | None = None
    before: tuple[int, bool] = (logging.NOTSET, True)


def route(callback: ggml_log_callback | None, user_data: Any) -> None:
    """Send all lines to `callback` alone; None puts back what was there before the first call."""
    if _Route.sink is not None:
        _whole.removeHandler(_Route.sink)
        _whole.level, _whole.propagate = _Route.before
        _Route.sink = None
    if callback is not None:
        _Route.sink = Sink(callback, user_data)
        _Route.before = _whole.level, _whole.propagate
        _whole.addHandler(_Route.sink)
        _whole.propagate = False
        _whole.setLevel(logging.DEBUG)
    else:
        _whole.setLevel(_whole.level)  # forgets which loggers were found to be enabled
