"""Damaged checkpoints of PyTorch: the zip archive, and the pickle inside of it."""

from __future__ import annotations

import pickletools
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.models.formats.torch_maker import global_

from .damage import Damage, Field, Original

END: Final = (("entries here", 8, 2), ("entries", 10, 2), ("size of the directory", 12, 4), ("its offset", 16, 4))
WIDE_END: Final = (("entries here", 24, 8), ("entries", 32, 8), ("size of the directory", 40, 8), ("its offset", 48, 8))
ENTRY: Final = (
    ("flags", 8, 2), ("method", 10, 2), ("checksum", 16, 4), ("packed size", 20, 4), ("size", 24, 4),
    ("length of the name", 28, 2), ("length of the extra field", 30, 2), ("length of the comment", 32, 2),
    ("place", 42, 4),
)  # fmt: skip
LOCAL: Final = (("flags", 6, 2), ("method", 8, 2), ("length of the name", 26, 2), ("length of the extra field", 28, 2))
NUMBERS: Final = {"BININT1": 1, "BININT2": 2, "BININT": 4, "BINUNICODE": 4, "BINPUT": 1, "BINGET": 1, "LONG_BINGET": 4}


@dataclass(frozen=True)
class Record:
    """One file of the archive: its entry in the directory, its own header, and its content."""

    name: str
    entry: int
    local: int
    start: int
    end: int
    entry_end: int


class Archive:
    """Where everything in an archive lies."""

    def __init__(self, whole: Original) -> None:
        self.whole = whole
        self.end = whole.size - 22
        assert whole.data[self.end : self.end + 4] == b"PK\5\6"
        self.n, self.directory = self.get(self.end + 10, 2), self.get(self.end + 16, 4)
        self.wide = whole.data.find(b"PK\6\6", self.directory)
        self.records, at = [], self.directory
        for _ in range(self.n):
            packed, local = self.get(at + 20, 4), self.get(at + 42, 4)
            n_name, n_extra, n_comment = (self.get(at + offset, 2) for offset in (28, 30, 32))
            start = local + 30 + self.get(local + 26, 2) + self.get(local + 28, 2)
            after = at + 46 + n_name + n_extra + n_comment
            name = whole.data[at + 46 : at + 46 + n_name].decode()
            self.records.append(Record(name, at, local, start, start + packed, after))
            at = after

    def get(self, offset: int, size: int) -> int:
        return self.whole.number(Field("", offset, size))


def cases(path: Path) -> Iterator[Damage]:
    whole = Original(path)
    archive = Archive(whole)
    yield from whole.swapped()
    pickle = next(record for record in archive.records if record.name.endswith("data.pkl"))
    some = [pickle, *archive.records[1 :: max(1, len(archive.records) // 4)]]
    at = {1, 3, 4, 29, 30, pickle.start, pickle.end, archive.directory, archive.directory + 20, archive.end}
    for length in sorted(at | {archive.end + 21, whole.size // 2, whole.size - 1}):
        yield whole.cut(length)
    fields = [Field(f"end: {what}", archive.end + offset, size) for what, offset, size in END]
    if archive.wide > 0:
        fields += [Field(f"64-bit end: {what}", archive.wide + offset, size) for what, offset, size in WIDE_END]
    for record in some:
        fields += [Field(f"{record.name}: {what}", record.entry + offset, size) for what, offset, size in ENTRY]
        fields += [Field(f"{record.name}, local: {what}", record.local + offset, n) for what, offset, n in LOCAL]
    yield from whole.numbers(fields)
    for record in some:
        name_at = record.entry + 46
        yield whole.put(f"{record.name} under another name", {name_at: b"X"}, "refused")
        yield whole.put(f"{record.name} outside", {name_at: b"../" + record.name.encode()[3:]})
        yield whole.put(f"{record.name} changed", {record.start: bytes([whole.data[record.start] ^ 1])})
    (first, second), last = archive.records[1:3], archive.records[-2]
    for one, other in ((first, second), (second, last)):
        # Two entries that tell of the same part of the file.
        place = {one.entry + 42: struct.pack("<I", other.local)}
        yield whole.put(f"{one.name} where {other.name} is", place)
    yield from whole.flipped([(archive.directory, whole.size), (0, 64), (pickle.start, pickle.end)], 60)
    yield from pickles(whole, pickle)


def pickles(whole: Original, record: Record) -> Iterator[Damage]:
    """Other pickles, with checksums that are right, so that the pickle is what gets read."""
    content = whole.data[record.start : record.end]

    def with_pickle(name: str, changed: bytes) -> Damage:
        assert len(changed) == len(content)
        crc = struct.pack("<I", zlib.crc32(changed))
        changes = {record.start: changed, record.entry + 16: crc}
        if whole.number(Field("", record.local + 6, 2)) & 8:
            changes[record.end + 4] = crc
        return whole.put(f"pickle: {name}", changes)

    def put(name: str, offset: int, raw: bytes) -> Damage:
        return with_pickle(name, content[:offset] + raw + content[offset + len(raw) :])

    steps = [(opcode.name, position) for opcode, _, position in pickletools.genops(content)]
    wanted = {name: [position for step, position in steps if step == name] for name in NUMBERS}
    for name, places in wanted.items():
        size = NUMBERS[name]
        for position in places[:: max(1, len(places) // 12)]:
            for value in (0, 1, 255, 2 ** (8 * size - 1), 2 ** (8 * size) - 1):
                raw = value.to_bytes(size, "little")
                if raw != content[position + 1 : position + 1 + size]:
                    yield put(f"{name} at {position} = {value}", position + 1, raw)
    for position in [position for _, position in steps[:: max(1, len(steps) // 60)]]:
        for raw in (b".", b"0", b"R", b"(", b"}", b"N", b"\x81"):
            yield put(f"opcode {raw!r} at {position}", position, raw)
    for module, name in (("os", "system"), ("builtins", "eval"), ("torch", "load")):
        program = b"\x80\x02" + global_(module, name) + b"X\2\0\0\0ls\x85R."
        yield put(f"calls {module}.{name}", 0, program)
