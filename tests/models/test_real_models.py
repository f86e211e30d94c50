"""The real models that packages carry, converted: compared with published files, and heard by whisper.cpp."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests import data
from tests.oracle.reader import read_model
from whispyx.models import SAMPLES

LOST = "\N{REPLACEMENT CHARACTER}".encode()
TRANSCRIBE = """
import sys
from pywhispercpp.model import Model
model = Model(sys.argv[1], n_threads=2, print_progress=False, print_realtime=False, redirect_whispercpp_logs_to=None)
print("TEXT:", " ".join(segment.text for segment in model.transcribe(sys.argv[2], language="en")))
"""


@pytest.mark.parametrize("name", ["tiny.en", "base"])
def test_settings_filters_and_vocabulary_equal_the_published_ones(name: str) -> None:
    ours = read_model(data.or_skip(data.model_file, name))
    published = read_model(data.or_skip(data.for_tests_model, name))
    assert ours.settings == published.settings
    assert np.array_equal(ours.filters, published.filters)
    # The English-only file also stores the end-of-text token; readers make its text up when it is not stored.
    extra = published.tokens[len(ours.tokens) :]
    assert extra in ([], [b"<|endoftext|>"])
    differing = [
        (mine, theirs)
        for mine, theirs in zip(ours.tokens, published.tokens, strict=False)
        if mine != theirs and LOST not in theirs
    ]
    assert differing == []
    lossy = [theirs for theirs in published.tokens if LOST in theirs]
    assert lossy, "the comparison expects a published vocabulary that lost bytes"
    assert len(set(ours.tokens)) == len(ours.tokens), "raw bytes keep all tokens apart"


@pytest.mark.parametrize("name", ["tiny.en", "base"])
def test_the_position_table_of_the_encoder_is_sinusoidal(name: str) -> None:
    """The encoder's positions are not learned: sin and cos at wavelengths from 2 pi to 10000 * 2 pi."""
    table = read_model(data.or_skip(data.model_file, name))["encoder.positional_embedding"]
    n_ctx, width = table.shape
    half = width // 2
    rates = np.exp(-np.log(10000.0) / (half - 1) * np.arange(half))
    angles = np.arange(n_ctx)[:, None] * rates
    expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    float16_step = 2.0**-11
    assert np.abs(table - expected).max() < float16_step


@pytest.mark.parametrize("name", ["tiny.en", "base"])
def test_whisper_cpp_reads_the_file_and_hears_the_words(name: str, whispercpp_python: Path) -> None:
    model, wav = data.or_skip(data.model_file, name), data.or_skip(data.jfk_wav)
    result = subprocess.run(
        [str(whispercpp_python), "-c", TRANSCRIBE, str(model), str(wav)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    heard = result.stdout.rpartition("TEXT:")[2]
    assert re.findall(r"[a-z]+", heard.lower()) == re.findall(r"[a-z]+", SAMPLES["jfk"].text.lower())
