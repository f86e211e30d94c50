"""One client of `whispyx rpc-server`, in a process of its own: what that client breaks is not the server.

Started by the server with one end of a line between them. Says there, a JSON object a line, which device it is ready to
serve, or why it cannot; then a client's connection comes in. Ends with its client, or while it waits with the server.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .._core.devices import Device

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Serve one client; the exit code tells whether that was possible."""
    parser = argparse.ArgumentParser(prog="whispyx.cli.rpc_worker")
    parser.add_argument("--line", type=int, required=True)
    parser.add_argument("--device")
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args(argv)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group of processes; the server decides
    os.dup2(2, 1)  # what drivers print is not what the server says
    from .._core import rpc
    from ..errors import WhispyxError
    from ..plugins.endpoints import PLUGIN, SERVERS_VARIABLE
    from ..plugins.registry import registration
    from .status import status_of

    _prepare(SERVERS_VARIABLE)
    line = socket.socket(fileno=args.line)
    line.set_inheritable(False)
    try:
        device = _device(args.device)
        plugin = registration(PLUGIN)
        _, total = device.memory()
        if not _say(line, device=device.name, description=device.description, memory=total):
            return 0
        client = _receive(line)
        if client is None:
            return 0
        rpc.serve(plugin, client, device, args.threads)
    except (WhispyxError, OSError) as error:
        _say(line, error=str(error), status=int(status_of(error)))
        return 1
    return 0


def _prepare(servers: str) -> None:
    os.environ.pop(servers, None)  # no server is a client of others, least of all of itself
    os.environ["GGML_NO_BACKTRACE"] = "1"  # a failed assert would start a debugger to describe it
    try:
        import resource
    except ImportError:
        return
    # A client can make this process crash at will: it must not be able to fill the disk with its memory.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _device(wanted: str | None) -> Device:
    """Return the device to serve: what was named, else the best there is."""
    from .._core.devices import devices, select
    from ..errors import BackendUnsupportedError
    from ..plugins import resolve

    names = resolve(wanted)
    if names is None:
        return next(device for device in select() if device.kind != "ACCEL")
    device = next(device for device in devices() if device.name == names[0])
    if device.kind == "ACCEL":
        raise BackendUnsupportedError(
            f"device {device.name} computes only a part of the operations and cannot be served alone"
        )
    if device.backend == "rpc":
        raise BackendUnsupportedError(f"device {device.name} is itself behind a server")
    return device


def _receive(line: socket.socket) -> int | None:
    """Wait for the connection of a client; None when the server has gone."""
    try:
        _, numbers, _, _ = socket.recv_fds(line, 1, 1)
    except ConnectionError:
        return None
    if not numbers:
        return None
    os.set_inheritable(numbers[0], False)
    return numbers[0]


def _say(line: socket.socket, **message: Any) -> bool:
    """Tell the server something; False when it has gone."""
    try:
        line.sendall(json.dumps(message).encode() + b"\n")
    except ConnectionError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
