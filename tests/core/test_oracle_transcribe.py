"""Whole greedy transcriptions against the oracle: the same tokens, times and segments, with random weights.

Seeds were chosen so that the oracle is never in two minds: at each step the token it took leads by more than what the
engine's arithmetic may move the logits. A test says so first, before it compares.
"""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.core.tiny import Pair, pair, recipe_of
from tests.oracle import mel as oracle_mel
from tests.oracle.greedy import LANGUAGES, Transcriber, Transcript
from tests.oracle.rules import Settings
from tests.oracle.tiny_model import TinyModel, speechlike
from whispyx._core.lang import detect_language
from whispyx._core.params import FullParams
from whispyx._core.run import full

FLASH = pytest.mark.parametrize("flash_attn", [False, True], ids=["plain", "flash"])

# Logits of these models spread by 2.5. The drifts seen in test_oracle_stages: 0.02 with f16 weights, 0.05 with bf16,
# 0.3 with quantised ones (0.5 for single values out of 50,000). A lead of twice the drift cannot be lost.
SMALLEST_LEAD = {"f32": 0.04, "f16": 0.04, "bf16": 0.12}
SMALLEST_LEAD_QUANTISED = 0.55
# A drift d of the logits changes a probability p by at most p (1 - p) 2 d.
PROBABILITY_TOLERANCE = {"f32": 0.01, "f16": 0.01, "bf16": 0.03}
PROBABILITY_TOLERANCE_QUANTISED = 0.15


@dataclass(frozen=True)
class Trial:
    """A model, so many seconds of sound, and settings."""

    seed: int
    seconds: float
    settings: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)

    @property
    def recipe(self) -> TinyModel:
        kind = self.model.get("weight_type", "f16")
        return recipe_of(kind, seed=self.seed, **{k: v for k, v in self.model.items() if k != "weight_type"})


QUANTISED_SEEDS = {"q8_0": 3, "q5_0": 3, "q5_1": 3, "q4_0": 15, "q4_1": 2}
QUANTISED_SEEDS |= {"q2_k": 1, "q3_k": 6, "q4_k": 17, "q5_k": 8, "q6_k": 1}
TRIALS = {
    "English, two windows": Trial(3, 41),
    "English, four windows": Trial(32, 95, model={"end_after": 14}),
    "English, windows that fail": Trial(6, 95, model={"end_after": 14}),
    "English, a window that fails": Trial(7, 41),
    "multilingual": Trial(11, 41, model={"n_vocab": 51865}),
    "multilingual, three segments": Trial(3, 41, model={"n_vocab": 51865}),
    "100 languages": Trial(11, 41, model={"n_vocab": 51866}),
    "100 languages, a window that fails": Trial(5, 41, model={"n_vocab": 51866}),
    "translation from German": Trial(1, 20, {"language": "de", "translate": True}, {"n_vocab": 51865}),
    "Cantonese": Trial(5, 20, {"language": "yue"}, {"n_vocab": 51866}),
    "no timestamps": Trial(3, 41, {"no_timestamps": True}),
    "first distilled models": Trial(1, 41, model={"n_text_layer": 2}),
    "single segment": Trial(3, 41, {"single_segment": True}),
    "from 5 s on for 12 s": Trial(8, 30, {"offset_ms": 5000, "duration_ms": 12000}),
    "initial prompt": Trial(9, 20, {"initial_prompt": " bada bide, Don't 42"}),
    "few tokens a window": Trial(7, 20, {"max_tokens": 5}),
    "blank allowed": Trial(3, 20, {"suppress_blank": False}),
    "first timestamp free": Trial(3, 20, {"max_initial_ts": 0.0}),
    "short audio context": Trial(3, 20, {"audio_ctx": 50}),
    "full audio context": Trial(2, 20, model={"n_audio_ctx": 1500}),
    "short history": Trial(56, 70, {"n_max_text_ctx": 8}),
    "no history": Trial(43, 70, {"n_max_text_ctx": 0}),
    "short text context": Trial(3, 20, model={"n_text_ctx": 64, "end_after": 100}),
    "f32": Trial(3, 41, model={"weight_type": "f32"}),
    "bf16": Trial(3, 30, model={"weight_type": "bf16"}),
    **{kind: Trial(seed, 12, model={"weight_type": kind, "end_after": 5}) for kind, seed in QUANTISED_SEEDS.items()},
}


@functools.cache
def truth_of(name: str) -> Transcript:
    """What the oracle makes of a trial."""
    trial = TRIALS[name]
    samples = speechlike(trial.seconds, trial.seed)
    return Transcriber(pair(trial.recipe).net, Settings(**trial.settings)).run(samples)


def run_core(both: Pair, flash_attn: bool, samples: np.ndarray, settings: Settings) -> Any:
    fields = {name: value for name, value in asdict(settings).items() if value not in ("", ())}
    with both.context(flash_attn) as ctx, ctx.new_state() as state:
        return full(ctx, state, FullParams(n_threads=2, temperature_inc=0.0, **fields), samples)


@FLASH
@pytest.mark.parametrize("name", TRIALS)
def test_transcription_equals_the_oracle(name: str, flash_attn: bool) -> None:
    trial = TRIALS[name]
    kind = trial.recipe.weight_type
    both, samples, settings = pair(trial.recipe), speechlike(trial.seconds, trial.seed), Settings(**trial.settings)
    truth = truth_of(name)
    print(f"{len(truth.windows)} windows, {len(truth.tokens)} tokens, smallest lead {truth.margin:.3f}")
    assert truth.segments
    assert truth.margin > SMALLEST_LEAD.get(kind, SMALLEST_LEAD_QUANTISED)

    result = run_core(both, flash_attn, samples, settings)
    ours = [(s.t0, s.t1, s.text, [t.id for t in s.tokens]) for s in result.segments]
    # Random tokens often are bytes of no character, which texts leave out (docs/differences.md).
    assert ours == [(s.t0, s.t1, s.text.decode("utf-8", "ignore").encode(), s.tokens) for s in truth.segments]

    picks = iter([pick for _, attempt in truth.windows for pick in attempt.kept])
    drift = no_speech = 0.0
    for segment, expected in zip(result.segments, truth.segments, strict=True):
        no_speech = max(no_speech, abs(segment.no_speech_prob - expected.no_speech_prob))
        for token in segment.tokens:
            pick = next(p for p in picks if p.id == token.id)  # timestamps between segments belong to none
            assert token.tid == pick.tid or pick.id < both.net.s["n_vocab"] - 1501
            drift = max(drift, abs(token.p - pick.p))
    print(f"largest difference of a probability {drift:.1e}, of the no-speech probability {no_speech:.1e}")
    bound = PROBABILITY_TOLERANCE.get(kind, PROBABILITY_TOLERANCE_QUANTISED)
    assert drift <= bound
    assert no_speech <= bound


@pytest.mark.parametrize("n_samples", [0, 1, 159, 160, 1599])
def test_sound_under_a_tenth_of_a_second_gives_no_segments(n_samples: int) -> None:
    both = pair(TinyModel(seed=3))
    samples = speechlike(1.0)[:n_samples]
    assert not run_core(both, True, samples, Settings()).segments


def test_an_offset_behind_the_sound_gives_no_segments() -> None:
    both = pair(TinyModel(seed=3))
    assert not run_core(both, True, speechlike(3.0), Settings(offset_ms=3000)).segments


def test_a_second_run_equals_the_first() -> None:
    """On one state, also after another sound and another audio context: nothing may be left behind."""
    both = pair(TinyModel(seed=3))
    params = FullParams(n_threads=2, temperature_inc=0.0)
    short = FullParams(n_threads=2, temperature_inc=0.0, audio_ctx=30)
    with both.context(True) as ctx, ctx.new_state() as state:
        first = full(ctx, state, params, speechlike(41.0, 3))
        full(ctx, state, short, speechlike(5.0, 4))
        second = full(ctx, state, params, speechlike(41.0, 3))
    assert first.segments == second.segments


@FLASH
@pytest.mark.parametrize("n_vocab", [51865, 51866])
def test_language_probabilities_equal_the_oracle(n_vocab: int, flash_attn: bool) -> None:
    both = pair(TinyModel(n_vocab=n_vocab, seed=5))
    samples = speechlike(6.0, 5)
    transcriber = Transcriber(both.net)
    mel = oracle_mel.log_mel(samples, both.model.filters)
    with both.context(flash_attn) as ctx, ctx.new_state() as state:
        for offset_ms in (0, 2500):
            truth = transcriber.detect_language(mel, offset_ms // 10)
            best, ours = detect_language(ctx, state, samples, 2, offset_ms)
            ours = np.asarray(ours)[: len(truth)]
            print(f"languages from {offset_ms} ms: largest difference {np.abs(ours - truth).max():.1e}")
            assert np.abs(ours - truth).max() <= PROBABILITY_TOLERANCE["f16"]
            assert best == int(np.argmax(truth))
            assert 0 <= best < len(LANGUAGES)
