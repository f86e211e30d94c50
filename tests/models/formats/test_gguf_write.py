"""GGUF files are written whole or not at all, always the same, and say what was put into them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whispyx.errors import ModelError, ModelFormatError
from whispyx.models.formats.gguf import read_gguf
from whispyx.models.formats.gguf_container import Container
from whispyx.models.formats.gguf_tokens import bytes_of, strings_of
from whispyx.models.formats.gguf_write import Piece, write_gguf
from whispyx.models.formats.manifest import GGML_TYPES, Blob, Manifest, Settings, Vocabulary

from .gguf_maker import HEADS, N_AUDIO_CTX, N_MELS, N_TEXT_CTX, SPECIAL, TINY_VOCAB, WIDTH, data_of, tensor_shapes

SETTINGS = Settings(TINY_VOCAB, N_AUDIO_CTX, WIDTH, HEADS, 1, N_TEXT_CTX, WIDTH, HEADS, 1, N_MELS)
TOKENS = (*(bytes([number, 255 - number]) for number in range(18)), b"", "’".encode()[:2])


def a_model(**changes: Any) -> Manifest:
    content: dict[str, Any] = {
        "format": "ggml",
        "blobs": [],
        "settings": SETTINGS,
        "vocabulary": Vocabulary(TOKENS, SPECIAL, ("en", "de")),
        "tensors": {},
        "filters": np.random.default_rng(5).random((N_MELS, 201), np.float32),
        "alignment_heads": ((0, 0),),
        "suppress_tokens": (1, 2),
        "begin_suppress_tokens": (),
        "metadata": {
            "name": "Größe",
            "license": "mit",
            "language": "en, de",
            "base_model": "Whisper Tiny",
            "type": "no key of the format",
        },
    }
    return Manifest(**(content | changes))


def pieces(matrices: int = 1) -> list[Piece]:
    found: list[Piece] = []
    for name, dims in tensor_shapes(TINY_VOCAB).items():
        kind = matrices if len(dims) == 2 and dims[0] != 1 and "positional" not in name else 0
        found.append((name, dims[::-1], kind, data_of(name, dims, kind)))
    return found


def in_blocks(data: bytes) -> Callable[[], Iterator[memoryview]]:
    return lambda: (memoryview(data)[at : at + 1000] for at in range(0, len(data), 1000))


@pytest.mark.parametrize("matrices", ["f32", "f16", "q8_0"])
def test_what_is_written_is_read_again(tmp_path: Path, matrices: str) -> None:
    model, tensors = a_model(), pieces(GGML_TYPES[matrices])
    path = write_gguf(tmp_path / "new folder" / "a model.gguf", model, tensors)
    with read_gguf(Blob(path)) as found:
        for name in (
            "settings",
            "vocabulary",
            "alignment_heads",
            "suppress_tokens",
            "begin_suppress_tokens",
            "metadata",
        ):
            assert getattr(found, name) == getattr(model, name), name
        assert np.array_equal(found.filters, model.filters)
        assert list(found.tensors) == [name for name, *_ in tensors]
        raw = path.read_bytes()
        for name, shape, kind, data in tensors:
            tensor = found.tensors[name]
            assert (tensor.shape, tensor.type) == (shape, kind)
            assert raw[tensor.offset : tensor.offset + tensor.n_bytes] == data
            assert tensor.offset % 32 == 0


@pytest.mark.parametrize("multilingual", [True, False])
def test_tokens_that_are_no_text_and_languages_that_are_not_told_stay_so(tmp_path: Path, multilingual: bool) -> None:
    last = TINY_VOCAB - 1
    vocabulary = Vocabulary(TOKENS, SPECIAL, ("en", "de"), multilingual, (last - 1, last))
    with read_gguf(Blob(write_gguf(tmp_path / "m.gguf", a_model(vocabulary=vocabulary), pieces()))) as found:
        assert found.vocabulary == vocabulary


def test_what_a_model_does_not_say_is_not_written(tmp_path: Path) -> None:
    nothing = dict.fromkeys(("filters", "alignment_heads", "suppress_tokens", "begin_suppress_tokens"))
    tokens = tuple(b" %d" % number for number in range(50257))
    settings = Settings(51865, N_AUDIO_CTX, WIDTH, HEADS, 1, N_TEXT_CTX, WIDTH, HEADS, 1, N_MELS)
    model = a_model(**nothing, metadata={}, vocabulary=Vocabulary(tokens), settings=settings)
    with read_gguf(Blob(write_gguf(tmp_path / "m.gguf", model, []))) as found:
        assert found.vocabulary == Vocabulary(tokens)
        assert [getattr(found, name) for name in nothing] == [None] * 4
        assert found.metadata == {}


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    first = write_gguf(tmp_path / "1.gguf", a_model(), pieces()).read_bytes()
    other = a_model()
    other.metadata = dict(reversed(other.metadata.items()))
    blocks: list[Piece] = [
        (name, shape, kind, in_blocks(data) if isinstance(data, bytes) else data)
        for name, shape, kind, data in pieces()
    ]
    assert write_gguf(tmp_path / "2.gguf", other, blocks).read_bytes() == first


def test_the_bytes_are_those_of_the_specification(tmp_path: Path) -> None:
    # Written down by hand; a tensor of two rows, nothing that is optional.
    nothing = dict.fromkeys(("filters", "alignment_heads", "suppress_tokens", "begin_suppress_tokens"))
    model = a_model(**nothing, metadata={}, vocabulary=Vocabulary((b"a", b" b")))
    raw = write_gguf(tmp_path / "m.gguf", model, [("t", (2, 3), 1, b"0123456789ab")]).read_bytes()

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    keys = [text("general.architecture") + struct.pack("<I", 8) + text("whisper")]
    keys.append(text("general.type") + struct.pack("<I", 8) + text("model"))
    keys += [text(f"general.{name}") + struct.pack("<II", 4, n) for name, n in (("file_type", 1), ("alignment", 32))]
    sizes = [("vocab_size", TINY_VOCAB)]
    for side, n_ctx in (("encoder", N_AUDIO_CTX), ("decoder", N_TEXT_CTX)):
        sizes += [(f"{side}.context_length", n_ctx), (f"{side}.embedding_length", WIDTH)]
        sizes += [(f"{side}.attention.head_count", HEADS), (f"{side}.block_count", 1)]
    for name, n in [*sizes, ("encoder.mels_count", N_MELS)]:
        keys.append(text(f"whisper.{name}") + struct.pack("<II", 4, n))
    keys.append(text("tokenizer.ggml.model") + struct.pack("<I", 8) + text("gpt2"))
    keys.append(text("whisper.token_count") + struct.pack("<II", 4, 2))
    keys.append(text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("Ġb"))
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(keys)) + b"".join(keys)
    head += text("t") + struct.pack("<IQQIQ", 2, 3, 2, 1, 0)
    assert raw == head + bytes(-len(head) % 32) + b"0123456789ab" + bytes(20)


def test_quantised_files_say_so(tmp_path: Path) -> None:
    container = Container(Blob(write_gguf(tmp_path / "m.gguf", a_model(), pieces(GGML_TYPES["q8_0"]))))
    assert container.integer("general.quantization_version") == 2
    assert container.integer("general.file_type") == 7
    assert container.integer("general.alignment") == 32


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=30))
def test_every_token_has_its_string(tokens: list[bytes]) -> None:
    strings = tuple(strings_of(tokens))
    assert all(string.decode("utf-8").isprintable() for string in strings)
    assert bytes_of(strings, "the tokens") == tuple(tokens)


BROKEN: dict[str, tuple[list[Piece], str]] = {
    "too few bytes": ([("t", (2, 4), 0, bytes(31))], "'t' got 31 bytes.*needs 32"),
    "too many bytes": ([("t", (2, 4), 0, in_blocks(bytes(4000)))], "'t' got 1000 bytes.*needs 32"),
    "a name twice": ([("t", (4,), 0, bytes(16)), ("t", (4,), 0, bytes(16))], "'t' is to be written twice"),
    "the name of the filters": ([("mel_filters", (4,), 0, bytes(16))], "'mel_filters' is to be written twice"),
    "a name that ggml cuts": ([("t" * 64, (4,), 0, bytes(16))], "64 bytes"),
    "an unknown type": ([("t", (4,), 99, bytes(16))], "unknown type number 99"),
    "blocks that rows do not fill": ([("t", (2, 40), 8, bytes(85))], "cannot have the shape"),
    "an axis of nothing": ([("t", (0, 4), 0, b"")], "cannot have the shape"),
    "five axes": ([("t", (1,) * 5, 0, bytes(4))], "cannot have the shape"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_is_not_written(tmp_path: Path, case: str) -> None:
    tensors, message = BROKEN[case]
    with pytest.raises(ModelFormatError, match=message):
        write_gguf(tmp_path / "m.gguf", a_model(), tensors)
    assert list(tmp_path.iterdir()) == []


def test_an_old_file_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"old")

    def breaks_off() -> Iterator[bytes]:
        yield bytes(16)
        assert path.read_bytes() == b"old"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_gguf(path, a_model(), [("t", (8,), 0, breaks_off)])
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_the_system_refuses_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a folder"):
        write_gguf(tmp_path, a_model(), [])
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ModelError, match="could not be written"):
        write_gguf(tmp_path / "file" / "m.gguf", a_model(), [])


def test_progress_counts_the_bytes_of_all_tensors(tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    tensors = pieces()
    write_gguf(tmp_path / "m.gguf", a_model(filters=None), tensors, lambda done, total, _: seen.append((done, total)))
    total = sum(len(data) for *_, data in tensors if isinstance(data, bytes))
    assert seen[-1] == (total, total)
    assert len(seen) == len(tensors)
    assert seen == sorted(seen)
