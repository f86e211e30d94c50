"""GGUF files are read: ours, and those of others, whatever they call their keys and tensors."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from whispyx.errors import ModelFormatError
from whispyx.models.formats.gguf import read_gguf
from whispyx.models.formats.gguf_container import BLOCKS, Container
from whispyx.models.formats.manifest import GGML_TYPES, Blob, Manifest

from .gguf_maker import (
    BOOL,
    F32,
    F64,
    HEADS,
    I8,
    I16,
    I32,
    I64,
    N_AUDIO_CTX,
    N_MELS,
    N_TEXT_CTX,
    SPECIAL,
    TINY_VOCAB,
    U8,
    U16,
    U32,
    U64,
    WIDTH,
    Gguf,
    data_of,
    number,
    numbers,
    setting_keys,
    string,
    strings,
    tensor_shapes,
    tiny,
    u32,
)

# Name in whisper.cpp's files -> in those of others. Hugging Face's are those of transformers' WhisperModel.
HUGGING_FACE = {
    "blocks": "layers", "cross_attn_ln": "encoder_attn_layer_norm", "attn_ln": "self_attn_layer_norm",
    "mlp_ln": "final_layer_norm", "mlp.0": "fc1", "mlp.2": "fc2", "ln_post": "layer_norm",
    "decoder.ln.": "decoder.layer_norm.",
    "positional_embedding": "embed_positions.weight", "token_embedding": "embed_tokens", "cross_attn.": "encoder_attn.",
    ".attn.": ".self_attn.", "query": "q_proj", "key": "k_proj", "value": "v_proj", "out.": "out_proj.",
}  # fmt: skip
TRANSCRIBE_CPP = {
    "encoder.conv1": "encoder.conv.0", "encoder.conv2": "encoder.conv.1", "cross_attn_ln": "norm_cross",
    "encoder.blocks.0.attn_ln": "encoder.blocks.0.norm_attn", "decoder.blocks.0.attn_ln": "decoder.blocks.0.norm_self",
    "decoder.blocks.0.attn.": "decoder.blocks.0.self_attn.", "mlp_ln": "norm_ffn", "mlp.0": "ffn.fc1",
    "mlp.2": "ffn.fc2", "ln_post": "final_norm", "decoder.ln.": "decoder.final_norm.",
    "positional_embedding": "pos_emb.weight",
    "token_embedding": "token_embd", "query": "q", "key": "k", "value": "v", "encoder": "enc", "decoder": "dec",
}  # fmt: skip
BLK = {
    "blocks": "blk", "cross_attn_ln": "cross_attn_norm", "attn_ln": "attn_norm", "mlp_ln": "ffn_norm",
    "mlp.0": "ffn_up", "mlp.2": "ffn_down", "ln_post": "output_norm", "decoder.ln.": "decoder.output_norm.",
    "attn.query": "attn_q", "attn.key": "attn_k", "attn.value": "attn_v", "attn.out": "attn_out",
    "positional_embedding": "position_embd.weight", "token_embedding": "token_embd", "encoder": "enc", "decoder": "dec",
}  # fmt: skip


def read(file: Gguf | bytes) -> Manifest:
    return read_gguf(Blob(file if isinstance(file, bytes) else file.encoded()))


def renamed(file: Gguf, names: dict[str, str], prefix: str = "") -> Gguf:
    def other(name: str) -> str:
        for own, theirs in names.items():
            name = name.replace(own, theirs)
        return prefix + name

    file.tensors = {other(name): record for name, record in file.tensors.items()}
    return file


def check_tensors(manifest: Manifest, raw: bytes, original: Gguf) -> None:
    """Every tensor is there under whisper.cpp's name, and its place in the file holds its bytes."""
    assert list(manifest.tensors) == list(original.tensors)
    for name, (dims, kind, data) in original.tensors.items():
        tensor = manifest.tensors[name]
        assert (tensor.name, tensor.shape, tensor.type, tensor.blob) == (name, dims[::-1], kind, 0)
        assert raw[tensor.offset : tensor.offset + tensor.n_bytes] == data


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("matrices", ["f32", "f16", "q8_0"])
def test_a_file_in_our_layout_is_read_whole(version: int, matrices: str) -> None:
    file = tiny(matrices=GGML_TYPES[matrices])
    file.version = version
    raw = file.encoded()
    manifest = read(raw)
    assert manifest.format == "gguf"
    assert manifest.settings.values() == (
        *(TINY_VOCAB, N_AUDIO_CTX, WIDTH, HEADS, 1),
        *(N_TEXT_CTX, WIDTH, HEADS, 1, N_MELS),
    )
    assert manifest.vocabulary.tokens == tuple(b" %d" % number for number in range(20))
    assert manifest.vocabulary.special == SPECIAL
    assert manifest.vocabulary.languages == ("en", "de")
    assert manifest.alignment_heads == ((0, 0),)
    assert manifest.suppress_tokens == (1, 2, 7)
    assert manifest.begin_suppress_tokens is None
    assert manifest.filters is None
    assert manifest.metadata == {"name": "a tiny one"}
    check_tensors(manifest, raw, file)


def test_a_file_on_disk_is_read_like_one_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "a model.gguf"
    path.write_bytes(tiny().encoded())
    with read_gguf(Blob(path)) as manifest:
        assert manifest.tensors == read(tiny()).tensors
        assert manifest.name == str(path)


@pytest.mark.parametrize("alignment", [8, 64, 4096])
def test_the_alignment_of_the_data_is_the_files_own(alignment: int) -> None:
    file = tiny()
    file.alignment = alignment
    file.keys["general.alignment"] = u32(alignment)
    raw = file.encoded()
    check_tensors(read(raw), raw, file)


def test_every_type_of_value_is_understood_and_skipped() -> None:
    file = tiny()
    values = {
        U8: 255,
        I8: -1,
        U16: 65535,
        I16: -2,
        U32: 1 << 31,
        I32: -3,
        F32: 0.5,
        BOOL: 1,
        U64: 1 << 63,
        I64: -4,
        F64: 0.1,
    }
    for kind, value in values.items():
        file.keys[f"other.one.{kind}"] = number(kind, value)
        file.keys[f"other.many.{kind}"] = numbers(kind, [value] * 3)
        file.keys[f"other.none.{kind}"] = numbers(kind, [])
    nested = struct.pack("<IQ", 9, 2) + numbers(U8, [1, 2])[1] + strings(["a", ""])[1]
    file.keys["other.nested"] = (9, nested)
    file.keys["last"] = string("the end")
    container = Container(Blob(file.encoded()))
    assert container.text("last") == "the end"
    for kind, value in values.items():
        assert container.values[f"other.one.{kind}"].number == pytest.approx(value)
    assert container.integer(f"other.one.{U64}") == 1 << 63
    assert container.numbers(f"other.many.{I16}", 3).tolist() == [-2, -2, -2]
    assert len(read(file).tensors) == len(file.tensors)


@pytest.mark.parametrize("kind", [U8, U16, U64, I8, I64])
def test_settings_may_be_integers_of_any_size(kind: int) -> None:
    file = tiny()
    file.keys["whisper.encoder.mels_count"] = number(kind, N_MELS)
    assert read(file).settings.n_mels == N_MELS


def test_strings_longer_than_a_piece_of_the_file_are_walked_over() -> None:
    file = tiny()
    long = {"other.text": string("x" * 3_000_000), "other.texts": strings(["y" * 1_500_000, "", "z" * 1_500_000])}
    file.keys = long | file.keys
    raw = file.encoded()
    check_tensors(read(raw), raw, file)


def test_tokens_that_are_no_whole_characters_come_back_as_they_were() -> None:
    # GPT-2's alphabet, spelled out for bytes of each kind: printable, space, control, half a character, soft hyphen.
    letters = {
        0x21: "!",
        0x20: "Ġ",
        0x0A: "Ċ",
        0x00: "Ā",
        0x7F: "ġ",
        0xE2: "â",
        0x80: "Ģ",
        0xA0: "ł",
        0xAD: "Ń",
        0xFF: "ÿ",
    }
    file = tiny()
    file.keys["tokenizer.ggml.tokens"] = strings([*letters.values(), "", "âĢĻ", *(["a"] * 8)])
    tokens = read(file).vocabulary.tokens
    assert tokens[:10] == tuple(bytes([byte]) for byte in letters)
    assert tokens[10] == b""
    assert tokens[11] == "’".encode()


def test_sizes_that_no_key_tells_follow_from_the_tensors() -> None:
    file = tiny()
    for key in setting_keys(TINY_VOCAB):
        del file.keys[key]
    assert read(file).settings == read(tiny()).settings


def test_mel_filters_may_be_a_tensor_or_a_key() -> None:
    filters = np.random.default_rng(3).random((N_MELS, 201), np.float32)
    for name in ("mel_filters", "frontend.mel_filterbank"):
        file = tiny()
        file.tensors[name] = ((201, N_MELS), 0, filters.tobytes())
        found = read(file).filters
        assert found is not None
        assert np.array_equal(found, filters)
        assert len(read(file).tensors) == len(tiny().tensors)
    file = tiny()
    file.keys["whisper.mel_filters"] = numbers(F32, filters.ravel().tolist())
    found = read(file).filters
    assert found is not None
    assert np.array_equal(found, filters)


def test_notes_are_read_from_general_keys() -> None:
    file = tiny()
    file.keys |= {
        "general.license": string("mit"),
        "general.languages": strings(["en", "de"]),
        "general.base_model.count": u32(1),
        "general.base_model.0.name": string("Whisper Tiny"),
        "general.file_type": u32(1),
        "whisper.metadata.type": string("a note of ours"),
        "general.author": string(b"Andr\xe9"),
    }
    assert read(file).metadata == {
        "name": "a tiny one",
        "license": "mit",
        "language": "en, de",
        "base_model": "Whisper Tiny",
        "type": "a note of ours",
        "author": "Andr\ufffd",
    }


@pytest.mark.parametrize(
    ("names", "prefix"), [(HUGGING_FACE, ""), (HUGGING_FACE, "model."), (TRANSCRIBE_CPP, ""), (BLK, "")]
)
def test_tensors_of_others_are_found_under_their_names(names: dict[str, str], prefix: str) -> None:
    original = tiny()
    raw = renamed(tiny(), names, prefix).encoded()
    check_tensors(read(raw), raw, original)


def test_a_bias_without_its_second_axis_gets_it() -> None:
    file = tiny()
    _, kind, data = file.tensors["encoder.conv1.bias"]
    file.tensors["encoder.conv1.bias"] = ((WIDTH,), kind, data)
    assert read(file).tensors["encoder.conv1.bias"].shape == (WIDTH, 1)


def with_whole_vocabulary(n_vocab: int = 51865) -> Gguf:
    """As transcribe.cpp's converter writes it: all tokens, the special ones with the type 3."""
    sot = 50258
    texts = [f"Ġ{number}" for number in range(50256)] + ["", "<|endoftext|>", "<|startoftranscript|>"]
    texts += [f"<|{chr(97 + n // 26)}{chr(97 + n % 26)}|>" for n in range(99)]
    texts += ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
    texts += [f"<|{n * 0.02:.2f}|>" for n in range(1501)]
    assert (len(texts), texts[sot]) == (n_vocab, "<|startoftranscript|>")
    file = tiny()
    file.keys = {
        "general.architecture": string("whisper"),
        "stt.variant": string("whisper-tiny"),
        "tokenizer.ggml.model": string("gpt2"),
        "tokenizer.ggml.tokens": strings(texts),
        "tokenizer.ggml.token_type": numbers(I32, [1] * 50257 + [3] * (n_vocab - 50257)),
        "tokenizer.ggml.merges": strings(["Ġ 1", "1 2"]),
        "stt.whisper.encoder.n_layers": u32(1),
        "stt.whisper.encoder.d_model": u32(WIDTH),
        "stt.whisper.encoder.n_heads": u32(HEADS),
        "stt.whisper.encoder.num_mel_bins": u32(N_MELS),
        "stt.whisper.encoder.max_source_positions": u32(N_AUDIO_CTX),
        "stt.whisper.decoder.n_layers": u32(1),
        "stt.whisper.decoder.n_heads": u32(HEADS),
        "stt.whisper.decoder.max_target_positions": u32(N_TEXT_CTX),
        "stt.whisper.decoder.vocab_size": u32(n_vocab),
        "stt.whisper.sot_token_id": u32(sot),
        "stt.whisper.suppress_tokens": numbers(I32, [1, 2]),
        "stt.whisper.begin_suppress_tokens": numbers(I32, [220, 50257]),
        "stt.whisper.alignment_heads": numbers(I32, [0, 0]),
    }
    dims = (WIDTH, n_vocab)
    file.tensors["decoder.token_embedding.weight"] = (dims, 1, data_of("embedding", dims, 1))
    return file


def test_a_vocabulary_with_its_special_tokens_is_taken_apart() -> None:
    manifest = read(renamed(with_whole_vocabulary(), TRANSCRIBE_CPP))
    vocabulary = manifest.vocabulary
    assert len(vocabulary.tokens) == 50257
    assert vocabulary.tokens[:2] == (b" 0", b" 1")
    assert vocabulary.tokens[50256] == b""
    # The ids of a multilingual model of 99 languages, from the fact sheet.
    assert vocabulary.special == {
        "eot": 50257, "sot": 50258, "translate": 50358, "transcribe": 50359, "solm": 50360, "prev": 50361,
        "nosp": 50362, "not": 50363, "beg": 50364,
    }  # fmt: skip
    assert vocabulary.languages is not None
    assert len(vocabulary.languages) == 99
    assert manifest.begin_suppress_tokens == (220, 50257)
    assert manifest.alignment_heads == ((0, 0),)


def test_raw_tokens_are_taken_as_they_are() -> None:
    # Some writers store the bytes themselves; words then begin with a space, which is no letter of the alphabet.
    file = with_whole_vocabulary()
    raw = [b" %d" % number for number in range(50256)] + [b"\xe2\x80"]
    file.keys["tokenizer.ggml.tokens"] = strings(raw)
    del file.keys["tokenizer.ggml.token_type"]
    assert read(file).vocabulary.tokens == tuple(raw)


def test_a_file_without_a_vocabulary_has_that_of_all_models_of_its_size() -> None:
    file = with_whole_vocabulary()
    for name in ("tokens", "token_type", "merges", "model"):
        del file.keys[f"tokenizer.ggml.{name}"]
    tokens = read(file).vocabulary.tokens
    assert len(tokens) == 50257


def test_an_output_projection_that_is_the_embedding_is_left_out() -> None:
    file = tiny()
    file.tensors["proj_out.weight"] = file.tensors["decoder.token_embedding.weight"]
    assert "proj_out.weight" not in read(file).tensors
    dims, kind, data = file.tensors["proj_out.weight"]
    file.tensors["proj_out.weight"] = (dims, kind, data[:-1] + b"?")
    with pytest.raises(ModelFormatError, match="output projection of its own"):
        read(file)


def test_a_file_without_tensors_is_one_for_tests() -> None:
    file = tiny()
    file.tensors.clear()
    assert read(file).tensors == {}


def test_heads_of_another_model_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    file = tiny()
    file.keys["whisper.alignment_heads"] = numbers(I32, [3, 0, 0, 0])
    file.keys["whisper.suppress_tokens"] = numbers(I32, [-1, 5, TINY_VOCAB])
    manifest = read(file)
    assert manifest.alignment_heads is None
    assert manifest.suppress_tokens == (5,)
    assert "alignment_heads" in caplog.text
    assert "suppress_tokens" in caplog.text


def test_sizes_of_blocks_are_ggmls() -> None:
    from whispyx._core.description import tensor_bytes

    for kind, (name, values, size) in BLOCKS.items():
        found = tensor_bytes(kind, (values,))
        assert found in (None, size), name  # None: no type of a weight
    assert {name: GGML_TYPES[name] for name in GGML_TYPES} == {
        name: kind for kind, (name, _, _) in BLOCKS.items() if name in GGML_TYPES
    }


def test_dimensions_are_listed_fastest_first() -> None:
    assert tensor_shapes(TINY_VOCAB)["encoder.blocks.0.mlp.0.weight"] == (WIDTH, 4 * WIDTH)
    assert read(tiny()).tensors["encoder.blocks.0.mlp.0.weight"].shape == (4 * WIDTH, WIDTH)
