"""A small web server that behaves, or misbehaves, like a model hub; and one that is a proxy."""

from __future__ import annotations

import email.utils
import gzip
import hashlib
import http.server
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

MODEL = b"lmgg" + bytes(range(256)) * 4000
"""About 1 MB that begins like a model file."""

AN_HOUR_AGO = email.utils.formatdate(time.time() - 3600, usegmt=True)


@dataclass
class Behaviour:
    """What the server does; `log` collects (path, Range header) of every request.

    Lists are used up, an element per request: `statuses` (a status; 0 drops the connection without an answer), `cuts`
    (bytes of the body after which the connection ends), `jumps` (where a redirect leads), `starts` (a part that begins
    there is sent, whatever was asked for).
    """

    content: bytes = MODEL
    etag: str | None = '"v1"'
    modified: str | None = None
    ranges: bool = True
    keeps_if_range: bool = True
    announce_size: bool = True
    announced: str | None = None
    chunked: bool = False
    encoding: str | None = None
    linked: dict[str, str] | None = None
    statuses: list[int] = field(default_factory=list)
    cuts: list[int | None] = field(default_factory=list)
    jumps: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    piece: int | None = None
    pause_after: int | None = None
    released: threading.Event = field(default_factory=threading.Event)
    log: list[tuple[str, str | None]] = field(default_factory=list)
    conditions: list[str | None] = field(default_factory=list)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def sha1(self) -> str:
        return hashlib.sha1(self.content).hexdigest()


def _handler(behaviour: Behaviour) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Keep the tests' output clean."""

        def do_GET(self) -> None:
            behaviour.log.append((self.path, self.headers.get("Range")))
            behaviour.conditions.append(self.headers.get("If-Range"))
            status = behaviour.statuses.pop(0) if behaviour.statuses else 200
            if status == 0:
                self.connection.shutdown(socket.SHUT_RDWR)
            elif status != 200:
                self.send_error(status)
            elif behaviour.jumps:
                self._redirect(behaviour.jumps.pop(0), {})
            elif behaviour.linked is not None and not self.path.startswith("/cdn/"):
                self._redirect("/cdn" + self.path, behaviour.linked)
            else:
                self._send_file()

        def _redirect(self, where: str, headers: dict[str, str]) -> None:
            self.send_response(308 if where.startswith("/moved") else 302)
            for name, value in {"Location": where, "Content-Length": "0", **headers}.items():
                self.send_header(name, value)
            self.end_headers()

        def _send_file(self) -> None:
            start = behaviour.starts.pop(0) if behaviour.starts else self._start()
            body = behaviour.content[start:]
            if behaviour.encoding == "gzip":
                body = gzip.compress(body)
            self.send_response(206 if start else 200)
            if start:
                size = len(behaviour.content)
                self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
            if behaviour.chunked:
                self.send_header("Transfer-Encoding", "chunked")
            elif behaviour.announce_size:
                self.send_header("Content-Length", behaviour.announced or str(len(body)))
            for name, value in (
                ("ETag", behaviour.etag),
                ("Last-Modified", behaviour.modified),
                ("Content-Encoding", behaviour.encoding),
            ):
                if value:
                    self.send_header(name, value)
            self.end_headers()
            self._send_body(body)

        def _send_body(self, body: bytes) -> None:
            cut = behaviour.cuts.pop(0) if behaviour.cuts else None
            if behaviour.pause_after is not None:
                self.wfile.write(body[: behaviour.pause_after])
                self.wfile.flush()
                behaviour.released.wait(30)
                return
            step = behaviour.piece or len(body) or 1
            for at in range(0, len(body[:cut]), step):
                piece = body[:cut][at : at + step]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if behaviour.chunked else piece)
                self.wfile.flush()
            if behaviour.chunked and cut is None:
                self.wfile.write(b"0\r\n\r\n")

        def _start(self) -> int:
            wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            same = self.headers.get("If-Range") == (behaviour.etag or behaviour.modified)
            if not wanted or not behaviour.ranges or not (same or not behaviour.keeps_if_range):
                return 0
            return int(wanted[1])

    Handler.protocol_version = "HTTP/1.1" if behaviour.chunked else "HTTP/1.0"
    return Handler


@contextmanager
def _running(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[str]:
    """Serve on a free local port; gives the address."""
    try:
        with _running(_handler(behaviour)) as url:
            yield url
    finally:
        behaviour.released.set()


@contextmanager
def proxying(asked: list[str], status: int = 200) -> Iterator[str]:
    """Run a proxy that writes down the addresses it is asked for; gives its own. Another status refuses them."""

    class Proxy(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Keep the tests' output clean."""

        def do_GET(self) -> None:
            asked.append(self.path)
            if status != 200:
                self.send_error(status)
                return
            direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            local = re.sub(r"^http://[^/:]+", "http://127.0.0.1", self.path)  # whatever the name, it is the test's own
            with direct.open(local, timeout=30) as answer:
                body = answer.read()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with _running(Proxy) as url:
        yield url
