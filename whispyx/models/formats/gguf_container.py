"""GGUF as a container: keys with values, and where each tensor lies. What they mean is the business of `gguf`.

Layout (little endian): magic, u32 version, u64 number of tensors, u64 number of keys; per key its name, u32 type and
value; per tensor name, u32 number of dimensions, u64 each (fastest first), u32 type, u64 offset into the data, which
begin at the next multiple of `general.alignment`. A string is u64 length and bytes. Source: the GGUF specification of
ggml (docs/gguf.md); versions 2 and 3 differ in nothing that is read here.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from whispyx.errors import ModelFormatError

from .documents import shown
from .manifest import Blob

__all__ = ["ALIGNMENT", "ARRAY", "BLOCKS", "MAGIC", "STRING", "Container", "Record", "Value", "tensor_bytes"]

MAGIC: Final = b"GGUF"
ALIGNMENT: Final = 32
"""Where a file does not say otherwise."""

STRING: Final = 8
ARRAY: Final = 9
_NUMBERS: Final = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "<u1", 10: "<u8", 11: "<i8",
                   12: "<f8"}  # fmt: skip
_DTYPES: Final[dict[int, np.dtype[Any]]] = {number: np.dtype(code) for number, code in _NUMBERS.items()}
_WHOLE: Final = frozenset({0, 1, 2, 3, 4, 5, 10, 11})
"""Value types that are integers; 7 is bool."""

BLOCKS: Final[dict[int, tuple[str, int, int]]] = {
    0: ("f32", 1, 4), 1: ("f16", 1, 2), 2: ("q4_0", 32, 18), 3: ("q4_1", 32, 20), 6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24), 8: ("q8_0", 32, 34), 9: ("q8_1", 32, 36), 10: ("q2_k", 256, 84), 11: ("q3_k", 256, 110),
    12: ("q4_k", 256, 144), 13: ("q5_k", 256, 176), 14: ("q6_k", 256, 210), 15: ("q8_k", 256, 292),
    16: ("iq2_xxs", 256, 66), 17: ("iq2_xs", 256, 74), 18: ("iq3_xxs", 256, 98), 19: ("iq1_s", 256, 50),
    20: ("iq4_nl", 32, 18), 21: ("iq3_s", 256, 110), 22: ("iq2_s", 256, 82), 23: ("iq4_xs", 256, 136),
    24: ("i8", 1, 1), 25: ("i16", 1, 2), 26: ("i32", 1, 4), 27: ("i64", 1, 8), 28: ("f64", 1, 8),
    29: ("iq1_m", 256, 56), 30: ("bf16", 1, 2), 34: ("tq1_0", 256, 54), 35: ("tq2_0", 256, 66), 39: ("mxfp4", 32, 17),
}  # fmt: skip
"""ggml's tensor types: name, values in a block, bytes of a block."""

# Far above what any model has; they keep the time and memory that a damaged header can cost small.
_MAX_KEYS: Final = 10_000
_MAX_TENSORS: Final = 20_000
_MAX_KEY_BYTES: Final = 1024
_MAX_NAME_BYTES: Final = 256
_MAX_TEXT_BYTES: Final = 1 << 20
_MAX_ITEMS: Final = 1_000_000  # strings and arrays inside arrays, in the whole file
_MAX_DEPTH: Final = 4
_CHUNK: Final = 1 << 20
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")


def tensor_bytes(type: int, shape: Sequence[int]) -> int:
    """Return the bytes that a tensor takes.

    Parameters
    ----------
    type : int
        A key of BLOCKS.
    shape : sequence of int
        Slowest axis first. The last one must be a multiple of the type's block.
    """
    _, values, size = BLOCKS[type]
    return math.prod(shape) // values * size


@dataclass(frozen=True, slots=True)
class Value:
    """A value, or where it lies: numbers are read at once, strings and arrays when somebody asks."""

    type: int
    offset: int
    """Of the number, the string's first byte, or the array's first item."""
    n: int = 1
    """Bytes of a string, items of an array."""
    item_type: int = -1
    number: int | float | None = None
    strings: tuple[bytes, ...] | None = None
    """Of an array of strings whose key is in `keep`."""


@dataclass(frozen=True, slots=True)
class Record:
    """Where a tensor lies. `shape` has the slowest axis first, `offset` counts from the start of the file."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int
    n_bytes: int


class _Cursor:
    """A place in a file that moves on; what follows is read a large piece at a time."""

    def __init__(self, blob: Blob, pos: int) -> None:
        self.blob, self.pos = blob, pos
        self._buffer, self._start = b"", pos

    def fill(self, n: int, what: str) -> tuple[bytes, int]:
        """Return bytes that hold at least `n` from the present place, and the index of that place in them."""
        at = self.pos - self._start
        if at + n > len(self._buffer):
            left = self.blob.size - self.pos
            self._buffer, self._start = self.blob.read(self.pos, max(n, min(_CHUNK, left)), what), self.pos
            at = 0
        return self._buffer, at

    def take(self, n: int, what: str) -> bytes:
        buffer, at = self.fill(n, what)
        self.pos += n
        return buffer[at : at + n]

    def u32(self, what: str) -> int:
        buffer, at = self.fill(4, what)
        self.pos += 4
        number: int = _U32.unpack_from(buffer, at)[0]
        return number

    def u64(self, what: str) -> int:
        buffer, at = self.fill(8, what)
        self.pos += 8
        number: int = _U64.unpack_from(buffer, at)[0]
        return number

    def skip(self, n: int, what: str) -> None:
        if n > self.blob.size - self.pos:
            raise ModelFormatError(
                f"{self.blob.name} ends early: {what} needs {n} bytes at offset {self.pos}, "
                f"there are {self.blob.size} bytes"
            )
        self.pos += n

    def strings(self, n: int, keep: bool, what: str) -> tuple[bytes, ...]:
        """Walk over `n` strings, and return them if they are to be kept."""
        kept: list[bytes] = []
        unpack = _U64.unpack_from
        while n > 0:
            buffer, at = self.fill(8, what)
            end = len(buffer)
            while n > 0 and at + 8 <= end:  # the 50,000 of a vocabulary: nothing here but what must be
                stop = at + 8 + unpack(buffer, at)[0]
                if stop > end:
                    break
                if keep:
                    kept.append(buffer[at + 8 : stop])
                at, n = stop, n - 1
            self.pos = self._start + at
            if n > 0 and at + 8 <= end:  # one that reaches over the end of the piece
                length = self.u64(what)
                if keep and length > _MAX_TEXT_BYTES:
                    raise ModelFormatError(
                        f"{self.blob.name}: {what} holds a string of {length} bytes at offset {self.pos} "
                        f"({_MAX_TEXT_BYTES} are possible)"
                    )
                if keep:
                    kept.append(self.take(length, what))
                else:
                    self.skip(length, what)
                n -= 1
        return tuple(kept)


class Container:
    """Keys and tensors of a GGUF file. Only the header is read, and small values when they are asked for.

    Parameters
    ----------
    blob : Blob
    keep : set of str
        Keys of arrays of strings to keep while the header is walked.

    Raises
    ------
    ModelFormatError
        The file is cut, big-endian or of another version, or it contradicts itself; the message names offset or key.
    ModelError
        It cannot be read.
    """

    def __init__(self, blob: Blob, keep: frozenset[str] = frozenset()) -> None:
        self.blob = blob
        self.values: dict[str, Value] = {}
        self.tensors: dict[str, Record] = {}
        self._keep, self._n_items = keep, 0
        if blob.read(0, 4, "the magic number") != MAGIC:
            raise self.error(f"it starts with {blob.read(0, 4, 'the magic number')!r}, not {MAGIC!r}: no GGUF file")
        cursor = _Cursor(blob, 4)
        self.version = cursor.u32("the version")
        self._check_version()
        n_tensors, n_keys = cursor.u64("the number of tensors"), cursor.u64("the number of keys")
        # A key takes 13 bytes at least (empty name, type, one byte), a tensor 32 (empty name, one dimension).
        for what, n, smallest, most in (("keys", n_keys, 13, _MAX_KEYS), ("tensors", n_tensors, 32, _MAX_TENSORS)):
            if n > most or n * smallest > blob.size:
                raise self.error(
                    f"{n} {what} are announced at offset {8 if what == 'tensors' else 16}; "
                    f"{most} are possible, and {blob.size // smallest} in {blob.size} bytes"
                )
        for number in range(n_keys):
            self._read_key(cursor, number)
        self.alignment = self._read_alignment()
        infos = [self._read_info(cursor, number) for number in range(n_tensors)]
        self.data_offset = -(-cursor.pos // self.alignment) * self.alignment
        for name, shape, type, offset in infos:
            self._place(name, shape, type, offset)
        self._check_overlaps()

    def error(self, reason: str) -> ModelFormatError:
        """Return the error that says what is wrong with this file."""
        return ModelFormatError(f"{self.blob.name}: {reason}")

    def _check_version(self) -> None:
        if self.version & 0xFFFF == 0 and self.version:
            raise self.error(
                f"it is a big-endian GGUF file (version {self.version >> 24} with its bytes reversed at offset 4); "
                "convert it to little endian, or fetch a little-endian file"
            )
        if self.version not in (2, 3):
            hint = "; version 1 had sizes of 32 bits: convert the model again" if self.version == 1 else ""
            raise self.error(f"version {self.version} of GGUF at offset 4 cannot be read (2 and 3 can){hint}")

    def _read_key(self, cursor: _Cursor, number: int) -> None:
        what = f"the name of key {number}"
        length, place = cursor.u64(what), cursor.pos
        if length > _MAX_KEY_BYTES:
            raise self.error(f"{what} at offset {place} has {length} bytes ({_MAX_KEY_BYTES} are possible)")
        key = cursor.take(length, what).decode("utf-8", "backslashreplace")
        if key in self.values:
            raise self.error(f"key {shown(key)} at offset {place} is there twice")
        what = f"the value of key {shown(key)}"
        type, place = cursor.u32(what), cursor.pos
        if type in _DTYPES:
            raw = np.frombuffer(cursor.take(_DTYPES[type].itemsize, what), _DTYPES[type])
            self.values[key] = Value(type, place, number=raw.tolist()[0])
        elif type == STRING:
            length = cursor.u64(what)
            self.values[key] = Value(type, cursor.pos, length)
            cursor.skip(length, what)
        elif type == ARRAY:
            item_type, n = cursor.u32(what), cursor.u64(what)
            place = cursor.pos
            strings = self._walk_array(cursor, key, item_type, n, 1)
            self.values[key] = Value(type, place, n, item_type, strings=strings)
        else:
            raise self.error(f"key {shown(key)} at offset {place - 4} has the unknown value type {type}")

    def _walk_array(self, cursor: _Cursor, key: str, item_type: int, n: int, depth: int) -> tuple[bytes, ...] | None:
        what = f"the array of key {shown(key)}"
        if item_type in _DTYPES:
            cursor.skip(n * _DTYPES[item_type].itemsize, what)
            return None
        if item_type not in (STRING, ARRAY):
            raise self.error(f"{what} at offset {cursor.pos} holds the unknown value type {item_type}")
        self._n_items += n
        smallest = 8 if item_type == STRING else 12
        if self._n_items > _MAX_ITEMS or n * smallest > self.blob.size - cursor.pos:
            raise self.error(
                f"{what} at offset {cursor.pos} announces {n} items; {_MAX_ITEMS} are possible in a file, and "
                f"{(self.blob.size - cursor.pos) // smallest} in the bytes that follow"
            )
        if item_type == STRING:
            keep = depth == 1 and key in self._keep
            strings = cursor.strings(n, keep, what)
            return strings if keep else None
        if depth == _MAX_DEPTH:
            raise self.error(f"{what} at offset {cursor.pos} holds arrays of arrays, more than {_MAX_DEPTH} deep")
        for _ in range(n):
            inner, length = cursor.u32(what), cursor.u64(what)
            self._walk_array(cursor, key, inner, length, depth + 1)
        return None

    def _read_alignment(self) -> int:
        value = self.integer("general.alignment")
        if value is None:
            return ALIGNMENT
        if not 1 <= value <= 1 << 16 or value & (value - 1):
            raise self.error(f"general.alignment is {value}; it must be a power of two up to {1 << 16}")
        return value

    def _read_info(self, cursor: _Cursor, number: int) -> tuple[str, tuple[int, ...], int, int]:
        what = f"the header of tensor {number}"
        place, length = cursor.pos, cursor.u64(what)
        if not 1 <= length <= _MAX_NAME_BYTES:
            raise self.error(
                f"{what} at offset {place}: a name of {length} bytes (1 to {_MAX_NAME_BYTES} are possible)"
            )
        name = cursor.take(length, what).decode("utf-8", "backslashreplace")
        n_dims = cursor.u32(what)
        if not 1 <= n_dims <= 4:
            raise self.error(f"tensor {shown(name)} at offset {place} has {n_dims} dimensions (1 to 4 are possible)")
        dims = struct.unpack(f"<{n_dims}Q", cursor.take(8 * n_dims, what))
        return name, dims[::-1], cursor.u32(what), cursor.u64(what)

    def _place(self, name: str, shape: tuple[int, ...], type: int, offset: int) -> None:
        what = f"tensor {shown(name)}"
        if name in self.tensors:
            raise self.error(f"{what} is there twice")
        if type not in BLOCKS:
            raise self.error(f"{what} has the unknown type number {type}")
        type_name, values, _ = BLOCKS[type]
        if 0 in shape:
            raise self.error(f"{what} is empty: its shape is {list(shape)}")
        if shape[-1] % values:
            raise self.error(
                f"{what} has rows of {shape[-1]} values, which blocks of {values} ({type_name}) do not fill"
            )
        if offset % self.alignment:
            raise self.error(f"{what} lies at offset {offset} of the data, which is no multiple of {self.alignment}")
        n_bytes, start = tensor_bytes(type, shape), self.data_offset + offset
        if start + n_bytes > self.blob.size:
            raise self.error(
                f"it ends early: {what} ({type_name}, {list(shape)}) needs {n_bytes} bytes at offset {start}, "
                f"there are {self.blob.size} bytes"
            )
        self.tensors[name] = Record(name, shape, type, start, n_bytes)

    def _check_overlaps(self) -> None:
        before: Record | None = None
        for record in sorted(self.tensors.values(), key=lambda record: record.offset):
            if before is not None and before.offset + before.n_bytes > record.offset:
                raise self.error(
                    f"tensor {record.name!r} at offset {record.offset} overlaps {before.name!r}, "
                    f"which lies at {before.offset} to {before.offset + before.n_bytes}"
                )
            before = record

    def integer(self, key: str) -> int | None:
        """Return the integer of a key; None where there is no such key."""
        value = self.values.get(key)
        if value is None:
            return None
        if value.type not in _WHOLE or not isinstance(value.number, int):
            raise self.error(f"key {shown(key)} at offset {value.offset} should be an integer")
        return value.number

    def text(self, key: str) -> str | None:
        """Return the string of a key, with U+FFFD for what is not UTF-8; None where there is no such key."""
        value = self.values.get(key)
        if value is None:
            return None
        if value.type != STRING or value.n > _MAX_TEXT_BYTES:
            raise self.error(
                f"key {shown(key)} at offset {value.offset} should be a string of at most {_MAX_TEXT_BYTES} bytes"
            )
        return self.blob.read(value.offset, value.n, f"the value of key {shown(key)}").decode("utf-8", "replace")

    def numbers(self, key: str, most: int, whole: bool = True) -> npt.NDArray[Any] | None:
        """Return the array of numbers of a key, at most `most` of them; None where there is no such key."""
        value = self.values.get(key)
        if value is None:
            return None
        kinds = _WHOLE if whole else frozenset({6, 12})
        # Writers that look at the first item for the type of an array give an empty one any type.
        if value.type != ARRAY or (value.n and value.item_type not in kinds) or value.n > most:
            kind = "integers" if whole else "floats"
            raise self.error(f"key {shown(key)} at offset {value.offset} should be an array of at most {most} {kind}")
        if value.n == 0:
            return np.zeros(0, np.int64 if whole else np.float32)
        dtype = _DTYPES[value.item_type]
        return np.frombuffer(
            self.blob.read(value.offset, value.n * dtype.itemsize, f"the value of key {shown(key)}"), dtype
        )

    def strings(self, key: str, most: int) -> tuple[bytes, ...] | None:
        """Return the array of strings of a key in `keep`, at most `most` of them; None where there is no such key."""
        value = self.values.get(key)
        if value is None:
            return None
        if value.type != ARRAY or (value.n and value.item_type != STRING) or value.n > most:
            raise self.error(f"key {shown(key)} at offset {value.offset} should be an array of at most {most} strings")
        return value.strings or ()
