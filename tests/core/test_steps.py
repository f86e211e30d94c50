"""The stages of decoding as calls, against the oracle's network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.core.tiny import pair, recipe_of
from tests.oracle import mel as oracle_mel
from tests.oracle.network import SelfCache
from tests.oracle.tiny_model import speechlike
from whispyx._core import steps
from whispyx.errors import ParamsError, StateError

RECIPE = recipe_of("f32", seed=5)
SAMPLES = speechlike(8, 5)
LOGITS_TOLERANCE = 0.08  # caches are f16, as are sums of flash attention; another token moves logits by some 2.5
PROMPT = [50257, 50362, 100, 200]


@pytest.fixture(scope="module")
def ctx() -> Iterator[Any]:
    with pair(RECIPE).context(True) as ctx:
        yield ctx


@pytest.fixture
def state(ctx: Any) -> Iterator[Any]:
    with ctx.new_state() as state:
        state.pcm_to_mel(SAMPLES)
        state.encode(0)
        yield state


def truth(tokens: list[int]) -> np.ndarray:
    """Logits behind each of the tokens."""
    both = pair(RECIPE)
    mel = oracle_mel.log_mel(SAMPLES, both.model.filters, both.net.dtype)
    encoded = both.net.encode(oracle_mel.window_of(mel, 0, both.net.s["n_audio_ctx"]))
    return np.asarray(both.net.decode(tokens, encoded, SelfCache()))


def close(ours: np.ndarray, theirs: np.ndarray) -> bool:
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max()) < LOGITS_TOLERANCE


def test_prefill_gives_the_logits_behind_the_last_token_or_behind_all(state: Any) -> None:
    expected = truth(PROMPT)
    assert close(steps.prefill(state, PROMPT), expected[-1:])
    steps.seq_rm(state, 0)
    assert close(steps.prefill(state, PROMPT, all_logits=True), expected)


def test_steps_go_on_where_the_prompt_ended(state: Any) -> None:
    steps.prefill(state, PROMPT)
    assert steps.seq_len(state) == len(PROMPT)
    for i, token in enumerate((300, 400, 500)):
        tail = [300, 400, 500][: i + 1]
        assert close(steps.step(state, [token]), truth(PROMPT + tail)[-1:])
    assert steps.seq_len(state) == len(PROMPT) + 3


def test_sequences_that_share_a_prompt_go_their_own_ways_in_one_batch(state: Any) -> None:
    steps.reserve(state, 3)
    steps.prefill(state, PROMPT)
    steps.seq_cp(state, 0, 1)
    steps.seq_cp(state, 0, 2)
    first = steps.step(state, [300, 301, 302], [0, 1, 2])
    assert close(first, np.concatenate([truth([*PROMPT, t])[-1:] for t in (300, 301, 302)]))
    # The second is finished and left out.
    second = steps.step(state, [310, 312], [0, 2])
    assert close(second, np.concatenate([truth([*PROMPT, t, u])[-1:] for t, u in ((300, 310), (302, 312))]))


def test_a_beam_can_take_another_ones_place(state: Any) -> None:
    steps.reserve(state, 2)
    steps.prefill(state, PROMPT)
    steps.seq_cp(state, 0, 1)
    steps.step(state, [300, 301], [0, 1])
    steps.seq_cp(state, 1, 0)
    assert close(steps.step(state, [310], [0]), truth([*PROMPT, 301, 310])[-1:])


def test_seq_rm_goes_back_to_a_position(state: Any) -> None:
    steps.prefill(state, [*PROMPT, 300, 301])
    steps.seq_rm(state, 0, len(PROMPT))
    assert close(steps.step(state, [400]), truth([*PROMPT, 400])[-1:])


def test_one_encoder_run_serves_several_states(ctx: Any, state: Any) -> None:
    output = steps.encoder_output(state)
    assert output.shape == (ctx.hparams.n_audio_ctx, ctx.hparams.n_audio_state)
    with ctx.new_state() as other:
        steps.set_encoder_output(other, output)
        assert np.array_equal(steps.prefill(other, PROMPT), steps.prefill(state, PROMPT))
        with pytest.raises(StateError, match="given from outside"):
            steps.encoder_output(other)


def test_a_shorter_encoder_output_is_attended_as_it_is(ctx: Any) -> None:
    both = pair(RECIPE)
    n_ctx = 60
    mel = oracle_mel.log_mel(SAMPLES, both.model.filters, both.net.dtype)
    encoded = both.net.encode(oracle_mel.window_of(mel, 0, n_ctx))
    with ctx.new_state() as state, ctx.new_state() as other:
        state.pcm_to_mel(SAMPLES)
        state.encode(0, audio_ctx=n_ctx)
        steps.set_encoder_output(other, steps.encoder_output(state))
        expected = np.asarray(both.net.decode(PROMPT, encoded, SelfCache()))[-1:]
        assert close(steps.prefill(other, PROMPT), expected)


@pytest.mark.parametrize("call", [
    lambda s: steps.prefill(s, []),
    lambda s: steps.prefill(s, [1] * 449),
    lambda s: steps.prefill(s, [-1]),
    lambda s: steps.prefill(s, [51864]),
    lambda s: steps.prefill(s, [1], seq=1),
    lambda s: steps.prefill(s, [1], n_threads=0),
    lambda s: steps.step(s, []),
    lambda s: steps.step(s, [1, 2], [0]),
    lambda s: steps.step(s, [1, 2], [0, 0]),
    lambda s: steps.step(s, [1], [-1]),
    lambda s: steps.seq_cp(s, 0, 1),
    lambda s: steps.seq_rm(s, 8),
    lambda s: steps.seq_rm(s, 0, -1),
    lambda s: steps.reserve(s, 0),
    lambda s: steps.reserve(s, 9),
    lambda s: steps.set_encoder_output(s, np.zeros((10, 3), np.float32)),
    lambda s: steps.set_encoder_output(s, np.zeros((0, 64), np.float32)),
    lambda s: steps.set_encoder_output(s, np.full((4, 64), np.nan, np.float32)),
    lambda s: steps.set_encoder_output(s, np.zeros((4, 64))),
])  # fmt: skip
def test_arguments_that_are_not_possible_are_refused_and_change_nothing(state: Any, call: Any) -> None:
    steps.prefill(state, PROMPT)
    with pytest.raises(ParamsError):
        call(state)
    assert steps.seq_len(state) == len(PROMPT)
    assert close(steps.step(state, [300]), truth([*PROMPT, 300])[-1:])


def test_a_full_sequence_says_so(state: Any) -> None:
    steps.prefill(state, [100] * state.ctx.hparams.n_text_ctx)
    with pytest.raises(ParamsError, match="full"):
        steps.step(state, [100])


def test_decoding_needs_something_encoded(ctx: Any) -> None:
    with ctx.new_state() as fresh, pytest.raises(StateError, match="encoded"):
        steps.prefill(fresh, PROMPT)
