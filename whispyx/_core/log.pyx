"""ggml's log lines become records of the logger `whispyx.engine`.

Lines may come from any thread, also while no Python code runs; the callback takes the GIL. Debug lines are dropped
before that unless the logger wants them: a graph can produce many.
"""

import atexit
import logging

from whispyx._ggml.ggml cimport (
    GGML_LOG_LEVEL_CONT,
    GGML_LOG_LEVEL_DEBUG,
    GGML_LOG_LEVEL_ERROR,
    GGML_LOG_LEVEL_INFO,
    GGML_LOG_LEVEL_WARN,
    ggml_log_level,
    ggml_log_set,
)

_logger = logging.getLogger("whispyx.engine")

cdef dict _LEVELS = {
    <int>GGML_LOG_LEVEL_DEBUG: logging.DEBUG,
    # What ggml calls information (buffer sizes, device lists) is detail to users of a recogniser.
    <int>GGML_LOG_LEVEL_INFO: logging.DEBUG,
    <int>GGML_LOG_LEVEL_WARN: logging.WARNING,
    <int>GGML_LOG_LEVEL_ERROR: logging.ERROR,
}

cdef object _last = None      # last complete warning or error, for the .log of exceptions
cdef str _pending = ""        # text of a line whose end has not come yet
cdef int _pending_level = logging.DEBUG


cdef object last_line():
    """Return the engine's last warning or error line and forget it; None when there was none."""
    global _last
    line, _last = _last, None
    return line


cdef void _deliver(ggml_log_level level, bytes text):
    global _last, _pending, _pending_level
    if level != GGML_LOG_LEVEL_CONT:
        _pending_level = _LEVELS.get(<int>level, logging.DEBUG)
    _pending += text.decode("utf-8", "replace")
    while "\n" in _pending:
        line, _, _pending = _pending.partition("\n")
        if not line.strip():
            continue
        if _pending_level >= logging.WARNING:
            _last = line.strip()
        _logger.log(_pending_level, "%s", line.rstrip())


cdef void _on_log(ggml_log_level level, const char * text, void * user_data) noexcept with gil:
    if text == NULL:
        return
    try:
        _deliver(level, text)
    except Exception:
        # A logging handler that fails must not unwind through C; logging has its own way to report it.
        if logging.raiseExceptions:
            import sys
            import traceback

            traceback.print_exc(file=sys.stderr)


cdef void _drop(ggml_log_level level, const char * text, void * user_data) noexcept nogil:
    pass


def _detach() -> None:
    # Worker threads may still log while the interpreter goes down; taking the GIL then would hang.
    ggml_log_set(_drop, NULL)


ggml_log_set(_on_log, NULL)
atexit.register(_detach)
