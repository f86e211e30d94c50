"""Damaged files of whisper.cpp's format, and of Silero's network, whose records look the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.oracle.damage import Layout
from tests.oracle.reader import SETTINGS

from .damage import Damage, Field, Original, u32

HEAD, N_MEL, N_FFT = 48, 48, 52
FILTERS = 56
TRIED = (-1, 0, 1, 7, 50300, 60000, 2**20, 2**31 - 1, -(2**31))
FEW = (-1, 0, 20, 2**31 - 1)
TEXTS = {
    "html": b"<!DOCTYPE html><html><body>404 Not Found</body></html>",
    "plain text": b"Invalid username or password.",
    "lfs pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 1\n",
    "empty": b"",
}
SILERO_HEAD = 18 + 22 * 4


def trial(path: Path) -> Iterator[Damage]:
    """The cases of trial T18: cut files, eleven settings with nine values each, counts and sizes, other files."""
    whole = Original(path)
    layout: Any = Layout(whole.data)
    vocab, tensors, end = layout.vocab, layout.tensors, whole.size
    at = {0, 1, 3, 4, 20, 47, 48, 52, 56, 57, vocab - 1, vocab, vocab + 3, vocab + 4, vocab + 8, tensors - 1, tensors}
    at |= {tensors + 4, tensors + 11, tensors + 12, tensors + 20, end // 3, end // 2, end - 4, end - 1}
    for length in sorted(length for length in at if length < end):
        # Without any tensor it is a model for trials of the vocabulary, of which whisper.cpp publishes some.
        yield whole.cut(length, "either" if length == tensors else "refused")
    for i, name in enumerate(SETTINGS):
        for value in TRIED:
            yield whole.set(Field(name, 4 + 4 * i, 4), value)
    spots = {"filters, bands": N_MEL, "filters, bins": N_FFT, "number of tokens": vocab, "length of a token": vocab + 4}
    if tensors < end:
        spots |= {"dimensions": tensors, "length of a name": tensors + 4, "type of a tensor": tensors + 8}
    for name, offset in spots.items():
        for value in FEW:
            yield whole.set(Field(name, offset, 4), value)
    for name, content in TEXTS.items():
        yield whole.made(name, [content], "refused")
    yield whole.made("the magic number of GGUF", [b"GGUF" + whole.data[4:5000]], "refused")
    yield whole.made("the magic number of a zip", [b"PK\3\4" + whole.data[4:5000]], "refused")


def cases(path: Path) -> Iterator[Damage]:
    """Those of the trial, and damage to the records of tensors."""
    yield from trial(path)
    whole = Original(path)
    layout: Any = Layout(whole.data)
    yield from whole.swapped()
    records = layout.records
    yield from whole.numbers(record_fields(whole, [(r.start, r.name, r.n_dims) for r in some(records)]))
    yield from whole.numbers([Field("length of the last token", layout.token_lengths[-1], 4)])
    yield from record_cases(whole, [(r.name, r.start, r.end) for r in some(records)])
    heads = [(r.start, r.data) for r in records]
    yield from whole.flipped([(0, HEAD + 8), (layout.vocab, layout.tensors), *heads], 90)


def some(records: list[Any]) -> list[Any]:
    """First, last, and a few between."""
    step = max(1, len(records) // 4)
    return [*records[::step][:4], records[-1]]


def record_fields(whole: Original, records: list[tuple[int, str, int]]) -> list[Field]:
    fields = []
    for start, name, n_dims in records:
        heads = enumerate(("dimensions", "length of the name", "type"))
        fields += [Field(f"{what} of {name}", start + 4 * i, 4) for i, what in heads]
        fields += [Field(f"dimension {i} of {name}", start + 12 + 4 * i, 4) for i in range(n_dims)]
    return fields


def record_cases(whole: Original, records: list[tuple[str, int, int]]) -> Iterator[Damage]:
    """Tensors that are missing, there twice, under another name, exchanged, cut; bytes behind the last."""
    for name, start, end in records:
        yield whole.instead(f"without {name}", start, end, verdict="refused")
        yield whole.again(f"{name} twice", start, end, "refused")
        yield whole.cut(start + 6)
        yield whole.cut((start + end) // 2)
        at = whole.data.find(name.encode(), start, end)
        yield whole.put(f"{name} under another name", {at: b"X"}, "refused")
        yield whole.put(f"{name} with a name that is not text", {at: b"\xff"}, "refused")
    (first, a, b), (last, c, d) = records[0], records[-1]
    yield whole.made(f"{first} and {last} exchanged", [(0, a), (c, d), (b, c), (a, b), (d, whole.size)])
    yield whole.made(f"{first} in the place of {last}", [(0, c), (a, b)], "refused")
    for n in (1, 4, 12, 100):
        yield whole.made(f"{n} bytes too many", [(0, whole.size), bytes(n)], "refused")


def silero_records(whole: Original) -> list[tuple[str, int, int, int]]:
    """Name, start, end and number of dimensions of every record of Silero's network."""
    records, at = [], SILERO_HEAD
    while at < whole.size:
        n_dims, n_name, kind = (whole.number(Field("", at + 4 * i, 4)) for i in range(3))
        count = 1
        for i in range(n_dims):
            count *= whole.number(Field("", at + 12 + 4 * i, 4))
        start, at = at, at + 12 + 4 * n_dims + n_name
        name = whole.data[at - n_name : at].decode()
        at += count * (2 if kind else 4)
        records.append((name, start, at, n_dims))
    assert at == whole.size
    return records


def silero(path: Path) -> Iterator[Damage]:
    """Damaged copies of Silero's network."""
    whole = Original(path)
    records = silero_records(whole)
    yield from whole.swapped()
    for length in sorted({1, 3, 4, 7, 8, 17, 18, 50, SILERO_HEAD - 1, SILERO_HEAD, whole.size // 2, whole.size - 1}):
        yield whole.cut(length)
    yield from whole.numbers(Field(f"number at {offset}", offset, 4) for offset in (0, 4, *range(18, SILERO_HEAD, 4)))
    yield from whole.numbers(record_fields(whole, [(start, name, n) for name, start, _, n in records]))
    yield from record_cases(whole, [(name, start, end) for name, start, end, _ in records])
    yield whole.put("another type", {8: b"silero-08k"}, "refused")
    for name, _, end, _ in records:
        yield whole.put(f"{name} not a number", {end - 2: b"\xff\xff"}, "refused")
        yield whole.put(f"{name} with a huge value", {end - 2: u32(0x7BFF7BFF)[:2]})
    yield from whole.flipped([(0, SILERO_HEAD), *((start, start + 70) for _, start, _, _ in records)], 120)
