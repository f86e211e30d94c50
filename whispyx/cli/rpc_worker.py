"""One client of `whispyx rpc-server`, in a process of its own: what that client breaks is not the server.

Started by the server with the listening socket. Says on standard output, a JSON object a line, which device it is ready
to serve, and later whom it serves. Ends with its client, or with the server (the end of its standard input).
"""

from __future__ import annotations

import argparse
import json
import os
import select
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
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--device")
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args(argv)
    from .._core import rpc
    from ..errors import WhispyxError
    from ..plugins.endpoints import PLUGIN, SERVERS_VARIABLE
    from ..plugins.registry import registration
    from .status import status_of

    _prepare(SERVERS_VARIABLE)
    listener = socket.socket(fileno=args.socket)
    try:
        device = _device(args.device)
        plugin = registration(PLUGIN)
        _, total = device.memory()
        _say(device=device.name, description=device.description, memory=total)
        accepted = _accept(listener)
        if accepted is None:
            return 0
        client, address = accepted
        listener.close()
        _say(client=address)
        rpc.serve(plugin, client.detach(), device, args.threads)
    except (WhispyxError, OSError) as error:
        _say(error=str(error), status=int(status_of(error)))
        return 1
    return 0


def _prepare(servers: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group of processes; the server decides
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


def _accept(listener: socket.socket) -> tuple[socket.socket, str] | None:
    """Wait for a client; None when the server has gone."""
    listener.setblocking(False)  # another worker may have been quicker
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            return None
        try:
            client, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            continue
        return client, f"{address[0]}:{address[1]}"


def _say(**message: Any) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    sys.exit(main())
