"""Reads a model tensor by tensor, rounds what shall be rounded, and writes one file."""

from __future__ import annotations

import functools
import logging
import os
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from whispyx._core.cores import usable_cores
from whispyx._core.hparams import FIELDS, HParams
from whispyx._core.quantise import dequantise, quantise
from whispyx._core.vocab import Vocab
from whispyx._core.weightfile import WeightFile
from whispyx._files import WholeFile
from whispyx._weight_types import FILE_TYPES, GGML_TYPES
from whispyx.errors import ModelFormatError, ParamsError
from whispyx.languages import CODES
from whispyx.models.formats.manifest import Manifest, Settings, Vocabulary
from whispyx.models.formats.opening import open_model

from .report import Report, TensorReport
from .types import TYPES, TypeChoice, is_plain

__all__ = ["convert", "quantize"]

log = logging.getLogger("whispyx.conversion")

Progress = Callable[[int, "int | None", str], None]
OutputFormat = Literal["ggml", "gguf"]

_MAGIC: Final = 0x67676D6C
_QUANTIZED: Final = 2000  # version 2 of ggml's blocks, times 1000, is added to the number of the file type
_CHUNK_NUMBERS: Final = 1 << 20
_EMBEDDING: Final = "decoder.token_embedding.weight"
_COMMON: Final = (51864, 51865, 51866)
_TYPE_NAMES: Final = {number: name for name, number in GGML_TYPES.items()}
_SPECIAL: Final = (
    "eot", "sot", "translate", "transcribe", "solm", "prev", "nosp", "not_", "beg", "n_languages", "is_multilingual",
)  # fmt: skip


def convert(
    source: Any,
    dest: str | os.PathLike[str],
    choice: TypeChoice | None = None,
    *,
    format: OutputFormat | None = None,
    progress: Progress | None = None,
) -> Report:
    """Write a model of any readable form as one file.

    Parameters
    ----------
    source : path, bytes-like or binary file object
        A file or folder in any format that `Model` loads.
    dest : path
        File to make. It appears under this name only when it is complete.
    choice : TypeChoice, optional
        Types of the matrices; without it they stay what they are (integers of CTranslate2 become f16).
    format : {"ggml", "gguf"}, optional
        Without it the ending of `dest` tells: ".gguf", or anything else for whisper.cpp's format.
    progress : callable, optional
        Called with (bytes done, bytes in all, "convert").

    Returns
    -------
    Report

    Raises
    ------
    ParamsError
        A type does not fit the model, or the format cannot hold it.
    ModelNotFoundError, ModelFormatError, ModelError
        As for loading; or the file cannot be written.
    """
    choice, target = choice or TypeChoice(), Path(dest)
    if target.is_dir():
        raise ParamsError(f"{target} is a folder; name the file to make")
    kind = format or ("gguf" if target.suffix.lower() == ".gguf" else "ggml")
    if kind not in ("ggml", "gguf"):
        raise ParamsError(f"format must be ggml or gguf, not {kind!r}")
    with WeightFile(open_model(source)) as weights, ThreadPoolExecutor(usable_cores()) as pool:
        work = _Work(weights, choice, pool, progress)
        if kind == "ggml":
            work.leave_padding_out()
            _write_ggml(target, work)
        else:
            _write_gguf(target, work)
    log.info("wrote %s (%s)", target, kind)
    return work.report(target, kind)


def quantize(
    source: Any, dest: str | os.PathLike[str], type: str, *, progress: Progress | None = None, **keywords: Any
) -> Report:
    """Write a model with the matrices in one type: `convert` with `TypeChoice(type, ...)`.

    `encoder`, `decoder` and `keep` are those of TypeChoice, `format` that of `convert`.
    """
    form = keywords.pop("format", None)
    return convert(source, dest, TypeChoice(type, **keywords), format=form, progress=progress)


class _Work:
    """The tensors of one model, in the types that they get; notes what happens to them."""

    def __init__(
        self, weights: WeightFile, choice: TypeChoice, pool: ThreadPoolExecutor, progress: Progress | None
    ) -> None:
        self.weights, self.pool, self.progress = weights, pool, progress
        self.names = weights.names()
        self.n_vocab = weights.hparams.n_vocab
        matrices = [name for name in self.names if self.is_matrix(name)]
        wanted = {name: choice.of_matrix(name, weights.type_of(name)) for name in matrices}
        all_f32 = set(wanted.values()) == {TYPES["f32"]}
        self.types = {
            name: choice.of(name, weights.shape_of(name), weights.type_of(name), all_f32) for name in self.names
        }
        self.matrix_types = {self.types[name] for name in matrices}
        self.done = 0
        self.reports: list[TensorReport] = []

    def leave_padding_out(self) -> None:
        """Keep the embedding of the tokens alone: rows behind them are never written, and not every format has them."""
        self.n_vocab = self.weights.vocab.n_used

    def shape_of(self, name: str) -> tuple[int, ...]:
        shape = self.weights.shape_of(name)
        return (self.n_vocab, *shape[1:]) if name == _EMBEDDING else shape

    @functools.cached_property
    def total(self) -> int:
        return sum(self.n_bytes(name) for name in self.names)

    def is_matrix(self, name: str) -> bool:
        shape = self.weights.shape_of(name)
        return len(shape) == 2 and not is_plain(name, shape)

    def n_bytes(self, name: str) -> int:
        from whispyx._core.description import tensor_bytes

        found = tensor_bytes(self.types[name], self.shape_of(name)[::-1])
        assert found is not None  # TypeChoice.of has looked at the blocks
        return found

    def blocks(self, name: str) -> Iterator[bytes | bytearray]:
        """Yield a tensor's bytes in its new type, some rows at a time, in order; several threads round."""
        shape, before, after = self.shape_of(name), self.weights.type_of(name), self.types[name]
        width = shape[-1]
        n_rows = int(np.prod(shape[:-1], dtype=np.int64))
        step = max(1, _CHUNK_NUMBERS // width)
        starts = range(0, n_rows, step)
        squares = differences = largest = 0.0
        for first in range(0, len(starts), self.pool._max_workers):
            part = [(at, min(step, n_rows - at)) for at in starts[first : first + self.pool._max_workers]]
            if before == after:
                for at, n in part:
                    yield self._told(self.weights.rows(name, at, n))
                continue
            values = [self.weights.floats(name, at, n) for at, n in part]  # the file has one position: one reads
            for chunk, (a, b, c) in self.pool.map(lambda rows: _rounded(name, rows, after), values):
                squares, differences, largest = squares + a, differences + b, max(largest, c)
                yield self._told(chunk)
        error = (differences / squares) ** 0.5 if squares else 0.0
        self.reports.append(
            TensorReport(
                name, tuple(shape), _type_name(self.weights.stored_type_of(name)), _type_name(after),
                self.weights.bytes_of(name), self.n_bytes(name), error, largest,
            )
        )  # fmt: skip

    def _told(self, chunk: bytes | bytearray) -> bytes | bytearray:
        self.done += len(chunk)
        if self.progress is not None:
            self.progress(self.done, self.total, "convert")
        return chunk

    def report(self, target: Path, kind: str) -> Report:
        before, after = (sum(getattr(one, f"bytes_{when}") for one in self.reports) for when in ("before", "after"))
        readable = kind == "ggml" and len(self.matrix_types) == 1
        return Report(str(target), kind, before, after, tuple(self.reports), readable)


def _type_name(number: int) -> str:
    return _TYPE_NAMES.get(number, f"type {number}")


def _rounded(
    name: str, rows: npt.NDArray[np.float32], type: int
) -> tuple[bytes | bytearray, tuple[float, float, float]]:
    """Round rows; with the sums that errors are made of: squares, squared differences, the largest difference."""
    if not np.isfinite(rows).all():
        raise ModelFormatError(f"{name} holds values that are no numbers")
    raw = quantise(rows, type)
    again = dequantise(raw, type, rows.shape[1])
    if not np.isfinite(again).all():
        raise ModelFormatError(f"{name} holds values that {_type_name(type)} cannot; choose bf16 or f32")
    gap = np.abs(rows.astype(np.float64) - again)
    return raw, (float(np.square(rows, dtype=np.float64).sum()), float(np.square(gap).sum()), float(gap.max(initial=0)))


def _write_ggml(target: Path, work: _Work) -> None:
    weights = work.weights
    if not _is_common(work):
        raise ParamsError(
            f"{weights.name} has special tokens of its own, which whisper.cpp's format cannot tell: write GGUF"
        )
    with WholeFile(target) as out:
        out.write(_ggml_header(work))
        for name in work.names:
            shape = work.shape_of(name)
            raw = name.encode("utf-8")
            out.write(struct.pack(f"<3i{len(shape)}i", len(shape), len(raw), work.types[name], *reversed(shape)))
            out.write(raw)
            for block in work.blocks(name):
                out.write(block)


def _is_common(work: _Work) -> bool:
    """Whether the ids of special tokens follow from the number of tokens, as whisper.cpp takes them to."""
    hp, vocab = work.weights.hparams, work.weights.vocab
    if work.n_vocab not in _COMMON:
        return False
    plain = Vocab(HParams(work.n_vocab, *(getattr(hp, name) for name in FIELDS[1:])), [])
    return all(getattr(vocab, name) == getattr(plain, name) for name in _SPECIAL)


def _ggml_header(work: _Work) -> bytes:
    weights, hp = work.weights, work.weights.hparams
    common = max(work.matrix_types, key=lambda kind: sum(work.types[name] == kind for name in work.names))
    kind = _type_name(common)
    if kind not in FILE_TYPES:
        raise ParamsError(f"{kind} is no type of a file of whisper.cpp: choose one of {', '.join(FILE_TYPES)}")
    file_type = FILE_TYPES[kind] + (0 if kind in ("f32", "f16", "bf16") else _QUANTIZED)
    settings = [work.n_vocab, *(getattr(hp, name) for name in FIELDS[1:-1])]
    tokens = weights.tokens[: work.n_vocab]
    parts = [
        struct.pack("<I11i", _MAGIC, *settings, file_type),
        struct.pack("<2i", *weights.filters.shape),
        weights.filters.tobytes(),
        struct.pack("<i", len(tokens)),
        *(struct.pack("<I", len(token)) + token for token in tokens),
    ]
    return b"".join(parts)


def _write_gguf(target: Path, work: _Work) -> None:
    from whispyx.models.formats.gguf_write import write_gguf

    weights = work.weights
    manifest = weights.manifest
    if manifest is None:
        hp = weights.hparams
        manifest = Manifest(
            format="ggml",
            blobs=[],
            settings=Settings(*(getattr(hp, name) for name in FIELDS[:-1])),
            vocabulary=_vocabulary(weights),
            tensors={},
            filters=weights.filters,
        )
    pieces = [
        (name, weights.shape_of(name), work.types[name], lambda name=name: work.blocks(name)) for name in work.names
    ]
    write_gguf(target, manifest, pieces)


def _vocabulary(weights: WeightFile) -> Vocabulary:
    """The vocabulary of a file of whisper.cpp. No unusual number of tokens tells where the special ones are."""
    hp, vocab, tokens = weights.hparams, weights.vocab, tuple(weights.tokens)
    if hp.n_vocab in _COMMON:
        return Vocabulary(tokens)
    special = {name.rstrip("_"): getattr(vocab, name) for name in _SPECIAL[:9]}
    return Vocabulary(tokens, special, tuple(CODES[: vocab.n_languages]), bool(vocab.is_multilingual))
