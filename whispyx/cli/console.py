"""The terminal: text that never fails to print, progress bars where somebody watches, errors as one paragraph."""

from __future__ import annotations

import codecs
import io
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm

__all__ = ["Console", "columns", "describe", "prepare_streams", "printable", "silence_stdout"]


def prepare_streams() -> None:
    """Make printing safe in every locale, and where a stream was closed by the caller.

    ASCII becomes UTF-8, and what an encoding lacks is escaped.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  (lives as long as the process)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            ascii_only = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding="utf-8" if ascii_only else None, errors="backslashreplace")


def silence_stdout() -> None:
    """Let what is still buffered for standard output, which cannot take it, disappear quietly at exit."""
    with suppress(OSError, ValueError, io.UnsupportedOperation):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def printable(text: str) -> str:
    """Return `text` as UTF-8 can carry it.

    Bytes of file names and arguments that the locale could not decode stand in it as lone surrogates: they are taken
    for UTF-8, which they almost always are, and escaped where they are not.
    """
    if text.isascii():
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()


def describe(error: BaseException) -> str:
    """Return an error as one paragraph without a class name, where the error says enough itself."""
    if isinstance(error, OSError) and error.strerror:
        name = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
        return f"{name}{error.strerror}"
    text = " ".join(str(error).split())
    return text or type(error).__name__


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table as lines, every column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


class Console:
    """Where the command writes.

    Results go to standard output, everything else to standard error. Progress bars show only when standard error is a
    terminal.
    """

    def __init__(self, *, debug: bool = False, verbose: int = 0) -> None:
        self._debug = debug
        self._bar: tqdm[Any] | None = None
        self.watched = sys.stderr.isatty()
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
        self._logger = logging.getLogger("whispyx")
        self._handler = handler
        self._logger.addHandler(handler)
        self._level_before = self._logger.level
        self._logger.setLevel(level)

    def close(self) -> None:
        """Take the log handler off again (the command may have been called as a function)."""
        self._logger.removeHandler(self._handler)
        self._logger.setLevel(self._level_before)

    def line(self, text: str) -> None:
        """Print a line of results, at once."""
        text = printable(text)
        if self._bar is not None and sys.stdout.isatty():
            self._bar.write(text, file=sys.stdout)
        else:
            print(text)
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Print a remark on standard error."""
        if self._bar is not None:
            self._bar.clear()
        print(printable(text), file=sys.stderr, flush=True)

    def error(self, error: BaseException, about: str = "") -> None:
        """Print an error as one paragraph on standard error; with ``--debug`` its traceback too."""
        if self._debug:
            self.note("".join(traceback.format_exception(error)).rstrip())
        text = describe(error)
        self.note(f"whispyx: {about}: {text}" if about and not text.startswith(about) else f"whispyx: {text}")

    @contextmanager
    def byte_bar(self, label: str) -> Iterator[Callable[[int, int | None, str], None] | None]:
        """Show (bytes done, bytes in all, word for the work) as they come; gives None when nobody watches."""
        if not self.watched:
            yield None
            return
        with self._shown(desc=label, unit="B", unit_scale=True, unit_divisor=1024) as bar:

            def update(done: int, total: int | None, work: str) -> None:
                if total != bar.total or done < bar.n:  # another piece of work begins
                    bar.reset(total)
                    bar.set_description(f"{label}: {work}", refresh=False)
                bar.update(done - bar.n)

            yield update

    @contextmanager
    def percent_bar(self, label: str) -> Iterator[Callable[[int], None] | None]:
        """Show a percentage; gives None when nobody watches."""
        if not self.watched:
            yield None
            return
        style = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
        with self._shown(desc=label, total=100, bar_format=style) as bar:

            def update(percent: int) -> None:
                bar.update(percent - bar.n)

            yield update

    @contextmanager
    def count_bar(self, label: str) -> Iterator[tuple[Callable[[str], None], Callable[[int, int], None] | None]]:
        """Show what is being done, and how far it is; where nobody watches, only the first, as lines."""
        if not self.watched:
            yield lambda words: self.note(f"{label}: {words}"), None
            return
        style = "{desc}: {n_fmt}/{total_fmt} |{bar}| {elapsed}"
        with self._shown(desc=label, total=1, bar_format=style) as bar:

            def step(words: str) -> None:
                bar.reset(1)
                bar.set_description_str(f"{label}: {words}")

            def update(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            yield step, update

    @contextmanager
    def _shown(self, **settings: Any) -> Iterator[tqdm[Any]]:
        from tqdm import tqdm

        with tqdm(file=sys.stderr, leave=False, dynamic_ncols=True, **settings) as bar:
            self._bar = bar
            try:
                yield bar
            finally:
                self._bar = None
