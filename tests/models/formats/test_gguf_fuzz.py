"""Whatever bytes a GGUF file has, reading it ends with a model or a ModelFormatError, in little memory."""

from __future__ import annotations

import tracemalloc
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from whispyx.errors import ModelFormatError
from whispyx.models.formats.gguf import read_gguf
from whispyx.models.formats.manifest import Blob

from .gguf_maker import I32, Field, numbers, string, strings, tiny

# The bound for all readers is twice the file and 200 MB; a header of this size needs far less.
MEMORY_BYTES = 24 << 20
ODD = [0, 1, 2, 3, 7, 8, 9, 31, 32, 33, 255, 0x7FFF, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40,
       (1 << 63) - 1, 1 << 63, (1 << 64) - 32, (1 << 64) - 1]  # fmt: skip


@cache
def sample() -> tuple[bytes, tuple[Field, ...]]:
    file = tiny(matrices=8)
    file.keys |= {
        "general.languages": strings(["en", "de"]),
        "whisper.begin_suppress_tokens": numbers(I32, [3]),
        "other.nested": (9, strings(["x"])[1][:4] + b"\1\0\0\0\0\0\0\0" + string("y")[1]),
    }
    raw = file.encoded()
    return raw, tuple(file.fields)


def read(raw: bytes) -> None:
    tracemalloc.start()
    try:
        read_gguf(Blob(raw, "the file"))
    except ModelFormatError as error:
        assert str(error).startswith("the file")
        assert len(str(error)) < 4000
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 2 * len(raw) + MEMORY_BYTES


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_fields_may_have_any_value(data: st.DataObject) -> None:
    raw, fields = sample()
    changed = bytearray(raw)
    for place in data.draw(st.lists(st.sampled_from(fields), min_size=1, max_size=3)):
        old = int.from_bytes(raw[place.offset : place.offset + place.size], "little")
        near = [old + 1, old - 1, 2 * old, len(raw), len(raw) - place.offset]
        limit = 1 << (8 * place.size)
        value = data.draw(st.sampled_from(ODD + near) | st.integers(0, limit - 1), label=place.what)
        changed[place.offset : place.offset + place.size] = (value % limit).to_bytes(place.size, "little")
    read(bytes(changed))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_file_may_end_anywhere(data: st.DataObject) -> None:
    raw, fields = sample()
    header = fields[-1].offset + fields[-1].size
    read(raw[: data.draw(st.integers(0, header + 64) | st.integers(0, len(raw)))])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_bytes_of_the_header_may_be_others(data: st.DataObject) -> None:
    raw, fields = sample()
    header = fields[-1].offset + fields[-1].size
    changed = bytearray(raw)
    for place in data.draw(st.lists(st.integers(4, header - 1), min_size=1, max_size=8)):
        changed[place] = data.draw(st.integers(0, 255))
    read(bytes(changed))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_pieces_of_the_header_may_be_missing_or_there_twice(data: st.DataObject) -> None:
    raw, fields = sample()
    ends = sorted(place.offset for place in fields)
    first, last = sorted((data.draw(st.sampled_from(ends)), data.draw(st.sampled_from(ends))))
    if data.draw(st.booleans()):
        read(raw[:first] + raw[last:])
    else:
        read(raw[:last] + raw[first:])


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_anything_may_follow_the_magic_number(rest: bytes) -> None:
    read(b"GGUF\3\0\0\0" + rest)


@pytest.mark.parametrize("text", [b"", b"\xff", b"\xff\xff"])
def test_many_small_strings_cost_little_memory(text: bytes) -> None:
    # As objects of Python they take ten times what they take in the file; those of a key that nobody asks for, nothing.
    file = tiny()
    file.keys["tokenizer.ggml.merges"] = strings([text] * 200_000)
    file.keys["general.tags"] = strings([text] * 50_000)
    raw = file.encoded()
    read(raw)
    file.keys["tokenizer.ggml.tokens"] = file.keys.pop("general.tags")
    read(file.encoded())


def test_long_names_cost_little_memory() -> None:
    file = tiny()
    file.keys |= {f"{number}{chr(255) * 500}": string("z" * 2000) for number in range(5000)}
    file.keys |= {f"general.{number}": string("z" * 2000) for number in range(5000 - len(tiny().keys))}
    read(file.encoded())
