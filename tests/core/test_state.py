"""The working memory of a job: caches that grow, stages that check, states that refuse to be shared."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.core.tiny import pair
from tests.oracle.tiny_model import TinyModel
from whispyx._core import handles
from whispyx._core.context import Context
from whispyx._core.kvcache import pad256
from whispyx._core.params import FullParams
from whispyx._core.run import full
from whispyx._core.state import State
from whispyx.errors import ParamsError, StateError

SOUND = np.random.default_rng(3).normal(0, 0.1, 48000).astype(np.float32)


@pytest.fixture(params=[True, False], ids=["flash", "plain"])
def ctx(request: pytest.FixtureRequest) -> Iterator[Context]:
    context = pair(TinyModel(weight_type="f16")).context(request.param)
    yield context
    context.close()


@pytest.fixture
def state(ctx: Context) -> Iterator[State]:
    with State(ctx) as state:
        yield state


def test_cache_has_the_text_context_rounded_up_to_256_cells(ctx: Context, state: State) -> None:
    assert state.kv_cells == (pad256(ctx.hparams.n_text_ctx), 0)
    assert state.n_decoders == 1


def test_cache_grows_with_the_decoders_and_never_shrinks(ctx: Context, state: State) -> None:
    cells = pad256(ctx.hparams.n_text_ctx)
    full(ctx, state, FullParams(n_threads=1, temperature=0.8, temperature_inc=0.0, best_of=3), SOUND)
    assert (state.n_decoders, state.kv_cells[0]) == (3, cells * 5)
    full(ctx, state, FullParams(n_threads=1, temperature_inc=0.0), SOUND)
    assert (state.n_decoders, state.kv_cells[0]) == (3, cells * 5)


def test_a_grown_cache_gives_the_same_text_as_a_new_one(ctx: Context, state: State) -> None:
    greedy = FullParams(n_threads=1, temperature_inc=0.0)
    first = full(ctx, state, greedy, SOUND).segments
    full(ctx, state, FullParams(n_threads=1, temperature=1.0, temperature_inc=0.0, best_of=8), SOUND)
    assert full(ctx, state, greedy, SOUND).segments == first


def test_decoding_in_two_batches_equals_one(ctx: Context, state: State) -> None:
    tokens = [ctx.vocab.sot, 400, 500, 600, 700]
    state.pcm_to_mel(SOUND)
    state.encode(0, 1)
    state.decode(tokens, 0, 1)
    whole = state.logits()
    state.decode(tokens[:2], 0, 1)
    state.decode(tokens[2:], 2, 1)
    np.testing.assert_allclose(state.logits(), whole, atol=2e-2)  # f16 caches, other batch shapes


def test_positions_from_n_past_on_are_forgotten(ctx: Context, state: State) -> None:
    state.pcm_to_mel(SOUND)
    state.encode(0, 1)
    state.decode([ctx.vocab.sot, 10, 20, 30], 0, 1)
    state.decode([40], 2, 1)
    assert state.kv_cells[1] <= 4
    after = state.logits()
    state.decode([ctx.vocab.sot, 10, 40], 0, 1)
    np.testing.assert_allclose(state.logits(), after, atol=2e-2)


def test_padded_keys_and_values_give_the_same_encoder_output(ctx: Context) -> None:
    outputs = []
    for pad in (False, True):
        with State(ctx, pad_kv=pad) as state:
            state.pcm_to_mel(SOUND)
            state.encode(0, 1)
            outputs.append(state.tensor("encoder"))
    # The padded cache holds keys and values as f16, so it differs by their rounding; unmasked padding rows would
    # differ by far more (they take more than half of the attention of this 100-position model).
    np.testing.assert_allclose(outputs[1], outputs[0], atol=2e-2)


def test_a_state_takes_one_job_at_a_time(ctx: Context, state: State) -> None:
    seen: list[BaseException] = []

    def again(percent: int) -> None:
        with pytest.raises(StateError, match="in use") as error:
            full(ctx, state, FullParams(n_threads=1), SOUND)
        seen.append(error.value)
        with pytest.raises(StateError, match="in use"):
            state.close()

    full(ctx, state, FullParams(n_threads=1, temperature_inc=0.0, progress_callback=again), SOUND)
    assert seen
    assert full(ctx, state, FullParams(n_threads=1, temperature_inc=0.0), SOUND).segments is not None


def test_closing_twice_is_fine_and_use_after_it_is_refused(ctx: Context) -> None:
    state = State(ctx)
    state.close()
    state.close()
    with pytest.raises(StateError, match="closed"):
        state.pcm_to_mel(SOUND)
    ctx.close()
    with pytest.raises(StateError, match="closed"):
        State(ctx)


def test_a_state_outlives_its_closed_model() -> None:
    ctx = pair(TinyModel(weight_type="f16")).context(True)
    state = State(ctx)
    ctx.close()
    state.pcm_to_mel(SOUND)
    state.encode(0, 1)
    state.decode([ctx.vocab.sot], 0, 1)
    assert np.isfinite(state.logits()).all()
    state.close()


def test_a_job_whose_model_is_closed_meanwhile_goes_on_to_its_end() -> None:
    ctx = pair(TinyModel(weight_type="f16")).context(True)

    def said(**callbacks: Any) -> list[bytes]:
        params = FullParams(n_threads=1, temperature_inc=0.0, **callbacks)
        with State(ctx) as state:
            return [segment.text for segment in full(ctx, state, params, SOUND).segments]

    def close(*_: object) -> bool:
        ctx.close()
        return True

    expected = said()
    assert expected and said(encoder_begin_callback=close) == expected
    assert ctx.closed


@pytest.mark.parametrize(
    ("tokens", "n_past"),
    [([], 0), ([0] * 449, 0), ([0], -1), ([0], 448), ([-1], 0), ([51864], 0), ([0, 0], 447)],
)
def test_decode_checks_its_tokens(ctx: Context, state: State, tokens: list[int], n_past: int) -> None:
    state.pcm_to_mel(SOUND)
    state.encode(0, 1)
    with pytest.raises(ParamsError):
        state.decode(tokens, n_past, 1)
    state.decode([ctx.vocab.sot], 0, 1)


@pytest.mark.parametrize("n_threads", [0, -1, 513, 10**6])
def test_thread_counts_out_of_range_are_refused(state: State, n_threads: int) -> None:
    state.pcm_to_mel(SOUND)
    with pytest.raises(ParamsError, match="n_threads"):
        state.encode(0, n_threads)
    state.encode(0, 2)


def test_stages_say_what_is_missing(ctx: Context, state: State) -> None:
    with pytest.raises(StateError, match="mel"):
        state.encode(0, 1)
    with pytest.raises(StateError, match="encode"):
        state.decode([ctx.vocab.sot], 0, 1)
    state.pcm_to_mel(SOUND)
    with pytest.raises(ParamsError, match="offset"):
        state.encode(-1, 1)
    with pytest.raises(ParamsError, match="audio_ctx"):
        state.encode(0, 1, audio_ctx=101)


def test_a_failed_encode_leaves_no_older_window_behind(ctx: Context, state: State) -> None:
    state.pcm_to_mel(SOUND)
    state.encode(0, 1)
    with pytest.raises(ParamsError):
        state.encode(0, 0)
    with pytest.raises(StateError, match="encode"):
        state.decode([ctx.vocab.sot], 0, 1)


def test_handles_are_all_given_back(ctx: Context) -> None:
    before = handles.live()
    for _ in range(3):
        with State(ctx) as state:
            full(ctx, state, FullParams(n_threads=2, temperature_inc=0.0), SOUND)
    del state
    assert handles.live() == before


def test_threads_with_a_state_each_share_a_model(ctx: Context) -> None:
    params = FullParams(n_threads=1, temperature_inc=0.0)
    with State(ctx) as state:
        alone = full(ctx, state, params, SOUND).segments
    results: list[object] = []

    def work() -> None:
        with State(ctx) as mine:
            for _ in range(3):
                results.append(full(ctx, mine, params, SOUND).segments)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [alone] * 12
