"""CTranslate2 folders: every value is reached without unpacking, and what is no Whisper is refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests import data
from tests.models.ct2_maker import HEADS, N_AUDIO_CTX, N_TEXT_CTX, WIDTH, Ct2Model, random_model
from tests.models.ct2_maker import text as ct2_text
from tests.oracle.reader import read_model
from whispyx.errors import ModelFormatError, ModelNotFoundError
from whispyx.models.convert import convert
from whispyx.models.formats.ctranslate2 import is_folder, read_folder
from whispyx.models.formats.manifest import GGML_TYPES, Settings

from .folder_maker import LANGUAGES, N_VOCAB, byte_letters, conv_bias_apart, special_tokens, tokenizer, values, write

Array = npt.NDArray[Any]
VOCABULARY = [*byte_letters(), *special_tokens()]


def small(dtype: str = "float16") -> Ct2Model:
    return random_model(n_vocab=N_VOCAB, dtype=dtype)


def folder_of(path: Path, model: Ct2Model, **contents: Any) -> Path:
    named = {name.replace("_json", ".json"): content for name, content in contents.items()}
    return write(path, {"model.bin": model.encoded(), "vocabulary.json": VOCABULARY} | named)


def parts_of(arrays: dict[str, Array], n_audio_layer: int, n_text_layer: int) -> dict[str, Array]:
    """whisper.cpp's tensors as parts of CTranslate2's variables, written out from both layouts' descriptions."""
    found = {
        "encoder.positional_embedding": arrays["encoder/position_encodings/encodings"],
        "decoder.positional_embedding": arrays["decoder/position_encodings/encodings"],
        "decoder.token_embedding.weight": arrays["decoder/embeddings/weight"],
    }
    for number in (1, 2):
        for part in ("weight", "bias"):
            found[f"encoder.conv{number}.{part}"] = arrays[f"encoder/conv{number}/{part}"]

    def norm(ours: str, theirs: str) -> None:
        found[f"{ours}.weight"], found[f"{ours}.bias"] = arrays[f"{theirs}/gamma"], arrays[f"{theirs}/beta"]

    def split(ours: str, theirs: str, *names: str) -> None:
        for part in ("weight", "bias"):
            pieces = np.split(arrays[f"{theirs}/{part}"], len(names))
            for name, piece in zip(names, pieces, strict=True):
                if (name, part) != ("key", "bias"):
                    found[f"{ours}{name}.{part}"] = piece

    norm("encoder.ln_post", "encoder/layer_norm")
    norm("decoder.ln", "decoder/layer_norm")
    for side, n_layer in (("encoder", n_audio_layer), ("decoder", n_text_layer)):
        for index in range(n_layer):
            ours, theirs = f"{side}.blocks.{index}", f"{side}/layer_{index}"
            norm(f"{ours}.attn_ln", f"{theirs}/self_attention/layer_norm")
            split(f"{ours}.attn.", f"{theirs}/self_attention/linear_0", "query", "key", "value")
            split(f"{ours}.attn.", f"{theirs}/self_attention/linear_1", "out")
            if side == "decoder":
                norm(f"{ours}.cross_attn_ln", f"{theirs}/attention/layer_norm")
                split(f"{ours}.cross_attn.", f"{theirs}/attention/linear_0", "query")
                split(f"{ours}.cross_attn.", f"{theirs}/attention/linear_1", "key", "value")
                split(f"{ours}.cross_attn.", f"{theirs}/attention/linear_2", "out")
            norm(f"{ours}.mlp_ln", f"{theirs}/ffn/layer_norm")
            split(f"{ours}.mlp.", f"{theirs}/ffn/linear_0", "0")
            split(f"{ours}.mlp.", f"{theirs}/ffn/linear_1", "2")
    return found


def check_values(folder: Path, arrays: dict[str, Array], layers: tuple[int, int] = (2, 1)) -> None:
    expected = parts_of(arrays, *layers)
    with read_folder(folder) as manifest:
        assert set(manifest.tensors) == set(expected)
        for name, array in expected.items():
            array = conv_bias_apart(name, array.astype(np.float32))
            assert manifest.tensors[name].shape == array.shape, name
            assert np.array_equal(values(manifest, name), array), name


@pytest.mark.parametrize(("dtype", "kind"), [("float32", "f32"), ("float16", "f16")])
def test_every_value_is_reached(tmp_path: Path, dtype: str, kind: str) -> None:
    model = small(dtype)
    folder = folder_of(tmp_path, model)
    check_values(folder, model.arrays)
    with read_folder(folder) as manifest:
        assert manifest.format == "ctranslate2"
        assert {tensor.type for tensor in manifest.tensors.values()} == {GGML_TYPES[kind]}
        assert manifest.settings == Settings(N_VOCAB, N_AUDIO_CTX, WIDTH, HEADS, 2, N_TEXT_CTX, WIDTH, HEADS, 1, 80)
        assert manifest.vocabulary.tokens == tuple(bytes([byte]) for byte in range(256))
        assert manifest.vocabulary.languages == LANGUAGES


def test_bfloat16_is_reached(tmp_path: Path) -> None:
    model = small("float32")
    expected = dict(model.arrays)
    for name, array in model.arrays.items():
        if array.ndim:
            model.arrays[name] = (array.view(np.uint32) >> 16).astype(np.uint16)
            model.bfloat16.add(name)
            expected[name] = (model.arrays[name].astype(np.uint32) << 16).view(np.float32)
    check_values(folder_of(tmp_path, model), expected)


def quantise(model: Ct2Model, dtype: str, scale_dtype: str = "float32") -> dict[str, Array]:
    """Make the matrices integers as CTranslate2 does; returns what they stand for."""
    expected = dict(model.arrays)
    top = np.iinfo(dtype).max
    for name, array in list(model.arrays.items()):
        if array.ndim != 2 or "position" in name:
            continue
        wide = array.astype(np.float32)
        scale = top / np.abs(wide).max(axis=1) if dtype == "int8" else np.array(1024.0)
        scale = scale.astype(scale_dtype)
        factors = scale.astype(np.float32).reshape(-1, 1)
        model.arrays[name] = np.clip(np.rint(wide * factors), -top, top).astype(dtype)
        model.arrays[f"{name}_scale"] = scale
        expected[name] = model.arrays[name].astype(np.float32) / factors
    model.aliases["decoder/projection/weight_scale"] = "decoder/embeddings/weight_scale"
    return expected


@pytest.mark.parametrize(
    ("dtype", "kind", "scale"), [("int8", "i8", "float32"), ("int8", "i8", "float16"), ("int16", "i16", "float32")]
)
def test_integers_have_the_factors_of_their_rows(tmp_path: Path, dtype: str, kind: str, scale: str) -> None:
    model = small("float32")
    expected = quantise(model, dtype, scale)
    folder = folder_of(tmp_path, model)
    check_values(folder, expected)
    with read_folder(folder) as manifest:
        value = manifest.tensors["encoder.blocks.0.attn.value.weight"]
        assert value.type == GGML_TYPES[kind]
        assert value.factors is not None
        assert value.factors.n == (WIDTH if dtype == "int8" else 1)
        assert value.factors.type == GGML_TYPES["f16" if scale == "float16" else "f32"]


def test_convert_writes_what_the_manifest_reaches(tmp_path: Path) -> None:
    model = random_model(n_vocab=51865, dtype="float32")
    quantise(model, "int8")
    tokens = {"vocabulary.json": [str(i) for i in range(50257)]}
    folder = write(tmp_path / "ct2", {"model.bin": model.encoded(), **tokens})
    file = read_model(convert(folder, tmp_path / "model.bin", "f32"))
    with read_folder(folder) as manifest:
        assert manifest.settings.values() == tuple(file.settings.values())[:10]
        assert list(manifest.vocabulary.tokens) == file.tokens
        assert manifest.vocabulary.special is None
        assert set(manifest.tensors) == set(file.tensors)
        for name, expected in file.tensors.items():
            assert np.array_equal(values(manifest, name), expected), name


def test_rules_come_from_the_config(tmp_path: Path) -> None:
    config = {
        "alignment_heads": [[0, 1]],
        "lang_ids": [1, 2],
        "suppress_ids": [1, 2, 256],
        "suppress_ids_begin": [32, 256],
    }
    with read_folder(folder_of(tmp_path, small(), config_json=config)) as manifest:
        assert manifest.alignment_heads == ((0, 1),)
        assert manifest.suppress_tokens == (1, 2, 256)
        assert manifest.begin_suppress_tokens == (32, 256)
    with pytest.raises(ModelFormatError, match=r"config\.json: suppress_ids is 'x'"):
        read_folder(folder_of(tmp_path, small(), config_json={"suppress_ids": "x"}))


def test_a_tokenizer_comes_before_the_lists(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, small(), tokenizer_json=tokenizer(), vocabulary_json=["x"])
    with read_folder(folder) as manifest:
        assert manifest.vocabulary.languages == LANGUAGES
    (folder / "tokenizer.json").unlink()
    (folder / "vocabulary.json").unlink()
    with pytest.raises(ModelFormatError, match="no vocabulary"):
        read_folder(folder)


def test_without_a_vocabulary_the_published_tokens_are_taken(tmp_path: Path) -> None:
    folder = write(tmp_path, {"model.bin": random_model(n_vocab=51865).encoded()})
    with read_folder(folder) as manifest:
        assert len(manifest.vocabulary.tokens) == 50257


def test_aliases_make_no_large_model_of_a_small_file(tmp_path: Path) -> None:
    model = small()
    wide = 512
    for name, array in list(model.arrays.items()):
        shape = tuple(wide * n // WIDTH if n in (WIDTH, 3 * WIDTH, 2 * WIDTH, 4 * WIDTH) else n for n in array.shape)
        model.arrays[name] = np.zeros(shape, array.dtype) if shape else array
    model.arrays["decoder/embeddings/weight"] = np.zeros((N_VOCAB, wide), np.float16)
    for name in [name for name in model.arrays if name.startswith("encoder/layer_0/")]:
        for index in range(1, 40):
            alias = name.replace("layer_0", f"layer_{index}")
            model.arrays.pop(alias, None)
            model.aliases[alias] = name
    with pytest.raises(ModelFormatError, match=r"aliases make \d+ bytes of weights of a file of \d+ bytes"):
        read_folder(folder_of(tmp_path, model))


def put(name: str, value: object, dtype: str) -> Callable[[Ct2Model], object]:
    return lambda model: model.arrays.__setitem__(name, np.array(value, dtype))


def drop(name: str) -> Callable[[Ct2Model], object]:
    return lambda model: model.arrays.pop(name)


def untie(model: Ct2Model) -> None:
    del model.aliases["decoder/projection/weight"]
    model.arrays["decoder/projection/weight"] = model.arrays["decoder/embeddings/weight"] + 1


def scaled(scale: Array) -> Callable[[Ct2Model], object]:
    def change(model: Ct2Model) -> None:
        name = "encoder/layer_0/self_attention/linear_0/weight"
        model.arrays[name] = np.zeros((3 * WIDTH, WIDTH), np.int8)
        model.arrays[f"{name}_scale"] = scale

    return change


FFN = "encoder/layer_1/ffn/linear_0/weight"
CASES: dict[str, tuple[Callable[[Ct2Model], object], str]] = {
    "another version": (lambda model: setattr(model, "version", 5), "version 5"),
    "another kind": (lambda model: setattr(model, "spec", "TransformerSpec"), "'TransformerSpec'"),
    "missing": (
        drop("decoder/layer_0/attention/linear_2/bias"),
        "'decoder/layer_0/attention/linear_2/bias' is missing",
    ),
    "extra": (put("decoder/layer_0/ffn/linear_2/weight", [[1]], "float16"), "linear_2/weight' belongs to no Whisper"),
    "a scale of nothing": (put("encoder/layer_norm/x_scale", [1.0], "float32"), "'encoder/layer_norm/x_scale' belongs"),
    "misshapen": (put(FFN, np.zeros((8, 32)), "float16"), r"should have the shape \(32, 8\), but has \(8, 32\)"),
    "int32": (put(FFN, np.zeros((32, 8)), "int32"), f"'{FFN}' is int32; weights can be"),
    "int8 without factors": (put(FFN, np.zeros((32, 8)), "int8"), f"'{FFN}_scale' is missing"),
    "too few factors": (scaled(np.ones(5, np.float32)), "should hold 1 or 24 factors"),
    "integer factors": (scaled(np.ones(24, np.int16)), "should hold 1 or 24 factors"),
    "3 heads": (put("encoder/num_heads", 3, "int16"), "do not divide"),
    "post-norm": (put("decoder/pre_norm", 0, "int8"), "decoder/pre_norm = 0"),
    "another activation": (put("decoder/activation", 0, "int8"), "decoder/activation = 0"),
    "an untied head": (untie, "'decoder/projection/weight' has values of its own"),
    "61 bands": (put("encoder/conv1/weight", np.zeros((8, 61, 3)), "float16"), "61 mel bands"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_model_is_refused(tmp_path: Path, case: str) -> None:
    change, reason = CASES[case]
    model = small()
    change(model)
    with pytest.raises(ModelFormatError, match=reason) as caught:
        read_folder(folder_of(tmp_path, model))
    assert str(tmp_path) in str(caught.value)


HEADS_OF_FILES = {
    "empty": (b"", "is empty"),
    "a page": (b"<!DOCTYPE html>", "a web page"),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    "a ggml file": (b"lmgg" + bytes(40), "a ggml file"),
    "a checkpoint": (b"PK\x03\x04" + bytes(40), "PyTorch checkpoint"),
    "cut": (struct.pack("<I", 6) + ct2_text("WhisperSpec"), "the file ends inside the number of variables"),
}


@pytest.mark.parametrize("case", HEADS_OF_FILES)
def test_other_files_are_recognised(tmp_path: Path, case: str) -> None:
    content, reason = HEADS_OF_FILES[case]
    with pytest.raises(ModelFormatError, match=reason):
        read_folder(write(tmp_path, {"model.bin": content, "vocabulary.json": VOCABULARY}))


def test_folders_without_weights_are_not_found(tmp_path: Path) -> None:
    assert not is_folder(tmp_path)
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ModelNotFoundError):
            read_folder(folder)
    assert is_folder(folder_of(tmp_path, small()))


def test_weights_that_are_a_link_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "model", small())
    (folder / "model.bin").rename(tmp_path / "model.bin")
    (folder / "model.bin").symlink_to(tmp_path / "model.bin")
    with pytest.raises(ModelFormatError, match="leads out"):
        read_folder(folder)


def test_files_of_a_refused_model_are_closed(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, small(), config_json=[])
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(ModelFormatError):
        read_folder(folder)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_real_model_in_this_layout_is_the_same_model(tmp_path: Path) -> None:
    """tiny.en stacked as CTranslate2 has it, its values taken from the file that whisper.cpp reads."""
    file = read_model(data.or_skip(data.model_file, "tiny.en"))
    n_state, n_head, n_layer = (file.settings[f"n_audio_{name}"] for name in ("state", "head", "layer"))
    tensors = {name: array.astype(file_dtype(file.types[name])) for name, array in file.tensors.items()}
    arrays = stacked(tensors, n_state, n_layer)
    arrays |= {"encoder/num_heads": np.array(n_head, np.int16), "decoder/num_heads": np.array(n_head, np.int16)}
    letters = byte_letters()
    lines = ["".join(letters[byte] for byte in token) for token in file.tokens]
    model = Ct2Model(arrays, aliases={"decoder/projection/weight": "decoder/embeddings/weight"})
    folder = write(tmp_path, {"model.bin": model.encoded(), "vocabulary.txt": "\n".join(lines) + "\n"})
    with read_folder(folder) as manifest:
        assert manifest.settings.values() == tuple(file.settings.values())[:10]
        assert list(manifest.vocabulary.tokens) == file.tokens
        assert set(manifest.tensors) == set(file.tensors)
        for name, expected in file.tensors.items():
            assert np.array_equal(values(manifest, name), expected), name


def file_dtype(kind: str) -> str:
    return {"f16": "float16", "f32": "float32"}[kind]


def stacked(tensors: dict[str, Array], width: int, n_layer: int) -> dict[str, Array]:
    """CTranslate2's variables of a model of as many layers on both sides."""
    arrays: dict[str, Array] = {
        "encoder/position_encodings/encodings": tensors["encoder.positional_embedding"],
        "decoder/position_encodings/encodings": tensors["decoder.positional_embedding"],
        "decoder/embeddings/weight": tensors["decoder.token_embedding.weight"],
    }
    for number in (1, 2):
        arrays[f"encoder/conv{number}/weight"] = tensors[f"encoder.conv{number}.weight"]
        arrays[f"encoder/conv{number}/bias"] = tensors[f"encoder.conv{number}.bias"].reshape(-1)

    def norm(theirs: str, ours: str) -> None:
        arrays[f"{theirs}/gamma"], arrays[f"{theirs}/beta"] = tensors[f"{ours}.weight"], tensors[f"{ours}.bias"]

    def stack(theirs: str, *ours: str) -> None:
        arrays[f"{theirs}/weight"] = np.concatenate([tensors[f"{name}.weight"] for name in ours])
        zeros = np.zeros(width, np.float32)  # keys have no bias
        arrays[f"{theirs}/bias"] = np.concatenate([tensors.get(f"{name}.bias", zeros) for name in ours])

    norm("encoder/layer_norm", "encoder.ln_post")
    norm("decoder/layer_norm", "decoder.ln")
    for side in ("encoder", "decoder"):
        for index in range(n_layer):
            theirs, ours = f"{side}/layer_{index}", f"{side}.blocks.{index}"
            norm(f"{theirs}/self_attention/layer_norm", f"{ours}.attn_ln")
            stack(f"{theirs}/self_attention/linear_0", *(f"{ours}.attn.{name}" for name in ("query", "key", "value")))
            stack(f"{theirs}/self_attention/linear_1", f"{ours}.attn.out")
            if side == "decoder":
                norm(f"{theirs}/attention/layer_norm", f"{ours}.cross_attn_ln")
                stack(f"{theirs}/attention/linear_0", f"{ours}.cross_attn.query")
                stack(f"{theirs}/attention/linear_1", f"{ours}.cross_attn.key", f"{ours}.cross_attn.value")
                stack(f"{theirs}/attention/linear_2", f"{ours}.cross_attn.out")
            norm(f"{theirs}/ffn/layer_norm", f"{ours}.mlp_ln")
            stack(f"{theirs}/ffn/linear_0", f"{ours}.mlp.0")
            stack(f"{theirs}/ffn/linear_1", f"{ours}.mlp.2")
    return arrays
