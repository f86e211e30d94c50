"""One damaged copy of a file, described by what it takes from the whole one. No copy lies in memory or on the disk
before it is wanted: those of a real model would fill both."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tests.oracle.damage import FOREIGN, Verdict

Span = tuple[int, int]
STEP: Final = 1 << 24
SWAPPED: Final = FOREIGN | {
    "a page to log in at": b"<!DOCTYPE html><html><head><title>Sign in</title></head><body></body></html>",
    "an answer in JSON": b'{"error": "Repository not found"}',
    "gzip": b"\x1f\x8b\x08\0" + bytes(3000),
    "a pickle": b"\x80\x04\x95" + bytes(200),
    "wav": b"RIFF\x24\x10\0\0WAVEfmt " + bytes(4096),
}
"""What is found under the name of a model."""


@dataclass(frozen=True)
class Field:
    """A number in a file that something follows from: `size` bytes, little-endian."""

    what: str
    offset: int
    size: int


@dataclass(frozen=True)
class Damage:
    """What is wrong with one file.

    Attributes
    ----------
    name : str
        What was done.
    pieces : tuple of (start, end) or bytes, or None
        The file: parts of the whole one, and others. None: there is no file.
    verdict : {"refused", "either"}
        Whether it may load.
    file : str
        Which file of a folder it is.
    """

    name: str
    pieces: tuple[Span | bytes, ...] | None
    verdict: Verdict = "either"
    file: str = ""

    def of(self, whole: bytes | mmap.mmap) -> bytes:
        """The damaged file."""
        assert self.pieces is not None
        return b"".join(piece if isinstance(piece, bytes) else whole[slice(*piece)] for piece in self.pieces)

    def write(self, whole: Path, path: Path) -> None:
        """Write the damaged file to `path`."""
        path.unlink(missing_ok=True)
        if self.pieces is None:
            return
        with open(whole, "rb") as source, open(path, "wb", buffering=0) as out:
            for piece in self.pieces:
                if isinstance(piece, bytes):
                    out.write(piece)
                    continue
                at, end = piece
                while at < end:
                    sent = os.sendfile(out.fileno(), source.fileno(), at, min(end - at, STEP))
                    assert sent > 0, "a piece lies beyond the end of the whole file"
                    at += sent


class Original:
    """A file to be damaged, and the ways to do it."""

    def __init__(self, path: Path, file: str = "") -> None:
        self.path, self.file = path, file
        with open(path, "rb") as opened:
            self.data = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        self.size = len(self.data)

    def number(self, field: Field) -> int:
        return int.from_bytes(self.data[field.offset : field.offset + field.size], "little")

    def made(self, name: str, pieces: Iterable[Span | bytes], verdict: Verdict = "either") -> Damage:
        kept = tuple(piece for piece in pieces if isinstance(piece, bytes) or piece[0] < piece[1])
        return Damage(f"{self.file}: {name}" if self.file else name, kept, verdict, self.file)

    def cut(self, length: int, verdict: Verdict = "refused") -> Damage:
        return self.made(f"cut to {length}", [(0, length)], verdict)

    def put(self, name: str, changes: Mapping[int, bytes], verdict: Verdict = "either") -> Damage:
        """Other bytes at some offsets."""
        pieces: list[Span | bytes] = []
        at = 0
        for offset, content in sorted(changes.items()):
            pieces += [(at, offset), content]
            at = offset + len(content)
        return self.made(name, [*pieces, (at, self.size)], verdict)

    def set(self, field: Field, value: int, verdict: Verdict = "either") -> Damage:
        """Another value in a field; numbers below zero and too large ones are taken modulo its size."""
        raw = (value % (1 << 8 * field.size)).to_bytes(field.size, "little")
        return self.put(f"{field.what} = {value}", {field.offset: raw}, verdict)

    def instead(self, name: str, start: int, end: int, content: bytes = b"", verdict: Verdict = "either") -> Damage:
        """Other bytes, or none, instead of a part."""
        return self.made(name, [(0, start), content, (end, self.size)], verdict)

    def again(self, name: str, start: int, end: int, verdict: Verdict = "either") -> Damage:
        """A part once more, at the end."""
        return self.made(name, [(0, self.size), (start, end)], verdict)

    def swapped(self) -> list[Damage]:
        """Other files under this name, none at all, and rests."""
        found = [self.made(f"foreign: {name}", [content], "refused") for name, content in SWAPPED.items()]
        rest = self.data[4 : min(5000, self.size)]
        found.append(self.made("the magic number of a zip", [b"PK\3\4" + rest], "refused"))
        return [*found, self.made("the magic number of GGUF", [b"GGUF" + rest], "refused")]

    def gone(self) -> Damage:
        return Damage(f"{self.file}: missing", None, "either", self.file)

    def numbers(self, fields: Iterable[Field]) -> list[Damage]:
        """Every field with values that nobody expects."""
        found = []
        for field in fields:
            bits, was = 8 * field.size, self.number(field)
            values = {0, 1, 2, 3, 7, 33, 1000, 2**16, 2**20, 2**30, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62}
            values |= {2**63 - 1, 2**63, 2**64 - 1, was + 1, was - 1, 2 * was, self.size, self.size - field.offset}
            found += [self.set(field, value) for value in sorted(values - {was}) if 0 <= value < 2**bits]
        return found

    def flipped(self, spans: Iterable[Span], count: int, seed: int = 7) -> list[Damage]:
        """Single bits flipped inside of some parts."""
        rng, spans, found = np.random.default_rng(seed), [span for span in spans if span[0] < span[1]], []
        for i in range(count):
            offset = int(rng.integers(*spans[i % len(spans)]))
            bit = int(rng.integers(8))
            raw = bytes([self.data[offset] ^ 1 << bit])
            found.append(self.put(f"bit {bit} flipped at {offset}", {offset: raw}))
        return found


def u32(value: int) -> bytes:
    return struct.pack("<I", value & 0xFFFFFFFF)
