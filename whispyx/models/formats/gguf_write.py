"""Writes GGUF files (layout and keys: docs/gguf.md). The same model always gives the same bytes."""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import numpy as np

from whispyx._files import WholeFile
from whispyx.errors import ModelError, ModelFormatError

from ..progress import Progress
from .gguf_container import ALIGNMENT, ARRAY, BLOCKS, MAGIC, STRING, tensor_bytes
from .gguf_names import FILTERS, RESERVED, SETTINGS, SPECIAL
from .gguf_tokens import strings_of
from .gguf_vocabulary import HIDDEN, LANGUAGES, MULTILINGUAL, TOKEN_COUNT, TOKENS
from .manifest import GGML_TYPES, Manifest, Settings

__all__ = ["Data", "Piece", "write_gguf"]

Bytes = bytes | bytearray | memoryview
Data = Bytes | Callable[[], Iterable[Bytes]]
"""Of one tensor: all of it, or a function that gives it block by block."""
Piece = tuple[str, Sequence[int], int, Data]
"""Name, shape (slowest axis first), type (a value of GGML_TYPES) and data of a tensor."""

_VERSION: Final = 3
_U32: Final = 4
_I32: Final = 5
_QUANTIZATION_VERSION: Final = 2  # of ggml's blocks, since 2023
_MAX_NAME_BYTES: Final = 63  # ggml keeps names in 64 bytes, the last one 0
_EXACT: Final = frozenset({"f32", "f16", "bf16"})
_FILE_TYPES: Final = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k": 12, "q4_k": 15,
    "q5_k": 17, "q6_k": 18, "bf16": 32,
}  # fmt: skip
"""Of `general.file_type`, by the type that most bytes of the matrices have."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """A tensor to write, and where it will lie in the data."""

    name: bytes
    shape: tuple[int, ...]
    type: int
    data: Data
    n_bytes: int
    offset: int


def write_gguf(
    dest: str | os.PathLike[str], manifest: Manifest, tensors: Iterable[Piece], progress: Progress | None = None
) -> Path:
    """Write a model as GGUF version 3, little endian.

    Parameters
    ----------
    dest : path
        File to make, with its folder. It appears under this name only when it is complete.
    manifest : Manifest
        Settings, vocabulary and all else that is no tensor; its own tensors are not looked at.
    tensors : iterable
        Name, shape, type and data of each, in the order in which they are to lie. Shapes and types are needed before
        any data: give functions as data, not bytes, where a model should not be in memory as a whole.
    progress : callable, optional
        Called with (bytes done, bytes in all, "convert").

    Returns
    -------
    Path
        `dest`.

    Raises
    ------
    ModelFormatError
        Two tensors share a name, a type or shape is not possible, or data do not have the bytes that these need.
    ModelError
        The file cannot be written.
    """
    target = Path(dest)
    plans = list(_planned(manifest, tensors))
    header = _header(manifest, plans)
    if target.is_dir():
        raise ModelError(f"{target} is a folder; name the file to make")
    with WholeFile(target) as out:
        out.write(header)
        _write_data(out, plans, progress)
    return target


def _planned(manifest: Manifest, tensors: Iterable[Piece]) -> Iterator[_Plan]:
    names: set[str] = set()
    offset = 0
    pieces = list(tensors)
    if manifest.filters is not None:
        filters = np.ascontiguousarray(manifest.filters, "<f4")
        pieces.insert(0, (FILTERS[0], filters.shape, GGML_TYPES["f32"], filters.tobytes()))
    for name, given, type, data in pieces:
        shape, raw = tuple(given), name.encode("utf-8")
        if name in names:
            raise ModelFormatError(f"tensor {name!r} is to be written twice")
        names.add(name)
        if not 1 <= len(raw) <= _MAX_NAME_BYTES:
            raise ModelFormatError(
                f"the name of tensor {name!r} has {len(raw)} bytes; 1 to {_MAX_NAME_BYTES} are possible"
            )
        if type not in BLOCKS:
            raise ModelFormatError(f"tensor {name!r} has the unknown type number {type}")
        if not 1 <= len(shape) <= 4 or min(shape) < 1 or shape[-1] % BLOCKS[type][1]:
            raise ModelFormatError(
                f"tensor {name!r} cannot have the shape {list(shape)} and the type {BLOCKS[type][0]}"
            )
        n_bytes = tensor_bytes(type, shape)
        yield _Plan(raw, shape, type, data, n_bytes, offset)
        offset += n_bytes + -n_bytes % ALIGNMENT


def _write_data(out: WholeFile, plans: Sequence[_Plan], progress: Progress | None) -> None:
    total, done = sum(plan.n_bytes for plan in plans), 0
    for plan in plans:
        written = 0
        for block in plan.data() if callable(plan.data) else (plan.data,):
            n_block = memoryview(block).nbytes
            written += n_block
            if written > plan.n_bytes:
                break
            out.write(block)
            done += n_block
            if progress is not None:
                progress(done, total, "convert")
        if written != plan.n_bytes:
            raise ModelFormatError(
                f"tensor {plan.name.decode()!r} got {written} bytes of data; {BLOCKS[plan.type][0]} of shape "
                f"{list(plan.shape)} needs {plan.n_bytes}"
            )
        out.write(bytes(-plan.n_bytes % ALIGNMENT))


def _header(manifest: Manifest, plans: Sequence[_Plan]) -> bytes:
    keys = list(_keys(manifest, plans))
    parts = [MAGIC, struct.pack("<IQQ", _VERSION, len(plans), len(keys)), *keys]
    for plan in plans:
        dims = plan.shape[::-1]
        parts.append(_string(plan.name))
        parts.append(struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, plan.type, plan.offset))
    header = b"".join(parts)
    return header + bytes(-len(header) % ALIGNMENT)


def _string(raw: bytes) -> bytes:
    return struct.pack("<Q", len(raw)) + raw


def _key(name: str, type: int, value: bytes) -> bytes:
    return _string(name.encode("utf-8")) + struct.pack("<I", type) + value


def _text(name: str, text: str) -> bytes:
    return _key(name, STRING, _string(text.encode("utf-8", "replace")))


def _count(name: str, number: int) -> bytes:
    return _key(name, _U32, struct.pack("<I", number))


def _texts(name: str, strings: Sequence[bytes]) -> bytes:
    return _key(name, ARRAY, struct.pack("<IQ", STRING, len(strings)) + b"".join(map(_string, strings)))


def _integers(name: str, numbers: Sequence[int]) -> bytes:
    return _key(name, ARRAY, struct.pack(f"<IQ{len(numbers)}i", _I32, len(numbers), *numbers))


def _keys(manifest: Manifest, plans: Sequence[_Plan]) -> Iterator[bytes]:
    """Every key with its value, in the order of docs/gguf.md."""
    yield _text("general.architecture", "whisper")
    yield _text("general.type", "model")
    yield from _notes(manifest.metadata)
    yield _count("general.file_type", _file_type(plans))
    if not {BLOCKS[plan.type][0] for plan in plans} <= _EXACT:
        yield _count("general.quantization_version", _QUANTIZATION_VERSION)
    yield _count("general.alignment", ALIGNMENT)
    for field in fields(Settings):
        yield _count(f"whisper.{SETTINGS[field.name][0]}", getattr(manifest.settings, field.name))
    vocabulary = manifest.vocabulary
    if vocabulary.special is not None:
        for name, number in vocabulary.special.items():
            yield _count(f"whisper.{SPECIAL[name][0]}", number)
        yield _count(f"whisper.{MULTILINGUAL}", int(vocabulary.multilingual))
    if vocabulary.languages is not None:
        yield _texts(LANGUAGES, [code.encode("utf-8", "replace") for code in vocabulary.languages])
    if manifest.alignment_heads is not None:
        yield _integers("whisper.alignment_heads", [number for pair in manifest.alignment_heads for number in pair])
    if manifest.suppress_tokens is not None:
        yield _integers("whisper.suppress_tokens", manifest.suppress_tokens)
    if manifest.begin_suppress_tokens is not None:
        yield _integers("whisper.begin_suppress_tokens", manifest.begin_suppress_tokens)
    if vocabulary.hidden:
        yield _integers(f"whisper.{HIDDEN}", vocabulary.hidden)
    yield _text("tokenizer.ggml.model", "gpt2")
    yield _count(TOKEN_COUNT, len(vocabulary.tokens))
    yield _texts(TOKENS, strings_of(vocabulary.tokens))


def _notes(metadata: Mapping[str, str]) -> Iterator[bytes]:
    for name, text in sorted(metadata.items()):
        if name == "language":
            yield _texts("general.languages", [word.strip().encode("utf-8", "replace") for word in text.split(",")])
        elif name == "base_model":
            yield _count("general.base_model.count", 1)
            yield _text("general.base_model.0.name", text)
        elif name in RESERVED or name in ("languages", "base_model.count", "base_model.0.name"):
            yield _text(f"whisper.metadata.{name}", text)
        else:
            yield _text(f"general.{name}", text)


def _file_type(plans: Sequence[_Plan]) -> int:
    """The number of the type that most bytes of the matrices have."""
    sizes: Counter[str] = Counter()
    for plan in plans:
        if len(plan.shape) == 2:
            sizes[BLOCKS[plan.type][0]] += plan.n_bytes
    known = [name for name, _ in sizes.most_common() if name in _FILE_TYPES]
    return _FILE_TYPES[known[0]] if known else 0
