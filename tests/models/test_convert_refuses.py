"""Every way in which a CTranslate2 folder can be wrong gives a typed error with the reason, and no file."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from whispyx.errors import ModelError, ModelFormatError, ModelNotFoundError
from whispyx.models.convert import convert
from whispyx.models.convert.ct2 import Ct2File

from .ct2_maker import Array, Ct2Model, random_model, text, vocabulary, write_folder

EMBEDDINGS = "decoder/embeddings/weight"


def drop(name: str) -> Callable[[Ct2Model], object]:
    return lambda model: model.arrays.pop(name)


def put(name: str, value: object, dtype: str) -> Callable[[Ct2Model], object]:
    return lambda model: model.arrays.__setitem__(name, np.array(value, dtype))


def drop_embeddings(model: Ct2Model) -> None:
    model.aliases.clear()
    del model.arrays[EMBEDDINGS]


def reshape(name: str, *shape: int) -> Callable[[Ct2Model], object]:
    return lambda model: model.arrays.__setitem__(name, np.zeros(shape, np.float16))


def poison(name: str, value: float) -> Callable[[Ct2Model], object]:
    return lambda model: model.arrays[name].__setitem__((0, 1), value)


CASES: dict[str, tuple[Callable[[Ct2Model], object], str]] = {
    "another version": (lambda model: setattr(model, "version", 5), "version 5"),
    "another kind": (lambda model: setattr(model, "spec", "TransformerSpec"), "'TransformerSpec'"),
    "no embeddings": (drop_embeddings, f"'{EMBEDDINGS}' is missing"),
    "no heads": (drop("encoder/num_heads"), "'encoder/num_heads' is missing"),
    "no bias": (drop("decoder/layer_0/attention/linear_2/bias"), "linear_2/bias' is missing"),
    "a gap in the layers": (
        lambda model: [model.arrays.pop(name) for name in list(model.arrays) if name.startswith("encoder/layer_0/")],
        "without gaps",
    ),
    "no decoder layer": (
        lambda model: [model.arrays.pop(name) for name in list(model.arrays) if name.startswith("decoder/layer_0/")],
        "no decoder layer",
    ),
    "another vocabulary size": (reshape(EMBEDDINGS, 32000, 8), "32000 tokens"),
    "empty embeddings": (reshape(EMBEDDINGS, 0, 8), "none empty"),
    "flat embeddings": (reshape(EMBEDDINGS, 51864), "should have 2 dimensions"),
    "different widths": (reshape(EMBEDDINGS, 51864, 4), "differ in width"),
    "61 mel bands": (reshape("encoder/conv1/weight", 8, 61, 3), "61 mel bands"),
    "a wide kernel": (reshape("encoder/conv2/weight", 8, 8, 5), r"should have the shape \(8, 8, 3\)"),
    "an unstacked projection": (reshape("encoder/layer_0/self_attention/linear_0/weight", 8, 8), r"\(24, 8\)"),
    "a short norm": (reshape("decoder/layer_norm/gamma", 7), r"should have the shape \(8,\)"),
    "3 heads": (put("encoder/num_heads", 3, "int16"), "do not divide"),
    "0 heads": (put("decoder/num_heads", 0, "int16"), "do not divide"),
    "fractional heads": (put("decoder/num_heads", 2.0, "float32"), "should be one integer"),
    "a list of heads": (put("decoder/num_heads", [2], "int16"), "should be one integer"),
    "another activation": (put("decoder/activation", 0, "int8"), "decoder/activation = 0"),
    "post-norm": (put("decoder/pre_norm", 0, "int8"), "decoder/pre_norm = 0"),
    "int32 weights": (put(EMBEDDINGS, np.zeros((51864, 8)), "int32"), "is int32"),
    "int8 without a scale": (put(EMBEDDINGS, np.zeros((51864, 8)), "int8"), f"'{EMBEDDINGS}_scale' is missing"),
    "NaN": (poison("encoder/layer_1/ffn/linear_0/weight", np.nan), "not finite"),
    "infinity": (poison("encoder/layer_1/ffn/linear_0/weight", np.inf), "not finite"),
    "an alias of nothing": (lambda model: model.aliases.__setitem__("a", "b"), "'a' stands for 'b'"),
}


def refused(folder: Path, out: Path, kind: type[ModelError], reason: str, dtype: str = "f16") -> None:
    with pytest.raises(kind, match=reason):
        convert(folder, out / "model.bin", dtype)
    assert not out.exists() or list(out.iterdir()) == []


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_model_is_refused(tmp_path: Path, case: str) -> None:
    damage, reason = CASES[case]
    model = random_model()
    damage(model)
    n_tokens = {"tokenizer.json": {"model": {"vocab": {token: i for i, token in enumerate(vocabulary(50256))}}}}
    refused(write_folder(tmp_path / "ct2", model, n_tokens), tmp_path / "out", ModelFormatError, reason)


def test_scales_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    cases: tuple[tuple[Array, str], ...] = (
        (np.ones(5, np.float32), "1 or 24 factors"),
        (np.zeros(24, np.float32), "zero or not finite"),
        (np.ones(24, np.int16), "1 or 24 factors"),
    )
    for number, (scale, reason) in enumerate(cases):
        model = random_model()
        name = "encoder/layer_0/self_attention/linear_0/weight"
        model.arrays[name] = np.zeros((24, 8), np.int8)
        model.arrays[f"{name}_scale"] = scale
        refused(write_folder(tmp_path / str(number), model), tmp_path / "out", ModelFormatError, reason)


def test_values_too_large_for_f16_are_refused_and_fit_into_bf16(tmp_path: Path) -> None:
    model = random_model(dtype="float32")
    model.arrays[EMBEDDINGS][3, 3] = 1e6
    folder = write_folder(tmp_path / "ct2", model)
    refused(folder, tmp_path / "out", ModelFormatError, "bf16 or f32")
    assert convert(folder, tmp_path / "out" / "model.bin", "bf16").is_file()


@cache
def small_file() -> bytes:
    """A model whose embeddings are cut to nothing, so that it is short; the reader does not mind."""
    model = random_model()
    model.arrays[EMBEDDINGS] = np.zeros((3, 8), np.float16)
    return model.encoded()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(small_file()) - 1))
def test_a_file_cut_anywhere_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(small_file()[:length])
    with pytest.raises(ModelFormatError, match="the file ends inside"):
        Ct2File(path)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 4000), st.binary(min_size=1, max_size=6))
def test_a_damaged_file_is_read_or_refused_but_never_anything_else(tmp_path: Path, place: int, noise: bytes) -> None:
    content = bytearray(small_file())
    place %= len(content) - len(noise)
    content[place : place + len(noise)] = noise
    folder = tmp_path / "ct2"
    folder.mkdir(exist_ok=True)
    (folder / "model.bin").write_bytes(content)
    with pytest.raises(ModelFormatError):  # in any case for the embeddings, which are too short
        convert(folder, tmp_path / "out.bin")
    assert not (tmp_path / "out.bin").exists()


def test_bytes_after_the_end_are_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "ct2", random_model())
    with (folder / "model.bin").open("ab") as file:
        file.write(b"xyz")
    refused(folder, tmp_path / "out", ModelFormatError, "3 unexpected bytes")


def test_headers_that_promise_too_much_are_refused(tmp_path: Path) -> None:
    start = struct.pack("<I", 6) + text("WhisperSpec")
    for number, (content, reason) in enumerate(
        (
            (struct.pack("<II", 3, 4_000_000_000), "4000000000 variables"),
            (struct.pack("<II", 3, 1) + text("x") + b"\xff", "255 dimensions"),
            (struct.pack("<II", 3, 1) + text("x") + struct.pack("<BIIBI", 2, 1 << 31, 1 << 31, 4, 16), "16 bytes"),
            (struct.pack("<II", 3, 1) + text("x") + struct.pack("<BIBI", 1, 8, 9, 16), "unknown type 9"),
            (struct.pack("<II", 3, 1) + text("x") + struct.pack("<BIBI", 1, 8, 4, 16), "the file ends inside 'x'"),
            (struct.pack("<II", 3, 1) + struct.pack("<H", 2) + b"ab", "not a terminated string"),
            (struct.pack("<II", 3, 1) + struct.pack("<H", 3) + b"\xff\xfe\0", "is not text"),
            (struct.pack("<III", 3, 0, 4_000_000_000), "4000000000 aliases"),
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "model.bin").write_bytes(start + content)
        refused(folder, tmp_path / "out", ModelFormatError, reason)


def test_a_variable_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    entry = text("x") + struct.pack("<BIBI", 1, 1, 4, 2) + b"\0\0"
    (tmp_path / "model.bin").write_bytes(
        struct.pack("<I", 6) + text("WhisperSpec") + struct.pack("<II", 3, 2) + 2 * entry
    )
    refused(tmp_path, tmp_path / "out", ModelFormatError, "'x' is there twice")


VOCABULARIES: dict[str, tuple[dict[str, object], str]] = {
    "none": ({}, "no vocabulary"),
    "not JSON": ({"tokenizer.json": "{"}, "not valid JSON"),
    "nested too deeply": ({"tokenizer.json": "[" * 100_000}, "not valid JSON"),
    "no vocab": ({"tokenizer.json": {"model": {}}}, "model.vocab should map"),
    "ids that are texts": ({"tokenizer.json": {"model": {"vocab": {"a": "0"}}}}, "model.vocab should map"),
    "one id twice": ({"tokenizer.json": {"model": {"vocab": {"a": 0, "b": 0}}}}, "same id"),
    "too few": ({"vocabulary.txt": "a\nb\n"}, "token 2 is missing"),
    "a list of numbers": ({"vocabulary.json": [1, 2]}, "list of texts"),
    "an unknown character": ({"vocabulary.json": ["日"] * 50256}, "'日', which stands for no byte"),
    "another model's": ({"vocabulary.json": vocabulary(60000)}, "should be '<|endoftext|>'".replace("|", r"\|")),
}


@pytest.mark.parametrize("case", VOCABULARIES)
def test_a_wrong_vocabulary_is_refused(tmp_path: Path, case: str) -> None:
    files, reason = VOCABULARIES[case]
    refused(write_folder(tmp_path / "ct2", random_model(), files), tmp_path / "out", ModelFormatError, reason)


def test_a_folder_without_a_model_is_not_found(tmp_path: Path) -> None:
    refused(tmp_path, tmp_path / "out", ModelNotFoundError, "there is no model.bin")
    refused(tmp_path / "missing", tmp_path / "out", ModelNotFoundError, "there is no model.bin")


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "ct2", random_model())
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="could not be written"):
        convert(folder, tmp_path / "file" / "model.bin")
