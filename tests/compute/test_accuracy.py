"""The gate of `compute="auto"`: the words of real speech are those of full precision."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import soundfile

import whispyx.plugins
from tests import data
from whispyx._core.context import Context
from whispyx._core.params import FullParams
from whispyx._core.run import full
from whispyx.plugins import kernels

pytestmark = pytest.mark.skipif(
    not any(record.score for record in kernels.records()), reason="no kernels for this machine"
)

JFK = "and so my fellow americans ask not what your country can do for you ask what you can do for your country"

# How far the logarithm of a probability may lie from full precision, root mean square over all tokens above e^-8, after
# the text of a clip. "exact" itself (f16 weights and activations) is some 0.02 away; bf16 has an eighth of its digits,
# in twelve layers one after the other, and 8 bits with a scale per 64, as most of "auto" has, are little further away.
BOUND = {"auto": 0.1, "bf16": 0.1, "f32": 0.03, "int8": 0.5}
FIRST_TOKEN = {"auto": 0.05, "bf16": 0.05, "f32": 0.01, "int8": 0.3}
"""The same for the most probable first token alone."""


def words(text: str) -> list[str]:
    return re.sub(r"[^a-z' ]", " ", text.lower()).split()


def errors(truth: list[str], found: list[str]) -> int:
    """Least number of words to put in, take out or change (Levenshtein)."""
    row = list(range(len(found) + 1))
    for i, word in enumerate(truth, 1):
        last, row[0] = row[0], i
        for j, other in enumerate(found, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (word != other))
    return row[-1]


def clips() -> dict[str, tuple[Any, str | None]]:
    """Samples and, where it is known, what is said."""
    found: dict[str, tuple[Any, str | None]] = {"jfk": (data.or_skip(data.jfk_wav), JFK)}
    found |= {clip.wav.stem: (clip.wav, clip.text) for clip in data.or_skip(data.librivox_clips)}
    found["lecture"] = (data.or_skip(data.lecture_wav), None)
    return {name: (soundfile.read(path, dtype="float32")[0], text) for name, (path, text) in found.items()}


def open_model(name: str, compute: str) -> Any:
    whispyx.plugins.load()
    return Context.load(str(data.or_skip(data.model_file, name)), compute=compute)


def texts(name: str, compute: str, sounds: dict[str, tuple[Any, str | None]]) -> dict[str, str]:
    params = FullParams(language="en", n_threads=2, no_context=True)
    with open_model(name, compute) as ctx, ctx.new_state() as state:
        return {
            clip: b"".join(s.text for s in full(ctx, state, params, samples).segments).decode()
            for clip, (samples, _) in sounds.items()
        }


@pytest.mark.parametrize("name", ["base", "tiny.en"])
def test_auto_recognises_the_words_of_exact_and_f32(name: str) -> None:
    sounds = clips()
    exact, f32, auto = (texts(name, compute, sounds) for compute in ("exact", "f32", "auto"))
    assert f32 == exact
    assert auto == exact
    known = {clip: words(text) for clip, (_, text) in sounds.items() if text is not None}
    total = sum(len(text) for text in known.values())
    rate = {
        label: 100.0 * sum(errors(text, words(found[clip])) for clip, text in known.items()) / total
        for label, found in (("exact", exact), ("f32", f32), ("auto", auto))
    }
    print(f"{name}: word error rates {rate}, {total} words")
    assert abs(rate["auto"] - rate["f32"]) <= 0.1
    assert rate["auto"] < 12.0  # the clips are clear speech


def test_int8_costs_few_words() -> None:
    sounds = {name: clip for name, clip in clips().items() if clip[1] is not None}
    f32, int8 = (texts("base", compute, sounds) for compute in ("f32", "int8"))
    total = sum(len(words(text or "")) for _, text in sounds.values())
    rates = [
        100.0 * sum(errors(words(text or ""), words(found[clip])) for clip, (_, text) in sounds.items()) / total
        for found in (f32, int8)
    ]
    print(f"base: word error rates, f32 {rates[0]:.2f} %, int8 {rates[1]:.2f} %, {total} words")
    assert abs(rates[1] - rates[0]) <= 2.0  # one or two words of some hundred


def log_probs(ctx: Any, samples: Any, tokens: list[int]) -> Any:
    with ctx.new_state() as state:
        state.pcm_to_mel(samples)
        state.encode(0, 2)
        state.decode(tokens, n_threads=2, all_logits=True)
        logits = state.logits().astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


@pytest.mark.parametrize("name", ["base", "tiny.en"])
def test_probabilities_are_near_those_of_full_precision(name: str) -> None:
    samples = clips()["jfk"][0]
    with open_model(name, "f32") as ctx, ctx.new_state() as state:
        result = full(ctx, state, FullParams(language="en", n_threads=2), samples)
        vocab = ctx.vocab
        task = [vocab.sot, vocab.sot + 1, vocab.transcribe] if vocab.is_multilingual else [vocab.sot]
        tokens = task + [token.id for segment in result.segments for token in segment.tokens]
        truth = log_probs(ctx, samples, tokens)
    for compute in BOUND:
        with open_model(name, compute) as ctx:
            found = log_probs(ctx, samples, tokens)
        likely = truth > -8.0
        away = float(np.sqrt(((found - truth)[likely] ** 2).mean()))
        first = len(task) - 1
        best = truth[first].argmax()
        one = abs(found[first, best] - truth[first, best])
        print(f"{name} {compute}: {away:.4f}, first token {one:.4f}")
        assert away <= BOUND[compute]
        assert one <= FIRST_TOKEN[compute]
