"""Reader of safetensors headers: one file, or several with an index.

Layout: u64 length of the header, the header (a JSON object), the values. The header gives each tensor's type, shape and
range of bytes, counted from the end of the header (format description: README of the safetensors project).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from whispyx.errors import ModelFormatError

from .documents import Document, parse_json, shown
from .folder import Folder, refuse_other_things
from .manifest import Blob

__all__ = ["MAX_HEADER_BYTES", "MAX_SHARDS", "Entry", "read_header", "read_shards"]

MAX_HEADER_BYTES: Final = 16 << 20
"""The largest Whisper has 1259 tensors, whose header takes 150 kB."""
MAX_SHARDS: Final = 128
_MAX_RANK: Final = 8

_BITS: Final = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a tensor lies: `offset` counts from the start of file number `blob`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    blob: int
    offset: int
    n_bytes: int


def read_header(blob: Blob, number: int = 0) -> tuple[dict[str, Entry], dict[str, str]]:
    """Read and check the header of a safetensors file.

    Parameters
    ----------
    blob : Blob
        The file.
    number : int
        What the entries' `blob` will be.

    Returns
    -------
    entries : dict
        By name, in the order of the header.
    metadata : dict
        `__metadata__`, empty where there is none.

    Raises
    ------
    ModelFormatError
        The file is cut or something else; an entry is malformed or has an unknown type; sizes contradict each other;
        ranges overlap or leave a gap, or do not end with the file.
    """
    start = blob.read(0, min(blob.size, 9), "the length of the header")
    length = int.from_bytes(start[:8], "little")
    if start[8:] != b"{" or length > MAX_HEADER_BYTES:  # else the length itself may read like "<"
        refuse_other_things(blob)
        blob.read(0, 8, "the length of the header")
    if length > MAX_HEADER_BYTES:
        raise ModelFormatError(
            f"{blob.name}: a header of {length} bytes is announced at offset 0; at most {MAX_HEADER_BYTES} can be "
            "meant in a safetensors file of a Whisper model"
        )
    head = blob.read(8, length, "the header")
    if not head.startswith(b"{"):
        raise ModelFormatError(f"{blob.name} is no safetensors file: its header starts with {head[:1]!r}, not b'{{'")
    name = f"{blob.name}, header at offset 8"
    content = Document(parse_json(head, name), name).content
    metadata = _metadata(content.get("__metadata__"), name)
    entries = {
        key: _entry(key, value, name, number, 8 + length) for key, value in content.items() if key != "__metadata__"
    }
    _check_ranges(entries, blob, 8 + length)
    return entries, metadata


def _metadata(value: Any, name: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ModelFormatError(f"{name}: __metadata__ should map texts to texts, not {shown(value)}")
    return value


def _entry(key: str, value: Any, name: str, number: int, start: int) -> Entry:
    def wrong(reason: str) -> ModelFormatError:
        return ModelFormatError(f"{name}: the tensor {shown(key)} {reason}")

    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise wrong(f"should have dtype, shape and data_offsets, not {shown(value)}")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise wrong(f"has the unknown type {shown(dtype)}")
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise wrong(f"has the impossible shape {shown(shape)}")
    if len(shape) > _MAX_RANK:
        raise wrong(f"has {len(shape)} dimensions")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(offset) is int for offset in offsets):
        raise wrong(f"has the data_offsets {shown(offsets)}, which are no two whole numbers")
    begin, end = offsets
    if not 0 <= begin <= end:
        raise wrong(f"has the data_offsets {shown(offsets)}, which are no range")
    n_bits = math.prod(shape) * _BITS[dtype]
    if n_bits != 8 * (end - begin):
        raise wrong(f"has {end - begin} bytes; {dtype} of shape {shape} has {n_bits} bits")
    return Entry(key, dtype, tuple(shape), number, start + begin, end - begin)


def _check_ranges(entries: Mapping[str, Entry], blob: Blob, start: int) -> None:
    """The format wants the values without a gap, so that nothing can hide in a file."""
    at, before = start, "the header"
    for entry in sorted(entries.values(), key=lambda entry: (entry.offset, entry.n_bytes)):
        if entry.offset < at:
            raise ModelFormatError(
                f"{blob.name}: the tensor {shown(entry.name)} at offset {entry.offset} overlaps {before}, "
                f"which ends at {at}"
            )
        if entry.offset > at:
            raise ModelFormatError(
                f"{blob.name}: {entry.offset - at} bytes at offset {at}, between {before} and the tensor "
                f"{shown(entry.name)}, belong to no tensor"
            )
        at, before = entry.offset + entry.n_bytes, f"the tensor {shown(entry.name)}"
        if at > blob.size:
            raise ModelFormatError(f"{blob.name} ends early: {before} ends at {at}, there are {blob.size} bytes")
    if at != blob.size:
        raise ModelFormatError(
            f"{blob.name}: {blob.size - at} bytes at offset {at}, after {before}, belong to no tensor"
        )


def read_shards(folder: Folder, index_name: str, blobs: list[Blob]) -> dict[str, Entry]:
    """Read the headers of all files that an index (`model.safetensors.index.json`) names.

    Parameters
    ----------
    folder : Folder
        Where index and files lie; no other file is opened, whatever the index says.
    index_name : str
    blobs : list of Blob
        Each file is added when it has been opened, also before an error; the caller closes them.

    Returns
    -------
    dict
        Entries of all files by name.

    Raises
    ------
    ModelFormatError
        As from `read_header`; or index and files do not name the same tensors, or a name is not of a file in the
        folder.
    ModelNotFoundError
        A file is missing.
    """
    index = folder.document(index_name)
    places = index.content.get("weight_map") if index is not None else None
    if index is None or not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
        raise ModelFormatError(f"{folder.path}: {index_name} should have a weight_map of tensors to names of files")
    files = sorted(set(places.values()))
    if len(files) > MAX_SHARDS:
        raise ModelFormatError(f"{index.name} names {len(files)} files; at most {MAX_SHARDS} can be meant")
    entries: dict[str, Entry] = {}
    for file in files:
        if not file.endswith(".safetensors"):
            raise ModelFormatError(f"{index.name}: {shown(file)} is no name of a safetensors file")
        blobs.append(Blob(folder.file(file)))
        found, _ = read_header(blobs[-1], len(blobs) - 1)
        for name, entry in found.items():
            if places.get(name) != file:
                where = f"in {shown(places[name])}" if name in places else "nowhere"
                raise ModelFormatError(
                    f"{blobs[-1].name} has the tensor {shown(name)}, which is {where} by {index.name}"
                )
            entries[name] = entry
    for name, file in places.items():
        if name not in entries:
            raise ModelFormatError(f"{index.name}: the tensor {shown(name)} is not in {shown(file)}")
    return entries
