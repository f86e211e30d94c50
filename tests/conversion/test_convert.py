"""Models of every form as one file of whisper.cpp or GGUF: nothing is lost, and nothing half done is left."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import data
from tests.models.formats.same_weights import FOLDERS, HEADS, MAKERS, ctranslate2, special_texts, words
from tests.oracle.reader import ModelFile, read_model
from tests.oracle.tiny_model import TinyModel
from whispyx.conversion import TypeChoice, convert
from whispyx.errors import ModelError, ModelFormatError, ModelNotFoundError, ParamsError
from whispyx.models.formats.gguf import read_gguf
from whispyx.models.formats.manifest import Blob
from whispyx.models.formats.opening import describe

K_TYPES = ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k")
TYPES = ("f32", "f16", "bf16", "q8_0", "q5_0", "q5_1", "q4_0", "q4_1", *K_TYPES)


def tiny(weight_type: str = "f16", **changes: Any) -> TinyModel:
    width = {"n_state": 256, "n_head": 4} if weight_type in K_TYPES else {}
    small = {"n_audio_layer": 1, "n_text_layer": 3}
    return TinyModel(weight_type=weight_type, **{**small, **width, **changes})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny().write(tmp_path_factory.mktemp("model") / "model.bin")


@pytest.fixture(scope="module")
def forms(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, file = tmp_path_factory.mktemp("forms"), read_model(model)
    return {form: maker(file, folder / form, None) for form, maker in MAKERS.items()}


def test_the_report_tells_the_types_of_the_file_also_where_ggml_has_none_such(model: Path, tmp_path: Path) -> None:
    """Matrices of eight bits with a factor per row become f16 when they are read."""
    report = convert(ctranslate2(read_model(model), tmp_path / "bytes", "i8"), tmp_path / "model.gguf")
    kinds = {tensor.name: (tensor.before, tensor.after) for tensor in report.tensors}
    assert kinds["encoder.blocks.0.mlp.0.weight"] == ("i8", "f16")
    assert kinds["decoder.token_embedding.weight"] == ("i8", "f16")
    assert report.bytes_before < report.bytes_after


@pytest.mark.parametrize("weight_type", TYPES)
def test_to_gguf_and_back_is_the_same_file(weight_type: str, tmp_path: Path) -> None:
    source = tiny(weight_type).write(tmp_path / "model.bin")
    there = convert(source, tmp_path / "model.gguf")
    back = convert(tmp_path / "model.gguf", tmp_path / "back.bin")
    assert (tmp_path / "back.bin").read_bytes() == source.read_bytes()
    assert (there.format, back.format) == ("gguf", "ggml")
    assert there.bytes_before == there.bytes_after == back.bytes_after
    assert there.largest_error is None and all(tensor.before == tensor.after for tensor in there.tensors)
    assert back.readable_by_whisper_cpp and not there.readable_by_whisper_cpp


@pytest.mark.parametrize("shape", [{"n_vocab": 51865}, {"n_vocab": 51866, "n_mels": 128}], ids=["99", "100"])
def test_multilingual_models_come_back_too(shape: dict[str, int], tmp_path: Path) -> None:
    source = tiny(**shape).write(tmp_path / "model.bin")
    convert(source, tmp_path / "model.gguf")
    convert(tmp_path / "model.gguf", tmp_path / "back.bin")
    assert (tmp_path / "back.bin").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("name", ["tiny.en", "base"])
def test_real_models_come_back_too(name: str, tmp_path: Path) -> None:
    source = data.or_skip(data.model_file, name)
    convert(source, tmp_path / "model.gguf")
    convert(tmp_path / "model.gguf", tmp_path / "back.bin")
    assert (tmp_path / "back.bin").read_bytes() == source.read_bytes()


def same(found: ModelFile, truth: ModelFile) -> None:
    assert found.settings == truth.settings
    assert found.tokens == truth.tokens
    assert found.types == truth.types
    assert found.tensors.keys() == truth.tensors.keys()
    for name, array in truth.tensors.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize("form", [form for form in MAKERS if form != "openai"])
def test_every_form_becomes_the_file_of_whisper_cpp(
    form: str, forms: dict[str, Path], model: Path, tmp_path: Path
) -> None:
    convert(forms[form], tmp_path / "made.bin")
    same(read_model(tmp_path / "made.bin"), read_model(model))


def test_a_checkpoint_of_openai_gets_the_tokens_that_all_models_of_its_size_have(
    forms: dict[str, Path], model: Path, tmp_path: Path
) -> None:
    convert(forms["openai"], tmp_path / "made.bin")
    found, truth = read_model(tmp_path / "made.bin"), read_model(model)
    assert len(found.tokens) == len(truth.tokens) == 50256
    same(ModelFile(found.settings, found.filters, truth.tokens, found.tensors, found.types), truth)


@pytest.mark.parametrize("form", list(MAKERS))
def test_a_real_model_of_every_form_becomes_the_known_file(form: str, tmp_path: Path) -> None:
    path = data.or_skip(data.model_file, "tiny.en")
    truth = read_model(path)
    convert(MAKERS[form](truth, tmp_path / "source", None), tmp_path / "made.bin")
    found = read_model(tmp_path / "made.bin")
    same(found, truth)
    np.testing.assert_allclose(found.filters, truth.filters, rtol=0, atol=1e-8)


@pytest.mark.parametrize("form", list(MAKERS))
def test_alignment_heads_and_tokens_go_into_gguf(
    form: str, forms: dict[str, Path], model: Path, tmp_path: Path
) -> None:
    convert(forms[form], tmp_path / "made.gguf")
    found, before = read_gguf(Blob(tmp_path / "made.gguf")), describe(str(forms[form]))
    assert found.alignment_heads == before.alignment_heads == (None if form == "openai" else HEADS)
    assert found.vocabulary == before.vocabulary
    assert found.settings == before.settings


@pytest.mark.parametrize("target", ["a.bin", "a.gguf"])
def test_the_same_model_gives_the_same_bytes_wherever_it_lies(target: str, model: Path, tmp_path: Path) -> None:
    sources = (model, str(model), model.read_bytes(), io.BytesIO(model.read_bytes()))
    contents = set()
    for number, source in enumerate(sources):
        (tmp_path / str(number)).mkdir()
        convert(source, tmp_path / str(number) / target, TypeChoice("q5_1"))
        contents.add((tmp_path / str(number) / target).read_bytes())
    assert len(contents) == 1


def test_the_format_may_be_named_and_the_ending_tells_otherwise(model: Path, tmp_path: Path) -> None:
    for name, format, magic in (
        ("a", None, b"lmgg"), ("b.GGUF", None, b"GGUF"), ("c.gguf", "ggml", b"lmgg"), ("d.bin", "gguf", b"GGUF"),
    ):  # fmt: skip
        report = convert(model, tmp_path / name, format=format)  # type: ignore[arg-type]
        assert (tmp_path / name).read_bytes()[:4] == magic
        assert report.path == str(tmp_path / name)
    with pytest.raises(ParamsError, match="format must be ggml or gguf"):
        convert(model, tmp_path / "e", format="zip")  # type: ignore[arg-type]


def test_a_model_can_take_its_own_place(tmp_path: Path) -> None:
    path = tiny().write(tmp_path / "model.bin")
    before = path.read_bytes()
    convert(path, path)
    assert path.read_bytes() == before
    convert(path, path, TypeChoice("q8_0"))
    assert set(read_model(path).types.values()) == {"f32", "f16", "q8_0"}


def test_progress_rises_and_ends_at_the_size_of_the_tensors(model: Path, tmp_path: Path) -> None:
    for name in ("a.bin", "a.gguf"):
        seen: list[tuple[int, int | None, str]] = []

        def progress(done: int, total: int | None, what: str, seen: list[Any] = seen) -> None:
            seen.append((done, total, what))

        report = convert(model, tmp_path / name, TypeChoice("q8_0"), progress=progress)
        assert {(total, what) for _, total, what in seen} == {(report.bytes_after, "convert")}
        assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
        assert seen[-1][0] == report.bytes_after


class Stop(Exception):
    pass


@pytest.mark.parametrize("target", ["a.bin", "a.gguf"])
@pytest.mark.parametrize("at", [1, 20])
def test_what_fails_leaves_nothing(target: str, at: int, model: Path, tmp_path: Path) -> None:
    """An error in the middle, a damaged source: no file, or the one that was there, and nothing beside it."""
    calls = 0

    def stop(*told: object) -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            raise Stop

    cut = tmp_path / "cut.bin"
    cut.write_bytes(model.read_bytes()[:-1000])
    out = tmp_path / "out"
    out.mkdir()
    for before in (None, b"what was there"):
        if before is not None:
            (out / target).write_bytes(before)
        with pytest.raises(Stop):
            convert(model, out / target, TypeChoice("q8_0"), progress=stop)
        calls = 0
        with pytest.raises(ModelFormatError):
            convert(cut, out / target)
        with pytest.raises(ParamsError):
            convert(model, out / target, TypeChoice("q4_k"))
        assert os.listdir(out) == ([] if before is None else [target])
        assert before is None or (out / target).read_bytes() == before


def test_values_that_are_no_numbers_or_too_large_are_told_and_leave_nothing(model: Path, tmp_path: Path) -> None:
    name = "decoder.blocks.1.mlp.0.weight"
    file = read_model(tiny("f32").write(tmp_path / "f32.bin"))
    out = tmp_path / "out"
    out.mkdir()
    for value, wanted, told in ((np.nan, "q8_0", "no numbers"), (1e6, "f16", "bf16 or f32"), (1e9, "q4_0", "f32")):
        tensors = {**file.tensors, name: file[name].copy()}
        tensors[name][3, 5] = value
        made = ModelFile(file.settings, file.filters, file.tokens, tensors, file.types)
        source = MAKERS["huggingface"](made, tmp_path / wanted, None)
        with pytest.raises(ModelFormatError, match=told) as caught:
            convert(source, out / "a.bin", TypeChoice(wanted))
        assert name in str(caught.value)
        assert os.listdir(out) == []


def test_sources_and_places_that_are_none_are_named(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        convert(tmp_path / "nothing.bin", tmp_path / "a.bin")
    with pytest.raises(ModelFormatError):
        convert(tmp_path, tmp_path / "a.bin")
    with pytest.raises(ParamsError, match="is a folder"):
        convert(model, tmp_path)
    (tmp_path / "file").write_bytes(b"")
    for name in ("a.bin", "a.gguf"):
        with pytest.raises(ModelError, match="could not be written"):
            convert(model, tmp_path / "file" / name)
    assert sorted(os.listdir(tmp_path)) == ["file"]


def test_a_file_without_weights_is_no_model_to_convert(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match="no tensors"):
        convert(data.or_skip(data.for_tests_model, "tiny"), tmp_path / "a.bin")


def test_special_tokens_of_its_own_fit_gguf_only(model: Path, tmp_path: Path) -> None:
    """A vocabulary whose special tokens do not follow from its size."""
    file = read_model(model)
    texts = words(file) + special_texts(file)
    first = texts.index("<|startoflm|>")
    texts[first], texts[first + 1] = texts[first + 1], texts[first]
    source = ctranslate2(file, tmp_path / "source")
    (source / "vocabulary.json").write_text(json.dumps(texts), "utf-8")
    with pytest.raises(ParamsError, match="write GGUF"):
        convert(source, tmp_path / "a.bin")
    convert(source, tmp_path / "a.gguf")
    special = read_gguf(Blob(tmp_path / "a.gguf")).vocabulary.special
    assert special is not None and special["solm"] == special["prev"] + 1


@pytest.mark.parametrize("form", FOLDERS)
def test_integers_and_bf16_folders_become_types_that_ggml_computes_with(form: str, model: Path, tmp_path: Path) -> None:
    file = read_model(model)
    kind, expected = {"ctranslate2": ("i8", "f16"), "huggingface": ("bf16", "bf16")}[form]
    convert(MAKERS[form](file, tmp_path / "source", kind), tmp_path / "a.bin")
    found = read_model(tmp_path / "a.bin")
    assert found.types["decoder.blocks.0.mlp.0.weight"] == expected
    assert found.types["encoder.conv1.weight"] == "f16" and found.types["encoder.positional_embedding"] == "f32"
    for name, array in file.tensors.items():
        bound = np.abs(array).max() * (2.0**-8 if kind == "bf16" else 1 / 127)
        assert np.abs(found[name] - array).max() <= bound, name
