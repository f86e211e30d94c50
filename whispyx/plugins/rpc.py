"""Devices of other processes and machines, served by ``whispyx rpc-server``.

Servers are named by ``WHISPYX_RPC_SERVERS=host:port,...`` or added here; what they offer then counts as a GPU of this
process ("RPC0", or ``rpc:0`` in a selection). The connection is neither encrypted nor protected by a password, and the
server sees the audio's features: use it within a network that you trust, or through a tunnel.
"""

from __future__ import annotations

from whispyx.plugins import registry
from whispyx.plugins.endpoints import check_endpoint

__all__ = ["add_server"]


def add_server(endpoint: str) -> tuple[str, ...]:
    """Use the devices of one more server.

    Parameters
    ----------
    endpoint : str
        Its address, "host:port". Adding it again changes nothing.

    Returns
    -------
    tuple of str
        Names of its devices, for `backend=` and ``WHISPYX_BACKEND``.

    Raises
    ------
    ParamsError
        The address is malformed.
    DeviceError
        The server cannot be reached, does not answer in time, or is no such server.
    BackendError
        The plugin "rpc" is not there or cannot be used.
    """
    return registry.add_server(check_endpoint(endpoint))
