"""What a shared library's file says about itself, read without loading it.

The dynamic linker trusts the files it is given: a truncated one can end the process with a bus error, and loading
one is enough to run its constructors and to pull in what it depends on. So the tables that the linker follows first
are checked here before it sees the file (System V ABI, chapters 4 and 5).
"""

from __future__ import annotations

import os
import struct
import sys
from dataclasses import dataclass
from typing import BinaryIO, Final

from whispyx.errors import BackendLoadError

__all__ = ["SharedLibrary", "inspect"]

ET_DYN: Final = 3
PT_LOAD: Final = 1
PT_DYNAMIC: Final = 2
DT_NULL: Final = 0
DT_NEEDED: Final = 1
DT_STRTAB: Final = 5
DT_STRSZ: Final = 10
DT_SONAME: Final = 14

IS_64_BIT: Final = struct.calcsize("P") == 8
ORDER: Final = "<" if sys.byteorder == "little" else ">"
HEADER: Final = struct.Struct(ORDER + ("HHIQQQIHHHHHH" if IS_64_BIT else "HHIIIIIHHHHHH"))
SEGMENT: Final = struct.Struct(ORDER + ("IIQQQQQQ" if IS_64_BIT else "IIIIIIII"))
ENTRY: Final = struct.Struct(ORDER + ("qQ" if IS_64_BIT else "iI"))
IDENT_SIZE: Final = 16


@dataclass(frozen=True)
class SharedLibrary:
    """The dynamic section of a shared library."""

    machine: int
    soname: str | None
    needed: tuple[str, ...]


@dataclass(frozen=True)
class Segment:
    kind: int
    offset: int
    address: int
    size: int


def inspect(path: str) -> SharedLibrary:
    """Read the file's header, segments and dynamic section.

    Raises
    ------
    BackendLoadError
        The file is not a shared library for this kind of process, or it is truncated or damaged.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            return _read(file, size)
    except OSError as error:
        raise BackendLoadError(f"the file cannot be read: {error.strerror or error}") from error


def _read(file: BinaryIO, size: int) -> SharedLibrary:
    ident = file.read(IDENT_SIZE)
    if ident[:4] != b"\x7fELF":
        raise BackendLoadError("the file is not a shared library (it does not begin as an ELF file does)")
    if len(ident) < IDENT_SIZE or size < IDENT_SIZE + HEADER.size:
        raise BackendLoadError("the file is truncated inside its header")
    if ident[4] != (2 if IS_64_BIT else 1) or ident[5] != (1 if ORDER == "<" else 2):
        raise BackendLoadError("the file is a library for another word size or byte order than this process")
    header = HEADER.unpack(file.read(HEADER.size))
    kind, machine, table, entry_size, count = header[0], header[1], header[4], header[8], header[9]
    if kind != ET_DYN:
        raise BackendLoadError("the file is an ELF file but not a shared library")
    if entry_size != SEGMENT.size or count == 0 or table + entry_size * count > size:
        raise BackendLoadError("the file is truncated or damaged: its segment table lies outside of it")
    file.seek(table)
    segments = [_segment(file.read(entry_size)) for _ in range(count)]
    for segment in segments:
        if segment.kind in (PT_LOAD, PT_DYNAMIC) and segment.offset + segment.size > size:
            raise BackendLoadError(
                f"the file is truncated: it has {size} bytes, but a segment ends at {segment.offset + segment.size}"
            )
    dynamic = [s for s in segments if s.kind == PT_DYNAMIC]
    loads = [s for s in segments if s.kind == PT_LOAD]
    if len(dynamic) != 1 or not loads:
        raise BackendLoadError("the file is damaged: a shared library has loadable segments and one dynamic section")
    return _dynamic(file, dynamic[0], loads, machine)


def _segment(raw: bytes) -> Segment:
    fields = SEGMENT.unpack(raw)
    if IS_64_BIT:
        kind, _, offset, address, _, size = fields[:6]
    else:
        kind, offset, address, _, size = fields[:5]
    return Segment(kind, offset, address, size)


def _dynamic(file: BinaryIO, section: Segment, loads: list[Segment], machine: int) -> SharedLibrary:
    file.seek(section.offset)
    raw = file.read(section.size - section.size % ENTRY.size)
    names: list[int] = []
    soname: int | None = None
    strings = length = 0
    for tag, value in ENTRY.iter_unpack(raw):
        if tag == DT_NULL:
            break
        if tag == DT_NEEDED:
            names.append(value)
        elif tag == DT_SONAME:
            soname = value
        elif tag == DT_STRTAB:
            strings = value
        elif tag == DT_STRSZ:
            length = value
    for load in loads:
        if load.address <= strings and strings + length <= load.address + load.size:
            file.seek(load.offset + strings - load.address)
            text = file.read(length)
            break
    else:
        raise BackendLoadError("the file is damaged: its string table lies in no segment")
    if any(offset >= len(text) for offset in [*names, *([] if soname is None else [soname])]):
        raise BackendLoadError("the file is damaged: a name lies outside its string table")
    return SharedLibrary(
        machine=machine,
        soname=None if soname is None else _string(text, soname),
        needed=tuple(_string(text, offset) for offset in names),
    )


def _string(text: bytes, offset: int) -> str:
    return text[offset : text.find(b"\0", offset)].decode("utf-8", "replace")
