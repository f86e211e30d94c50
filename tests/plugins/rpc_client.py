"""A client of ggml's RPC protocol (version 5.0) that can say anything, written from the protocol alone."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field
from types import TracebackType

from tests.plugins.rpc_toolkit import exactly

(
    ALLOC_BUFFER, GET_ALIGNMENT, GET_MAX_SIZE, BUFFER_GET_BASE, FREE_BUFFER, BUFFER_CLEAR, SET_TENSOR, SET_TENSOR_HASH,
    GET_TENSOR, COPY_TENSOR, GRAPH_COMPUTE, GET_DEVICE_MEMORY, INIT_TENSOR, GET_ALLOC_SIZE, HELLO, DEVICE_COUNT,
    GRAPH_RECOMPUTE, MEMSET_TENSOR,
) = range(18)  # fmt: skip

F32, Q4_0, I32 = 0, 2, 26
ADD, MUL_MAT, GET_ROWS, MAP_CUSTOM1, CUSTOM, N_OPS = 2, 29, 40, 92, 95, 101

TENSOR = struct.Struct("<QIQ4I4II16ii10QQQQ64s4x")
assert TENSOR.size == 296


@dataclass
class Tensor:
    """What the protocol says of a tensor."""

    id: int = 1
    type: int = F32
    buffer: int = 0
    ne: tuple[int, ...] = (4, 1, 1, 1)
    nb: tuple[int, ...] = (4, 16, 16, 16)
    op: int = 0
    op_params: tuple[int, ...] = (0,) * 16
    flags: int = 0
    src: tuple[int, ...] = field(default=(0,) * 10)
    view_src: int = 0
    view_offs: int = 0
    data: int = 0
    name: bytes = b"t"

    def packed(self) -> bytes:
        src = (*self.src, *(0,) * (10 - len(self.src)))
        return TENSOR.pack(
            self.id, self.type, self.buffer, *self.ne, *self.nb, self.op, *self.op_params, self.flags, *src,
            self.view_src, self.view_offs, self.data, self.name,
        )  # fmt: skip


def graph(tensors: list[Tensor], nodes: list[int], device: int = 0) -> bytes:
    """Return the message that computes `nodes` (ids)."""
    return (
        struct.pack("<II", device, len(nodes))
        + struct.pack(f"<{len(nodes)}Q", *nodes)
        + struct.pack("<I", len(tensors))
        + b"".join(tensor.packed() for tensor in tensors)
    )


class Client:
    """A connection that has greeted, unless it was told not to."""

    def __init__(self, connection: socket.socket, greet: bool = True) -> None:
        self.socket = connection
        connection.settimeout(20)
        if greet:
            self.hello = self.ask(HELLO, bytes(24))

    @classmethod
    def at(cls, endpoint: str, greet: bool = True) -> Client:
        host, _, port = endpoint.rpartition(":")
        return cls(socket.create_connection((host, int(port)), 20), greet)

    def tell(self, command: int, payload: bytes, size: int | None = None) -> None:
        """Send a command; `size` is what it says about its length."""
        self.socket.sendall(struct.pack("<BQ", command, len(payload) if size is None else size) + payload)

    def heard(self) -> bytes:
        """Receive an answer."""
        (size,) = struct.unpack("<Q", exactly(self.socket, 8))
        return exactly(self.socket, size)

    def ask(self, command: int, payload: bytes) -> bytes:
        self.tell(command, payload)
        return self.heard()

    def number(self, command: int, payload: bytes) -> int:
        return int.from_bytes(self.ask(command, payload)[:8], "little")

    def buffer(self, size: int) -> tuple[int, int]:
        """Return a new buffer and its address on the server."""
        buffer = self.number(ALLOC_BUFFER, struct.pack("<IQ", 0, size))
        return buffer, self.number(BUFFER_GET_BASE, struct.pack("<Q", buffer))

    def write(self, tensor: Tensor, data: bytes, offset: int = 0) -> None:
        self.tell(SET_TENSOR, tensor.packed() + struct.pack("<Q", offset) + data)

    def read(self, tensor: Tensor, size: int, offset: int = 0) -> bytes:
        return self.ask(GET_TENSOR, tensor.packed() + struct.pack("<QQ", offset, size))

    def is_dropped(self) -> bool:
        """Whether the server ends the connection, perhaps after an answer."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            return False
        return True

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()


def adds(client: Client) -> bool:
    """Whether the server computes what it should for a client that behaves."""
    buffer, base = client.buffer(4096)
    a = Tensor(id=1, buffer=buffer, data=base)
    b = Tensor(id=2, buffer=buffer, data=base + 64)
    c = Tensor(id=3, buffer=buffer, data=base + 128, op=ADD, src=(1, 2), flags=16)
    client.write(a, struct.pack("<4f", 1, 2, 3, 4))
    client.write(b, struct.pack("<4f", 10, 20, 30, 40))
    client.tell(GRAPH_COMPUTE, graph([a, b, c], [3]))
    first = struct.unpack("<4f", client.read(c, 16))
    client.write(b, struct.pack("<4f", 0, 0, 0, 1))
    client.tell(GRAPH_RECOMPUTE, struct.pack("<I", 0))
    again = struct.unpack("<4f", client.read(c, 16))
    client.ask(FREE_BUFFER, struct.pack("<Q", buffer))
    return first == (11, 22, 33, 44) and again == (1, 2, 3, 5)
