"""Several damages at once, as hypothesis draws them, for the readers that work on the bytes of files.

The fuzzers beside the readers of tests/models/formats look at what a header is read as; these load the whole model, in
a process of its own, and use it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.damaged import attempts, checkpoint, folders, ggml, gguf
from tests.damaged.attempts import attempt
from tests.damaged.corpora import CASES, FOLDERS, SMALL, place, whole_model
from tests.damaged.damage import Damage, Field, Original
from tests.oracle.damage import Layout
from tests.trials import child

fuzzed = settings(max_examples=500 if child.ALL else 15, deadline=None, suppress_health_check=list(HealthCheck))
ODD = [0, 1, 2, 3, 4, 31, 32, 33, 64, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40,
       (1 << 63) - 1, 1 << 63, (1 << 64) - 32, (1 << 64) - 1]  # fmt: skip


@dataclass(frozen=True)
class Structure:
    """Numbers of a file that something follows from, and where its parts begin."""

    whole: Original
    fields: tuple[Field, ...]
    edges: tuple[int, ...]


def ggml_structure(whole: Original) -> Structure:
    layout: Any = Layout(whole.data)
    fields = [Field(f"setting {i}", 4 + 4 * i, 4) for i in range(13)]
    fields += [Field("number of tokens", layout.vocab, 4)]
    fields += [Field("length of a token", at, 4) for at in layout.token_lengths[:: len(layout.token_lengths) // 20]]
    fields += ggml.record_fields(whole, [(r.start, r.name, r.n_dims) for r in layout.records])
    edges = [48, 56, layout.vocab, layout.tensors, *(at for r in layout.records for at in (r.start, r.data))]
    return Structure(whole, tuple(fields), tuple(edges))


def silero_structure(whole: Original) -> Structure:
    records = ggml.silero_records(whole)
    fields = [Field(f"number at {at}", at, 4) for at in range(18, ggml.SILERO_HEAD, 4)]
    fields += ggml.record_fields(whole, [(start, name, n) for name, start, _, n in records])
    return Structure(whole, tuple(fields), (18, ggml.SILERO_HEAD, *(start for _, start, _, _ in records)))


def gguf_structure(whole: Original) -> Structure:
    walk = gguf.Header(whole)
    edges = [start for _, start, _ in (*walk.keys, *walk.tensors)]
    return Structure(whole, tuple(walk.fields), (*edges, walk.end))


def variables_structure(whole: Original) -> Structure:
    walk = folders.Variables(whole)
    starts = [start for _, start, _ in walk.variables]
    return Structure(whole, tuple(walk.fields), (walk.count.offset, *starts, walk.aliases))


def archive_structure(whole: Original) -> Structure:
    archive = checkpoint.Archive(whole)
    fields = [Field(f"end: {what}", archive.end + offset, size) for what, offset, size in checkpoint.END]
    for record in archive.records[:20]:
        fields += [Field(f"{record.name}: {what}", record.entry + at, size) for what, at, size in checkpoint.ENTRY]
        fields += [Field(f"{record.name}: {what}", record.local + at, size) for what, at, size in checkpoint.LOCAL]
    edges = [at for record in archive.records for at in (record.local, record.start, record.entry)]
    return Structure(whole, tuple(fields), (*edges, archive.directory, archive.end))


STRUCTURES: dict[str, Callable[[Original], Structure]] = {
    "ggml": ggml_structure, "gguf": gguf_structure, "openai": archive_structure, "ctranslate2": variables_structure,
    "vad": silero_structure,
}  # fmt: skip


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("whole")
    return cache(lambda reader: whole_model(reader, "small", folder))


def refused_or_works(reader: str, path: Path, way: int) -> None:
    outcome = attempt("fuzzed", path, kind="vad" if reader == "vad" else "whisper", way=way)
    assert not outcome.fault, outcome
    assert outcome.grown < 2 * SMALL_BYTES + 200_000_000


SMALL_BYTES = len(SMALL.to_bytes())


@st.composite
def changed(draw: st.DrawFn, structure: Structure) -> bytes:
    """One to three odd numbers, and now and then a part left out, doubled, or the end cut off."""
    whole = structure.whole
    content = bytearray(whole.data)
    for field in draw(st.lists(st.sampled_from(structure.fields), min_size=1, max_size=3)):
        old = whole.number(field)
        near = [old + 1, old - 1, old * 2, whole.size, whole.size - field.offset]
        value = draw(st.sampled_from([*ODD, *near]) | st.integers(0, 2 ** (8 * field.size) - 1))
        raw = (value % 2 ** (8 * field.size)).to_bytes(field.size, "little")
        content[field.offset : field.offset + field.size] = raw
    first, last = sorted(draw(st.sampled_from(structure.edges)) for _ in range(2))
    what = draw(st.sampled_from(["", "", "", "cut", "without", "twice"]))
    if what == "cut":
        return bytes(content[:last])
    if what == "without":
        return bytes(content[:first] + content[last:])
    return bytes(content[:last] + content[first:]) if what == "twice" else bytes(content)


@pytest.mark.parametrize("reader", STRUCTURES)
@fuzzed
@given(data=st.data())
def test_odd_numbers_and_parts_in_the_wrong_place(
    reader: str, wholes: Callable[[str], Path], tmp_path: Path, data: st.DataObject
) -> None:
    whole = wholes(reader)
    path = tmp_path / "model"
    if reader in FOLDERS:
        path = place(Damage("missing", None, file="model.bin"), whole, tmp_path) / "model.bin"
    structure = structure_of(reader, whole / "model.bin" if reader in FOLDERS else whole)
    path.write_bytes(data.draw(changed(structure)))
    refused_or_works(reader, path.parent if reader in FOLDERS else path, data.draw(st.integers(0, 11)))


@cache
def structure_of(reader: str, path: Path) -> Structure:
    return STRUCTURES[reader](Original(path))


@fuzzed
@given(data=st.data())
def test_odd_entries_in_the_header_of_safetensors(
    wholes: Callable[[str], Path], tmp_path: Path, data: st.DataObject
) -> None:
    whole = wholes("huggingface")
    raw = (whole / "model.safetensors").read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:end])
    names = st.sampled_from([name for name in header if name != "__metadata__"])
    number = st.sampled_from([0, 1, 64, 2**31, 2**32, 2**62, 2**63, 2**64, -1, -64, len(raw)])
    for _ in range(data.draw(st.integers(1, 3))):
        entry = header[data.draw(names)]
        key = data.draw(st.sampled_from(["dtype", "shape", "data_offsets"]))
        if key == "dtype":
            entry[key] = data.draw(st.sampled_from(["F16", "F32", "BF16", "I8", "F64", ""]))
        elif entry[key] and data.draw(st.booleans()):
            entry[key][data.draw(st.integers(0, len(entry[key]) - 1))] = data.draw(number)
        else:
            entry[key] = data.draw(st.lists(number, max_size=4) | st.just(header[data.draw(names)][key]))
    changed_header = json.dumps(header).encode()
    path = place(Damage("missing", None, file="model.safetensors"), whole, tmp_path)
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(changed_header)) + changed_header + raw[end:])
    refused_or_works("huggingface", path, data.draw(st.integers(0, 11)))


def test_every_reader_has_a_fuzzer() -> None:
    assert {*STRUCTURES, "huggingface"} == set(CASES)
    assert attempts.READERS.keys() == {"whisper", "vad"}
