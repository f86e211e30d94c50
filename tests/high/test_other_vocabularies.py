"""Fine-tuned models with tokens behind the timestamps: rows that fill the embedding up, and words of their own.

What is right is known from elsewhere: a filled-up model says what the model in it says, and the oracle tells what one
with added words does.
"""

from __future__ import annotations

import functools
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whispyx.plugins
from tests.models.formats.same_weights import MAKERS, special_of, special_texts
from tests.oracle.greedy import Transcriber, Transcript
from tests.oracle.network import Whisper
from tests.oracle.quants import ENCODINGS, encode
from tests.oracle.reader import ModelFile, read_model
from tests.oracle.rules import Settings
from tests.oracle.tiny_model import TinyModel, record, speechlike
from tests.oracle.tokens import Special
from whispyx import Model, ModelFormatError, ParamsError, inspect_model
from whispyx.conversion import convert, verify
from whispyx.models.formats.opening import open_model

FORMS = ("ggml", "gguf", "huggingface", "ctranslate2", "ours")
COMPUTE = ("exact", "auto")
SECONDS = 12.0
# n_vocab of the file, and the model that it begins with.
PADDED = {
    51904: TinyModel(n_vocab=51865, seed=3),
    51968: TinyModel(n_vocab=51866, n_mels=128, seed=5),
    51872: TinyModel(seed=3),
}
WORDS = {
    51868: TinyModel(n_vocab=51865, seed=3),
    51871: TinyModel(n_vocab=51866, n_mels=128, seed=12),
    51867: TinyModel(seed=6),
}
SMALLEST_LEAD = 0.04  # as in tests/core/test_oracle_transcribe.py, for f16
SMALLEST_LEAD_BF16 = 0.12


@pytest.fixture(scope="module", autouse=True)
def plugins() -> None:
    whispyx.plugins.load()


@functools.cache
def inner_of(recipe: TinyModel) -> ModelFile:
    with tempfile.TemporaryDirectory() as folder:
        return read_model(recipe.write(Path(folder) / "model.bin"))


@functools.cache
def enlarged(n_vocab: int, words: bool) -> ModelFile:
    """A model with more rows in its embedding: those of what it says, but louder, with texts or without."""
    recipe = (WORDS if words else PADDED)[n_vocab]
    file = inner_of(recipe)
    table = file["decoder.token_embedding.weight"]
    said = [token for one in heard(recipe.to_bytes(), "exact") for token in one[3] if token < special_of(file).eot]
    n_more = n_vocab - len(table)
    louder = np.linspace(1.1, 1.4, n_more)[:, None]  # no two alike
    more = louder * table[np.resize(list(dict.fromkeys(said)), n_more)]
    tensors = {**file.tensors, "decoder.token_embedding.weight": np.concatenate([table, more]).astype(np.float32)}
    tokens = list(file.tokens)
    out = replace(file, settings={**file.settings, "n_vocab": n_vocab}, tensors=tensors)
    if words:
        texts = [f" Zusatzwört{i}" for i in range(len(more))]
        tokens += [text.encode() for text in special_texts(out) + texts]
    return replace(out, tokens=tokens)


def ggml(file: ModelFile, path: Path) -> Path:
    """A file of whisper.cpp's layout."""
    head = TinyModel().to_bytes()[:4] + np.array(list(file.settings.values()), "<i4").tobytes()
    parts = [head, np.array(file.filters.shape, "<i4").tobytes(), file.filters.astype("<f4").tobytes()]
    parts.append(np.array([len(file.tokens)], "<i4").tobytes())
    parts += [len(token).to_bytes(4, "little") + token for token in file.tokens]
    for name, array in file.tensors.items():
        kind = file.types[name]
        assert kind in ENCODINGS
        parts += [record(name, array.shape, kind), encode(kind, array)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(parts))
    return path


def made(file: ModelFile, form: str, folder: Path) -> Path:
    if form == "ggml":
        return ggml(file, folder / "model.bin")
    if form == "ours":
        convert(MAKERS["huggingface"](file, folder / "from", None), folder / "ours.gguf")
        return folder / "ours.gguf"
    return MAKERS[form](file, folder / form, None)


def spoken(model: Model, **options: Any) -> list[tuple[float, float, str, list[int]]]:
    found = model.transcribe(speechlike(SECONDS, 3), "en", temperature_inc=0.0, **options)
    return [(one.start, one.end, one.text, [token.id for token in one.tokens]) for one in found]


def heard(source: Any, compute: Any, **options: Any) -> list[tuple[float, float, str, list[int]]]:
    with Model(source, "cpu", compute=compute) as model:
        return spoken(model, **options)


@pytest.mark.parametrize("compute", COMPUTE)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_vocab", PADDED)
def test_a_model_that_is_filled_up_says_what_the_model_in_it_says(
    n_vocab: int, form: str, compute: str, tmp_path: Path
) -> None:
    # In the same form: computed mel filters differ from stored ones in the last bit, and random draws show it.
    inner = made(inner_of(PADDED[n_vocab]), form, tmp_path / "inner")
    path = made(enlarged(n_vocab, words=False), form, tmp_path)
    with Model(inner, "cpu", compute=compute) as truth, Model(path, "cpu", compute=compute) as model:
        for options in ({}, {"beam_size": 3}, {"temperature": 0.8, "seed": 5}, {"timestamps": False}):
            expected = spoken(truth, **options)
            assert any(one[2] for one in expected)
            assert spoken(model, **options) == expected
    found, known = inspect_model(path), inspect_model(inner)
    assert found.n_vocab == n_vocab and found.special == known.special
    assert (found.languages, found.multilingual) == (known.languages, known.multilingual)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_vocab", PADDED)
def test_what_fills_a_model_up_is_left_out_of_a_file_of_whisper_cpp(n_vocab: int, form: str, tmp_path: Path) -> None:
    inner, padded = tmp_path / "inner.bin", tmp_path / "padded.bin"
    convert(made(inner_of(PADDED[n_vocab]), form, tmp_path / "inner"), inner)
    source = made(enlarged(n_vocab, words=False), form, tmp_path / "padded")
    report = convert(source, padded)
    assert padded.read_bytes() == inner.read_bytes()
    assert inspect_model(padded).n_vocab == PADDED[n_vocab].n_vocab
    found = verify(source, padded, speechlike(SECONDS, 3), "en")
    assert found.equal and found.n_tokens > 0
    # Padding has no probability in either; f32 sums of a smaller matrix run in another order.
    assert found.largest_difference is not None and found.largest_difference < 1e-4
    assert report.tensors  # and the report is of what was written
    assert sum(one.bytes_after for one in report.tensors) < padded.stat().st_size


@functools.cache
def truth_of(n_vocab: int) -> Transcript:
    file = enlarged(n_vocab, words=True)
    return Transcriber(Whisper(file), Settings(), special=special_of(file)).run(speechlike(SECONDS, 3))


@pytest.mark.parametrize("compute", COMPUTE)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_vocab", WORDS)
def test_words_behind_the_timestamps_are_text(n_vocab: int, form: str, compute: str, tmp_path: Path) -> None:
    file = enlarged(n_vocab, words=True)
    special, truth = special_of(file), truth_of(n_vocab)
    said = [token for segment in truth.segments for token in segment.tokens]
    print(f"{len(said)} tokens, {sum(token >= special.end for token in said)} added words, lead {truth.margin:.3f}")
    assert any(token >= special.end for token in said)
    assert truth.margin > (SMALLEST_LEAD if compute == "exact" else SMALLEST_LEAD_BF16)
    found = heard(made(file, form, tmp_path), compute)
    assert [one[3] for one in found] == [segment.tokens for segment in truth.segments]
    assert "".join(one[2] for one in found) == b"".join(one.text for one in truth.segments).decode("utf-8", "ignore")
    assert any("Zusatzwört" in one[2] for one in found)


@pytest.mark.parametrize("form", FORMS)
def test_added_words_can_be_prompted_suppressed_and_told_from_special_tokens(form: str, tmp_path: Path) -> None:
    file = enlarged(51868, words=True)
    path = made(file, form, tmp_path)
    end = Special.of(51865).end
    plain, without = heard(path, "exact"), heard(path, "exact", suppress_regex="Zusatz")
    assert "Zusatz" in plain[0][2] and without and all("Zusatz" not in one[2] for one in without)
    assert all(token < end for one in without for token in one[3])
    with Model(path, "cpu", compute="exact") as model:
        vocab = model._context.vocab
        assert vocab.end == end and vocab.words == frozenset(range(end, 51868)) and vocab.unused == []
        assert vocab.tokenize("da Zusatzwört2 Zusatzwört0") == [*vocab.tokenize("da"), end + 2, end]
        assert vocab.token_id(" Zusatzwört1".encode()) == end + 1
        tokens = [token for segment in model.transcribe(speechlike(SECONDS, 3), "en") for token in segment.tokens]
    assert {token.special for token in tokens if token.id >= end} == {False}
    assert {token.special for token in tokens if vocab.eot <= token.id < end} == {True}


def test_a_token_that_looks_special_behind_the_timestamps_is_said_and_not_shown(tmp_path: Path) -> None:
    file = enlarged(51871, words=True)
    end = Special.of(51866).end
    plain = heard(made(file, "ggml", tmp_path), "exact")
    assert any(token >= end for one in plain for token in one[3])
    masked = replace(file, tokens=[*file.tokens[:end], *(b"<|%d|>" % i for i in range(5))])
    for form in FORMS:
        found = heard(made(masked, form, tmp_path / form), "exact")
        assert [token for one in found for token in one[3]] == [token for one in plain for token in one[3]]
        assert all("<|" not in one[2] and "Zusatz" not in one[2] for one in found)


def test_a_checkpoint_without_a_vocabulary_of_its_own_is_refused(tmp_path: Path) -> None:
    file = enlarged(51904, words=False)
    with pytest.raises(ModelFormatError, match="51904 tokens"):
        Model(MAKERS["openai"](file, tmp_path / "model.pt", None))


def test_an_english_model_with_an_added_word_is_no_multilingual_one(tmp_path: Path) -> None:
    """It has as many tokens as multilingual models."""
    file = enlarged(51867, words=True)
    cut = {**file.tensors, "decoder.token_embedding.weight": file["decoder.token_embedding.weight"][:51865]}
    smaller = replace(file, tensors=cut, tokens=file.tokens[:51865])
    path = MAKERS["huggingface"](smaller, tmp_path / "folder", None)
    config = path / "config.json"
    config.write_text(config.read_text().replace("51867", "51865"))
    for source in (path, tmp_path / "again.gguf"):
        if source != path:
            convert(path, source)
        with open_model(source) as manifest:
            assert manifest.settings.n_vocab == 51865 and not manifest.vocabulary.multilingual
        found = inspect_model(source)
        assert not found.multilingual and found.special["beg"] == 50363


@pytest.mark.parametrize("form", ["huggingface", "gguf"])
def test_whisper_cpp_s_layout_is_not_written_for_such_models(form: str, tmp_path: Path) -> None:
    """whisper.cpp would take each further token for one more language."""
    file = enlarged(51868, words=True)
    with pytest.raises(ParamsError, match="write GGUF"):
        convert(made(file, form, tmp_path), tmp_path / "model.bin")
