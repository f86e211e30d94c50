"""`whispyx rpc-server`: lets other processes and machines compute on a device of this one.

The server itself only listens (`rpc_door`). One worker process waits for the next client, and each client has a worker
of its own (`rpc_worker`), so a client that crashes its worker, on purpose or not, disturbs nobody else.
"""

from __future__ import annotations

import argparse
import functools
import ipaddress
import json
import logging
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

from ..errors import BackendError, ParamsError
from .console import Console
from .rpc_door import MOST_WAITING, Door
from .status import Status

__all__ = ["add_arguments", "run_rpc_server"]

log: Final = logging.getLogger("whispyx.rpc")

DEFAULT_PORT: Final = 50052
GOODBYE_S: Final = 3.0
"""How long a worker may take to end when it is asked to."""
MOST_LOST: Final = 5
LOST_S: Final = 60.0
"""Of workers that have no client this many may end within so many seconds; one more is the end of the server."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s: this machine only)")
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help="port to listen on; 0 takes a free one (%(default)s)"
    )
    parser.add_argument("--device", metavar="NAME", help="device to serve, such as vulkan:0 (the best there is)")
    parser.add_argument("-t", "--threads", type=int, metavar="N", help="threads to compute with (all cores)")
    parser.add_argument("--clients", type=int, default=4, metavar="N", help="most clients at a time (%(default)s)")


def run_rpc_server(args: argparse.Namespace, console: Console) -> int:
    """Serve until SIGINT or SIGTERM."""
    from .._core.cores import usable_cores

    threads = usable_cores() if args.threads is None else args.threads
    for name, value, low, high in (
        ("--port", args.port, 0, 65535),
        ("--threads", threads, 1, 512),
        ("--clients", args.clients, 1, 1024),
    ):
        if not low <= value <= high:
            raise ParamsError(f"{name} is {value}; {low} to {high} are possible")
    listener = _listen(args.host, args.port)
    with listener:
        server = _Server(listener, args.device, threads, args.clients, console)
        try:
            return server.run()
        finally:
            server.end()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ParamsError(f"--host {host}: {error.strerror or error}") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(MOST_WAITING)
    except OSError as error:
        listener.close()
        raise BackendError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return listener


@dataclass(eq=False)
class _Worker:
    """A process that waits for a client or serves one, and the way to talk to it."""

    process: subprocess.Popen[bytes]
    line: socket.socket
    ready: bool = False
    client: str | None = None
    error: dict[str, Any] = field(default_factory=dict)
    heard: bytes = b""


class _Server:
    def __init__(
        self, listener: socket.socket, device: str | None, threads: int, clients: int, console: Console
    ) -> None:
        self._listener = listener
        self._device = device
        self._threads = threads
        self._clients = clients
        self._console = console
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._door = Door(listener, self._selector)
        self._announced = False
        self._asked_to_end = False
        self._failed: BaseException | None = None
        self._lost: deque[float] = deque(maxlen=MOST_LOST)

    def run(self) -> int:
        """Keep a worker waiting, as long as there may be another client."""
        wake, woken = socket.socketpair()
        wake.setblocking(False)
        woken.setblocking(False)
        self._selector.register(woken, selectors.EVENT_READ, functools.partial(woken.recv, 64))
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        waker = signal.set_wakeup_fd(wake.fileno())
        try:
            self._wait_for_another()
            while not self._asked_to_end and self._failed is None:
                for key, _ in self._selector.select(self._door.patience()):
                    key.data()
                self._door.tidy()
                self._let_in()
        finally:
            signal.set_wakeup_fd(waker)
            for number, handler in before.items():
                signal.signal(number, handler)
            wake.close()
            woken.close()
        if self._failed is not None:
            raise self._failed
        return Status.OK

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._asked_to_end = True

    def _start_worker(self) -> None:
        line, theirs = socket.socketpair()
        number = theirs.fileno()
        command = [sys.executable, "-m", "whispyx.cli.rpc_worker", "--line", str(number)]
        command += ["--threads", str(self._threads)]
        if self._device is not None:
            command += ["--device", self._device]
        with theirs:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(number,))
        worker = _Worker(process, line)
        self._workers.append(worker)
        self._selector.register(line, selectors.EVENT_READ, functools.partial(self._hear, worker))

    def _hear(self, worker: _Worker) -> None:
        try:
            data = worker.line.recv(65536)
        except ConnectionError:  # it was killed with something unread
            data = b""
        *lines, worker.heard = (worker.heard + data).split(b"\n")
        for line in lines:
            self._take(worker, json.loads(line))
        if not data:
            self._bury(worker)

    def _take(self, worker: _Worker, message: dict[str, Any]) -> None:
        if "error" in message:
            worker.error = message
            return
        worker.ready = True
        if not self._announced:
            self._announced = True
            self._announce(message)

    def _let_in(self) -> None:
        """Give the next client to the worker that waits, and have another one wait."""
        for worker in self._workers:
            if not worker.ready or worker.client is not None:
                continue
            caller = self._door.next()
            if caller is None:
                return
            try:
                socket.send_fds(worker.line, [b"!"], [caller.connection.fileno()])
            except ConnectionError:  # the worker is dead, which is about to be heard
                self._door.put_back(caller)
                continue
            worker.client = caller.address
            caller.connection.close()
            log.info("client %s is served", worker.client)
        self._wait_for_another()

    def _bury(self, worker: _Worker) -> None:
        self._selector.unregister(worker.line)
        worker.line.close()
        code = worker.process.wait()
        self._workers.remove(worker)
        if worker.client is None:
            if not self._asked_to_end:
                self._was_lost(worker, code)
        elif code == 0:
            log.info("client %s has left", worker.client)
        else:
            why = worker.error.get("error") or f"its process ended ({_ending(code)}); other clients are not concerned"
            log.warning("client %s is gone: %s", worker.client, why)
        if self._failed is None:
            self._wait_for_another()

    def _was_lost(self, worker: _Worker, code: int) -> None:
        """Decide what it means that a worker ended which had no client."""
        why = worker.error.get("error") or f"a worker ended by itself ({_ending(code)})"
        now = time.monotonic()
        often = len(self._lost) == MOST_LOST and now - self._lost[0] < LOST_S
        self._lost.append(now)
        if self._announced and not often:
            log.warning("%s; another one takes its place", why)
            return
        # None has ever been ready, or they end one after another: the next one would, too.
        kind = ParamsError if worker.error.get("status") == Status.USAGE else BackendError
        self._failed = kind(f"{why}, as {MOST_LOST} others before it" if often else why)

    def _wait_for_another(self) -> None:
        waiting = any(worker.client is None for worker in self._workers)
        if not waiting and len(self._workers) < self._clients and not self._asked_to_end:
            self._start_worker()

    def _announce(self, message: dict[str, Any]) -> None:
        host, port = self._listener.getsockname()[:2]
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
            self._console.note(
                f"whispyx: warning: whoever can reach {shown} can use this device, and there is neither a password nor"
                " encryption. Use it only in a network that you trust."
            )
        memory = f", {message['memory'] / 2**30:.1f} GiB" if message["memory"] else ""
        self._console.line(f"serving {message['device']} ({message['description']}{memory}) on {shown}")

    def end(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.process.terminate()
        limit = time.monotonic() + GOODBYE_S
        for worker in self._workers:
            try:
                worker.process.wait(max(0.0, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            worker.line.close()
        self._door.close()
        self._selector.close()


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
