"""One request for a file over HTTP: redirects, proxies, ranges, encodings, and what the server says about the file."""

from __future__ import annotations

import email.message
import email.utils
import http.client
import re
import urllib.error
import urllib.parse
import urllib.request
import zlib
from dataclasses import dataclass
from typing import IO, Any, Final, Protocol

__all__ = ["Answer", "DownloadError", "Offer", "ask"]

TIMEOUT_S: Final = 30.0
"""How long to wait for a connection, and for each piece of data."""
MAX_REDIRECTS: Final = 10
_SETTLED_S: Final = 60.0
"""A file whose last change was this long ago has one version with this time (RFC 9110, 8.8.2.2)."""
_BLOCK: Final = 256 << 10
_SHA256: Final = re.compile(r'"?([0-9a-f]{64})"?')
_SIZE: Final = re.compile(r"[0-9]{1,18}")
_RANGE: Final = re.compile(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)")
_VALIDATOR: Final = re.compile(r"[\x20-\x7e\xa0-\xff]{1,1000}")
"""What can be sent back in a header."""


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
    """What the server says about the file.

    Attributes
    ----------
    validator : str or None
        Strong entity tag, or the time of the last change where that is as good: equal for equal bytes.
    sha256 : str or None
    size : int or None
        Bytes of the whole file.
    """

    validator: str | None
    sha256: str | None
    size: int | None


class _Body(Protocol):
    def read(self) -> bytes:
        """Return the next bytes; none at the end."""


class _Plain:
    """The body as it comes."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def read(self) -> bytes:
        try:
            return self._response.read1(_BLOCK)
        except (OSError, http.client.HTTPException) as error:
            raise DownloadError(f"the connection broke: {why(error)}", retry=True) from error


class _Unzipped:
    """The body of a server that compresses although it was asked not to; never more than a block at a time."""

    def __init__(self, body: _Body) -> None:
        self._body = body
        self._zip = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    def read(self) -> bytes:
        while not self._zip.eof:
            packed = self._zip.unconsumed_tail or self._body.read()
            try:
                block = self._zip.decompress(packed, _BLOCK)
            except zlib.error as error:
                raise DownloadError(f"the compressed data is damaged ({error})", retry=True, spoiled=True) from error
            if block:
                return block
            if not packed and not self._zip.eof:
                raise DownloadError("the connection ended inside of compressed data", retry=True)
        return b""


@dataclass
class Answer:
    """What came: the body begins at byte `start` of the file."""

    offer: Offer
    start: int
    body: _Body
    _response: http.client.HTTPResponse

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, keeps the headers of each step (the hub states the checksum before it redirects),
    and never leaves HTTPS."""

    def __init__(self) -> None:
        self.steps: list[email.message.Message] = []
        self._seen: set[str] = set()

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        self.steps.append(headers)
        self._seen.add(req.full_url)
        problem = None
        if _scheme(req.full_url) == "https" != _scheme(newurl):
            problem = f"the server redirects from HTTPS to {newurl}"
        elif newurl in self._seen:
            problem = f"the server redirects in a circle, back to {newurl}"
        elif len(self.steps) > MAX_REDIRECTS:
            problem = f"the server redirects more than {MAX_REDIRECTS} times"
        if problem is not None:
            fp.close()
            raise DownloadError(problem)
        # (Python 3.10 does not know 308, which for a GET is 307.)
        return super().redirect_request(req, fp, 307 if code == 308 else code, msg, headers, newurl)

    def http_error_302(self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any) -> Any:
        where = headers.get("Location") or ""
        if _scheme(where) not in ("", "http", "https"):
            fp.close()
            raise DownloadError(f"the server redirects to {where}, which is no web address")
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _scheme(url: str) -> str:
    try:
        return urllib.parse.urlsplit(url).scheme
    except ValueError:
        return "none"


def why(error: Exception) -> str:
    """Return the reason inside of the error types of the standard library."""
    return str(getattr(error, "reason", None) or error) or type(error).__name__


def _through(url: str) -> str:
    """Say which proxy a request goes through, for messages; without the name and password in its address."""
    parts = urllib.parse.urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if not proxy or urllib.request.proxy_bypass(parts.hostname or ""):
        return ""
    return f" (through the proxy {proxy.rpartition('@')[2].rpartition('//')[2]})"


def _dropped(error: Exception) -> bool:
    """Tell whether a connection was made and then dropped, which is worth another attempt."""
    reason = getattr(error, "reason", error)
    return isinstance(reason, (ConnectionResetError, BrokenPipeError, http.client.BadStatusLine))


def sendable(validator: object) -> bool:
    """Tell whether this can stand in a request, as the server's or as an old note's validator."""
    return isinstance(validator, str) and _VALIDATOR.fullmatch(validator) is not None


def _validator(headers: email.message.Message) -> str | None:
    etag = headers.get("ETag")
    if etag is not None:
        return str(etag) if etag.startswith('"') and sendable(etag) else None  # a weak one allows other bytes
    modified = headers.get("Last-Modified")
    try:
        changed, sent = (email.utils.parsedate_to_datetime(headers[name]) for name in ("Last-Modified", "Date"))
        settled = (sent - changed).total_seconds() >= _SETTLED_S
    except (TypeError, ValueError, OverflowError):  # one is missing, or no date
        return None
    return str(modified) if settled and sendable(modified) else None


def _offer(steps: list[email.message.Message]) -> Offer:
    sha256 = size = None
    for headers in steps:
        linked = _SHA256.fullmatch(headers.get("X-Linked-Etag", ""))
        if linked:
            sha256 = linked[1]
        if _SIZE.fullmatch(headers.get("X-Linked-Size", "")):
            size = int(headers["X-Linked-Size"])
    last = steps[-1]
    if _encoding(last) is not None:
        return Offer(None, sha256, size)  # tag and length are those of the compressed data
    if size is None:
        ranged = _RANGE.fullmatch(last.get("Content-Range", ""))
        if ranged:
            size = int(ranged[2]) if ranged[2] != "*" else None
        elif "Content-Range" not in last and _SIZE.fullmatch(last.get("Content-Length", "")):
            size = int(last["Content-Length"])
    return Offer(_validator(last), sha256, size)


def _encoding(headers: email.message.Message) -> str | None:
    encoding = headers.get("Content-Encoding", "").strip().lower()
    return None if encoding in ("", "identity") else encoding


def ask(url: str, start: int, validator: str | None) -> Answer:
    """Ask for a file from byte `start` on, if it still is the one that `validator` belongs to.

    The proxies that the environment names (`HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`) are used.

    Raises
    ------
    DownloadError
        There is no such file, no such server, or the answer makes no sense.
    """
    headers = {"User-Agent": "whispyx", "Accept-Encoding": "identity"}
    if start and validator:
        headers |= {"Range": f"bytes={start}-", "If-Range": validator}
    else:
        start = 0
    if _scheme(url) not in ("http", "https"):
        raise DownloadError("this is no web address (http or https)")
    redirects = _Redirects()
    try:
        opener = urllib.request.build_opener(redirects)
        response = opener.open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        with error:
            unfit = error.code == 416 and start > 0
            raise DownloadError(
                f"the server answered {error.code} {error.reason}{_through(url)}",
                retry=unfit or error.code in (408, 429) or error.code >= 500,
                spoiled=unfit,
            ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        # Without a connection there is little hope, unless there has been one a moment ago.
        raise DownloadError(f"{why(error)}{_through(url)}", retry=start > 0 or _dropped(error)) from error
    try:
        return _answer(response, _offer([*redirects.steps, response.headers]), start, validator)
    except BaseException:
        response.close()
        raise


def _answer(response: http.client.HTTPResponse, offer: Offer, start: int, validator: str | None) -> Answer:
    encoding = _encoding(response.headers)
    if response.status == 206:
        match = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if not match or int(match[1]) != start or encoding is not None:
            raise DownloadError("the server sent another part than was asked for", retry=True, spoiled=True)
        if offer.validator is not None and offer.validator != validator:
            raise DownloadError("the file on the server has changed meanwhile", retry=True, spoiled=True)
    else:
        start = 0
    body: _Body = _Plain(response)
    if encoding in ("gzip", "x-gzip"):
        body = _Unzipped(body)
    elif encoding is not None:
        raise DownloadError(f"the server compresses with {encoding!r} although it was asked not to")
    return Answer(offer, start, body, response)
