"""Which servers the plugin "rpc" shall use, and how their devices get into the table."""

from __future__ import annotations

import os
import re
from typing import Final

from whispyx._core import rpc
from whispyx._core.devices import Device, register_backend
from whispyx.errors import BackendError, BackendUnsupportedError, ParamsError

__all__ = [
    "PLUGIN",
    "SERVERS_VARIABLE",
    "TIMEOUT_VARIABLE",
    "check_endpoint",
    "connect",
    "from_env",
    "start",
    "timeout_s",
]

PLUGIN: Final = "rpc"
SERVERS_VARIABLE: Final = "WHISPYX_RPC_SERVERS"
TIMEOUT_VARIABLE: Final = "WHISPYX_RPC_TIMEOUT"

CONNECT_S: Final = 10.0
"""A server that is there takes its first questions at once; only computing takes long."""
ANSWER_S: Final = 60.0
"""An answer may have to wait for a whole encoder on a slow machine."""

ENDPOINT: Final = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")


def check_endpoint(text: str) -> str:
    """Return an address in the form in which servers are told apart.

    Raises
    ------
    ParamsError
        It is no text, or not of the form host:port (an IPv6 address stands in brackets).
    """
    if not isinstance(text, str):
        raise ParamsError(f"{text!r} is not the address of a server; it is a text of the form host:port")
    found = ENDPOINT.fullmatch(text.strip().lower())
    if found is None or not 0 < int(found["port"]) < 65536:
        raise ParamsError(f"{text!r} is not the address of a server; it has the form host:port, or [IPv6 address]:port")
    return f"{found['host']}:{int(found['port'])}"


def from_env() -> tuple[str, ...]:
    """Return the servers that the environment names, in its order."""
    named = (part for part in os.environ.get(SERVERS_VARIABLE, "").split(",") if part.strip())
    try:
        return tuple(dict.fromkeys(check_endpoint(part) for part in named))
    except ParamsError as error:
        raise ParamsError(f"{SERVERS_VARIABLE}: {error}") from None


def timeout_s() -> float:
    """Return how many seconds a server may take to answer."""
    text = os.environ.get(TIMEOUT_VARIABLE, "").strip()
    if not text:
        return ANSWER_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 86400:
        raise ParamsError(f"{TIMEOUT_VARIABLE} is {text!r}; it is a number of seconds from 0.1 to 86400")
    return seconds


def start(registration: int, path: str) -> tuple[Device, ...]:
    """Register the devices of all servers that the environment names.

    All of them or none: which device "rpc:1" is must not depend on which servers happen to be up.

    Raises
    ------
    BackendUnsupportedError
        No server is named.
    BackendError
        A variable is malformed, or a server cannot be used.
    """
    try:
        endpoints = from_env()
        if not endpoints:
            raise BackendUnsupportedError(
                f"it has no devices of its own, and no server is named: set {SERVERS_VARIABLE} to host:port"
            )
        found = [connect(registration, endpoint) for endpoint in endpoints]
    except ParamsError as error:
        raise BackendError(str(error)) from error
    devices: tuple[Device, ...] = ()
    for address in found:
        devices += register_backend(address, PLUGIN, path, len(devices))
    return devices


def connect(registration: int, endpoint: str) -> int:
    """Reach a server and return the registration of its devices; DeviceError when it cannot be used."""
    answer = timeout_s()
    rpc.set_timeouts(registration, round(1000 * min(CONNECT_S, answer)), round(1000 * answer))
    return rpc.add_server(registration, endpoint)
