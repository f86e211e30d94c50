"""Every stage of the network against the oracle, tensor by tensor, with random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.core.tiny import SHAPES, WEIGHT_TYPES, pair, recipe_of
from tests.oracle import mel as oracle_mel
from tests.oracle.compare import assert_close, nmse_tolerance
from tests.oracle.network import Encoded, SelfCache, Whisper
from tests.oracle.tiny_model import TinyModel, speechlike
from whispyx._core.state import State

SOUND = speechlike(7.0, seed=3)
FLASH = pytest.mark.parametrize("flash_attn", [False, True], ids=["plain", "flash"])


def check_encoder(label: str, state: Any, net: Whisper, truth: Encoded, tolerance: float) -> None:
    """Compare the convolutions, every block, the output, and keys and values of every decoder layer."""
    assert_close(f"{label} conv", state.tensor("conv"), truth.conv, tolerance)
    for i, block in enumerate(truth.blocks):
        assert_close(f"{label} encoder block {i}", state.tensor(f"enc.{i}"), block, tolerance)
    assert_close(f"{label} encoder", state.tensor("encoder"), truth.output, tolerance)
    for i in range(net.s["n_text_layer"]):
        assert_close(f"{label} cross keys {i}", state.tensor(f"cross_k.{i}"), truth.cross_k[i], tolerance)
        assert_close(f"{label} cross values {i}", state.tensor(f"cross_v.{i}"), truth.cross_v[i], tolerance)


def check_decoder(label: str, state: Any, net: Whisper, truth: Encoded, tolerance: float) -> None:
    """Compare logits of a prompt in one batch, of single steps, and after going back."""
    cache = SelfCache()
    sot = net.s["n_vocab"] - 1607  # an id like any other here
    prompt = [sot, 50300, 17, 4000, 22222]
    expected = net.decode(prompt, truth, cache)
    state.decode(prompt, n_past=0, n_threads=2, all_logits=True)
    assert_close(f"{label} logits of the prompt", state.logits(), expected, tolerance)
    state.decode(prompt, n_past=0, n_threads=2)
    assert_close(f"{label} logits of its last token", state.logits(), expected[-1:], tolerance)
    after_prompt = cache.copy()
    for step, token in enumerate([123, 50000, 9]):
        expected = net.decode([token], truth, cache)
        state.decode([token], n_past=len(prompt) + step, n_threads=2)
        assert_close(f"{label} logits of step {step}", state.logits(), expected, tolerance)
    expected = net.decode([777, 778], truth, after_prompt)
    state.decode([777, 778], n_past=len(prompt), n_threads=2)
    assert_close(f"{label} logits after going back", state.logits(), expected[-1:], tolerance)


def check(label: str, recipe: TinyModel, flash_attn: bool, **state_options: Any) -> None:
    both = pair(recipe)
    tolerance = nmse_tolerance(recipe.weight_type)
    mel = oracle_mel.log_mel(SOUND, both.model.filters)
    truth = both.net.encode(oracle_mel.window_of(mel, 0, recipe.n_audio_ctx))
    with both.context(flash_attn) as ctx, State(ctx, debug=True, **state_options) as state:
        state.pcm_to_mel(SOUND, n_threads=2)
        state.encode(0, n_threads=2)
        check_encoder(label, state, both.net, truth, tolerance)
        check_decoder(label, state, both.net, truth, tolerance)


@FLASH
@pytest.mark.parametrize("weight_type", WEIGHT_TYPES)
def test_every_stage_equals_the_oracle_for_each_weight_type(weight_type: str, flash_attn: bool) -> None:
    check(weight_type, recipe_of(weight_type), flash_attn)


@FLASH
@pytest.mark.parametrize("shape", SHAPES)
def test_every_stage_equals_the_oracle_for_each_shape(shape: str, flash_attn: bool) -> None:
    check(shape, SHAPES[shape], flash_attn)


@pytest.mark.parametrize("n_audio_ctx", [77, 300])
def test_padded_keys_do_not_change_the_encoder(n_audio_ctx: int) -> None:
    """What GPU kernels get, rows up to a multiple of 256, must be masked out: the oracle knows of no such rows."""
    check("padded", TinyModel(n_audio_ctx=n_audio_ctx), True, pad_kv=True)


@FLASH
def test_short_audio_context_equals_the_oracle(flash_attn: bool) -> None:
    """Also after a longer window: rows that it left in the cross cache must not be seen."""
    both = pair(TinyModel())
    mel = oracle_mel.log_mel(SOUND, both.model.filters)
    with both.context(flash_attn) as ctx, State(ctx, debug=True) as state:
        state.pcm_to_mel(SOUND)
        for n_ctx in (100, 40, 100):
            truth = both.net.encode(oracle_mel.window_of(mel, 0, n_ctx))
            state.encode(0, audio_ctx=n_ctx)
            check_encoder(f"audio_ctx {n_ctx}", state, both.net, truth, nmse_tolerance("f16"))
            check_decoder(f"audio_ctx {n_ctx}", state, both.net, truth, nmse_tolerance("f16"))


@FLASH
@pytest.mark.parametrize("offset", [1, 333, 600, 3650, 3699])
def test_windows_inside_and_past_the_sound_equal_the_oracle(offset: int, flash_attn: bool) -> None:
    """700 frames of sound and 3000 of padding: the last offsets reach past the end, where frames are 0."""
    both = pair(TinyModel())
    mel = oracle_mel.log_mel(SOUND, both.model.filters)
    truth = both.net.encode(oracle_mel.window_of(mel, offset, 100))
    with both.context(flash_attn) as ctx, State(ctx, debug=True) as state:
        state.pcm_to_mel(SOUND)
        state.encode(offset)
        check_encoder(f"offset {offset}", state, both.net, truth, nmse_tolerance("f16"))


def test_a_spectrogram_given_by_hand_is_encoded_as_it_is() -> None:
    both = pair(TinyModel())
    mel = np.random.default_rng(8).uniform(-1, 1.5, (80, 150)).astype(np.float32)
    truth = both.net.encode(oracle_mel.window_of(mel.astype(np.float64), 0, 100))  # 150 frames, then 50 of zeros
    with both.context(True) as ctx, State(ctx, debug=True) as state:
        state.set_mel(mel)
        state.encode(0)
        check_encoder("own mel", state, both.net, truth, nmse_tolerance("f16"))


@FLASH
def test_a_batch_equals_its_tokens_one_by_one(flash_attn: bool) -> None:
    both = pair(TinyModel())
    tokens = list(range(100, 140))
    with both.context(flash_attn) as ctx, State(ctx) as state:
        state.pcm_to_mel(SOUND)
        state.encode(0)
        state.decode(tokens, all_logits=True)
        at_once = state.logits()
        for i, token in enumerate(tokens):
            state.decode([token], n_past=i)
            assert_close(f"token {i}", state.logits(), at_once[i : i + 1].astype(np.float64), nmse_tolerance("f16"))


def test_the_number_of_threads_does_not_change_the_result() -> None:
    both = pair(TinyModel())
    rows = []
    with both.context(True) as ctx, State(ctx) as state:
        for n_threads in (1, 2, 3):
            state.pcm_to_mel(SOUND, n_threads=n_threads)
            state.encode(0, n_threads=n_threads)
            state.decode([50257, 50300, 17], n_threads=n_threads)
            rows.append(state.logits())
    for row in rows[1:]:
        # rows of a matrix product are shared out whole; only attention may sum in another order
        assert_close("threads", row, rows[0].astype(np.float64), nmse_tolerance("f16"))
