"""The low-level pipeline: mel, encoder, decoder, logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from whispyx.capi._arrays import floats, token_ids
from whispyx.capi._log import log
from whispyx.capi._struct import checked_int, thread_count
from whispyx.capi.objects import default_state, state_in, state_of
from whispyx.errors import AudioError, ComputeError, DeviceError, ParamsError, StateError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from whispyx.capi.constants import whisper_token
    from whispyx.capi.objects import whisper_context, whisper_state

__all__ = [
    "whisper_decode",
    "whisper_decode_with_state",
    "whisper_encode",
    "whisper_encode_with_state",
    "whisper_get_logits",
    "whisper_get_logits_from_state",
    "whisper_pcm_to_mel",
    "whisper_pcm_to_mel_with_state",
    "whisper_set_mel",
    "whisper_set_mel_with_state",
]


def whisper_pcm_to_mel_with_state(
    ctx: whisper_context, state: whisper_state, samples: Any, n_samples: int | None = None, n_threads: int = 1
) -> int:
    """int whisper_pcm_to_mel_with_state(
        whisper_context * ctx, whisper_state * state, const float * samples, int n_samples, int n_threads)

    Computes the log-mel spectrogram of samples, floating point (n_samples,) at 16 kHz mono, and keeps it in the state.
    Returns 0, or -1 for samples that are not finite (logged). `n_samples` None takes all.
    """
    held = state_in(ctx, state, "whisper_pcm_to_mel")
    sound = floats("samples", samples, n_samples, "n_samples")
    threads = thread_count(n_threads)
    if sound is None:
        sound = np.empty(0, dtype=np.float32)
    with held.job("whisper_pcm_to_mel") as core:
        try:
            with held.clock.mel():
                core.pcm_to_mel(sound, threads)
        except AudioError as error:
            log.error("whisper_pcm_to_mel: %s", error)
            return -1
        held.has_own_mel = True
    return 0


def whisper_pcm_to_mel(ctx: whisper_context, samples: Any, n_samples: int | None = None, n_threads: int = 1) -> int:
    """int whisper_pcm_to_mel(whisper_context * ctx, const float * samples, int n_samples, int n_threads)

    As whisper_pcm_to_mel_with_state, on the context's own state.
    """
    return whisper_pcm_to_mel_with_state(ctx, default_state(ctx, "whisper_pcm_to_mel"), samples, n_samples, n_threads)


def whisper_set_mel_with_state(ctx: whisper_context, state: whisper_state, data: Any, n_len: int, n_mel: int) -> int:
    """int whisper_set_mel_with_state(
        whisper_context * ctx, whisper_state * state, const float * data, int n_len, int n_mel)

    Keeps a ready spectrogram in the state: `data` is floating point (n_mel, n_len), or the same values in one row.
    Nothing is padded. Returns 0, or -1 when n_mel is not the model's or a value is not finite (logged).
    """
    held = state_in(ctx, state, "whisper_set_mel")
    frames, bands = checked_int("n_len", n_len), checked_int("n_mel", n_mel)
    if frames < 0 or bands < 0:
        raise ParamsError(f"n_len is {frames} and n_mel is {bands}; they count what is there")
    if bands != ctx.core.hparams.n_mels:
        log.error("whisper_set_mel: n_mel is %d, the model has %d", bands, ctx.core.hparams.n_mels)
        return -1
    flat = data if np.ndim(data) < 2 else np.asarray(data).reshape(-1)
    values = floats("data", flat, frames * bands, "n_len * n_mel")
    if values is None or not frames:
        raise ParamsError("n_len is 0: a spectrogram has at least one frame")
    with held.job("whisper_set_mel") as core:
        try:
            core.set_mel(values.reshape(bands, frames))
        except AudioError as error:
            log.error("whisper_set_mel: %s", error)
            return -1
        held.has_own_mel = True
    return 0


def whisper_set_mel(ctx: whisper_context, data: Any, n_len: int, n_mel: int) -> int:
    """int whisper_set_mel(whisper_context * ctx, const float * data, int n_len, int n_mel)

    As whisper_set_mel_with_state, on the context's own state.
    """
    return whisper_set_mel_with_state(ctx, default_state(ctx, "whisper_set_mel"), data, n_len, n_mel)


def whisper_encode_with_state(ctx: whisper_context, state: whisper_state, offset: int, n_threads: int) -> int:
    """int whisper_encode_with_state(whisper_context * ctx, whisper_state * state, int offset, int n_threads)

    Encodes the window that begins at mel frame `offset` and fills the cross-attention cache. Returns 0, or -1 when
    there is no spectrogram or the encoder fails (logged).
    """
    held = state_in(ctx, state, "whisper_encode")
    frame, threads = checked_int("offset", offset), thread_count(n_threads)
    with held.job("whisper_encode") as core:
        try:
            with held.clock.encode():
                core.encode(frame, threads)
        except (ComputeError, DeviceError, StateError) as error:
            log.error("whisper_encode: %s", error)
            return -1
    return 0


def whisper_encode(ctx: whisper_context, offset: int, n_threads: int) -> int:
    """int whisper_encode(whisper_context * ctx, int offset, int n_threads)

    As whisper_encode_with_state, on the context's own state.
    """
    return whisper_encode_with_state(ctx, default_state(ctx, "whisper_encode"), offset, n_threads)


def whisper_decode_with_state(
    ctx: whisper_context,
    state: whisper_state,
    tokens: Sequence[whisper_token],
    n_tokens: int | None,
    n_past: int,
    n_threads: int,
) -> int:
    """int whisper_decode_with_state(
        whisper_context * ctx, whisper_state * state, const whisper_token * tokens, int n_tokens, int n_past,
        int n_threads)

    Runs n_tokens tokens through the decoder at positions n_past, n_past + 1, …; what the cache holds from n_past on is
    dropped first. Logits are kept for the last token. Returns 0, or 1 when nothing was encoded or the evaluation fails
    (logged). Counts and ids outside the model's limits raise ParamsError. `n_tokens` None takes all.
    """
    held = state_in(ctx, state, "whisper_decode")
    ids = token_ids("tokens", tokens, n_tokens, "n_tokens")
    past, threads = checked_int("n_past", n_past), thread_count(n_threads)
    with held.job("whisper_decode") as core:
        try:
            with held.clock.decode(len(ids)):
                core.decode(ids, past, threads)
        except (ComputeError, DeviceError, StateError) as error:
            log.error("whisper_decode: %s", error)
            return 1
    return 0


def whisper_decode(
    ctx: whisper_context, tokens: Sequence[whisper_token], n_tokens: int | None, n_past: int, n_threads: int
) -> int:
    """int whisper_decode(
        whisper_context * ctx, const whisper_token * tokens, int n_tokens, int n_past, int n_threads)

    As whisper_decode_with_state, on the context's own state; -1 when the context has none (logged).
    """
    try:
        state = default_state(ctx, "whisper_decode")
    except StateError as error:
        if ctx is None or ctx.freed:
            raise
        log.error("%s", error)
        return -1
    return whisper_decode_with_state(ctx, state, tokens, n_tokens, n_past, n_threads)


def whisper_get_logits_from_state(state: whisper_state) -> NDArray[np.float32]:
    """float * whisper_get_logits_from_state(whisper_state * state)

    Logits of the last decode, float32 (n_rows, n_vocab). There is a row for every token whose logits were asked for,
    where C has a row for every token and leaves the others unwritten; so [-1] is the last token in both. The array is
    not a copy: it holds these values until the next decode, and may be written to.
    """
    held = state_of(state, "whisper_get_logits")
    return held.core.logits_view()


def whisper_get_logits(ctx: whisper_context) -> NDArray[np.float32]:
    """float * whisper_get_logits(whisper_context * ctx)

    As whisper_get_logits_from_state, on the context's own state.
    """
    return whisper_get_logits_from_state(default_state(ctx, "whisper_get_logits"))
