"""Where the clients of `whispyx rpc-server` come in: those that do not greet as they should cost no worker."""

from __future__ import annotations

import contextlib
import functools
import logging
import select
import selectors
import socket
import struct
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

__all__ = ["MOST_WAITING", "Caller", "Door"]

log: Final = logging.getLogger("whispyx.rpc")

GREETING: Final = struct.Struct("<BQ")  # the number of the command, and how long the rest of it is
HELLO: Final = 14
MOST_BYTES: Final = 1024
"""A greeting that says it is longer is none."""
GREET_S: Final = 10.0
"""How long a client may take to greet."""
MOST_WAITING: Final = 64
"""How many connections without a worker there may be."""


@dataclass(eq=False)
class Caller:
    """A connection that no worker has yet.

    Attributes
    ----------
    connection : socket
    address : str
    limit : float
        When its patience ends, by the monotonic clock.
    wanted : int
        Bytes that it must have sent before it is looked at again.
    """

    connection: socket.socket
    address: str
    limit: float
    wanted: int = GREETING.size

    def has_left(self) -> bool:
        """Whether the other side has closed the connection."""
        poll = select.poll()
        poll.register(self.connection, getattr(select, "POLLRDHUP", 0))
        return bool(poll.poll(0))

    def expect(self, wanted: int) -> None:
        """Have the connection count as readable once that many bytes are there, or no more will come."""
        self.wanted = wanted
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)


class Door:
    """Takes connections in and gives them out, in their order, once they have greeted.

    What is registered in `selector` carries a function without arguments that is to be called.
    """

    def __init__(self, listener: socket.socket, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._listener = listener
        self._silent: dict[Caller, None] = {}
        self._greeted: deque[Caller] = deque()
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, self._enter)

    def patience(self) -> float | None:
        """Return in how many seconds `tidy` has something to do; None: not before another event."""
        return max(0.0, next(iter(self._silent)).limit - time.monotonic()) if self._silent else None

    def tidy(self) -> None:
        """Drop those that took too long to greet."""
        now = time.monotonic()
        for caller in [caller for caller in self._silent if caller.limit <= now]:
            self._drop(caller, "it did not greet in time")

    def next(self) -> Caller | None:
        """Give out the client that waits longest and is still there."""
        while self._greeted:
            caller = self._greeted.popleft()
            if not caller.has_left():
                return caller
            caller.connection.close()
        return None

    def put_back(self, caller: Caller) -> None:
        """Take back what `next` gave: it comes first again."""
        self._greeted.appendleft(caller)

    def close(self) -> None:
        """Drop everybody."""
        for caller in (*self._silent, *self._greeted):
            caller.connection.close()

    def _enter(self) -> None:
        try:
            connection, address = self._listener.accept()
        except OSError as error:  # it has left already, or this process has too many files open
            if not isinstance(error, (BlockingIOError, ConnectionError)):
                log.warning("a connection cannot be taken: %s", error)
                time.sleep(0.1)  # it would be reported again at once
            return
        connection.setblocking(True)
        caller = Caller(connection, f"{address[0]}:{address[1]}", time.monotonic() + GREET_S)
        if not self._has_room():
            self._refuse(caller, "too many wait before it")
            return
        caller.expect(caller.wanted)
        self._silent[caller] = None
        self._selector.register(connection, selectors.EVENT_READ, functools.partial(self._listen, caller))

    def _has_room(self) -> bool:
        if len(self._silent) + len(self._greeted) < MOST_WAITING:
            return True
        if self._silent:
            self._drop(next(iter(self._silent)), "it did not greet, and others wait")
            return True
        self._greeted = deque(caller for caller in self._greeted if not self._gone(caller))
        return len(self._greeted) < MOST_WAITING

    def _gone(self, caller: Caller) -> bool:
        gone = caller.has_left()
        if gone:
            caller.connection.close()
        return gone

    def _listen(self, caller: Caller) -> None:
        """Look at what is there, without taking it: the worker must find it."""
        if caller not in self._silent:  # it was dropped for another one a moment ago
            return
        try:
            data = caller.connection.recv(caller.wanted, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError as error:
            self._drop(caller, str(error.strerror or error))
            return
        if len(data) < caller.wanted:
            if not data or caller.has_left():
                self._drop(caller, "it left without a greeting")
            return
        command, size = GREETING.unpack_from(data)
        if command != HELLO or size > MOST_BYTES:
            self._drop(caller, "it said something else than a greeting")
        elif caller.wanted < GREETING.size + size:
            caller.expect(GREETING.size + size)
        else:
            caller.expect(1)
            self._selector.unregister(caller.connection)
            del self._silent[caller]
            self._greeted.append(caller)

    def _drop(self, caller: Caller, why: str) -> None:
        self._selector.unregister(caller.connection)
        del self._silent[caller]
        self._refuse(caller, why)

    def _refuse(self, caller: Caller, why: str) -> None:
        log.info("client %s is dropped: %s", caller.address, why)
        with contextlib.suppress(OSError):
            caller.connection.close()
