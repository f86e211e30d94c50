"""Clients that send nonsense to `whispyx rpc-server`: they are dropped, and the next good one is served."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.plugins import rpc_client as wire
from tests.plugins.rpc_client import Client, Tensor, adds, graph
from tests.plugins.rpc_toolkit import Server

SEEDS = range(12)
SIZE = 4096
FAR = 2**64 - 1


@pytest.fixture(scope="module")
def server(built: Callable[[str], Path]) -> Iterator[Server]:
    with Server(built("rpc"), "--device", "cpu", threads=1) as running:
        yield running
        with Client.at(running.endpoint) as client:
            assert adds(client), "after all this a good client is not served"
        assert running.stop() == 0


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client.at(server.endpoint) as connected:
        yield connected


def crashes(server: Server) -> list[str]:
    """Return what the server says about clients whose process died."""
    return [line for line in server.errors().splitlines() if "its process ended" in line]


def test_a_client_that_behaves_is_served(client: Client) -> None:
    assert client.hello[:3] == bytes([5, 0, 0])
    assert client.number(wire.DEVICE_COUNT, b"") == 1
    assert client.number(wire.GET_ALIGNMENT, struct.pack("<I", 0)) in (16, 32, 64)
    assert adds(client)


# What is sent, given a buffer of SIZE bytes and its address. All of it must be seen to be wrong before it does harm.
WRONG: dict[str, Callable[[int, int], tuple[int, bytes]]] = {
    "unknown command": lambda buffer, base: (200, b""),
    "greeting twice": lambda buffer, base: (wire.HELLO, bytes(24)),
    "device that is not there": lambda buffer, base: (wire.ALLOC_BUFFER, struct.pack("<IQ", 7, 64)),
    "memory of another device": lambda buffer, base: (wire.GET_DEVICE_MEMORY, struct.pack("<I", 2**32 - 1)),
    "buffer that is not one": lambda buffer, base: (wire.FREE_BUFFER, struct.pack("<Q", base)),
    "base of nothing": lambda buffer, base: (wire.BUFFER_GET_BASE, struct.pack("<Q", 0)),
    "clearing a wild address": lambda buffer, base: (wire.BUFFER_CLEAR, struct.pack("<QB", 0xDEAD0000, 1)),
    "write without a tensor": lambda buffer, base: (wire.SET_TENSOR, bytes(100)),
    "write to no buffer": lambda buffer, base: _write(Tensor(buffer=0, data=base)),
    "write before the buffer": lambda buffer, base: _write(Tensor(buffer=buffer, data=base - 16)),
    "write over its end": lambda buffer, base: _write(Tensor(buffer=buffer, data=base + SIZE - 8)),
    "write at the end of memory": lambda buffer, base: _write(Tensor(buffer=buffer, data=FAR - 3)),
    "write past the tensor": lambda buffer, base: _write(Tensor(buffer=buffer, data=base), 8),
    "write far past the tensor": lambda buffer, base: _write(Tensor(buffer=buffer, data=base), FAR - 7),
    "type that is none": lambda buffer, base: _write(Tensor(buffer=buffer, data=base, type=4000)),
    "type that was dropped": lambda buffer, base: _write(Tensor(buffer=buffer, data=base, type=4)),
    "half a block": lambda buffer, base: _write(Tensor(buffer=buffer, data=base, type=wire.Q4_0, nb=(18,) * 4)),
    "operation that is none": lambda buffer, base: _write(Tensor(buffer=buffer, data=base, op=wire.N_OPS)),
    "dimensions that overflow": lambda buffer, base: _write(
        Tensor(buffer=buffer, data=base, ne=(2**32 - 1,) * 4, nb=(4, 1, 1, 1))
    ),
    "strides that overflow": lambda buffer, base: _write(
        Tensor(buffer=buffer, data=base, ne=(4, 2**32 - 1, 2**32 - 1, 2), nb=(4, 2**32 - 1, 2**32 - 1, 2**32 - 1))
    ),
    "rows on one another": lambda buffer, base: _write(
        Tensor(buffer=buffer, data=base + SIZE - 4, ne=(1024, 1, 1, 1), nb=(0, 0, 0, 0))
    ),
    "read past the tensor": lambda buffer, base: _read(Tensor(buffer=buffer, data=base), 0, 17),
    "read of everything": lambda buffer, base: _read(Tensor(buffer=buffer, data=base), 0, FAR),
    "read from before": lambda buffer, base: _read(Tensor(buffer=buffer, data=base), FAR - 15, 16),
    "fill past the tensor": lambda buffer, base: (
        wire.MEMSET_TENSOR,
        Tensor(buffer=buffer, data=base).packed() + struct.pack("<QQB", 8, 16, 1),
    ),
    "copy into less": lambda buffer, base: (
        wire.COPY_TENSOR,
        Tensor(buffer=buffer, data=base, ne=(512, 1, 1, 1), nb=(4, 2048, 2048, 2048)).packed()
        + Tensor(buffer=buffer, data=base + SIZE - 16).packed(),
    ),
    "size of an operation without sources": lambda buffer, base: (
        wire.GET_ALLOC_SIZE,
        struct.pack("<I", 0) + Tensor(op=wire.MUL_MAT).packed() + bytes(2960),
    ),
    "graph of nothing": lambda buffer, base: (wire.GRAPH_COMPUTE, graph([], [])),
    "graph without its tensors": lambda buffer, base: (wire.GRAPH_COMPUTE, graph([], [1])),
    "graph cut off": lambda buffer, base: (wire.GRAPH_COMPUTE, graph([_sum(buffer, base)], [3])[:-1]),
    "graph that counts too high": lambda buffer, base: (
        wire.GRAPH_COMPUTE,
        struct.pack("<II", 0, 2**32 - 1) + bytes(64),
    ),
    "graph for another device": lambda buffer, base: (wire.GRAPH_COMPUTE, graph([_sum(buffer, base)], [3], device=1)),
    "node that is no tensor": lambda buffer, base: (wire.GRAPH_COMPUTE, graph([Tensor(id=1)], [0])),
    "sources that are missing": lambda buffer, base: (
        wire.GRAPH_COMPUTE,
        graph([replace(_sum(buffer, base), src=())], [3]),
    ),
    "source without data": lambda buffer, base: (
        wire.GRAPH_COMPUTE,
        graph([replace(_sum(buffer, base), src=(1, 1)), Tensor(id=1)], [3]),
    ),
    "data without a buffer": lambda buffer, base: (
        wire.GRAPH_COMPUTE,
        graph([replace(_sum(buffer, base), src=(1, 1)), Tensor(id=1, data=0xDEAD0000)], [3]),
    ),
    "function of the client's": lambda buffer, base: (
        wire.GRAPH_COMPUTE,
        graph([replace(_sum(buffer, base), op=wire.MAP_CUSTOM1, op_params=(0x41414141,) * 16, src=(3,))], [3]),
    ),
    "another function of the client's": lambda buffer, base: (
        wire.GRAPH_COMPUTE,
        graph([replace(_sum(buffer, base), op=wire.CUSTOM, op_params=(0x41414141,) * 16, src=(3,))], [3]),
    ),
    "the same again, which never was": lambda buffer, base: (wire.GRAPH_RECOMPUTE, struct.pack("<I", 0)),
}


def _write(tensor: Tensor, offset: int = 0) -> tuple[int, bytes]:
    return wire.SET_TENSOR, tensor.packed() + struct.pack("<Q", offset) + bytes(16)


def _read(tensor: Tensor, offset: int, size: int) -> tuple[int, bytes]:
    return wire.GET_TENSOR, tensor.packed() + struct.pack("<QQ", offset, size)


def _sum(buffer: int, base: int) -> Tensor:
    """A tensor that is twice itself."""
    return Tensor(id=3, buffer=buffer, data=base, op=wire.ADD, src=(3, 3), flags=16)


@pytest.mark.parametrize("what", WRONG)
def test_nonsense_is_seen_and_its_client_dropped(server: Server, client: Client, what: str) -> None:
    before = crashes(server)
    client.tell(*WRONG[what](*client.buffer(SIZE)))
    assert client.is_dropped()
    with Client.at(server.endpoint) as other:
        assert adds(other)
    assert crashes(server) == before


@pytest.mark.parametrize("size", [0, 2**46 + 1, 2**63, FAR, FAR - 31])
def test_memory_that_cannot_be_had_is_denied(client: Client, size: int) -> None:
    assert client.ask(wire.ALLOC_BUFFER, struct.pack("<IQ", 0, size)) == bytes(16)
    assert adds(client)


@pytest.mark.parametrize("command", [wire.SET_TENSOR, wire.GRAPH_COMPUTE, wire.GET_TENSOR])
def test_a_message_that_says_it_is_huge_is_not_waited_for(client: Client, command: int) -> None:
    client.tell(command, b"", size=2**62)
    assert client.is_dropped()


def test_a_graph_is_forgotten_with_the_memory_that_it_used(server: Server, client: Client) -> None:
    before = crashes(server)
    buffer, base = client.buffer(SIZE)
    other, _ = client.buffer(SIZE)
    client.ask(wire.BUFFER_CLEAR, struct.pack("<QB", buffer, 0))
    client.tell(wire.GRAPH_COMPUTE, graph([_sum(buffer, base)], [3]))
    client.ask(wire.FREE_BUFFER, struct.pack("<Q", other))
    client.tell(wire.GRAPH_RECOMPUTE, struct.pack("<I", 0))  # it used nothing of the one that is gone
    assert client.read(Tensor(buffer=buffer, data=base), 16) == bytes(16)
    client.ask(wire.FREE_BUFFER, struct.pack("<Q", buffer))
    client.tell(wire.GRAPH_RECOMPUTE, struct.pack("<I", 0))
    assert client.is_dropped()
    assert crashes(server) == before


@pytest.mark.parametrize("what", ["nothing", "half a greeting", "a web request", "half a message"])
def test_clients_that_say_too_little_keep_nobody_waiting(server: Server, what: str) -> None:
    greeted = what == "half a message"
    with Client.at(server.endpoint, greet=greeted) as idle:
        if what == "half a greeting":
            idle.socket.sendall(struct.pack("<BQ", wire.HELLO, 24) + bytes(5))
        elif what == "a web request":
            idle.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
        elif greeted:
            idle.socket.sendall(struct.pack("<BQ", wire.GET_TENSOR, 312) + bytes(100))
        with Client.at(server.endpoint) as other:
            assert adds(other)


def test_what_ends_the_process_of_one_client_does_not_end_that_of_another(server: Server, client: Client) -> None:
    before = len(crashes(server))
    with Client.at(server.endpoint) as other:
        buffer, base = other.buffer(SIZE)
        # A row of a table that does not have it: only the operation itself can see that.
        table = Tensor(id=1, buffer=buffer, data=base)
        rows = Tensor(id=2, type=wire.I32, buffer=buffer, data=base + 64, ne=(1, 1, 1, 1), nb=(4,) * 4)
        taken = Tensor(id=3, buffer=buffer, data=base + 128, op=wire.GET_ROWS, src=(1, 2), flags=16)
        other.write(rows, struct.pack("<i", 1 << 30))
        other.tell(wire.GRAPH_COMPUTE, graph([table, rows, taken], [3]))
        assert other.is_dropped()
    assert adds(client)
    with Client.at(server.endpoint) as third:
        assert adds(third)
    assert len(crashes(server)) == before + 1


@pytest.mark.parametrize("seed", SEEDS)
def test_graphs_made_by_chance_end_no_server(server: Server, seed: int) -> None:
    dice = random.Random(seed)
    with Client.at(server.endpoint) as client:
        try:
            while True:
                _chance(client, dice)
        except (ConnectionError, TimeoutError):
            pass
    with Client.at(server.endpoint) as other:
        assert adds(other)


def _chance(client: Client, dice: random.Random) -> None:
    """Have something computed that may be anything, though its tensors lie where they should."""
    buffer, base = client.buffer(1 << 16)
    tensors = []
    for number in range(1, 6):
        ne = [dice.choice((1, 1, 2, 4, 32)) for _ in range(4)]
        nb = [4]
        for n in ne[:3]:
            nb.append(nb[-1] * n)
        dice.shuffle(ne)
        tensors.append(
            Tensor(
                id=number,
                type=dice.choice((wire.F32, wire.F32, wire.F32, 1, wire.I32)),
                buffer=buffer,
                ne=tuple(ne),
                nb=tuple(nb),
                op=dice.randrange(wire.N_OPS) if number > 2 else 0,
                op_params=tuple(dice.choice((0, 1, 2, 1 << 30, -1)) for _ in range(16)),
                flags=16,
                src=tuple(dice.choice((0, 1, 2, 3, 4)) if i < 4 else 0 for i in range(10)),
                data=base + 32 * dice.randrange(64),
            )
        )
    client.tell(wire.GRAPH_COMPUTE, graph(tensors, [3, 4, 5]))
    client.ask(wire.FREE_BUFFER, struct.pack("<Q", buffer))
