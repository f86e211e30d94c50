"""Every way in which a GGUF file can be wrong gives a typed error that names the key, the tensor or the offset."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from whispyx.errors import ModelError, ModelFormatError
from whispyx.models.formats.gguf import read_gguf
from whispyx.models.formats.manifest import Blob

from .gguf_maker import (
    ARRAY,
    F32,
    HEADS,
    I32,
    TINY_VOCAB,
    U8,
    WIDTH,
    Gguf,
    number,
    numbers,
    string,
    strings,
    tiny,
    u32,
)

EMBEDDING = "decoder.token_embedding.weight"


def key(name: str, value: tuple[int, bytes]) -> Callable[[Gguf], object]:
    return lambda file: file.keys.__setitem__(name, value)


def without(name: str) -> Callable[[Gguf], object]:
    return lambda file: (file.keys if name in file.keys else file.tensors).pop(name)


def tensor(name: str, dims: tuple[int, ...], kind: int = 0, data: bytes = b"") -> Callable[[Gguf], object]:
    return lambda file: file.tensors.__setitem__(name, (dims, kind, data))


def tokens(*last: str | bytes) -> Callable[[Gguf], object]:
    """Twenty tokens, the last of them these."""
    return key("tokenizer.ggml.tokens", strings([*("a" for _ in range(20 - len(last))), *last]))


def nested(depth: int) -> tuple[int, bytes]:
    payload = struct.pack("<IQ", U8, 0)
    for _ in range(depth):
        payload = struct.pack("<IQ", ARRAY, 1) + payload
    return ARRAY, payload


CASES: dict[str, tuple[Callable[[Gguf], object], str]] = {
    "version 1": (lambda file: setattr(file, "version", 1), "version 1 of GGUF.*convert"),
    "version 4": (lambda file: setattr(file, "version", 4), "version 4 of GGUF"),
    "big endian": (
        lambda file: setattr(file, "version", 3 << 24),
        "big-endian.*version 3.*convert it to little endian",
    ),
    "another architecture": (key("general.architecture", string("llama")), "'llama': a model of another kind"),
    "an architecture that is no text": (
        key("general.architecture", u32(1)),
        "'general.architecture'.*should be a string",
    ),
    "an unknown type of value": (key("odd", (13, b"")), "'odd'.*unknown value type 13"),
    "an unknown type of items": (key("odd", (ARRAY, struct.pack("<IQ", 99, 1))), "'odd'.*unknown value type 99"),
    "too many arrays in arrays": (key("odd", nested(9)), "'odd'.*more than 4 deep"),
    "an alignment that is no power of two": (key("general.alignment", u32(48)), "general.alignment is 48"),
    "an alignment of nothing": (key("general.alignment", u32(0)), "general.alignment is 0"),
    "an alignment that is no number": (key("general.alignment", string("32")), "'general.alignment'.*an integer"),
    "a setting that is no integer": (key("whisper.vocab_size", number(F32, 40.0)), "'whisper.vocab_size'.*an integer"),
    "no heads": (key("whisper.decoder.attention.head_count", u32(0)), "head_count is 0"),
    "heads that do not divide": (key("whisper.decoder.attention.head_count", u32(3)), "3 heads.*do not divide"),
    "too many layers": (key("whisper.encoder.block_count", u32(1 << 31)), "block_count is 2147483648"),
    "a negative size": (key("whisper.encoder.context_length", number(I32, -1)), "context_length is -1"),
    "other mel bands": (key("whisper.encoder.mels_count", u32(64)), "64 mel bands"),
    "sides of different width": (key("whisper.decoder.embedding_length", u32(128)), "differ in width"),
    "two keys that disagree": (key("whisper.n_vocab", u32(41)), "whisper.vocab_size is 40, whisper.n_vocab is 41"),
    "a missing tensor": (
        without("encoder.blocks.0.mlp.0.bias"),
        "1 of 50 tensors are missing.*'encoder.blocks.0.mlp.0.bias'",
    ),
    "an extra layer": (
        tensor("decoder.blocks.1.mlp.2.bias", (WIDTH,), 0, bytes(4 * WIDTH)),
        "'decoder.blocks.1.mlp.2.bias'",
    ),
    "a tensor of another network": (
        tensor("blk.0.attn_q.weight", (32,), 0, bytes(128)),
        "'blk.0.attn_q.weight'.*no part",
    ),
    "a bias that Whisper has not": (
        tensor("encoder.blocks.0.attn.key.bias", (WIDTH,), 0, bytes(4 * WIDTH)),
        "attn.key.bias.*more than",
    ),
    "a tensor under two names": (
        tensor("model.encoder.layer_norm.bias", (WIDTH,), 0, bytes(4 * WIDTH)),
        "'encoder.ln_post.bias' and 'model.encoder.layer_norm.bias' are both",
    ),
    "a transposed tensor": (
        tensor("encoder.blocks.0.mlp.0.weight", (4 * WIDTH, WIDTH), 1, bytes(8 * WIDTH * WIDTH)),
        r"mlp.0.weight' at offset \d+ has the shape \[64, 256\]; the settings say \[256, 64\]",
    ),
    "a size that the settings contradict": (key("whisper.vocab_size", u32(39)), "token_embedding.*the settings say"),
    "an unknown type of tensor": (tensor(EMBEDDING, (WIDTH, TINY_VOCAB), 77), "unknown type number 77"),
    "a type that weights have not": (
        tensor(EMBEDDING, (WIDTH, TINY_VOCAB), 24, bytes(WIDTH * TINY_VOCAB)),
        "has the type i8",
    ),
    "an empty tensor": (tensor("encoder.ln_post.bias", (0,)), r"ln_post.bias' is empty: its shape is \[0\]"),
    "no dimensions": (tensor("encoder.ln_post.bias", ()), "0 dimensions"),
    "too many dimensions": (tensor("encoder.ln_post.bias", (1, 1, 1, 1, WIDTH)), "5 dimensions"),
    "dimensions beyond 64 bits": (tensor("encoder.ln_post.bias", (1 << 63, 1 << 63, 4, 4)), "needs .* bytes at offset"),
    "rows that blocks do not fill": (tensor(EMBEDDING, (40, 64), 8), "rows of 40 values.*blocks of 32"),
    "mel filters of another shape": (
        tensor("mel_filters", (200, 80), 0, bytes(64000)),
        r"mel filters of shape \[80, 200\]",
    ),
    "mel filters that are not finite": (
        tensor("mel_filters", (201, 80), 0, struct.pack("<f", float("nan")) * 16080),
        "not finite",
    ),
    "mel filters that are too few": (key("whisper.mel_filters", numbers(F32, [0.5])), "should hold 80 x 201"),
    "half an alignment head": (key("whisper.alignment_heads", numbers(I32, [0, 0, 0])), "3 numbers"),
    "alignment heads that are texts": (key("whisper.alignment_heads", strings(["a"])), "'whisper.alignment_heads'"),
    "suppressed tokens that are no list": (key("whisper.suppress_tokens", u32(3)), "'whisper.suppress_tokens'"),
    "more tokens than are said": (key("whisper.token_count", u32(19)), "token_count is 19.*holds 20"),
    "tokens that are no list": (key("tokenizer.ggml.tokens", string("a")), "'tokenizer.ggml.tokens'.*array"),
    "tokens that are numbers": (
        key("tokenizer.ggml.tokens", numbers(I32, [1] * 20)),
        "'tokenizer.ggml.tokens'.*strings",
    ),
    "a token that is not UTF-8": (
        tokens(b"\xe2\x80"),
        "string 19.*not UTF-8",
    ),
    "a token outside the alphabet": (
        tokens("b c", "d"),
        "string 18 .*' '",
    ),
    "a token with a line feed": (
        tokens("b\n", "d"),
        r"string 18 .*'\\n'",
    ),
    "a token of another plane": (tokens("\U0001f600"), "string 19 "),
    "an endless token": (tokens("b" * 5000), "string 19 .*5000 bytes"),
    "tokens like a book": (tokens(*["b" * 250_000] * 20), "5000000 bytes of text"),
    "a special token outside": (key("whisper.token.beg", u32(TINY_VOCAB)), "'beg' is 40"),
    "a special token twice": (key("whisper.token.beg", u32(29)), "must be distinct"),
    "the end of text in the middle": (key("whisper.token.eot", u32(26)), "must be distinct"),
    "a special token that is missing": (without("whisper.token.nosp"), "whisper.token.nosp is missing"),
    "too many languages": (key("whisper.languages", strings(["en"] * 30)), "30 languages"),
    "no vocabulary at all": (without("tokenizer.ggml.tokens"), "there is no vocabulary"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_named(case: str) -> None:
    change, message = CASES[case]
    file = tiny()
    change(file)
    with pytest.raises(ModelFormatError, match=message) as caught:
        read_gguf(Blob(file.encoded(), "the file"))
    assert str(caught.value).startswith("the file")


def patched(raw: bytes, file: Gguf, what: str, value: int) -> bytes:
    """The file with one of its fields overwritten."""
    (place,) = [place for place in file.fields if place.what == what]
    return raw[: place.offset] + value.to_bytes(place.size, "little") + raw[place.offset + place.size :]


FIELDS: dict[str, tuple[str, int, str]] = {
    "keys without end": ("number of keys", 1 << 63, "9223372036854775808 keys"),
    "more keys than bytes": ("number of keys", 9999, "'|key|tensor"),
    "tensors without end": ("number of tensors", (1 << 64) - 1, "18446744073709551615 tensors"),
    "a key of all bytes": ("length of key general.name", (1 << 64) - 1, "the name of key 1"),
    "a text of all bytes": (
        "length of general.name",
        (1 << 64) - 1,
        "'general.name'.*ends early|ends early.*'general.name'",
    ),
    "items without end": (
        "items of tokenizer.ggml.tokens",
        1 << 60,
        "'tokenizer.ggml.tokens'.*1152921504606846976 items",
    ),
    "numbers without end": ("items of whisper.alignment_heads", 1 << 62, "ends early.*'whisper.alignment_heads'"),
    "a name of all bytes": (f"length of the name of {EMBEDDING}", 1 << 40, "a name of 1099511627776 bytes"),
    "a name of no bytes": (f"length of the name of {EMBEDDING}", 0, "a name of 0 bytes"),
    "data outside": (f"offset of {EMBEDDING}", 1 << 40, "ends early.*token_embedding"),
    "data that wrap around": (f"offset of {EMBEDDING}", (1 << 64) - 32, "ends early.*token_embedding"),
    "data between": (f"offset of {EMBEDDING}", 33, "no multiple of 32"),
    "data on top of others": (f"offset of {EMBEDDING}", 0, "overlaps"),
}


@pytest.mark.parametrize("case", FIELDS)
def test_a_field_that_cannot_be_is_named(case: str) -> None:
    what, value, message = FIELDS[case]
    file = tiny()
    raw = file.encoded()
    with pytest.raises(ModelFormatError, match=message):
        read_gguf(Blob(patched(raw, file, what, value), "the file"))


def test_a_key_that_is_there_twice_is_named() -> None:
    file = tiny()
    file.keys["general.nam2"] = string("another")
    raw = file.encoded().replace(b"general.nam2", b"general.name")
    with pytest.raises(ModelFormatError, match=r"key 'general.name' at offset \d+ is there twice"):
        read_gguf(Blob(raw))


def test_a_tensor_that_is_there_twice_is_named() -> None:
    file = tiny()
    file.tensors["decoder.ln.bia2"] = file.tensors["decoder.ln.bias"]
    raw = file.encoded().replace(b"decoder.ln.bia2", b"decoder.ln.bias")
    with pytest.raises(ModelFormatError, match=r"tensor 'decoder.ln.bias' is there twice"):
        read_gguf(Blob(raw))


def test_a_file_cut_anywhere_is_refused() -> None:
    raw = tiny(matrices=8).encoded()
    header = raw.index(b"decoder.blocks.0.mlp.2.bias") + 60
    for end in [*range(0, header, 7), *range(header, len(raw), 4999), len(raw) - 1]:
        with pytest.raises(ModelFormatError):
            read_gguf(Blob(raw[:end]))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        read_gguf(Blob(tmp_path))


def test_the_number_of_heads_must_be_told_where_the_width_is_unusual() -> None:
    file = tiny()
    del file.keys["whisper.encoder.attention.head_count"]
    assert read_gguf(Blob(file.encoded())).settings.n_audio_head == HEADS
    for name in ("whisper.encoder.embedding_length", "whisper.decoder.embedding_length"):
        file.keys[name] = u32(96)
    with pytest.raises(ModelFormatError, match="no key tells the number of heads"):
        read_gguf(Blob(file.encoded()))
