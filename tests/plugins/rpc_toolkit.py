"""Servers for the tests of the plugin "rpc": ours, in a process of its own, and false ones that say what a test wants.

Needs neither pytest nor the recogniser: the children that the tests start import it, too.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 60.0
PR_SET_PDEATHSIG = 1

HELLO, DEVICE_COUNT, GET_ALIGNMENT, GET_MAX_SIZE = 14, 15, 1, 2  # numbers of ggml's RPC commands
VERSION = (5, 0, 0)
CAPS = bytes(24)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Server:
    """`whispyx rpc-server` with the plugins of a folder, and its workers, as one group of processes."""

    def __init__(
        self, plugins: str | Path, *arguments: str, port: int = 0, threads: int = 2, streams: str = ""
    ) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("WHISPYX_")}
        environment.update(WHISPYX_BACKEND_PATH=str(plugins), WHISPYX_PLUGIN_HOME="/nonexistent")
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  (lives as long as the server)
        command = [sys.executable, "-m", "whispyx", "-v", "rpc-server", "--port", str(port), "-t", str(threads)]
        if streams:  # in the words of a shell, such as "<&-"
            command = ["sh", "-c", f'exec "$@" {streams}', "sh", *command]
        self.process = subprocess.Popen(
            [*command, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        self.endpoint = self.line.rsplit(" on ", 1)[-1].strip()

    def workers(self) -> list[int]:
        """Return the processes of its workers, oldest first."""
        number = self.process.pid
        found = Path(f"/proc/{number}/task/{number}/children").read_text().split()
        return [int(process) for process in found]

    @property
    def port(self) -> int:
        number = self.endpoint.rpartition(":")[2]
        if not number:
            raise RuntimeError(f"the server did not start (exit status {self.process.wait(30)}): {self.errors()}")
        return int(number)

    def send(self, number: int) -> None:
        """Send a signal to the server and all of its workers."""
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """Let the machine of the server lose its power."""
        self.send(signal.SIGKILL)
        self.process.wait()
        # A worker may take a moment longer, and has the port until then.
        limit = time.monotonic() + READY_SECONDS
        while self.endpoint and time.monotonic() < limit:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                return
            time.sleep(0.02)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask the server to end and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(30)

    def errors(self) -> str:
        """Return what it has written to standard error."""
        self._errors.seek(0)
        return self._errors.read()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.send(signal.SIGCONT)
            self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()


class FalseServer:
    """Listens, and lets `talk` have each connection in a thread of its own."""

    def __init__(self, talk: Callable[[socket.socket], None]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._talk = talk
        self._open: list[socket.socket] = []
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            self._talk(connection)
        except OSError:
            pass  # the client has left, as it should
        finally:
            connection.close()

    def close(self) -> None:
        try:
            self._listener.shutdown(socket.SHUT_RDWR)  # a thread that waits for a connection would hold it open
        except OSError:
            return  # closed already
        self._listener.close()
        for connection in self._open:
            connection.close()


def exactly(connection: socket.socket, n: int) -> bytes:
    """Receive n bytes; OSError when the other side leaves before."""
    data = b""
    while len(data) < n:
        part = connection.recv(n - len(data))
        if not part:
            raise ConnectionError("the other side has left")
        data += part
    return data


def request(connection: socket.socket) -> tuple[int, bytes]:
    """Receive one command and what belongs to it."""
    number = exactly(connection, 1)[0]
    (size,) = struct.unpack("<Q", exactly(connection, 8))
    return number, exactly(connection, size)


def answer(connection: socket.socket, data: bytes) -> None:
    """Send what a command is answered with."""
    connection.sendall(struct.pack("<Q", len(data)) + data)


def polite(
    version: Sequence[int] = VERSION, devices: int = 1, alignment: int = 32, max_size: int = 2**63
) -> Callable[[socket.socket], None]:
    """Return a talk that greets, answers the first questions as told, and to all others says nothing more."""

    def talk(connection: socket.socket) -> None:
        while True:
            number, _ = request(connection)
            if number == HELLO:
                answer(connection, bytes([*version, 0]) + CAPS)
            elif number == DEVICE_COUNT:
                answer(connection, struct.pack("<I", devices))
            elif number == GET_ALIGNMENT:
                answer(connection, struct.pack("<Q", alignment))
            elif number == GET_MAX_SIZE:
                answer(connection, struct.pack("<Q", max_size))
            else:
                time.sleep(READY_SECONDS)

    return talk


class Relay:
    """Stands between a client and a server, and can do harm to what the server says."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.rpartition(":")
        self._target = (host, int(port))
        self.harm: Callable[[bytes], bytes | None] | None = None
        self.false = FalseServer(self._talk)
        self.endpoint = self.false.endpoint

    def _talk(self, client: socket.socket) -> None:
        with socket.create_connection(self._target) as server:
            threading.Thread(target=self._pump, args=(client, server), daemon=True).start()
            while data := server.recv(1 << 16):
                if self.harm is not None:
                    changed = self.harm(data)
                    if changed is None:  # from now on it is silent
                        time.sleep(READY_SECONDS)
                        return
                    data = changed
                client.sendall(data)

    def _pump(self, client: socket.socket, server: socket.socket) -> None:
        try:
            while data := client.recv(1 << 16):
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # either side has left
