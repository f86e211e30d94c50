"""Languages, and which one a recording is in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from whispyx.capi._arrays import writable
from whispyx.capi._log import log
from whispyx.capi._struct import as_text, checked_int, thread_count
from whispyx.capi.objects import default_state, state_in
from whispyx.errors import ComputeError, DeviceError, ParamsError, StateError
from whispyx.languages import CODES, LANGUAGES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from whispyx._core.context import Context
    from whispyx._core.state import State
    from whispyx.capi.objects import whisper_context, whisper_state

__all__ = [
    "whisper_lang_auto_detect",
    "whisper_lang_auto_detect_with_state",
    "whisper_lang_id",
    "whisper_lang_max_id",
    "whisper_lang_str",
    "whisper_lang_str_full",
]

NAMES = tuple(LANGUAGES.values())


def whisper_lang_max_id() -> int:
    """int whisper_lang_max_id(void)

    The largest language id.
    """
    return len(CODES) - 1


def whisper_lang_id(lang: str | bytes) -> int:
    """int whisper_lang_id(const char * lang)

    Id of a short code ("de") or an English name ("german"), both in lower case; -1 when there is none (logged).
    """
    text = as_text("lang", lang)
    if text is None:
        raise ParamsError("whisper_lang_id: lang is NULL")
    if text in LANGUAGES:
        return CODES.index(text)
    if text in NAMES:
        return NAMES.index(text)
    log.error("whisper_lang_id: unknown language %r", text)
    return -1


def whisper_lang_str(id: int) -> str | None:
    """const char * whisper_lang_str(int id)

    Short code of an id, None when there is no such id (logged).
    """
    return _entry("whisper_lang_str", CODES, id)


def whisper_lang_str_full(id: int) -> str | None:
    """const char * whisper_lang_str_full(int id)

    English name of an id, None when there is no such id (logged).
    """
    return _entry("whisper_lang_str_full", NAMES, id)


def _entry(function: str, table: tuple[str, ...], id: int) -> str | None:
    number = checked_int("id", id)
    if 0 <= number < len(table):
        return table[number]
    log.error("%s: unknown language id %d", function, number)
    return None


def whisper_lang_auto_detect_with_state(
    ctx: whisper_context, state: whisper_state, offset_ms: int, n_threads: int, lang_probs: Any = None
) -> int:
    """int whisper_lang_auto_detect_with_state(
        whisper_context * ctx, whisper_state * state, int offset_ms, int n_threads, float * lang_probs)

    The likeliest language of the 30 s from offset_ms on, of the spectrogram that the state holds. `lang_probs` is None
    or writable float32 (100,): it gets the probability of each language, 0 for those the model does not know.

    Returns -1 for an offset before the audio, -2 for one behind it (or no audio), -6 when the encoder fails, -7 when
    the decoder does. An English-only model has nothing to detect: 0, with certainty. The state's cache and logits are
    overwritten.
    """
    function = "whisper_lang_auto_detect_with_state"
    held = state_in(ctx, state, function)
    offset, threads = checked_int("offset_ms", offset_ms), thread_count(n_threads)
    out = None if lang_probs is None else writable("lang_probs", lang_probs, np.float32, len(CODES))
    if offset < 0:
        log.error("%s: offset %d ms is before the start of the audio", function, offset)
        return -1
    with held.job(function) as core:
        if offset // 10 >= core.n_len:
            log.error("%s: offset %d ms is past the end of the audio (%d ms)", function, offset, core.n_len * 10)
            return -2
        found, probabilities = detect(ctx.core, core, offset // 10, threads)
    if out is not None and probabilities is not None:
        out[: len(CODES)] = 0.0
        out[: len(probabilities)] = probabilities
    return found


def detect(ctx: Context, state: State, frame: int, n_threads: int) -> tuple[int, NDArray[np.float64] | None]:
    """Return the likeliest language at a frame and the probability of each; the status and None on failure (logged)."""
    vocab = ctx.vocab
    if not vocab.is_multilingual:
        return 0, np.eye(1, vocab.n_languages)[0]
    failed = -6
    try:
        state.encode(frame, n_threads, audio_ctx=0)
        failed = -7
        state.decode([vocab.sot], 0, n_threads)
    except (ComputeError, DeviceError, StateError) as error:
        log.error("the language cannot be detected: %s", error)
        return failed, None
    scores = state.logits()[-1, vocab.sot + 1 : vocab.sot + 1 + vocab.n_languages].astype(np.float64)
    weights = np.exp(scores - scores.max())
    return int(weights.argmax()), weights / weights.sum()


def whisper_lang_auto_detect(ctx: whisper_context, offset_ms: int, n_threads: int, lang_probs: Any = None) -> int:
    """int whisper_lang_auto_detect(whisper_context * ctx, int offset_ms, int n_threads, float * lang_probs)

    As whisper_lang_auto_detect_with_state, on the context's own state.
    """
    state = default_state(ctx, "whisper_lang_auto_detect")
    return whisper_lang_auto_detect_with_state(ctx, state, offset_ms, n_threads, lang_probs)
