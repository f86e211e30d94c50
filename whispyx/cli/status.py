"""How the command ends, as numbers for scripts."""

from __future__ import annotations

from enum import IntEnum

from ..errors import BackendError, LanguageError, ModelError, ParamsError, WhispyxError

__all__ = ["Status", "status_of"]


class Status(IntEnum):
    """Exit codes. `docs/errors.md` lists them."""

    OK = 0
    FAILED = 1  # a file could not be read, recognised or written; the others were done
    USAGE = 2  # the command was called wrongly; nothing was done
    MODEL = 3  # the model was not found, or is damaged
    BACKEND = 4  # a backend or device that was asked for cannot be used
    FAULT = 70  # a fault of whispyx itself
    INTERRUPTED = 130  # Ctrl-C; what was recognised was kept
    BROKEN_PIPE = 141  # whoever read the output stopped reading


def status_of(error: BaseException) -> Status:
    """Return the exit code for an error that ends the command."""
    if isinstance(error, ModelError):
        return Status.MODEL
    if isinstance(error, BackendError):
        return Status.BACKEND
    if isinstance(error, (ParamsError, LanguageError)):
        return Status.USAGE
    if isinstance(error, (WhispyxError, OSError, MemoryError)):
        return Status.FAILED
    return Status.FAULT
