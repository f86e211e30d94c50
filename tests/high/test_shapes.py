"""Distilled models, those of 128 mel bands and English-only ones, very narrow: every form says the same tokens."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import pytest

import whispyx.plugins
from tests.models.formats.same_weights import MAKERS
from tests.oracle.greedy import Transcriber, Transcript
from tests.oracle.network import Whisper
from tests.oracle.reader import ModelFile, read_model
from tests.oracle.rules import Settings
from tests.oracle.tiny_model import TinyModel, speechlike
from whispyx import Model, inspect_model
from whispyx.conversion import convert

SHAPES = {
    "distil-large-v3": TinyModel(n_vocab=51866, n_mels=128, n_audio_layer=5, n_text_layer=2, seed=12),
    "distil-large-v2": TinyModel(n_vocab=51865, n_audio_layer=5, n_text_layer=2, seed=4),
    "distil-small.en": TinyModel(n_audio_layer=4, n_text_layer=2, seed=11),
    "large-v3-turbo": TinyModel(n_vocab=51866, n_mels=128, n_audio_layer=5, n_text_layer=4, seed=1),
    "large-v3": TinyModel(n_vocab=51866, n_mels=128, n_audio_layer=4, n_text_layer=4, seed=1),
    "small.en": TinyModel(n_audio_layer=4, n_text_layer=4, seed=11),
}
SOUND = speechlike(12.0, 3)
SMALLEST_LEAD = 0.04  # as in tests/core/test_oracle_transcribe.py, for f16
UNTIMED = ("distil-large-v2", "distil-small.en")


@pytest.fixture(scope="module", autouse=True)
def plugins() -> None:
    whispyx.plugins.load()


@functools.cache
def file_of(name: str) -> ModelFile:
    with tempfile.TemporaryDirectory() as folder:
        return read_model(SHAPES[name].write(Path(folder) / "model.bin"))


@functools.cache
def truth_of(name: str) -> Transcript:
    return Transcriber(Whisper(file_of(name)), Settings()).run(SOUND)


def tokens_of(source: Any, compute: Any) -> list[list[int]]:
    with Model(source, "cpu", compute=compute) as model:
        return [[token.id for token in one.tokens] for one in model.transcribe(SOUND, "en", temperature_inc=0.0)]


@pytest.mark.parametrize("form", ["ggml", "ours", *MAKERS])
@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_says_the_same_in_every_form(name: str, form: str, tmp_path: Path) -> None:
    truth, shape = truth_of(name), SHAPES[name]
    assert truth.margin > SMALLEST_LEAD
    expected = [segment.tokens for segment in truth.segments]
    assert expected and (name in UNTIMED) == all(token < 50363 for tokens in expected for token in tokens)
    path = shape.write(tmp_path / "model.bin")
    if form == "ours":
        convert(path, tmp_path / "ours.gguf")
        path = tmp_path / "ours.gguf"
    elif form != "ggml":
        path = MAKERS[form](file_of(name), tmp_path / "made" / form, None)
    assert tokens_of(path, "exact") == expected
    assert tokens_of(path, "auto") == tokens_of(tmp_path / "model.bin", "auto")
    found = inspect_model(path)
    assert (found.n_mels, found.n_text_layer, found.n_vocab) == (shape.n_mels, shape.n_text_layer, shape.n_vocab)
    assert len(found.languages) == {51864: 1, 51865: 99, 51866: 100}[shape.n_vocab]
