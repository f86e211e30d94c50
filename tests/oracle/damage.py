"""Damaged copies of a model file, one at a time, each with what must become of it.

"refused": the loader must say that this is no model. "either": refusing is fine, and so is a model that works, since
the change may be harmless or may only move numbers about.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .quants import BY_TENSOR_TYPE
from .reader import SETTINGS

Verdict = Literal["refused", "either"]
NASTY = (-(2**31), -1, 0, 1, 3, 63, 65, 4096, 50300, 2**20, 2**30, 2**31 - 1)
REMOVED_TYPES = (4, 5, 31, 32, 33, 36, 37, 38)  # numbers that ggml gave up
FOREIGN = {
    "empty": b"",
    "one byte": b"l",
    "html": b"<!doctype html>\n<title>404</title><p>No such page</p>\n",
    "plain text": b"Access to this model needs a token.\n",
    "lfs pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"ab" * 32 + b"\nsize 77704715\n",
    "gguf": b"GGUF" + struct.pack("<IQQ", 3, 0, 0) + bytes(4000),
    "zip": b"PK\x03\x04" + bytes(4000),
    "safetensors": struct.pack("<Q", 2) + b"{}" + bytes(4000),
    "zeros": bytes(100_000),
    "noise": np.random.default_rng(9).bytes(100_000),
    "swapped bytes": b"ggml" + bytes(4000),
}


@dataclass(frozen=True)
class Case:
    name: str
    data: bytes
    verdict: Verdict


@dataclass(frozen=True)
class Record:
    """Where the parts of one tensor record are."""

    start: int
    name: str
    n_dims: int
    data: int
    end: int


class Layout:
    """Offsets of everything in a model file."""

    def __init__(self, data: bytes) -> None:
        n_mel, n_fft = struct.unpack_from("<2i", data, 48)
        self.vocab = 56 + 4 * n_mel * n_fft
        self.token_lengths, at = [], self.vocab + 4
        for _ in range(struct.unpack_from("<i", data, self.vocab)[0]):
            self.token_lengths.append(at)
            at += 4 + struct.unpack_from("<I", data, at)[0]
        self.tensors = at
        self.records: list[Record] = []
        while at < len(data):
            n_dims, name_length, kind = struct.unpack_from("<3i", data, at)
            dims = struct.unpack_from(f"<{n_dims}i", data, at + 12)
            body = at + 12 + 4 * n_dims + name_length
            name = data[body - name_length : body].decode()
            encoding = BY_TENSOR_TYPE[kind]
            end = body + int(np.prod(dims)) // encoding.block * encoding.block_bytes
            self.records.append(Record(at, name, n_dims, body, end))
            at = end


def cases(data: bytes) -> Iterator[Case]:
    """All damaged copies of the model `data`."""
    layout = Layout(data)
    for name, content in FOREIGN.items():
        yield Case(f"foreign: {name}", content, "refused")
    yield from _cut(data, layout)
    yield from _numbers(data, layout)
    yield from _records(data, layout)
    yield from _flipped(data, layout)


def _cut(data: bytes, layout: Layout) -> Iterator[Case]:
    at = {1, 3, 4, 5, 8, 27, 44, 47, 48, 51, 52, 55, 56, 57, 1000, layout.vocab - 1, layout.vocab, layout.vocab + 3}
    at |= {layout.vocab + 4, layout.token_lengths[1] + 2, layout.token_lengths[-1], layout.tensors - 1}
    for record in layout.records[:: len(layout.records) // 6]:
        at |= {record.start + 4, record.start + 11, record.start + 12, record.data - 1, record.data, record.end - 1}
    last = layout.records[-1]
    at |= {last.start, last.start + 1, last.data, (last.data + last.end) // 2, last.end - 1}
    for length in sorted(at):
        yield Case(f"cut to {length}", data[:length], "refused")
    yield Case("no tensors", data[: layout.tensors], "either")  # a model for trials without weights


def _patched(data: bytes, offset: int, value: int) -> bytes:
    return data[:offset] + struct.pack("<I", value & 0xFFFFFFFF) + data[offset + 4 :]


def _numbers(data: bytes, layout: Layout) -> Iterator[Case]:
    for i, name in enumerate(SETTINGS):
        offset = 4 + 4 * i
        (was,) = struct.unpack_from("<i", data, offset)
        values = {*NASTY, was - 1, was + 1, 2 * was} - {was}
        for value in sorted(v for v in values if -(2**31) <= v < 2**31):
            yield Case(f"{name} = {value}", _patched(data, offset, value), "either")
    spots = {"filter bands": 48, "filter bins": 52, "token count": layout.vocab}
    for name, offset in spots.items():
        for value in (-(2**31), -1, 0, 1, 2**16, 2**31 - 1):
            yield Case(f"{name} = {value}", _patched(data, offset, value), "refused")
    lengths = {"first": layout.token_lengths[0], "last": layout.token_lengths[-1]}
    for name, offset in lengths.items():
        for value in (0xFFFFFFFF, 0x80000000, 2**31 - 1, len(data), 2**20):
            yield Case(f"length of the {name} token = {value}", _patched(data, offset, value), "refused")


def _records(data: bytes, layout: Layout) -> Iterator[Case]:
    by_name = {record.name: record for record in layout.records}
    some = ("encoder.conv1.weight", "encoder.blocks.0.attn.query.weight", "decoder.ln.bias")
    for name in (*some, "decoder.token_embedding.weight"):
        r = by_name[name]
        for value in (-1, 0, 4, 5, 2**20, 2**31 - 1):
            if value != r.n_dims:
                yield Case(f"{name}: n_dims = {value}", _patched(data, r.start, value), "refused")
        for value in (-1, 0, 1, 100, 2**20, 2**31 - 1):
            yield Case(f"{name}: name length = {value}", _patched(data, r.start + 4, value), "refused")
        for value in (-1, 2, 8, 16, 39, 41, 100, 2**31 - 1, *REMOVED_TYPES):
            yield Case(f"{name}: type = {value}", _patched(data, r.start + 8, value), "refused")
        for axis in range(r.n_dims):
            for value in (-1, 0, 1, 33, 2**16, 2**30, 2**31 - 1):
                offset = r.start + 12 + 4 * axis
                yield Case(f"{name}: size of axis {axis} = {value}", _patched(data, offset, value), "refused")
    head, last = layout.records[0], layout.records[-1]
    whole = data[head.start : head.end]
    renamed = data.replace(b"encoder.ln_post.weight", b"encoder.ln_most.weight")
    twin = data.replace(b"encoder.ln_post.weight", b"encoder.ln_post.weighs")
    q = by_name["encoder.blocks.0.attn.query.weight"]
    yield Case("a tensor twice", data + whole, "refused")
    yield Case("a tensor twice instead of another", data[: last.start] + whole, "refused")
    yield Case("the first tensor missing", data[: head.start] + data[head.end :], "refused")
    yield Case("an unknown tensor", renamed, "refused")
    yield Case("a tensor under a name one letter off", twin, "refused")
    yield Case("the first tensor moved to the end", data[: head.start] + data[head.end :] + whole, "either")
    yield Case("a name that is not text", data[: q.data - 1] + b"\xff" + data[q.data :], "refused")
    nan = data[: q.data] + b"\xff" * (q.end - q.data) + data[q.end :]
    yield Case("weights that are not numbers", nan, "either")
    for n in (1, 4, 11, 12, 100):
        yield Case(f"{n} bytes too many", data + bytes(n), "refused")
    for n in (12, 1000):
        yield Case(f"{n} bytes of noise too many", data + np.random.default_rng(n).bytes(n), "refused")


def _flipped(data: bytes, layout: Layout) -> Iterator[Case]:
    """Single bits flipped anywhere but in filters and weights, where every bit pattern is a number."""
    rng = np.random.default_rng(77)
    for i in range(100):
        part = i % 3
        if part == 0:
            offset = int(rng.integers(0, 56))
        elif part == 1:
            offset = int(rng.integers(layout.vocab, layout.tensors))
        else:
            r = layout.records[int(rng.integers(len(layout.records)))]
            offset = int(rng.integers(r.start, r.data))
        changed = bytearray(data)
        changed[offset] ^= 1 << int(rng.integers(8))
        yield Case(f"bit flipped at {offset} ({i})", bytes(changed), "either")
