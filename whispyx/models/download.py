"""One file from the web: resumable, checked, and complete or absent."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from whispyx._signatures import foreign, text_kind
from whispyx.errors import ModelError

from .cache import write_atomically
from .progress import Progress
from .request import Answer, DownloadError, Offer, ask, sendable

__all__ = ["Progress", "download", "part_path"]

log = logging.getLogger("whispyx.models")

STALL_S: Final = 60.0
STALL_BYTES: Final = 64 << 10
"""A transfer that brings fewer bytes than this in `STALL_S` has stalled."""
ATTEMPTS: Final = 4
PAUSE_S: Final = 1.0
"""Before the second attempt; each pause is twice the one before."""
_BLOCK: Final = 1 << 20
_HEAD: Final = 256
"""Bytes that tell a model from a page that says why there is none."""


def part_path(target: Path) -> Path:
    """Return where the beginning of an unfinished file lies; what is known about it lies beside, as `<part>.json`."""
    return target.with_name(f".{target.name}.part")


@dataclass
class _Part:
    """The unfinished file, and what the server said when it was begun."""

    path: Path

    @property
    def note(self) -> Path:
        return self.path.with_name(self.path.name + ".json")

    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def offer(self, url: str) -> Offer | None:
        """Return what was said about the file when the part was begun, if it came from `url` and can be continued."""
        try:
            note = json.loads(self.note.read_bytes())
            offer = Offer(note["validator"], note["sha256"], note["size"])
            known = note["url"] == url and sendable(offer.validator)
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return offer if known and self.size() > 0 else None

    def begin(self, url: str, offer: Offer) -> None:
        write_atomically(self.note, json.dumps({"url": url, **asdict(offer)}).encode())

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Task:
    """What is to be fetched, and what is known about it beforehand."""

    url: str
    sha1: str | None
    magic: bytes
    most: int | None
    what: str
    progress: Progress | None


def _check_head(head: bytes, magic: bytes) -> None:
    if head.startswith(magic):
        return
    known = foreign(head) or (text_kind(head) if head else ("an empty file", ""))
    told = known[0] if known is not None else f"a file that begins with {head[:8]!r}"
    raise DownloadError(f"what the server sent is not a model file but {told}", spoiled=True)


def _receive(answer: Answer, part: _Part, task: _Task) -> None:
    done, offer, head = answer.start, answer.offer, b""
    limit = offer.size if offer.size is not None else task.most
    window_end, window_bytes = time.monotonic() + STALL_S, 0
    with part.path.open("r+b" if done else "wb") as out:
        out.seek(done)
        while block := answer.body.read():
            if answer.start == 0 and len(head) < _HEAD:
                head += block[:_HEAD]
                if len(head) >= len(task.magic):  # a wrong file is not worth fetching to its end
                    _check_head(head, task.magic)
            out.write(block)
            done += len(block)
            window_bytes += len(block)
            if limit is not None and done > limit:
                raise DownloadError(f"more than {limit} bytes came", spoiled=True)
            if task.progress is not None:
                task.progress(done, offer.size, task.what)
            if time.monotonic() > window_end:
                if window_bytes < STALL_BYTES:
                    raise DownloadError(f"the transfer stalled: {window_bytes} bytes in {STALL_S:.0f} s", retry=True)
                window_end, window_bytes = time.monotonic() + STALL_S, 0
        out.flush()
        os.fsync(out.fileno())
    if offer.size is not None and done < offer.size:
        raise DownloadError(f"the connection ended after {done} of {offer.size} bytes", retry=True)


def _room(part: _Part, answer: Answer, most: int | None) -> None:
    """Refuse a file that cannot be what was asked for by its size, or does not fit on the disk."""
    size = answer.offer.size
    if size is None:
        return
    if most is not None and size > most:
        raise DownloadError(f"{size} bytes are announced, but this model has at most {most}")
    needed, free = size - answer.start, shutil.disk_usage(part.path.parent).free
    if needed > free:
        raise DownloadError(f"{needed >> 20} MB are needed in {part.path.parent}, but {free >> 20} MB are free")


def _try_once(part: _Part, kept: Offer | None, task: _Task) -> Offer:
    """Bring the part to its end; returns what was said about the file."""
    start = part.size() if kept is not None else 0
    if kept is not None and kept.size == start:
        return kept  # all of it came, but it was not checked any more
    with ask(task.url, start, kept.validator if kept is not None else None) as answer:
        _room(part, answer, task.most)
        if answer.start == 0:
            part.begin(task.url, answer.offer)
        elif kept is not None and None not in (kept.size, answer.offer.size) and kept.size != answer.offer.size:
            raise DownloadError("the file on the server has another size by now", retry=True, spoiled=True)
        _receive(answer, part, task)
    return answer.offer


def _check(part: _Part, offer: Offer, task: _Task) -> str:
    """Return the SHA-256 of the finished part, or raise."""
    sha256, sha1 = hashlib.sha256(), hashlib.sha1(usedforsecurity=False)
    with part.path.open("rb") as file:
        _check_head(file.read(_HEAD), task.magic)
        file.seek(0)
        while block := file.read(_BLOCK):
            sha256.update(block)
            if task.sha1 is not None:
                sha1.update(block)
    size = part.size()
    if offer.size is not None and size != offer.size:
        raise DownloadError(f"{size} bytes came, {offer.size} were announced", spoiled=True)
    if offer.sha256 is not None and sha256.hexdigest() != offer.sha256:
        raise DownloadError("the checksum is not the one the server states", spoiled=True)
    if task.sha1 is not None and sha1.hexdigest() != task.sha1:
        raise DownloadError("the checksum is not the published one", spoiled=True)
    return sha256.hexdigest()


def download(
    url: str,
    target: Path,
    *,
    sha1: str | None = None,
    magic: bytes = b"",
    most: int | None = None,
    what: str,
    progress: Progress | None = None,
) -> str:
    """Fetch `url` into `target`.

    The data goes to `.<name>.part` beside the target and is continued from there after an interruption, as long as
    the server has the same file (entity tag, or time of its last change). The target appears only when size and
    checksums are right.

    Parameters
    ----------
    url : str
    target : Path
        The caller holds its lock.
    sha1 : str, optional
        Published checksum. The SHA-256 that the server states is checked in any case.
    magic : bytes
        How the file must begin.
    most : int, optional
        Bytes that the file has at most.
    what : str
        Word for `progress`.
    progress : callable, optional

    Returns
    -------
    str
        SHA-256 of the file.

    Raises
    ------
    ModelError
        The file could not be fetched; says why.
    """
    part = _Part(part_path(target))
    task = _Task(url, sha1, magic, most, what, progress)
    try:
        for attempt in range(1, ATTEMPTS + 1):
            kept = part.offer(url)
            try:
                offer = _try_once(part, kept, task)
                sha256 = _check(part, offer, task)
                os.replace(part.path, target)
                return sha256
            except DownloadError as error:
                if error.spoiled:
                    part.remove()
                # The fault of a file that was put together may lie in what was here before.
                again = error.retry or (error.spoiled and kept is not None)
                if not again or attempt == ATTEMPTS:
                    tried = f" (after {attempt} attempts)" if attempt > 1 else ""
                    raise ModelError(f"{url}: {error}{tried}") from error
                log.info("attempt %d of %d to fetch %s failed: %s", attempt, ATTEMPTS, url, error)
            except OSError as error:
                raise ModelError(f"{url}: {part.path.parent} cannot be written: {error.strerror or error}") from error
            time.sleep(PAUSE_S * 2 ** (attempt - 1))
        raise AssertionError("the last attempt returns or raises")
    finally:
        if part.offer(url) is None:
            part.remove()  # it could not be continued
