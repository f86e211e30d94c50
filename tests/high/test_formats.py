"""One model in every form that loads: the same numbers and words as from whisper.cpp's file, and safe refusals."""

from __future__ import annotations

import io
import os
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import whispyx.plugins
from tests import data
from tests.models.formats.same_weights import FOLDERS, HEADS, MAKERS, ctranslate2, huggingface, weights_of
from tests.oracle.compare import nmse
from tests.oracle.reader import ModelFile, read_model
from tests.oracle.tiny_model import TinyModel, speechlike
from whispyx import Model, ModelFormatError
from whispyx._core.context import Context
from whispyx._core.state import State
from whispyx.conversion import convert
from whispyx.errors import ModelError
from whispyx.models.formats.opening import open_model

Array = npt.NDArray[Any]

FORMS = tuple(MAKERS)
FILES = tuple(form for form in FORMS if form not in FOLDERS)
COMPUTE = ("exact", "auto")
SOUND = speechlike(1.5, seed=3)
RECIPES = {
    "f16": TinyModel(),
    "f32": TinyModel(weight_type="f32", n_vocab=51865),
    "bf16": TinyModel(weight_type="bf16"),
}
# Of the mean square of the logits. A matrix of bytes is off by 1/127/sqrt(12) of its rows' peaks, bf16 by 2^-9.
WORST_OF_INT8 = 5e-3
WORST_OF_BF16 = 1e-3


@pytest.fixture(scope="module", autouse=True)
def plugins() -> None:
    whispyx.plugins.load()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every recipe in every form."""
    folder = tmp_path_factory.mktemp("forms")
    for name, recipe in RECIPES.items():
        file = read_model(recipe.write(folder / f"{name}.bin"))
        for form, maker in MAKERS.items():
            maker(file, place(folder, name, form), None)
    return folder


def place(folder: Path, name: str, form: str) -> Path:
    return folder / name / {"openai": "model.pt", "gguf": "model.gguf"}.get(form, form)


def logits_of(source: Any, compute: str) -> Array:
    """Logits of a prompt after a second of sound."""
    with Context.load(open_model(source), compute=compute) as context, State(context) as state:
        state.pcm_to_mel(SOUND)
        state.encode(0)
        state.decode([context.hparams.n_vocab - 1607, 50300, 17, 4000, 22222], all_logits=True)
        return state.logits().copy()


@lru_cache
def expected(path: Path, compute: str) -> Array:
    return logits_of(path, compute)


@pytest.mark.parametrize("compute", COMPUTE)
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("form", FORMS)
def test_the_same_weights_give_the_same_logits_to_the_bit(form: str, recipe: str, compute: str, tiny: Path) -> None:
    path = place(tiny, recipe, form)
    truth = expected(tiny / f"{recipe}.bin", compute)
    assert np.isfinite(truth).all() and truth.std() > 0.1
    np.testing.assert_array_equal(logits_of(path, compute), truth)
    if form in FOLDERS:
        # Any file of a folder that tells what it is stands for the folder.
        np.testing.assert_array_equal(logits_of(weights_of(path, form), compute), truth)


@pytest.mark.parametrize("compute", COMPUTE)
@pytest.mark.parametrize("kind", ["q8_0", "q5_1", "q4_0", "q4_k", "q6_k"])
def test_quantised_weights_are_the_same_in_gguf(kind: str, compute: str, tmp_path: Path) -> None:
    width = {"n_state": 256, "n_head": 4} if kind.endswith("_k") else {}
    path = TinyModel(weight_type=kind, n_audio_layer=1, **width).write(tmp_path / "model.bin")
    convert(path, tmp_path / "model.gguf")
    np.testing.assert_array_equal(logits_of(tmp_path / "model.gguf", compute), logits_of(path, compute))


@pytest.mark.parametrize("form", FILES)
def test_bytes_and_file_objects_are_models_too(form: str, tiny: Path) -> None:
    content = place(tiny, "f16", form).read_bytes()
    truth = expected(tiny / "f16.bin", "exact")
    for source in (content, bytearray(content), memoryview(content), io.BytesIO(content)):
        np.testing.assert_array_equal(logits_of(source, "exact"), truth)
    with place(tiny, "f16", form).open("rb") as file:
        np.testing.assert_array_equal(logits_of(file, "exact"), truth)


@pytest.mark.parametrize("form", FILES)
def test_bytes_are_let_go_of_when_the_model_is_there(form: str, tiny: Path) -> None:
    content = bytearray(place(tiny, "f16", form).read_bytes())
    with Context.load(open_model(content), compute="exact"):
        content.append(0)  # an error while anybody holds them


@pytest.mark.parametrize("form", FILES)
def test_a_pipe_is_a_model_too(form: str, tiny: Path, tmp_path: Path) -> None:
    content = place(tiny, "f16", form).read_bytes()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for sent in (content, content[: len(content) // 2], b"<!doctype html><p>no model"):
        writer = threading.Thread(target=pipe.write_bytes, args=(sent,))
        writer.start()
        if sent == content:
            np.testing.assert_array_equal(logits_of(pipe, "exact"), expected(tiny / "f16.bin", "exact"))
        else:
            with pytest.raises(ModelFormatError, match=re.escape(str(pipe))):
                logits_of(pipe, "exact")
        writer.join()


@pytest.mark.parametrize("compute", COMPUTE)
def test_matrices_in_bytes_and_models_wholly_in_bf16_are_close(compute: str, tiny: Path, tmp_path: Path) -> None:
    file = read_model(tiny / "f16.bin")
    truth = expected(tiny / "f16.bin", compute)
    for made, bound in (
        (ctranslate2(file, tmp_path / "i8", "i8"), WORST_OF_INT8),
        (ctranslate2(file, tmp_path / "halves", "bf16"), WORST_OF_BF16),
        (huggingface(file, tmp_path / "bf16", "bf16"), WORST_OF_BF16),
    ):
        found = logits_of(made, compute)
        off = nmse(found, truth)
        print(f"{made.name}, {compute}: {off:.1e}")
        assert 0 < off < bound


@pytest.mark.parametrize("form", FORMS)
def test_alignment_heads_come_from_the_files(form: str, tiny: Path) -> None:
    with Context.load(open_model(place(tiny, "f16", form))) as context:
        assert context.alignment_heads == (None if form == "openai" else HEADS)
    with Context.load(str(tiny / "f16.bin")) as context:
        assert context.alignment_heads is None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compute", COMPUTE)
def test_progress_rises_and_ends_at_what_there_is(form: str, compute: str, tiny: Path) -> None:
    seen: list[tuple[int, int | None]] = []

    def progress(done: int, total: int | None, what: str) -> None:
        assert what == "read"
        seen.append((done, total))

    with Model(place(tiny, "f16", form), progress=progress, compute=compute) as model:
        assert model.info.path == str(weights_of(place(tiny, "f16", form), form))
    totals = {total for _, total in seen}
    assert len(totals) == 1 and seen[-1][0] == seen[-1][1]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert totals.pop() <= weights_of(place(tiny, "f16", form), form).stat().st_size


@pytest.mark.parametrize("form", FORMS)
def test_cut_and_swapped_files_are_refused_and_others_go_on(form: str, tiny: Path, tmp_path: Path) -> None:
    good = place(tiny, "f16", form)
    with Model(good, compute="exact") as model:
        before = [segment.text for segment in model.transcribe(SOUND, "en")]
        copy = tmp_path / "copy" / good.name
        if form in FOLDERS:
            shutil.copytree(good, copy)
        else:
            copy.parent.mkdir()
            shutil.copy(good, copy)
        target = weights_of(copy, form)
        content = target.read_bytes()
        size = len(content)
        for n in (0, 1, 3, 4, 8, 11, 100, size // 50, size // 2, size - 40_000, size - 100, size - 1):
            target.write_bytes(content[:n])
            with pytest.raises(ModelFormatError) as caught:
                Model(copy)
            assert target.name in str(caught.value) or copy.name in str(caught.value)
        for at in (4, 9, 13, 40):
            target.write_bytes(content[:at] + b"\xff" * 8 + content[at + 8 :])
            try:
                Model(copy).close()  # some of these bytes may mean nothing
            except ModelError as error:
                assert type(error) is ModelFormatError
        for other in FORMS:
            if other != form:
                # The weights of another format under this one's name.
                target.write_bytes(weights_of(place(tiny, "f16", other), other).read_bytes())
                if form in FOLDERS or other in FOLDERS:
                    with pytest.raises(ModelError):
                        Model(copy)
                else:
                    np.testing.assert_array_equal(logits_of(copy, "exact"), expected(tiny / "f16.bin", "exact"))
        assert [segment.text for segment in model.transcribe(SOUND, "en")] == before
        target.write_bytes(content)
    np.testing.assert_array_equal(logits_of(copy, "exact"), expected(tiny / "f16.bin", "exact"))


@pytest.mark.parametrize("form", FORMS)
def test_weights_of_another_size_are_refused(form: str, tiny: Path, tmp_path: Path) -> None:
    """Settings of one model beside, or in front of, the tensors of another."""
    small = read_model(tiny / "f16.bin")
    lying = ModelFile({**small.settings, "n_text_layer": 2}, small.filters, small.tokens, small.tensors, small.types)
    wide = {name: np.concatenate([array, array], axis=-1) if array.ndim > 1 else array
            for name, array in small.tensors.items() if "conv" not in name}  # fmt: skip
    broad = ModelFile(small.settings, small.filters, small.tokens, {**small.tensors, **wide}, small.types)
    for number, file in enumerate((lying, broad)):
        if file is lying and form in FOLDERS:
            continue  # those makers write the layers that the settings say
        with pytest.raises(ModelFormatError):
            Model(MAKERS[form](file, tmp_path / str(number) / place(tmp_path, "", form).name, None))


@dataclass(frozen=True)
class Real:
    """A real model in one form, and its file of whisper.cpp."""

    form: str
    path: Path
    ggml: Path


@pytest.fixture(scope="module", params=["tiny.en", "base"])
def parsed(request: pytest.FixtureRequest) -> Iterator[tuple[Path, ModelFile]]:
    path = data.or_skip(data.model_file, request.param)
    yield path, read_model(path)


@pytest.fixture(scope="module", params=FORMS)
def real(
    parsed: tuple[Path, ModelFile], request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Real]:
    folder = tmp_path_factory.mktemp("real")
    yield Real(request.param, MAKERS[request.param](parsed[1], place(folder, "real", request.param), None), parsed[0])
    shutil.rmtree(folder)


@lru_cache
def heard(path: Path, compute: str) -> list[tuple[float, float, str]]:
    with Model(path, compute=compute) as model:
        return [(segment.start, segment.end, segment.text) for segment in model.transcribe(data.jfk_wav(), "en")]


@pytest.mark.parametrize("compute", COMPUTE)
def test_real_models_say_the_same_in_every_form(real: Real, compute: str) -> None:
    data.or_skip(data.jfk_wav)
    truth = heard(real.ggml, compute)
    assert "ask not what your country can do for you" in "".join(text for _, _, text in truth).lower()
    with Model(real.path, compute=compute) as model:
        found = [(segment.start, segment.end, segment.text) for segment in model.transcribe(data.jfk_wav(), "en")]
    assert found == truth


def test_real_models_have_the_same_tokens_in_every_form(real: Real) -> None:
    with Context.load(open_model(real.path)) as found, Context.load(str(real.ggml)) as truth:
        assert found.hparams.as_dict() == truth.hparams.as_dict()
        texts = [[context.vocab.token_bytes(i) for i in range(truth.hparams.n_vocab)] for context in (found, truth)]
        specials = ("eot", "sot", "translate", "transcribe", "solm", "prev", "nosp", "not_", "beg")
        n = truth.vocab.eot
        assert texts[0][:n] == texts[1][:n]
        assert [getattr(found.vocab, name) for name in specials] == [getattr(truth.vocab, name) for name in specials]
