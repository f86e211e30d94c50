"""Beam search: the same texts as the oracle's, and what its parameters do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.core.tiny import pair, recipe_of
from tests.oracle.beam import BeamTranscriber
from tests.oracle.rules import Settings
from tests.oracle.tiny_model import speechlike
from whispyx._core.params import FullParams
from whispyx._core.run import full
from whispyx.errors import ParamsError

SMALLEST_MARGIN = 0.003  # between totals of f32 models, whose logits drift by 1e-4; see test_oracle_transcribe
SECONDS = 20
TRIALS = [(2, 1), (2, 2), (2, 5), (5, 1), (5, 3), (5, 5)]  # beams, seed


def models(seed: int, **changes: Any) -> Any:
    return pair(recipe_of("f32", seed=seed, end_after=10, **changes))


def run(ctx: Any, state: Any, samples: np.ndarray, **fields: Any) -> Any:
    params = {"n_threads": 1, "temperature_inc": 0.0, "strategy": "beam_search", **fields}
    return full(ctx, state, FullParams(**params), samples)


def segments_of(result: Any) -> list[tuple[int, int, list[int]]]:
    return [(s.t0, s.t1, [t.id for t in s.tokens]) for s in result.segments]


@pytest.mark.parametrize(("n_beams", "seed"), TRIALS)
def test_beam_search_gives_the_texts_of_the_oracle(n_beams: int, seed: int) -> None:
    both, samples = models(seed), speechlike(SECONDS, seed)
    truth = BeamTranscriber(both.net, Settings(), n_beams).run(samples)
    assert truth.margin > SMALLEST_MARGIN and truth.segments
    with both.context(False) as ctx, ctx.new_state() as state:
        result = run(ctx, state, samples, beam_size=n_beams)
    assert segments_of(result) == [(s.t0, s.t1, s.tokens) for s in truth.segments]


def test_one_beam_is_greedy() -> None:
    samples = speechlike(SECONDS, 5)
    with models(5).context(True) as ctx, ctx.new_state() as state:
        assert segments_of(run(ctx, state, samples, beam_size=1)) == segments_of(
            run(ctx, state, samples, strategy="greedy")
        )


def test_beams_find_a_text_at_least_as_probable_as_the_greedy_one() -> None:
    better = 0
    for seed in (1, 2, 3, 5, 7):
        samples = speechlike(SECONDS, seed)
        with models(seed).context(True) as ctx, ctx.new_state() as state:
            greedy = run(ctx, state, samples, strategy="greedy").windows[0].avg_logprob
            beams = run(ctx, state, samples, beam_size=8).windows[0].avg_logprob
        better += beams > greedy
    assert better >= 3  # nothing says so of each single text: a beam may lose the best beginning


@pytest.mark.parametrize("n_beams", range(1, 9))
def test_every_size_up_to_eight_works_and_leaves_the_cache_grown(n_beams: int) -> None:
    samples = speechlike(SECONDS, 2)
    with models(2).context(True) as ctx, ctx.new_state() as state:
        assert run(ctx, state, samples, beam_size=n_beams).segments
        assert state.n_decoders == n_beams


@pytest.mark.parametrize("n_beams", [0, -1, 9, 100, 1.5, True])
def test_other_sizes_are_refused_and_the_limit_is_named(n_beams: Any) -> None:
    with pytest.raises(ParamsError, match="beam_size"):
        FullParams(beam_size=n_beams)


def test_beams_that_are_not_drawn_do_not_depend_on_the_seed() -> None:
    samples = speechlike(SECONDS, 3)
    with models(3).context(True) as ctx, ctx.new_state() as state:
        assert segments_of(run(ctx, state, samples, seed=1)) == segments_of(run(ctx, state, samples, seed=2))


def test_drawn_beams_repeat_with_their_seed_and_differ_between_seeds() -> None:
    samples = speechlike(SECONDS, 3)
    with models(3).context(True) as ctx, ctx.new_state() as state:
        texts = [segments_of(run(ctx, state, samples, reference_sampling=True, seed=seed)) for seed in (0, 0, 1, 2, 3)]
    assert texts[0] == texts[1]
    assert len({str(text) for text in texts}) > 1


def test_patience_collects_more_texts_and_never_ends_with_a_worse_one() -> None:
    better = 0
    for seed in range(1, 9):
        samples = speechlike(SECONDS, seed)
        with pair(recipe_of("f32", seed=seed, n_text_ctx=64)).context(True) as ctx, ctx.new_state() as state:
            first = run(ctx, state, samples, beam_size=3, patience=1.0)
            more = run(ctx, state, samples, beam_size=3, patience=3.0)
        assert more.timings.n_sample > first.timings.n_sample
        assert more.windows[0].avg_logprob >= first.windows[0].avg_logprob - 1e-5
        better += more.windows[0].avg_logprob > first.windows[0].avg_logprob + 1e-3
    assert better, "patience had no effect on any of eight models"


def test_patience_without_beams_is_refused() -> None:
    with models(1).context(True) as ctx, ctx.new_state() as state, pytest.raises(ParamsError, match="patience"):
        run(ctx, state, speechlike(2, 1), strategy="greedy", patience=2.0)


def test_a_state_used_for_beams_gives_the_same_greedy_text_afterwards() -> None:
    samples = speechlike(SECONDS, 4)
    with models(4).context(True) as ctx, ctx.new_state() as state:
        before = segments_of(run(ctx, state, samples, strategy="greedy"))
        run(ctx, state, samples, beam_size=8)
        assert segments_of(run(ctx, state, samples, strategy="greedy")) == before


def test_at_a_higher_temperature_candidates_are_drawn() -> None:
    samples = speechlike(SECONDS, 3)
    with models(3).context(True) as ctx, ctx.new_state() as state:
        texts = {str(segments_of(run(ctx, state, samples, temperature=1.0, best_of=2, seed=s))) for s in range(4)}
    assert len(texts) > 1
