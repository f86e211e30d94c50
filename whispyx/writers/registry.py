"""The formats by name, and the way to a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from ..errors import ParamsError
from ..results import Transcript
from .atomic import open_whole

__all__ = ["Writer", "formats", "register", "save", "write", "writer_for"]


@dataclass(frozen=True, slots=True)
class Writer:
    """One output format.

    Attributes
    ----------
    name : str
        What a caller asks for, and the ending of its files.
    description : str
        A few words for a list.
    write : callable
        Writes a `Transcript` to a text stream.
    """

    name: str
    description: str
    write: Callable[[Transcript, TextIO], None]


_WRITERS: Final[dict[str, Writer]] = {}


def register(writer: Writer) -> None:
    """Add a format, or replace the one of the same name."""
    if not writer.name.isidentifier():
        raise ParamsError(f"a format's name must be a plain word, as it ends file names; got {writer.name!r}")
    _WRITERS[writer.name] = writer


def formats() -> tuple[str, ...]:
    """Return the names of all formats."""
    return tuple(_WRITERS)


def writer_for(name: str) -> Writer:
    """Return the writer of a format.

    Raises
    ------
    ParamsError
        There is none of that name.
    """
    try:
        return _WRITERS[name]
    except KeyError:
        raise ParamsError(f"unknown output format {name!r}: choose from {', '.join(_WRITERS)}") from None


def write(transcript: Transcript, stream: TextIO, format: str = "txt") -> None:
    """Write `transcript` to a text stream.

    Parameters
    ----------
    transcript : Transcript
    stream : text stream
        Should encode to UTF-8, and should not translate line ends (``newline="\\n"``).
    format : str
        One of `formats`.
    """
    writer_for(format).write(transcript, stream)


def save(transcript: Transcript, path: str | os.PathLike[str], format: str | None = None) -> None:
    """Write `transcript` to a file, which appears under its name only when it is whole.

    Parameters
    ----------
    transcript : Transcript
    path : str or os.PathLike
        An existing file is replaced.
    format : str or None
        One of `formats`; None takes it from the ending of `path`.

    Raises
    ------
    ParamsError
        There is no such format.
    OSError
        The file cannot be written; what stood there before still does.
    """
    if format is None:
        format = Path(path).suffix.lstrip(".").lower()
    writer = writer_for(format)
    with open_whole(path) as stream:
        writer.write(transcript, stream)
