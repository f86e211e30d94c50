"""The server and its workers: what dies, what talks and what never says a word does not stop it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.plugins import rpc_client as wire
from tests.plugins.rpc_client import Client, adds
from tests.plugins.rpc_toolkit import Server
from tests.plugins.toolkit import SOURCES, Compiler

SECONDS = 60.0


@pytest.fixture(scope="module")
def plugins(built: Callable[[str], Path]) -> Path:
    if not Path("/proc/self/task").is_dir():
        pytest.skip("processes cannot be watched here: there is no /proc")
    return built("rpc")


@pytest.fixture
def server(plugins: Path) -> Iterator[Server]:
    with Server(plugins, "--device", "cpu", threads=1) as running:
        yield running


def until(condition: Callable[[], object], what: str) -> None:
    limit = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < limit, f"not within {SECONDS:g} s: {what}"
        time.sleep(0.02)


def is_served(server: Server) -> bool:
    with Client.at(server.endpoint) as client:
        return adds(client)


def strangers(server: Server, n: int, says: bytes = b"") -> list[socket.socket]:
    """Connect n times and say that much."""
    found = [socket.create_connection(("127.0.0.1", server.port), 20) for _ in range(n)]
    for connection in found:
        connection.sendall(says)
    return found


@pytest.mark.parametrize(
    "says", [b"", b"\x0e", b"GET / HTTP/1.1\r\n\r\n", struct.pack("<BQ", wire.HELLO, 24) + bytes(23)]
)
@pytest.mark.parametrize("stay", [False, True], ids=["leave", "stay"])
def test_who_does_not_greet_costs_no_worker(server: Server, says: bytes, stay: bool) -> None:
    before = server.workers()
    assert len(before) == 1
    # More than may wait at a time: nobody who greets stands behind them.
    with contextlib.ExitStack() as stack:
        for connection in strangers(server, 100, says):
            if stay:
                stack.enter_context(connection)
            else:
                connection.close()
        start = time.monotonic()
        with Client.at(server.endpoint) as client:
            assert adds(client)
            assert before[0] in server.workers(), "the worker that waited was given to a stranger"
            assert len(server.workers()) <= 2
        assert time.monotonic() - start < 5
    assert server.stop() == 0
    assert "Traceback" not in server.errors()


def test_who_never_greets_is_dropped_in_the_end(server: Server) -> None:
    (silent,) = strangers(server, 1)
    with silent:
        silent.settimeout(30)
        assert silent.recv(1) == b""


def test_a_client_beyond_the_most_is_served_when_another_leaves(plugins: Path) -> None:
    with Server(plugins, "--device", "cpu", "--clients", "1", threads=1) as server:
        first = Client.at(server.endpoint)
        second = Client.at(server.endpoint, greet=False)
        gone = Client.at(server.endpoint, greet=False)
        for waiting in (second, gone):
            waiting.tell(wire.HELLO, bytes(24))
        gone.socket.close()
        assert adds(first)
        second.socket.settimeout(1)
        with pytest.raises(TimeoutError):
            second.heard()
        second.socket.settimeout(60)
        first.socket.close()
        assert second.heard()[:1] == bytes([5])
        assert adds(second)
        second.socket.close()
        assert is_served(server)


def test_a_worker_that_is_killed_while_it_waits_is_replaced(server: Server) -> None:
    with Client.at(server.endpoint) as client:
        until(lambda: len(server.workers()) == 2, "another worker waits")
        os.kill(server.workers()[-1], signal.SIGKILL)
        assert adds(client)
        assert is_served(server)
    (line,) = [line for line in server.errors().splitlines() if "SIGKILL" in line]
    assert "another one takes its place" in line
    assert server.stop() == 0


def test_workers_that_die_again_and_again_are_the_end_with_a_reason(server: Server) -> None:
    dead: set[int] = set()
    while server.process.poll() is None:
        for worker in set(server.workers()) - dead:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
            dead.add(worker)
        time.sleep(0.02)
        assert len(dead) < 20
    assert server.process.returncode == 4
    assert len(dead) >= 5
    assert "SIGKILL" in server.errors().splitlines()[-1]
    assert "Traceback" not in server.errors()


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.3, 0.6])
def test_a_worker_whose_server_is_killed_while_it_starts_ends_without_a_word(server: Server, delay: float) -> None:
    os.kill(server.workers()[0], signal.SIGKILL)
    until(lambda: "SIGKILL" in server.errors(), "the death is seen")
    until(server.workers, "another worker starts")
    (worker,) = server.workers()
    time.sleep(delay)
    before = server.errors()
    server.process.kill()
    server.process.wait()
    until(lambda: not Path(f"/proc/{worker}/cmdline").exists() or not _command(worker), "the worker has gone")
    assert server.errors() == before


def _command(process: int) -> bytes:
    """Return what a process runs; nothing for one that has ended and is not waited for."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("streams", ["<&-", "2>&-", "<&- 2>&-"])
def test_closed_streams_do_no_harm(plugins: Path, streams: str) -> None:
    with Server(plugins, "--device", "cpu", threads=1, streams=streams) as server:
        assert server.line.startswith("serving CPU ")
        assert is_served(server)
        assert is_served(server)
        assert server.stop() == 0
        assert "Error" not in server.errors()


def test_a_library_that_talks_is_not_taken_for_a_worker(plugins: Path, compiler: Compiler, tmp_path: Path) -> None:
    compiler.library(tmp_path / "libggml-talk.so", [SOURCES / "talk.c"])
    with Server(f"{plugins}{os.pathsep}{tmp_path}", threads=1) as server:
        assert server.line.startswith("serving CPU ")
        assert is_served(server)
        assert server.stop() == 0
        assert server.process.stdout is not None
        assert server.process.stdout.read() == ""
        assert "Driver v1.2" in server.errors()
