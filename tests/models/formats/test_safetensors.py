"""Headers of safetensors files: read to the byte, or refused with the place and the reason."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from whispyx.errors import ModelError, ModelFormatError, ModelNotFoundError
from whispyx.models.formats.folder import Folder
from whispyx.models.formats.manifest import Blob
from whispyx.models.formats.safetensors import MAX_HEADER_BYTES, Entry, read_header, read_shards

from .damage import damaged
from .folder_maker import safetensors_bytes, stored, with_header, write

MIB = 1 << 20


def entry(dtype: str = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_entries_say_where_the_values_lie() -> None:
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.array(7.0)
    data = safetensors_bytes({"a": stored(a, "F32"), "b": stored(b, "F16")}, {"format": "pt"})
    entries, metadata = read_header(Blob(data), 3)
    assert metadata == {"format": "pt"}
    assert entries == {
        "a": Entry("a", "F32", (2, 3), 3, len(data) - 26, 24),
        "b": Entry("b", "F16", (), 3, len(data) - 2, 2),
    }
    assert np.array_equal(np.frombuffer(data, "<f4", 6, entries["a"].offset), a.ravel())


def test_order_of_header_and_values_may_differ_and_spaces_may_follow_the_header() -> None:
    header = json.dumps({"a": entry(offsets=(8, 16)), "b": entry(offsets=(0, 8)), "c": entry("I8", (0, 5), (8, 8))})
    entries, _ = read_header(Blob(with_header(header.encode() + b"     ") + bytes(16)))
    assert entries["a"].offset == entries["b"].offset + 8


def test_an_empty_file_of_tensors_is_one() -> None:
    assert read_header(Blob(with_header(b"{}"))) == ({}, {})


FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "shorter than a length": (b"abc", "ends early: the length of the header needs 8 bytes"),
    "a header that is not there": (struct.pack("<Q", 100) + b"{}", "the header needs 100 bytes at offset 8"),
    "a huge header": (struct.pack("<Q", 1 << 63) + b"{}", "a header of 9223372036854775808 bytes"),
    "a large header": (struct.pack("<Q", MAX_HEADER_BYTES + 1), f"at most {MAX_HEADER_BYTES}"),
    "no header": (with_header(b""), "its header starts with b''"),
    "a list": (with_header([1]), "its header starts with b'\\['"),
    "not JSON": (with_header(b"{,}"), "offset 8: not valid JSON"),
    "not UTF-8": (with_header(b'{"\xff": 1}'), "not valid JSON"),
    "deep": (with_header(b'{"a":' + b"[" * 100_000), "not valid JSON"),
    "digits": (with_header(b'{"a":' + b"9" * 100_000 + b"}"), "a number of 100000 digits"),
    "NaN": (with_header(b'{"a": NaN}'), "NaN is not a number of JSON"),
    "a name twice": (with_header(b'{"a": 1, "a": 2}'), "the key 'a' is there twice"),
    "a key twice": (with_header(b'{"a": {"dtype": "F32", "dtype": "F16"}}'), "the key 'dtype' is there twice"),
    "many values": (with_header(b'{"a": [' + b"0," * 1_000_000 + b"0]}"), "1000003 values"),
    "metadata": (with_header({"__metadata__": {"a": 1}}), "__metadata__ should map texts to texts"),
    "no entry": (with_header({"a": 1}), "'a' should have dtype, shape and data_offsets"),
    "another key": (with_header({"a": entry() | {"x": 1}}), "'a' should have dtype, shape and data_offsets"),
    "a type": (with_header({"a": entry("F13")}), "'a' has the unknown type 'F13'"),
    "a type that is a list": (with_header({"a": entry([])}), "'a' has the unknown type"),  # type: ignore[arg-type]
    "a negative size": (with_header({"a": entry(shape=[-1, -2])}), "'a' has the impossible shape"),
    "a size that is true": (with_header({"a": entry(shape=[True])}), "'a' has the impossible shape"),
    "a fraction": (with_header({"a": entry(shape=[2.0])}), "'a' has the impossible shape"),
    "nine dimensions": (with_header({"a": entry(shape=[1] * 9)}), "'a' has 9 dimensions"),
    "one offset": (with_header({"a": entry(offsets=[8])}), "no two whole numbers"),
    "turned offsets": (with_header({"a": entry(offsets=[8, 0])}), "no range"),
    "a negative offset": (with_header({"a": entry(offsets=[-8, 0])}), "no range"),
    "too few bytes": (with_header({"a": entry(offsets=[0, 4])}) + bytes(4), "'a' has 4 bytes; F32 of shape"),
    "a wrapped size": (
        with_header({"a": entry(shape=[2**32, 2**32], offsets=[0, 0])}),
        "has 590295810358705651712 bits",
    ),
    "an end": (with_header({"a": entry()}) + bytes(7), r"ends early: the tensor 'a' ends at"),
    "a start": (with_header({"a": entry(offsets=[4, 12])}) + bytes(12), "4 bytes at offset .*, between the header and"),
    "an overlap": (
        with_header({"a": entry(), "b": entry(offsets=[4, 12])}) + bytes(12),
        "the tensor 'b' at offset .* overlaps the tensor 'a'",
    ),
    "the same range": (with_header({"a": entry(), "b": entry()}) + bytes(8), "overlaps the tensor"),
    "a gap": (with_header({"a": entry(), "b": entry(offsets=[12, 20])}) + bytes(20), "4 bytes .* belong to no tensor"),
    "a rest": (with_header({"a": entry()}) + bytes(9), "1 bytes at offset .* belong to no tensor"),
    "a half byte": (with_header({"a": entry("F4", [3], [0, 1])}) + bytes(1), "F4 of shape .* has 12 bits"),
    "a page": (b"<!DOCTYPE html><html>", "a web page"),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "Git LFS pointer"),
    "a checkpoint": (b"PK\x03\x04" + bytes(30), "a zip archive or PyTorch checkpoint"),
    # Their first eight bytes are a length that could be meant, behind the end of the file or before it.
    "gzip": (b"\x1f\x8b\x08\0" + bytes(3000), "a gzip archive; unpack"),
    "a long gzip": (b"\x1f\x8b\x08\0" + bytes(600_000), "a gzip archive; unpack"),
    "an old program": (b"MZ\x90\0" + bytes(100), "a program"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_wrong_file_is_refused(case: str) -> None:
    data, reason = FILES[case]
    with pytest.raises(ModelFormatError, match=reason) as caught:
        read_header(Blob(data, "here.safetensors"))
    assert "here.safetensors" in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("length", [0x3C, 0x6576, 0x4B50])
def test_a_length_that_reads_like_the_start_of_something_else_is_a_length(length: int) -> None:
    raw = b"{" + b" " * (length - 2) + b"}"
    assert read_header(Blob(with_header(raw))) == ({}, {})


def test_names_in_messages_are_short_and_printable() -> None:
    with pytest.raises(ModelFormatError) as caught:
        read_header(Blob(with_header({"x" * 50_000: 1})))
    assert len(str(caught.value)) < 1000
    with pytest.raises(ModelFormatError) as caught:
        read_header(Blob(with_header(b'{"\\ud800\\n": 1}')))
    assert str(caught.value).encode("utf-8").count(b"\n") == 0


COSTLY = {
    "objects": b'{"a":[' + b",".join([b"{}"] * 480_000) + b"]}",
    "lists": b'{"a":[' + b",".join([b"[0]"] * 480_000) + b"]}",
    "small objects": b'{"a":[' + b",".join([b'{"a":0}'] * 320_000) + b"]}",
    "keys": b"{" + b",".join(b'"%d":0' % i for i in range(490_000)) + b"}",
    "tensors": b"{"
    + b",".join(b'"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % i for i in range(95_000))
    + b"}",
    "wide letters": b'{"a":["' + "\U0001f600".encode() * 3_000_000 + b'"]}',
}


@pytest.mark.parametrize("case", COSTLY)
def test_a_header_made_to_cost_memory_takes_no_more_than_twice_its_size_and_200_mib(case: str) -> None:
    data = with_header(COSTLY[case])
    blob = Blob(data)
    tracemalloc.start()
    try:
        read_header(blob)
    except ModelFormatError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 2 * len(data) + 200 * MIB


BASE = {
    "__metadata__": {"format": "pt"},
    "a": entry(),
    "b": entry("BF16", [3], [8, 14]),
    "c": entry("F16", [], [14, 16]),
}


@settings(max_examples=400, deadline=None)
@given(damaged(BASE), st.integers(-3, 3), st.integers(-4, 4))
def test_a_damaged_header_is_read_or_refused(header: Any, more: int, longer: int) -> None:
    raw = with_header(json.dumps(header).encode())
    (length,) = struct.unpack("<Q", raw[:8])
    data = struct.pack("<Q", max(length + longer, 0)) + raw[8:] + bytes(16 + more)
    try:
        entries, _ = read_header(Blob(data))
    except ModelFormatError:
        return
    assert all(0 <= found.offset <= found.offset + found.n_bytes <= len(data) for found in entries.values())
    assert sum(found.n_bytes for found in entries.values()) == len(data) - 8 - max(length + longer, 0)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_file_with_other_bytes_is_read_or_refused(data: st.DataObject) -> None:
    content = bytearray(with_header(BASE) + bytes(16))
    for _ in range(data.draw(st.integers(1, 3))):
        noise = data.draw(st.binary(min_size=1, max_size=4))
        place = data.draw(st.integers(0, len(content) - len(noise)))
        content[place : place + len(noise)] = noise
    del content[data.draw(st.integers(0, 2 * len(content))) :]
    try:
        entries, _ = read_header(Blob(bytes(content)))
    except ModelFormatError:
        return
    assert all(found.offset + found.n_bytes <= len(content) for found in entries.values())


# Several files and an index.

PARTS = {
    "one.safetensors": safetensors_bytes({"a": ("F32", np.ones(3, np.float32))}),
    "two.safetensors": safetensors_bytes(
        {"b": ("F32", np.full(2, 2, np.float32)), "c": ("F16", np.full(1, 3, np.float16))}
    ),
}
MAP = {"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"}
INDEX = "model.safetensors.index.json"


def shards(folder: Path, weight_map: Any) -> tuple[dict[str, Entry], list[Blob]]:
    write(folder, {INDEX: {"metadata": {"total_size": 22}, "weight_map": weight_map}})
    blobs: list[Blob] = []
    try:
        return read_shards(Folder(folder), INDEX, blobs), blobs
    finally:
        for blob in blobs:
            blob.close()


def test_several_files_are_one_set_of_tensors(tmp_path: Path) -> None:
    entries, blobs = shards(write(tmp_path, PARTS), MAP)
    assert [Path(blob.name).name for blob in blobs] == ["one.safetensors", "two.safetensors"]
    assert {name: (found.blob, found.n_bytes) for name, found in entries.items()} == {
        "a": (0, 12),
        "b": (1, 8),
        "c": (1, 2),
    }


INDEXES: dict[str, tuple[Any, str]] = {
    "no map": (None, "should have a weight_map"),
    "a list": ([1], "should have a weight_map"),
    "numbers": ({"a": 1}, "should have a weight_map"),
    "a tensor too many": (MAP | {"d": "one.safetensors"}, "the tensor 'd' is not in 'one.safetensors'"),
    "a tensor too few": ({"a": "one.safetensors", "b": "two.safetensors"}, "has the tensor 'c', which is nowhere"),
    "the wrong file": (MAP | {"c": "one.safetensors"}, "has the tensor 'c', which is in 'one.safetensors'"),
    "the parent": (MAP | {"a": "../one.safetensors"}, "'../one.safetensors' is no name of a file in this folder"),
    "an absolute path": (MAP | {"a": "/etc/one.safetensors"}, "is no name of a file in this folder"),
    "another system's": (MAP | {"a": "..\\one.safetensors"}, "is no name of a file in this folder"),
    "a drive": (MAP | {"a": "c:one.safetensors"}, "is no name of a file in this folder"),
    "a null byte": (MAP | {"a": "one\0.safetensors"}, "is no name of a file in this folder"),
    "another kind": (MAP | {"a": "config.json"}, "is no name of a safetensors file"),
    "many files": ({str(i): f"{i}.safetensors" for i in range(200)}, "names 200 files"),
}


@pytest.mark.parametrize("case", INDEXES)
def test_a_wrong_index_is_refused(tmp_path: Path, case: str) -> None:
    weight_map, reason = INDEXES[case]
    write(tmp_path, {"one.safetensors": PARTS["one.safetensors"]})
    folder = write(tmp_path / "model", PARTS)
    with pytest.raises(ModelFormatError, match=reason.replace("\\", r"\\")):
        shards(folder, weight_map)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"there is no 'three\.safetensors'"):
        shards(write(tmp_path, PARTS), MAP | {"a": "three.safetensors"})
    with pytest.raises(ModelNotFoundError, match="there is no "):
        shards(tmp_path, MAP | {"a": "\ud800.safetensors"})


def test_the_same_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, PARTS | {"two.safetensors": PARTS["one.safetensors"]})
    with pytest.raises(ModelFormatError, match=r"has the tensor 'a', which is in 'one\.safetensors'"):
        shards(folder, {"a": "one.safetensors", "b": "two.safetensors"})


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", {"two.safetensors": PARTS["two.safetensors"]})
    write(tmp_path, {"secret": PARTS["one.safetensors"]})
    (folder / "one.safetensors").symlink_to(tmp_path / "secret")
    with pytest.raises(ModelFormatError, match="link that leads out of the model's folder"):
        shards(folder, MAP)
    (folder / "one.safetensors").unlink()
    (folder / "inside").write_bytes(PARTS["one.safetensors"])
    (folder / "one.safetensors").symlink_to("inside")
    assert set(shards(folder, MAP)[0]) == {"a", "b", "c"}


def test_the_links_of_the_hubs_cache_are_followed(tmp_path: Path) -> None:
    repository = tmp_path / "models--someone--whisper"
    write(repository / "blobs", {"0" * 40: PARTS["one.safetensors"], "1" * 40: PARTS["two.safetensors"]})
    folder = repository / "snapshots" / "abc"
    folder.mkdir(parents=True)
    (folder / "one.safetensors").symlink_to(Path("../../blobs") / ("0" * 40))
    (folder / "two.safetensors").symlink_to(Path("../../blobs") / ("1" * 40))
    assert set(shards(folder, MAP)[0]) == {"a", "b", "c"}
    write(tmp_path, {"secret": PARTS["one.safetensors"]})
    (folder / "one.safetensors").unlink()
    (folder / "one.safetensors").symlink_to(tmp_path / "secret")
    with pytest.raises(ModelFormatError, match="leads out"):
        shards(folder, MAP)


def test_pipes_and_folders_are_no_files(tmp_path: Path) -> None:
    folder = write(tmp_path, {"two.safetensors": PARTS["two.safetensors"]})
    os.mkfifo(folder / "one.safetensors")  # opening it would wait for a writer
    with pytest.raises(ModelFormatError, match="is no regular file"):
        shards(folder, MAP)
    (folder / "one.safetensors").unlink()
    (folder / "one.safetensors").mkdir()
    with pytest.raises(ModelFormatError, match="is no regular file"):
        shards(folder, MAP)
    (folder / "one.safetensors").rmdir()
    (folder / "one.safetensors").symlink_to("one.safetensors")
    with pytest.raises(ModelError, match=r"one\.safetensors"):
        shards(folder, MAP)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damaged({"metadata": {"total_size": 22}, "weight_map": MAP}))
def test_a_damaged_index_is_read_or_refused(tmp_path: Path, index: Any) -> None:
    folder = write(tmp_path, {**PARTS, INDEX: index})
    blobs: list[Blob] = []
    try:
        read_shards(Folder(folder), INDEX, blobs)
    except (ModelFormatError, ModelNotFoundError):
        pass
    finally:
        for blob in blobs:
            blob.close()
