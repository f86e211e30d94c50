"""Regions side by side: token for token what each gives alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import soundfile

import whispyx.plugins
from tests import data
from tests.core.tiny import pair
from tests.oracle.tiny_model import TinyModel, speechlike
from whispyx._core.batched import BatchRun, full_batch
from whispyx._core.context import Context
from whispyx._core.params import FullParams
from whispyx._core.run import full
from whispyx.errors import Aborted, AudioError, ParamsError
from whispyx.plugins import kernels

MODEL = TinyModel(n_vocab=51865, n_text_ctx=64, end_after=20)
RNG = np.random.default_rng(7)
COMPUTE = ("exact", *(("f32", "bf16", "mixed", "int8") if any(record.score for record in kernels.records()) else ()))


def record(results: list[Any]) -> list[Any]:
    """Everything that a result says of its tokens, segments and windows."""
    return [
        (
            result.language,
            [(s.t0, s.t1, s.text, [(t.id, t.plog, t.pt, t.t0, t.t1) for t in s.tokens]) for s in result.segments],
            [(w.t0, w.t1, w.temperature, w.avg_logprob, w.no_speech_prob, w.verdict) for w in result.windows],
        )
        for result in results
    ]


def context(compute: str, path: Any = None) -> Any:
    whispyx.plugins.load()
    return Context.load(str(pair(MODEL).path if path is None else path), compute=compute)


SOUNDS = [speechlike(seconds, seed=i) for i, seconds in enumerate((7.0, 3.1, 31.5, 0.0, 0.4, 9.0))]


@pytest.mark.parametrize("compute", COMPUTE)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"strategy": "beam_search", "beam_size": 3},
        {"temperature": 0.6, "best_of": 4},
        {"language": None},
        {"no_timestamps": True, "single_segment": True, "max_tokens": 9},
        {"logprob_thold": -0.01, "entropy_thold": 5.0, "temperature_inc": 0.5, "best_of": 2},
    ],
    ids=["greedy", "beams", "sampling", "language", "plain", "temperatures"],
)
def test_regions_side_by_side_give_what_each_gives_alone(compute: str, options: dict[str, Any]) -> None:
    params = FullParams(**{"language": "en", "no_context": True, "n_threads": 2, **options})
    with context(compute) as ctx, ctx.new_state() as state:
        alone = record([full(ctx, state, params, sound) for sound in SOUNDS])
        for together in (1, 4):
            assert record(full_batch(ctx, state, params, SOUNDS, together)) == alone


def test_a_real_model_gives_the_same_side_by_side() -> None:
    path = data.or_skip(data.model_file, "tiny.en")
    samples = soundfile.read(data.or_skip(data.jfk_wav), dtype="float32")[0]
    regions = [samples[: 16000 * n] for n in (11, 4, 7, 2)] + [samples[16000 * n :] for n in (2, 5, 8)]
    regions.append(RNG.normal(0, 0.05, 40000).astype(np.float32))
    params = FullParams(language="en", no_context=True, n_threads=2, best_of=2)
    for compute in COMPUTE:
        with context(compute, path) as ctx, ctx.new_state() as state:
            alone = record([full(ctx, state, params, region) for region in regions])
            assert record(full_batch(ctx, state, params, regions)) == alone


@pytest.mark.parametrize("compute", COMPUTE)
def test_a_state_works_alone_as_before_after_regions_side_by_side(compute: str) -> None:
    params = FullParams(language="en", no_context=True, n_threads=2)
    with context(compute) as ctx, ctx.new_state() as state:
        first = record([full(ctx, state, params, SOUNDS[0])])
        full_batch(ctx, state, params, SOUNDS[:4])
        assert record([full(ctx, state, params, SOUNDS[0])]) == first


def test_an_abort_leaves_what_was_recognised_and_a_state_that_works() -> None:
    calls = []

    def stop() -> bool:
        calls.append(1)
        return len(calls) > 40

    params = FullParams(language="en", no_context=True, n_threads=1)
    with context(COMPUTE[-1]) as ctx, ctx.new_state() as state:
        alone = record([full(ctx, state, params, SOUNDS[0])])
        stopped = params.copy()
        stopped.abort_callback = stop
        with pytest.raises(Aborted) as caught:
            full_batch(ctx, state, stopped, SOUNDS * 3, 2)
        assert isinstance(caught.value.partial, list)
        assert len(caught.value.partial) == 3 * len(SOUNDS)
        assert record([full(ctx, state, params, SOUNDS[0])]) == alone


def test_what_cannot_be_done_side_by_side_is_refused() -> None:
    with context("exact") as ctx, ctx.new_state() as state:
        plain = {"language": "en"}
        for name, value in (("vad", True), ("dtw", True), ("progress_callback", print)):
            with pytest.raises(ParamsError, match=name):
                BatchRun(ctx, state, FullParams(**plain, **{name: value}), SOUNDS)
        for together in (0, -3):
            with pytest.raises(ParamsError, match="together"):
                BatchRun(ctx, state, FullParams(**plain), SOUNDS, together)
        with pytest.raises(AudioError):
            BatchRun(ctx, state, FullParams(**plain), [None])
        with pytest.raises(AudioError):
            full_batch(ctx, state, FullParams(**plain), [SOUNDS[0], np.full(16000, np.nan, np.float32)])
        assert full_batch(ctx, state, FullParams(**plain), []) == []
