"""The low-level pipeline: the stages in order, arrays without copies, and arguments that C does not check."""

from __future__ import annotations

import array
import ctypes
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.capi.conftest import SOUND, quick
from tests.core.tiny import pair
from tests.oracle import mel as oracle_mel
from tests.oracle.compare import nmse, nmse_tolerance
from tests.oracle.network import SelfCache
from tests.oracle.tiny_model import TinyModel
from whispyx import capi
from whispyx.errors import ParamsError, StateError


def test_stages_in_order_give_the_logits_of_the_oracle(ctx: Any) -> None:
    recipe = TinyModel(n_vocab=51865)
    both = pair(recipe)
    tokens = [capi.whisper_token_sot(ctx), 50259, 50359, 50363, 300, 400]
    assert capi.whisper_pcm_to_mel(ctx, SOUND, len(SOUND), 1) == 0
    assert capi.whisper_encode(ctx, 0, 1) == 0
    assert capi.whisper_decode(ctx, tokens[:4], 4, 0, 1) == 0
    assert capi.whisper_decode(ctx, tokens[4:], 2, 4, 1) == 0
    logits = capi.whisper_get_logits(ctx)
    assert logits.dtype == np.float32 and logits.shape[1] == capi.whisper_n_vocab(ctx)
    mel = oracle_mel.log_mel(SOUND, both.model.filters)
    encoded = both.net.encode(oracle_mel.window_of(mel, 0, recipe.n_audio_ctx))
    expected = both.net.decode(tokens, encoded, SelfCache())
    assert nmse(logits[-1], expected[-1]) < nmse_tolerance("f16")


def test_a_spectrogram_can_be_set(ctx: Any) -> None:
    assert capi.whisper_pcm_to_mel(ctx, SOUND, len(SOUND), 1) == 0
    mel = ctx.state.core.mel_frames[:, :3000]
    sot = [capi.whisper_token_sot(ctx)]
    assert capi.whisper_encode(ctx, 0, 1) == 0 and capi.whisper_decode(ctx, sot, 1, 0, 1) == 0
    first = np.array(capi.whisper_get_logits(ctx)[-1])
    for data in (mel, mel.ravel(), np.ascontiguousarray(mel).astype(np.float64), array.array("f", mel.ravel())):
        assert capi.whisper_set_mel(ctx, data, 3000, 80) == 0
        assert capi.whisper_n_len(ctx) == 3000
        assert capi.whisper_encode(ctx, 0, 1) == 0 and capi.whisper_decode(ctx, sot, 1, 0, 1) == 0
        assert (capi.whisper_get_logits(ctx)[-1] == first).all()


def test_a_spectrogram_of_another_model_is_refused(ctx: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "whispyx.capi"):
        assert capi.whisper_set_mel(ctx, np.zeros((128, 100), np.float32), 100, 128) == -1
    assert "128" in caplog.text
    assert capi.whisper_n_len(ctx) == 0


def test_m12_counts_that_do_not_fit_the_arrays_are_refused(ctx: Any) -> None:
    mel = np.zeros((80, 100), np.float32)
    for use in (
        lambda: capi.whisper_set_mel(ctx, mel, 101, 80),
        lambda: capi.whisper_set_mel(ctx, mel, -1, 80),
        lambda: capi.whisper_set_mel(ctx, mel, 0, 80),
        lambda: capi.whisper_set_mel(ctx, None, 100, 80),
        lambda: capi.whisper_pcm_to_mel(ctx, SOUND, len(SOUND) + 1, 1),
        lambda: capi.whisper_pcm_to_mel(ctx, SOUND, -1, 1),
        lambda: capi.whisper_pcm_to_mel(ctx, None, 5, 1),
        lambda: capi.whisper_pcm_to_mel(ctx, SOUND.reshape(2, -1), 5, 1),
        lambda: capi.whisper_full(ctx, quick(), SOUND, len(SOUND) + 1),
        lambda: capi.whisper_full(ctx, quick(), None, 1),
    ):
        with pytest.raises(ParamsError):
            use()


@pytest.mark.parametrize("kind", [list, tuple, lambda s: array.array("f", s), lambda s: s.astype(np.float64),
                                  lambda s: (ctypes.c_float * len(s))(*s), lambda s: memoryview(s),
                                  lambda s: np.repeat(s, 2)[::2], lambda s: s.astype(np.float16)])  # fmt: skip
def test_samples_may_be_any_floats(ctx: Any, kind: Callable[..., Any]) -> None:
    sound = SOUND[:3200].astype(np.float16).astype(np.float32)  # exact in all of these types
    assert capi.whisper_pcm_to_mel(ctx, sound, len(sound), 1) == 0
    expected = ctx.state.core.mel_frames
    assert capi.whisper_pcm_to_mel(ctx, kind(sound), len(sound), 1) == 0
    assert (ctx.state.core.mel_frames == expected).all()


@pytest.mark.parametrize("bad", [SOUND.astype(np.int16), b"abcd", "abcd", [1, 2], object()])
def test_samples_of_unknown_scale_are_refused(ctx: Any, bad: Any) -> None:
    with pytest.raises(TypeError, match="samples"):
        capi.whisper_pcm_to_mel(ctx, bad, None, 1)


def test_samples_that_are_not_finite_have_a_status(ctx: Any, caplog: pytest.LogCaptureFixture) -> None:
    broken = SOUND.copy()
    broken[777] = np.nan
    with caplog.at_level(logging.ERROR, "whispyx.capi"):
        assert capi.whisper_pcm_to_mel(ctx, broken, len(broken), 1) == -1
        assert capi.whisper_full(ctx, quick(), broken, len(broken)) == -2
    assert caplog.text.count("777") == 2


def test_stages_out_of_order_have_a_status(ctx: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "whispyx.capi"):
        assert capi.whisper_encode(ctx, 0, 1) == -1
        assert "mel" in caplog.text
        assert capi.whisper_decode(ctx, [capi.whisper_token_sot(ctx)], 1, 0, 1) == 1
        assert "encode" in caplog.text
    assert capi.whisper_get_logits(ctx).shape == (0, capi.whisper_n_vocab(ctx))


@pytest.mark.parametrize(
    ("tokens", "n_tokens", "n_past"),
    [
        ([], 0, 0),
        ([50258], 0, 0),
        ([50258], 2, 0),
        ([50258], -1, 0),
        ([50258] * 449, 449, 0),
        ([50258], 1, 448),
        ([50258], 1, -1),
        ([51865], 1, 0),
        ([-1], 1, 0),
        ([2**31], 1, 0),
        (None, 1, 0),
    ],
)
def test_m12_tokens_outside_the_limits_are_refused(ctx: Any, tokens: Any, n_tokens: int, n_past: int) -> None:
    assert capi.whisper_pcm_to_mel(ctx, SOUND, len(SOUND), 1) == 0
    assert capi.whisper_encode(ctx, 0, 1) == 0
    with pytest.raises(ParamsError):
        capi.whisper_decode(ctx, tokens, n_tokens, n_past, 1)
    assert capi.whisper_decode(ctx, [50258] * 448, 448, 0, 1) == 0


@pytest.mark.parametrize("n_threads", [0, -1, 513, 2**31 - 1])
def test_m11_impossible_thread_counts_are_refused(ctx: Any, n_threads: int) -> None:
    with pytest.raises(ParamsError, match="n_threads"):
        capi.whisper_pcm_to_mel(ctx, SOUND, len(SOUND), n_threads)
    assert capi.whisper_pcm_to_mel(ctx, SOUND, len(SOUND), 1) == 0
    with pytest.raises(ParamsError, match="n_threads"):
        capi.whisper_encode(ctx, 0, n_threads)
    with pytest.raises(ParamsError, match="n_threads"):
        capi.whisper_full(ctx, quick(n_threads=n_threads), SOUND, len(SOUND))


def test_a_window_cannot_begin_before_the_audio(ctx: Any) -> None:
    assert capi.whisper_pcm_to_mel(ctx, SOUND, len(SOUND), 1) == 0
    with pytest.raises(ParamsError, match="offset"):
        capi.whisper_encode(ctx, -1, 1)
    assert capi.whisper_encode(ctx, 10**6, 1) == 0  # silence, as in C


def test_numbers_must_be_integers(ctx: Any) -> None:
    with pytest.raises(TypeError, match="n_threads"):
        capi.whisper_pcm_to_mel(ctx, SOUND, len(SOUND), 1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="n_samples"):
        capi.whisper_pcm_to_mel(ctx, SOUND, "5", 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="tokens"):
        capi.whisper_decode(ctx, [1.5], 1, 0, 1)  # type: ignore[list-item]
    with pytest.raises(TypeError, match="tokens"):
        capi.whisper_decode(ctx, b"abc", 3, 0, 1)


def test_numpy_numbers_are_as_good(ctx: Any) -> None:
    assert capi.whisper_pcm_to_mel(ctx, SOUND, np.int64(len(SOUND)), np.int32(1)) == 0  # type: ignore[arg-type]
    assert capi.whisper_encode(ctx, np.int16(0), np.uint8(1)) == 0  # type: ignore[arg-type]
    tokens: Any = np.array([50258, 50259], np.int64)
    assert capi.whisper_decode(ctx, tokens, 2, 0, 1) == 0


def test_a_file_without_tensors_can_be_asked_about_but_not_run(tmp_path: Path, english_model: Path) -> None:
    ctx = capi.whisper_init_from_buffer(weightless(english_model.read_bytes()))
    assert ctx is not None
    assert capi.whisper_n_vocab(ctx) == 51864
    assert capi.whisper_pcm_to_mel(ctx, SOUND, len(SOUND), 1) == 0
    assert capi.whisper_encode(ctx, 0, 1) == -1
    assert capi.whisper_decode(ctx, [50257], 1, 0, 1) == 1
    assert capi.whisper_full(ctx, quick(), SOUND, len(SOUND)) == 0
    assert capi.whisper_full_n_segments(ctx) == 0
    capi.whisper_free(ctx)


def weightless(data: bytes) -> bytes:
    """The part of a model file in front of its tensors."""
    at = 48 + 8 + 4 * 80 * 201
    n_tokens = int.from_bytes(data[at : at + 4], "little")
    at += 4
    for _ in range(n_tokens):
        at += 4 + int.from_bytes(data[at : at + 4], "little")
    return data[:at]


def test_logits_are_not_copied(ctx: Any) -> None:
    assert capi.whisper_pcm_to_mel(ctx, SOUND, len(SOUND), 1) == 0
    assert capi.whisper_encode(ctx, 0, 1) == 0 and capi.whisper_decode(ctx, [50258, 50259], 2, 0, 1) == 0
    logits = capi.whisper_get_logits(ctx)
    assert logits.shape == (1, 51865) and logits.flags.writeable
    assert np.shares_memory(logits, capi.whisper_get_logits(ctx))
    logits[0, 7] = 123.0
    assert capi.whisper_get_logits(ctx)[0, 7] == 123.0
    assert capi.whisper_decode(ctx, [50359], 1, 2, 1) == 0
    assert capi.whisper_get_logits(ctx)[0, 7] != 123.0


def test_logits_after_freeing_are_refused(model: Path) -> None:
    ctx = capi.whisper_init_from_file(str(model))
    assert ctx is not None
    assert capi.whisper_pcm_to_mel(ctx, SOUND, len(SOUND), 1) == 0
    assert capi.whisper_encode(ctx, 0, 1) == 0 and capi.whisper_decode(ctx, [50258], 1, 0, 1) == 0
    logits = capi.whisper_get_logits(ctx)
    before = np.array(logits)
    capi.whisper_free(ctx)
    assert (logits == before).all()  # what was handed out stays readable
    with pytest.raises(StateError):
        capi.whisper_get_logits(ctx)
