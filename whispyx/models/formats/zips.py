"""Where the records of a zip file lie. Nothing is unpacked, and a directory that contradicts the file is refused.

Python's own reader believes the directory: records may overlap, share a name, or be another size in their own header. A
model's tensors are read straight from the file, so that each of these would be a way to make one part of it two things.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from whispyx.errors import ModelFormatError

from .manifest import Blob

__all__ = ["Record", "read_records", "stored_bytes"]

STORED: Final = 0
_METHODS: Final = {0: "stored", 8: "deflated", 9: "deflated (64)", 12: "packed by bzip2", 14: "packed by LZMA",
                   93: "packed by Zstandard", 95: "packed by XZ"}  # fmt: skip
_MAX_RECORDS: Final = 65_536  # the largest Whisper has 1,300 tensors; a training run saves three times as many
_MAX_DIRECTORY: Final = 16 << 20
_FULL_16: Final = 0xFFFF
_FULL_32: Final = 0xFFFFFFFF
"""A field with all bits set: its value is in the 64-bit part instead."""

_END: Final = struct.Struct("<4s4H2IH")
_LOCATOR: Final = struct.Struct("<4sIQI")
_END_64: Final = struct.Struct("<4sQ2H2I4Q")
_ENTRY: Final = struct.Struct("<4s6H3I5H2I")
_LOCAL: Final = struct.Struct("<4s5H3I2H")

_ENCRYPTED: Final = 0x2041  # any of: encrypted, strongly, or with a masked directory
_SIZES_FOLLOW: Final = 0x0008
_COMPARED_FLAGS: Final = 0x2849


@dataclass(frozen=True, slots=True)
class Record:
    """One file of the archive: `n_packed` bytes at `offset`, which unpack to `n_bytes` (the same if it is stored)."""

    name: str
    offset: int
    n_bytes: int
    n_packed: int
    method: int
    crc: int

    @property
    def how(self) -> str:
        return _METHODS.get(self.method, f"packed by method {self.method}")


class _Entry(NamedTuple):
    """A line of the directory."""

    raw_name: bytes
    name: str
    flags: int
    method: int
    crc: int
    n_packed: int
    n_bytes: int
    header: int


class _Directory(NamedTuple):
    offset: int
    n_bytes: int
    n_entries: int


def _error(blob: Blob, reason: str) -> ModelFormatError:
    return ModelFormatError(f"{blob.name}: {reason}")


def _find_end(blob: Blob) -> int:
    """Return the offset of the end record: the last one whose comment fills the rest of the file."""
    start = max(0, blob.size - _END.size - _FULL_16)
    tail = blob.read(start, blob.size - start, "the end of the zip file")
    at = len(tail)
    while (at := tail.rfind(b"PK\5\6", 0, at + 3)) >= 0:
        if at + _END.size <= len(tail) and _END.unpack_from(tail, at)[7] == len(tail) - at - _END.size:
            return start + at
    raise _error(blob, "the zip file has no directory at its end; it is cut off or damaged")


def _read_directory_place(blob: Blob) -> _Directory:
    end = _find_end(blob)
    _, disk, first_disk, n_here, n_entries, n_bytes, offset, _ = _END.unpack(
        blob.read(end, _END.size, "the end record")
    )
    claims, limits = (disk, first_disk, n_here, n_entries, n_bytes, offset), (_FULL_16,) * 4 + (_FULL_32,) * 2
    wide: tuple[int, ...] = claims
    located = blob.read(end - _LOCATOR.size, _LOCATOR.size, "the zip64 locator") if end >= _LOCATOR.size else b""
    if located[:4] == b"PK\6\7":
        end -= _LOCATOR.size
        _, _, at, n_disks = _LOCATOR.unpack(located)
        if n_disks > 1:
            raise _error(blob, f"the zip file is one of {n_disks} parts")
        magic, length, _, _, *fields = _END_64.unpack(blob.read(at, _END_64.size, "the zip64 end record"))
        if magic != b"PK\6\6" or length < _END_64.size - 12 or at + 12 + length != end:
            raise _error(blob, f"offset {at} should hold the zip64 end record")
        wide, end = tuple(fields), at
    for claim, limit, value in zip(claims, limits, wide, strict=True):
        if claim != limit and claim != value:
            raise _error(blob, f"the end records of the zip file disagree: {claim} and {value}")
    disk, first_disk, n_here, n_entries, n_bytes, offset = wide
    if disk or first_disk or n_here != n_entries:
        raise _error(blob, "the zip file is one of several parts")
    if offset + n_bytes != end:
        raise _error(
            blob,
            f"the zip directory ({n_bytes} bytes at offset {offset}) does not end where its end record begins ({end})",
        )
    if n_entries > _MAX_RECORDS or n_bytes > _MAX_DIRECTORY:
        raise _error(blob, f"the zip directory has {n_entries} records in {n_bytes} bytes; no model has so many")
    if n_bytes < n_entries * _ENTRY.size:
        raise _error(blob, f"the zip directory has {n_bytes} bytes, too few for {n_entries} records")
    return _Directory(offset, n_bytes, n_entries)


def _widened(blob: Blob, name: str, extra: bytes, fields: tuple[int, ...]) -> tuple[int, ...]:
    """Replace the fields that are full by those of the zip64 part of `extra`, which has them in the same order."""
    full = [index for index, value in enumerate(fields) if value == _FULL_32]
    at = 0
    while full and at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        at += 4
        if kind == 1 and at + length <= len(extra) and length >= 8 * len(full):
            values = list(fields)
            for index, value in zip(full, struct.unpack_from(f"<{len(full)}Q", extra, at), strict=True):
                values[index] = value
            return tuple(values)
        at += length
    if full:
        raise _error(blob, f"record {name!r} of the zip file lacks its 64-bit sizes")
    return fields


def _checked_name(blob: Blob, raw: bytes, number: int) -> str:
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise _error(blob, f"the name of record {number} of the zip file is not text") from None
    if not name or name[0] == "/" or "\\" in name or not name.isprintable() or ".." in name.split("/"):
        raise _error(blob, f"record {number} of the zip file has a name that none may have: {name[:200]!r}")
    return name


def _entries(blob: Blob, place: _Directory) -> Iterator[_Entry]:
    directory = blob.read(place.offset, place.n_bytes, "the zip directory")
    at = 0
    for number in range(place.n_entries):
        if at + _ENTRY.size > len(directory):
            raise _error(blob, f"the zip directory ends inside record {number} of {place.n_entries}")
        magic, _, _, flags, method, _, _, crc, n_packed, n_bytes, n_name, n_extra, n_comment, disk, _, _, header = (
            _ENTRY.unpack_from(directory, at)
        )
        if magic != b"PK\1\2":
            raise _error(blob, f"offset {place.offset + at} should hold record {number} of the zip directory")
        at += _ENTRY.size
        if at + n_name + n_extra + n_comment > len(directory):
            raise _error(blob, f"the zip directory ends inside record {number} of {place.n_entries}")
        raw = directory[at : at + n_name]
        name = _checked_name(blob, raw, number)
        extra = directory[at + n_name : at + n_name + n_extra]
        at += n_name + n_extra + n_comment
        if flags & _ENCRYPTED:
            raise _error(blob, f"record {name!r} of the zip file is encrypted")
        if disk not in (0, _FULL_16):
            raise _error(blob, f"record {name!r} lies in another part of the zip file")
        n_bytes, n_packed, header = _widened(blob, name, extra, (n_bytes, n_packed, header))
        if method == STORED and n_bytes != n_packed:
            raise _error(blob, f"record {name!r} is stored, yet {n_packed} bytes are said to be {n_bytes}")
        yield _Entry(raw, name, flags, method, crc, n_packed, n_bytes, header)
    if at != len(directory):
        raise _error(blob, f"{len(directory) - at} unexpected bytes follow the last record of the zip directory")


def _record(blob: Blob, entry: _Entry) -> Record:
    """Read the header before the bytes of a record, which must say the same as the directory."""
    name = entry.name
    fixed = blob.read(entry.header, _LOCAL.size, f"the header of {name!r}")
    magic, _, flags, method, _, _, crc, n_packed, n_bytes, n_name, n_extra = _LOCAL.unpack(fixed)
    if magic != b"PK\3\4":
        raise _error(blob, f"offset {entry.header} should hold the header of {name!r}")
    rest = blob.read(entry.header + _LOCAL.size, n_name + n_extra, f"the header of {name!r}")
    if rest[:n_name] != entry.raw_name:
        raise _error(
            blob, f"the directory calls {name!r} what its header at offset {entry.header} calls {rest[:n_name][:200]!r}"
        )
    found = (flags & _COMPARED_FLAGS, method)
    if found != (entry.flags & _COMPARED_FLAGS, entry.method):
        raise _error(blob, f"directory and header (offset {entry.header}) of {name!r} disagree on how it is packed")
    # A header that was written before its bytes has no sizes: zero, or full without a 64-bit part.
    unknown = flags & _SIZES_FOLLOW and (n_packed, n_bytes) in ((0, 0), (_FULL_32, _FULL_32)) and crc in (0, entry.crc)
    if not unknown:
        n_bytes, n_packed = _widened(blob, name, rest[n_name:], (n_bytes, n_packed))
        if (n_bytes, n_packed, crc) != (entry.n_bytes, entry.n_packed, entry.crc):
            raise _error(
                blob,
                f"directory and header (offset {entry.header}) of {name!r} disagree on its size: "
                f"{entry.n_packed} and {n_packed} bytes, or on its checksum",
            )
    offset = entry.header + _LOCAL.size + n_name + n_extra
    return Record(name, offset, entry.n_bytes, entry.n_packed, entry.method, entry.crc)


def read_records(blob: Blob) -> dict[str, Record]:
    """Find every record of a zip file, by name.

    Parameters
    ----------
    blob : Blob
        The file. Only its directory and the headers of its records are read.

    Raises
    ------
    ModelFormatError
        There is no directory at the end, it is implausibly large, two records overlap or share a name, a name leads out
        of the archive, a record is encrypted, or a record's own header says something else than the directory.

    Notes
    -----
    After PKWARE's "APPNOTE.TXT", versions 1.0 to 6.3, with 64-bit sizes.
    """
    place = _read_directory_place(blob)
    records: dict[str, Record] = {}
    free, previous = 0, ""
    for entry in sorted(_entries(blob, place), key=lambda entry: entry.header):
        if entry.name in records:
            raise _error(blob, f"the zip file has two records with the name {entry.name!r}")
        if entry.header < free:
            raise _error(blob, f"the records {previous!r} and {entry.name!r} of the zip file overlap")
        record = _record(blob, entry)
        free, previous = record.offset + record.n_packed, entry.name
        if free > place.offset:
            raise _error(
                blob,
                f"record {entry.name!r} ({record.n_packed} bytes at offset {record.offset}) reaches into the directory",
            )
        records[entry.name] = record
    return records


def stored_bytes(blob: Blob, record: Record, limit: int) -> bytes:
    """Read a record that is not packed and has at most `limit` bytes; its checksum must be right."""
    if record.method != STORED:
        raise _error(
            blob, f"record {record.name!r} is {record.how}; only records that are stored as they are can be read"
        )
    if record.n_bytes > limit:
        raise _error(blob, f"record {record.name!r} has {record.n_bytes} bytes; at most {limit} are read")
    data = blob.read(record.offset, record.n_bytes, f"record {record.name!r}")
    if zlib.crc32(data) != record.crc:
        raise _error(blob, f"record {record.name!r} at offset {record.offset} is damaged: its checksum is wrong")
    return data
