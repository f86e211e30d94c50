"""One file over HTTPS: resumable, checked, and complete or absent."""

from __future__ import annotations

import email.message
import hashlib
import http.client
import json
import logging
import os
import re
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from whispyx.errors import ModelError

from .cache import write_atomically
from .progress import Progress

__all__ = ["Progress", "download"]

log = logging.getLogger("whispyx.models")

TIMEOUT_S: Final = 30.0
"""How long to wait for a connection, and for each piece of data."""
STALL_S: Final = 60.0
STALL_BYTES: Final = 64 << 10
"""A transfer that brings fewer bytes than this in `STALL_S` has stalled."""
ATTEMPTS: Final = 4
PAUSE_S: Final = 1.0
"""Before the second attempt; each pause is twice the one before."""
_BLOCK: Final = 256 << 10
_SHA256: Final = re.compile(r'"?([0-9a-f]{64})"?')


class DownloadError(Exception):
    """Why a download failed.

    Attributes
    ----------
    retry : bool
        Trying again can help.
    spoiled : bool
        What has been received is of no use.
    """

    def __init__(self, reason: str, *, retry: bool = False, spoiled: bool = False) -> None:
        super().__init__(reason)
        self.retry = retry
        self.spoiled = spoiled


@dataclass(frozen=True)
class Offer:
    """What the server says about the file."""

    etag: str | None
    sha256: str | None
    size: int | None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, keeps the headers of each step (the hub states the checksum before it redirects),
    and never leaves HTTPS."""

    def __init__(self) -> None:
        self.steps: list[email.message.Message] = []

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        self.steps.append(headers)
        if urllib.parse.urlsplit(req.full_url).scheme == "https" and not newurl.lower().startswith("https:"):
            raise DownloadError(f"the server redirects from HTTPS to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _offer(steps: list[email.message.Message]) -> Offer:
    sha256 = size = None
    for headers in steps:
        linked = _SHA256.fullmatch(headers.get("X-Linked-Etag", ""))
        if linked:
            sha256 = linked[1]
        if headers.get("X-Linked-Size", "").isdigit():
            size = int(headers["X-Linked-Size"])
    last = steps[-1]
    etag = last.get("ETag")
    if size is None:
        ranged = re.fullmatch(r"bytes \d+-\d+/(\d+)", last.get("Content-Range", ""))
        if ranged:
            size = int(ranged[1])
        elif "Content-Range" not in last and last.get("Content-Length", "").isdigit():
            size = int(last["Content-Length"])
    return Offer(etag, sha256, size)


@dataclass
class _Part:
    """The unfinished file, and what the server said when it was begun."""

    path: Path

    @property
    def note(self) -> Path:
        return self.path.with_name(self.path.name + ".json")

    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def etag(self, url: str) -> str | None:
        """Return the strong entity tag under which the part was begun, if it came from `url`."""
        try:
            note = json.loads(self.note.read_bytes())
        except (OSError, ValueError):
            return None
        etag = note.get("etag") if isinstance(note, dict) and note.get("url") == url else None
        return etag if isinstance(etag, str) and etag.startswith('"') else None

    def begin(self, url: str, offer: Offer) -> None:
        write_atomically(self.note, json.dumps({"url": url, "etag": offer.etag}).encode())

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)


def _open(url: str, start: int, etag: str | None) -> tuple[http.client.HTTPResponse, Offer, int]:
    """Ask for the file from byte `start` on; returns the response, the offer and where the response begins."""
    headers = {"User-Agent": "whispyx", "Accept-Encoding": "identity"}
    if start and etag:
        headers |= {"Range": f"bytes={start}-", "If-Range": etag}
    redirects = _Redirects()
    opener = urllib.request.build_opener(redirects)
    try:
        response = opener.open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        with error:
            unfit = error.code == 416 and start > 0
            raise DownloadError(
                f"the server answered {error.code} {error.reason}",
                retry=unfit or error.code in (408, 429) or error.code >= 500,
                spoiled=unfit,
            ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        # Without a connection there is little hope, unless there has been one a moment ago.
        raise DownloadError(_why(error), retry=start > 0) from error
    offer = _offer([*redirects.steps, response.headers])
    if response.status == 206:
        match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
        if not match or int(match[1]) != start:
            response.close()
            raise DownloadError("the server sent another part than was asked for", retry=True, spoiled=True)
        return response, offer, start
    return response, offer, 0


def _why(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error) or type(error).__name__


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read1(_BLOCK)
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(f"the connection broke: {_why(error)}", retry=True) from error


def _receive(
    response: http.client.HTTPResponse, part: _Part, start: int, offer: Offer, what: str, progress: Progress | None
) -> None:
    done = start
    window_end, window_bytes = time.monotonic() + STALL_S, 0
    with part.path.open("r+b" if start else "wb") as out:
        out.seek(start)
        while block := _read(response):
            out.write(block)
            done += len(block)
            window_bytes += len(block)
            if progress is not None:
                progress(done, offer.size, what)
            if time.monotonic() > window_end:
                if window_bytes < STALL_BYTES:
                    raise DownloadError(f"the transfer stalled: {window_bytes} bytes in {STALL_S:.0f} s", retry=True)
                window_end, window_bytes = time.monotonic() + STALL_S, 0
        out.flush()
        os.fsync(out.fileno())
    if offer.size is not None and done < offer.size:
        raise DownloadError(f"the connection ended after {done} of {offer.size} bytes", retry=True)


def _try_once(url: str, part: _Part, what: str, progress: Progress | None) -> Offer:
    start, etag = part.size(), part.etag(url)
    response, offer, start = _open(url, start if etag else 0, etag)
    with response:
        if offer.size is not None:
            needed, free = offer.size - start, shutil.disk_usage(part.path.parent).free
            if needed > free:
                raise DownloadError(f"{needed >> 20} MB are needed in {part.path.parent}, but {free >> 20} MB are free")
        if start == 0:
            part.begin(url, offer)
        _receive(response, part, start, offer, what, progress)
    return offer


def _check(part: _Part, offer: Offer, sha1: str | None, magic: bytes) -> str:
    """Return the SHA-256 of the finished part, or raise."""
    sha256, old = hashlib.sha256(), hashlib.sha1(usedforsecurity=False)
    with part.path.open("rb") as file:
        if file.read(len(magic)) != magic:
            raise DownloadError("what the server sent is not a model file", spoiled=True)
        file.seek(0)
        while block := file.read(1 << 20):
            sha256.update(block)
            if sha1 is not None:
                old.update(block)
    size = part.size()
    if offer.size is not None and size != offer.size:
        raise DownloadError(f"{size} bytes came, {offer.size} were announced", spoiled=True)
    if offer.sha256 is not None and sha256.hexdigest() != offer.sha256:
        raise DownloadError("the checksum is not the one the server states", spoiled=True)
    if sha1 is not None and old.hexdigest() != sha1:
        raise DownloadError("the checksum is not the published one", spoiled=True)
    return sha256.hexdigest()


def download(
    url: str, target: Path, *, sha1: str | None = None, magic: bytes = b"", what: str, progress: Progress | None = None
) -> str:
    """Fetch `url` into `target`.

    The data goes to `.<name>.part` beside the target and is continued from there after an interruption, as long as
    the server has the same file (entity tag). The target appears only when size and checksums are right.

    Parameters
    ----------
    url : str
    target : Path
        The caller holds its lock.
    sha1 : str, optional
        Published checksum. The SHA-256 that the server states is checked in any case.
    magic : bytes
        How the file must begin.
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
    part = _Part(target.with_name(f".{target.name}.part"))
    try:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                offer = _try_once(url, part, what, progress)
                sha256 = _check(part, offer, sha1, magic)
                os.replace(part.path, target)
                return sha256
            except DownloadError as error:
                if error.spoiled:
                    part.remove()
                if not error.retry or attempt == ATTEMPTS:
                    raise ModelError(f"{url}: {error}") from error
                log.info("attempt %d of %d to fetch %s failed: %s", attempt, ATTEMPTS, url, error)
            except OSError as error:
                raise ModelError(f"{url}: {part.path.parent} cannot be written: {error.strerror or error}") from error
            time.sleep(PAUSE_S * 2 ** (attempt - 1))
        raise AssertionError("the last attempt returns or raises")
    finally:
        if part.size() == 0 or part.etag(url) is None:
            part.remove()  # it could not be continued
