"""Answers that no honest server gives, byte by byte: an error each, never a crash, and nothing is left."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from whispyx.errors import ModelError
from whispyx.models.download import download

BODY = b"lmgg" + bytes(996)


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Give every request this answer and close the connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    try:
                        seen = b""
                        while b"\r\n\r\n" not in seen and (more := connection.recv(65536)):
                            seen += more
                        connection.sendall(answer)
                        connection.shutdown(socket.SHUT_WR)
                        while connection.recv(65536):
                            pass
                    except OSError:
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/model.bin"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(30)


def outcome(answer: bytes) -> bytes | None:
    """What a download makes of the answer: the file, or None after a clear error."""
    with tempfile.TemporaryDirectory() as folder, answering(answer) as url:
        target = Path(folder) / "model.bin"
        try:
            download(url, target, magic=b"lmgg", most=1_000_000, what="download")
        except ModelError as error:
            assert str(error).startswith(f"{url}: ")
            assert not target.exists()
            return None
        return target.read_bytes()


@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\r\n\r\n",
        b"lmgg" * 100,
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 302 Found\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://[::1\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: \xff\xfe\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\n\r\n",
        b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-999/" + b"9" * 5000 + b"\r\n\r\n" + BODY,
        b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 7-999/1000\r\n\r\n" + BODY,
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + BODY,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + BODY,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n" + BODY,
        b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n" + BODY,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 5,
    ],
)
def test_nonsense_is_an_error(answer: bytes) -> None:
    assert outcome(answer) is None


@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: " + b"9" * 5000 + b"\r\n",
        b"X-Linked-Size: " + b"9" * 5000 + b"\r\n",
        b"Content-Length: 1000\r\nContent-Length: 3\r\n",
        b'Content-Length: 1000\r\nETag: "\x01\xff"\r\n',
        b'Content-Length: 1000\r\nETag: "a\r\n b"\r\n',
        b"Content-Length: 1000\r\nDate: Thu, 01 Jan 99999999999 00:00:00 GMT\r\nLast-Modified: x\r\n",
        b"Content-Length: 1000\r\nContent-Type: \xff/\x00; charset=\r\n",
        b"Content-Length: 1000\r\nContent-Encoding: identity\r\nno colon\r\n",
        b"",
    ],
)
def test_odd_headers_around_a_whole_file_do_no_harm(headers: bytes) -> None:
    assert outcome(b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n" + BODY) == BODY


HEADERS = (
    "ETag", "Last-Modified", "Date", "Content-Length", "Content-Range", "Content-Encoding", "Content-Type", "Location",
    "Transfer-Encoding", "X-Linked-Etag", "X-Linked-Size", "Connection",
)  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(
        ["", '"a"', "W/", "0", "-1", "1000", "bytes 0-9/10", "gzip", "chunked", "text/html", "/", "a" * 64]
    ),
    st.text(st.characters(min_codepoint=1, max_codepoint=255, exclude_characters="\r\n"), max_size=20),
)


@pytest.mark.usefixtures("empty_cache")
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    status=st.sampled_from([200, 200, 206, 301, 302, 308, 400, 416, 503]),
    headers=st.lists(st.tuples(st.sampled_from(HEADERS), VALUES), max_size=4),
    body=st.sampled_from([BODY, BODY[:100], b"", b"<html>"]),
)
def test_any_headers_give_a_file_or_an_error(status: int, headers: list[tuple[str, str]], body: bytes) -> None:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers).encode("latin-1")
    made = outcome(f"HTTP/1.1 {status} X\r\n".encode() + lines + b"\r\n" + body)
    assert made is None or (made == body[: len(made)] and made.startswith(b"lmgg"))
