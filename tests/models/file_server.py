"""A small web server that behaves, or misbehaves, like a model hub."""

from __future__ import annotations

import hashlib
import http.server
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

MODEL = b"lmgg" + bytes(range(256)) * 4000
"""About 1 MB that begins like a model file."""


@dataclass
class Behaviour:
    """What the server does; `log` collects (path, Range header) of every request."""

    content: bytes = MODEL
    etag: str | None = '"v1"'
    ranges: bool = True
    announce_size: bool = True
    linked: dict[str, str] | None = None
    statuses: list[int] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    pause_after: int | None = None
    released: threading.Event = field(default_factory=threading.Event)
    log: list[tuple[str, str | None]] = field(default_factory=list)

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
            if behaviour.statuses:
                status = behaviour.statuses.pop(0)
                if status != 200:
                    self.send_error(status)
                    return
            if behaviour.linked is not None and not self.path.startswith("/cdn/"):
                self.send_response(302)
                self.send_header("Location", "/cdn" + self.path)
                for name, value in behaviour.linked.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self._send_file()

        def _send_file(self) -> None:
            start = self._start()
            body = behaviour.content[start:]
            self.send_response(206 if start else 200)
            if start:
                self.send_header(
                    "Content-Range", f"bytes {start}-{len(behaviour.content) - 1}/{len(behaviour.content)}"
                )
            if behaviour.announce_size:
                self.send_header("Content-Length", str(len(body)))
            if behaviour.etag:
                self.send_header("ETag", behaviour.etag)
            self.end_headers()
            cut = behaviour.cuts.pop(0) if behaviour.cuts else None
            if behaviour.pause_after is not None:
                self.wfile.write(body[: behaviour.pause_after])
                self.wfile.flush()
                behaviour.released.wait(30)
                return
            self.wfile.write(body[:cut])

        def _start(self) -> int:
            wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            if not wanted or not behaviour.ranges or self.headers.get("If-Range") != behaviour.etag:
                return 0
            return int(wanted[1])

    return Handler


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[str]:
    """Serve on a free local port; gives the address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(behaviour))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        behaviour.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
