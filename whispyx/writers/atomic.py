"""Text files that are there whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

__all__ = ["open_whole"]


@contextmanager
def open_whole(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """Open a UTF-8 text file for writing that takes its name when the block ends well, and vanishes when it does not.

    A name that is no regular file (a pipe, a terminal) is written to directly. A symbolic link is followed.
    """
    target = Path(os.path.realpath(path))  # Path.resolve raises RuntimeError for links in a circle
    mode = None
    with suppress(FileNotFoundError):
        mode = target.stat().st_mode
    if mode is not None and not stat.S_ISREG(mode):
        with target.open("w", encoding="utf-8", newline="\n", errors="backslashreplace") as stream:
            yield stream
        return
    temporary = target.with_name(f".whispyx-{os.urandom(8).hex()}.part")  # short: the name may be at its limit
    # 0o666 less the umask, as open() would give
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
    except OSError as error:
        error.filename = str(target)  # the name that its caller knows
        raise
    try:
        with open(handle, "w", encoding="utf-8", newline="\n", errors="backslashreplace") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if mode is not None:
            temporary.chmod(stat.S_IMODE(mode))
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
