"""A zip file is believed only where its directory and its records say the same; bombs and overlaps are refused."""

from __future__ import annotations

import io
import random
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whispyx.errors import ModelError, ModelFormatError
from whispyx.models.formats import openai
from whispyx.models.formats.manifest import Blob, Manifest
from whispyx.models.formats.openai import read_checkpoint
from whispyx.models.formats.zips import read_records, stored_bytes

from .torch_maker import Checkpoint, Item, deflated, zip_of

A, B = Item("a/x", b"first"), Item("a/y", b"second one")
NO_LATER_SIZES = 0x0800
FULL = 0xFFFFFFFF


def wide_sizes(*values: int) -> bytes:
    return struct.pack(f"<2H{len(values)}Q", 1, 8 * len(values), *values)


def read(content: bytes) -> dict[str, bytes]:
    with Blob(content, "x.pt") as blob:
        return {name: stored_bytes(blob, record, 1 << 20) for name, record in read_records(blob).items()}


EXPECTED = {A.name: A.data, B.name: B.data}


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("flags", [0x0808, NO_LATER_SIZES, 0])
@pytest.mark.parametrize("comment", [b"", b"x" * 0xFFFF, b"PK\5\6" * 9])
def test_records_are_found(wide: bool, flags: int, comment: bytes) -> None:
    items = [Item(item.name, item.data, flags=flags) for item in (A, B)]
    content = zip_of(items, wide=wide, comment=comment)
    assert read(content) == EXPECTED
    if b"PK" not in comment:  # which Python's reader takes for the end record
        with zipfile.ZipFile(io.BytesIO(content)) as archive:  # our maker makes zip files
            assert {name: archive.read(name) for name in archive.namelist()} == EXPECTED


@pytest.mark.parametrize("seekable", [True, False])
@pytest.mark.parametrize("wide", [True, False])
def test_what_python_writes_is_found(seekable: bool, wide: bool) -> None:
    class Stream(io.BytesIO):
        def seek(self, *arguments: Any) -> int:
            if not seekable:
                raise OSError
            return super().seek(*arguments)

        def seekable(self) -> bool:
            return seekable

    out = Stream()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in EXPECTED.items():
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=wide) as record:
                record.write(data)
        archive.writestr("folder/", b"")
    assert read(out.getvalue()) == EXPECTED | {"folder/": b""}


def test_sizes_of_64_bits_are_read() -> None:
    small = Item("a/x", b"first", flags=NO_LATER_SIZES, extra=wide_sizes(5, 5), size=FULL, packed=FULL)
    small.local = {"extra": wide_sizes(5, 5)}
    other = Item("a/y", b"second one", extra=b"\7\0\2\0zz" + wide_sizes(10), size=FULL)
    other.packed, other.local = None, {}
    with Blob(zip_of([small, other]), "x.pt") as blob:
        records = read_records(blob)
    assert [(record.n_bytes, record.n_packed) for record in records.values()] == [(5, 5), (10, 10)]


def test_packed_records_are_found_but_not_unpacked() -> None:
    zeros = bytes(1 << 20)
    with Blob(zip_of([deflated("a/x", zeros)]), "x.pt") as blob:
        record = read_records(blob)["a/x"]
        assert (record.n_bytes, record.n_packed < 2000, record.how) == (1 << 20, True, "deflated")
        with pytest.raises(ModelFormatError, match="'a/x' is deflated; only records that are stored"):
            stored_bytes(blob, record, 1 << 30)


def changed(item: Item, **fields: Any) -> Item:
    return Item(**({"name": item.name, "data": item.data} | fields))


def end(**fields: int) -> Callable[[], bytes]:
    return lambda: zip_of([A, B], end=fields)


def of(*items: Item) -> Callable[[], bytes]:
    return lambda: zip_of(items)


def first(**fields: Any) -> Callable[[], bytes]:
    return of(changed(A, **fields), B)


def plain(**local: Any) -> Callable[[], bytes]:
    return first(flags=NO_LATER_SIZES, local=local)


def disagreeing_ends() -> bytes:
    content = bytearray(zip_of([A, B]))
    content[-12] += 1
    return bytes(content)


def many_parts() -> bytes:
    content = bytearray(zip_of([A, B]))
    content[-26] = 2
    return bytes(content)


def no_wide_record() -> bytes:
    content = zip_of([A, B])
    return content.replace(b"PK\6\6", b"PK\6\5")


CASES: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", "no directory at its end"),
    "no directory": (lambda: b"PK\3\4" + bytes(500), "no directory at its end; it is cut off"),
    "bytes after the end": (lambda: zip_of([A]) + b"x", "no directory at its end"),
    "bytes before the start": (lambda: b"x" + zip_of([A], wide=False), "does not end where its end record begins"),
    "ends that disagree": (disagreeing_ends, "the end records of the zip file disagree"),
    "several parts": (many_parts, "is one of 2 parts"),
    "a missing end record": (no_wide_record, "should hold the zip64 end record"),
    "fewer records here": (end(n_here=1), "one of several parts"),
    "more records than fit": (end(n_here=9, n=9), "too few for 9 records"),
    "fewer records than there are": (end(n_here=1, n=1), "unexpected bytes follow the last record"),
    "a million records": (lambda: zip_of([A], wide=False, end={"n_here": 65535, "n": 65535}), "too few for 65535"),
    "a directory beyond the end": (end(size=1 << 30), "does not end where its end record begins"),
    "a directory elsewhere": (end(offset=0), "does not end where its end record begins"),
    "the same name twice": (of(A, B, A), "two records with the name 'a/x'"),
    "a record of another name": (
        of(changed(A, header=99), changed(B, header=0)), "calls 'a/y' what .* at offset 0 calls b'a/x'"
    ),
    "two names of one record": (of(A, changed(B, header=0)), "'a/x' and 'a/y' of the zip file overlap"),
    "a record in the directory": (of(A, changed(B, header=1 << 31)), "ends early: the header of 'a/y'"),
    "a header elsewhere": (of(A, changed(B, header=3)), "'a/x' and 'a/y' of the zip file overlap"),
    "a header that is none": (first(header=10), "offset 10 should hold the header of 'a/x'"),
    "a longer record": (first(size=60, packed=60), "'a/x' and 'a/y' of the zip file overlap"),
    "a record as long as the file": (of(A, changed(B, size=60, packed=60)), "'a/y' .* reaches into the directory"),
    "a record of 2**60 bytes": (
        first(size=FULL, packed=FULL, extra=wide_sizes(1 << 60, 1 << 60)), f"'a/x' .{1 << 60} bytes .* reaches into"
    ),
    "sizes that wrap": (
        of(changed(A, size=FULL, packed=FULL, extra=wide_sizes((1 << 64) - 1, (1 << 64) - 1))), "'a/x' .* reaches into"
    ),
    "sizes that are missing": (first(size=FULL, packed=FULL), "'a/x' of the zip file lacks its 64-bit sizes"),
    "a cut 64-bit part": (first(size=FULL, packed=FULL, extra=b"\1\0\x10\0" + bytes(9)), "lacks its 64-bit sizes"),
    "stored, yet of another size": (first(size=4), "'a/x' is stored, yet 5 bytes are said to be 4"),
    "another name": (first(local={"name": "a/z"}), "calls 'a/x' what its header at offset 0 calls b'a/z'"),
    "another method": (first(local={"method": 8}), "'a/x' disagree on how it is packed"),
    "other flags": (first(local={"flags": 0}), "'a/x' disagree on how it is packed"),
    "another size": (plain(size=4, packed=4), r"'a/x' disagree on its size: 5 and 4 bytes"),
    "another checksum": (plain(crc=1), "'a/x' disagree on its size.*or on its checksum"),
    "another 64-bit size": (plain(size=FULL, packed=FULL, extra=wide_sizes(6, 6)), "disagree on its size: 5 and 6"),
    "a damaged record": (first(crc=1), "'a/x' at offset 64 is damaged: its checksum is wrong"),
    "an encrypted record": (first(flags=0x0809), "'a/x' of the zip file is encrypted"),
    "a masked directory": (first(flags=0x2808), "'a/x' of the zip file is encrypted"),
    "a way out": (of(Item("a/../../etc/passwd", b"")), "record 0 .* may have: 'a/../../etc/passwd'"),
    "a way from the root": (of(Item("/etc/passwd", b"")), "a name that none may have"),
    "a way of Windows": (of(Item("..\\x", b"")), "a name that none may have"),
    "a name with a line feed": (of(Item("a\nb", b"")), "a name that none may have"),
    "no name": (of(Item("", b"")), "a name that none may have"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_zip_file_is_refused(case: str) -> None:
    make, message = CASES[case]
    with pytest.raises(ModelFormatError, match=message) as caught:
        read(make())
    assert str(caught.value).startswith("x.pt")


def test_names_that_are_no_text_are_refused() -> None:
    content = zip_of([Item("a/xx", b"")]).replace(b"a/xx", b"a/\xff\xfe")
    with pytest.raises(ModelFormatError, match="the name of record 0 of the zip file is not text"):
        read(content)


def quilt() -> bytes:
    """Every record but the last is the rest of the file, headers of the others included: the densest of zip bombs."""
    n = 2_000
    items = [Item(f"{number:04}", flags=0) for number in range(n)]
    content = bytearray(zip_of(items, wide=False, align=1))
    directory = content.index(b"PK\1\2")
    at = directory
    for number in range(n):
        size = directory - content.index(b"PK\3\4", 30 * number)
        struct.pack_into("<2I", content, at + 20, size, size)
        at += 46 + 4
    return bytes(content)


BOMBS: dict[str, Callable[[], bytes]] = {
    "overlapping records": quilt,
    "a terabyte of zeros": lambda: zip_of(
        [changed(deflated("a/data.pkl", bytes(1 << 20)), method=8, size=FULL, extra=wide_sizes(1 << 40))]
    ),
    "60,000 records": lambda: zip_of([Item(f"a/{number}", flags=0) for number in range(60_000)], align=1),
    "70,000 records": lambda: zip_of(
        [Item(f"a/{number}", flags=0) for number in range(70_000)], align=1,
        end={"n": 70_000 & 0xFFFF, "n_here": 70_000 & 0xFFFF},
    ),
    "a file of end records": lambda: b"PK\5\6" * (1 << 18),
}  # fmt: skip


@pytest.mark.parametrize("case", BOMBS)
def test_a_bomb_takes_bounded_memory(case: str) -> None:
    content = BOMBS[case]()
    tracemalloc.start()
    try:
        with pytest.raises(ModelFormatError):
            read_checkpoint(Blob(content, "x.pt"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(content) + (200 << 20)


@pytest.fixture(scope="module")
def sample() -> bytes:
    return Checkpoint(layers=(1, 1)).encoded()


def outcome(content: bytes) -> None:
    """Read a file. Whatever is wrong with it, only a ModelError comes out, and tensors lie within the file."""
    tokens = openai.known_tokens
    openai.known_tokens = lambda n_vocab: () if n_vocab < 51867 else None  # the real ones take 20 ms
    try:
        with Blob(content, "x.pt") as blob:
            check(read_checkpoint(blob))
    except ModelError as error:
        assert len(str(error)) < 3000
    finally:
        openai.known_tokens = tokens


def check(manifest: Manifest) -> None:
    free = 0
    for tensor in sorted(manifest.tensors.values(), key=lambda tensor: (tensor.blob, tensor.offset)):
        assert tensor.offset >= 0 and tensor.offset + tensor.n_bytes <= manifest.blobs[tensor.blob].size
        if tensor.blob == 0:
            assert free <= tensor.offset
            free = tensor.offset + tensor.n_bytes


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(sample: bytes, data: st.DataObject) -> None:
    content = bytearray(sample)
    interesting = [0, sample.rindex(b"data.pkl"), sample.index(b"PK\1\2"), sample.rindex(b"PK\6\6"), len(sample) - 22]
    for _ in range(data.draw(st.integers(1, 3), "changes")):
        base = data.draw(st.sampled_from(interesting), "part")
        at = min(base + data.draw(st.integers(0, 4000), "at"), len(content) - 1)
        new = data.draw(st.one_of(st.binary(max_size=4), st.sampled_from([b"PK\5\6", b"\xff" * 4, bytes(4)])), "new")
        content[at : at + data.draw(st.sampled_from([len(new), len(new), 0, 1, 50]), "removed")] = new
    outcome(bytes(content))


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_file_with_a_damaged_pickle_is_read_or_refused(data: st.DataObject) -> None:
    made = Checkpoint(layers=(1, 1))
    content = bytearray(made.pickle())
    for _ in range(data.draw(st.integers(1, 3), "changes")):
        at = data.draw(st.integers(0, len(content) - 1), "at")
        content[at : at + data.draw(st.integers(0, 3), "removed")] = data.draw(st.binary(max_size=3), "new")
    items = made.items()
    items[0] = Item(items[0].name, bytes(content))  # with the right checksum
    outcome(zip_of(items))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_records_in_any_order_are_read(seed: int) -> None:
    made = Checkpoint(layers=(1, 1))
    items = made.items()
    random.Random(seed).shuffle(items)
    outcome(zip_of(items))
    with Blob(zip_of(items)) as blob:
        records = read_records(blob)
        assert {name.rpartition("/")[2] for name in records} >= set(made.bag.storages)
        for item in items:
            assert zlib.crc32(blob.read(records[item.name].offset, len(item.data), item.name)) == records[item.name].crc
