"""Running the pipeline, whole or in steps, and what came of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whispyx import capi
from whispyx.compat.pywhispercpp._full_params import FullParamsBase, params_of
from whispyx.compat.pywhispercpp._structs import filled, opened, whisper_context, whisper_token_data
from whispyx.compat.pywhispercpp._values import ArgumentError, Misuse, as_bool, as_int
from whispyx.errors import ParamsError


def samples_of(name: str, values: Any) -> NDArray[np.float32]:
    """Return an array or sequence of numbers as float32 in one row.

    Integers are converted without scaling, as the extension does: divide int16 samples by 32768 before.
    """
    if isinstance(values, (str, bytes, bytearray)):
        raise TypeError(f"{name} must be an array of numbers, not {type(values).__name__}")
    try:
        array = np.asarray([] if values is None else values, dtype=np.float32)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be an array of numbers, not {values!r}") from None
    return np.ascontiguousarray(array).reshape(-1)


def _counted(name: str, values: Any, n: Any) -> tuple[NDArray[np.float32], int]:
    """Return samples and how many of them count; fewer than none are none."""
    array, count = samples_of(name, values), max(0, as_int("n_samples", n))
    if count > array.size:
        raise ArgumentError(f"n_samples is {count}, but {name} holds {array.size}")
    return array, count


def _print_progress(percent: int) -> None:
    if sys.stderr is not None:
        print(f"Progress: {percent:3d}%", file=sys.stderr, flush=True)


def _answer(name: str, value: Any) -> bool:
    try:
        return as_bool(name, value)
    except TypeError as error:
        raise Misuse(str(error)) from None


def _prepared(ctx: Any, params: FullParamsBase) -> Any:
    """Return parameters of `whispyx.capi` whose callbacks call those of `params` in the extension's way.

    User data is one argument more, unless it is None. Progress is told to the callback or printed, but neither when
    `print_progress` is off.
    """
    c = params._c.copy()
    for name in ("suppress_regex", "vad_model_path"):  # "" is nothing
        setattr(c, name, getattr(c, name) or None)
    if c.prompt_tokens is not None:
        c.prompt_n_tokens = min(c.prompt_n_tokens, len(c.prompt_tokens))

    def data(name: str) -> tuple[Any, ...]:
        value = getattr(params._c, f"{name}_callback_user_data")
        return () if value is None else (value,)

    called: dict[str, Callable[..., Any]] = dict(params._callbacks)
    new_segment, progress = called.get("new_segment"), called.get("progress")
    begin, abort, logits_filter = called.get("encoder_begin"), called.get("abort"), called.get("logits_filter")
    if new_segment is not None:
        c.new_segment_callback = lambda _c, _s, n_new, _d: new_segment(ctx, n_new, *data("new_segment"))
    if not c.print_progress:
        c.progress_callback = None
    elif progress is not None:
        c.progress_callback = lambda _c, _s, percent, _d: progress(percent, *data("progress"))
    else:
        c.progress_callback = lambda _c, _s, percent, _d: _print_progress(percent)
    if begin is not None:
        c.encoder_begin_callback = lambda _c, _s, _d: _answer(
            "what encoder_begin_callback returns", begin(ctx, *data("encoder_begin"))
        )
    if abort is not None:
        c.abort_callback = lambda _d: _answer("what abort_callback returns", abort(*data("abort")))
    if logits_filter is not None:
        c.logits_filter_callback = lambda _c, _s, _t, n_tokens, logits, _d: logits_filter(
            ctx, n_tokens, float(logits[0]), *data("logits_filter")
        )
    return c


def _refusing(run: Callable[[], int]) -> int:
    try:
        return run()
    except ParamsError as error:
        raise ArgumentError(str(error)) from error


def whisper_full(ctx: Any, params: Any, samples: Any, n_samples: Any) -> int:
    """Transcribe samples at 16 kHz: 0, or a negative status. What a callback raises reaches the caller."""
    held, wanted = opened(whisper_context, ctx), params_of(params)
    array, count = _counted("samples", samples, n_samples)
    return _refusing(lambda: capi.whisper_full(held, _prepared(ctx, wanted), array, count))


def whisper_full_parallel(ctx: Any, params: Any, samples: Any, n_samples: Any, n_processors: Any) -> int:
    """Transcribe `n_processors` parts of the samples at the same time: 0, or a negative status."""
    held, wanted = opened(whisper_context, ctx), params_of(params)
    array, count = _counted("samples", samples, n_samples)
    number = as_int("n_processors", n_processors)
    return _refusing(lambda: capi.whisper_full_parallel(held, _prepared(ctx, wanted), array, count, number))


def whisper_pcm_to_mel(ctx: Any, samples: Any, n_samples: Any, n_threads: Any) -> int:
    """Compute the spectrogram of samples and keep it: 0, or -1."""
    held = opened(whisper_context, ctx)
    array, count = _counted("samples", samples, n_samples)
    return capi.whisper_pcm_to_mel(held, array, count, as_int("n_threads", n_threads))


def whisper_set_mel(ctx: Any, data: Any, n_len: Any, n_mel: Any) -> int:
    """Keep a ready spectrogram, (n_mel, n_len): 0, or -1 when n_mel is not the model's."""
    held = opened(whisper_context, ctx)
    return capi.whisper_set_mel(held, samples_of("data", data), as_int("n_len", n_len), as_int("n_mel", n_mel))


def whisper_encode(ctx: Any, offset: Any, n_threads: Any) -> int:
    """Encode the window that begins at frame `offset`: 0, or -1."""
    held = opened(whisper_context, ctx)
    return capi.whisper_encode(held, as_int("offset", offset), as_int("n_threads", n_threads))


def whisper_decode(ctx: Any, tokens: Any, n_tokens: Any, n_past: Any, n_threads: Any) -> int:
    """Run tokens through the decoder behind the first `n_past`: 0, or 1.

    `tokens` is one id, as in the extension, or a sequence of ids.
    """
    held = opened(whisper_context, ctx)
    ids = list(tokens) if hasattr(tokens, "__len__") and not isinstance(tokens, (str, bytes)) else [tokens]
    return capi.whisper_decode(
        held,
        [as_int("tokens", token) for token in ids],
        as_int("n_tokens", n_tokens),
        as_int("n_past", n_past),
        as_int("n_threads", n_threads),
    )


def whisper_get_logits(ctx: Any) -> float:
    """The logit of token 0 behind the last token. `whispyx.capi` and `whispyx.runner` give all of them."""
    return float(capi.whisper_get_logits(opened(whisper_context, ctx))[-1, 0])


def whisper_lang_auto_detect(ctx: Any, offset_ms: Any, n_threads: Any, lang_probs: Any) -> int:
    """The likeliest language of the spectrogram; `lang_probs`, (100,), gets the probabilities.

    A float32 array is filled; so is one of another type, which the extension leaves as it was.
    """
    held = opened(whisper_context, ctx)
    offset, threads = as_int("offset_ms", offset_ms), as_int("n_threads", n_threads)
    out = samples_of("lang_probs", lang_probs).copy()
    code = capi.whisper_lang_auto_detect(held, offset, threads, out)
    if code >= 0 and isinstance(lang_probs, np.ndarray) and lang_probs.flags.writeable:
        lang_probs[...] = out.reshape(lang_probs.shape)
    return code


def whisper_full_n_segments(ctx: Any) -> int:
    """How many segments there are."""
    return capi.whisper_full_n_segments(opened(whisper_context, ctx))


def whisper_full_lang_id(ctx: Any) -> int:
    """Language of the last run, given or detected."""
    return capi.whisper_full_lang_id(opened(whisper_context, ctx))


def whisper_full_get_segment_t0(ctx: Any, i_segment: Any) -> int:
    """Start of a segment in units of 10 ms."""
    return capi.whisper_full_get_segment_t0(opened(whisper_context, ctx), as_int("i_segment", i_segment))


def whisper_full_get_segment_t1(ctx: Any, i_segment: Any) -> int:
    """End of a segment in units of 10 ms."""
    return capi.whisper_full_get_segment_t1(opened(whisper_context, ctx), as_int("i_segment", i_segment))


def whisper_full_get_segment_text(ctx: Any, i_segment: Any) -> bytes:
    """Text of a segment, UTF-8."""
    return capi.whisper_full_get_segment_text(opened(whisper_context, ctx), as_int("i_segment", i_segment))


def whisper_full_get_segment_speaker_turn_next(ctx: Any, i_segment: Any) -> bool:
    """Whether another speaker goes on behind a segment."""
    held = opened(whisper_context, ctx)
    return capi.whisper_full_get_segment_speaker_turn_next(held, as_int("i_segment", i_segment))


def whisper_full_n_tokens(ctx: Any, i_segment: Any) -> int:
    """How many tokens a segment has."""
    return capi.whisper_full_n_tokens(opened(whisper_context, ctx), as_int("i_segment", i_segment))


def _place(i_segment: Any, i_token: Any) -> tuple[int, int]:
    return as_int("i_segment", i_segment), as_int("i_token", i_token)


def whisper_full_get_token_text(ctx: Any, i_segment: Any, i_token: Any) -> str:
    """Text of a token of a segment. UnicodeDecodeError for part of a character."""
    held = opened(whisper_context, ctx)
    return capi.whisper_full_get_token_text(held, *_place(i_segment, i_token)).decode("utf-8")


def whisper_full_get_token_id(ctx: Any, i_segment: Any, i_token: Any) -> int:
    """Id of a token of a segment."""
    return capi.whisper_full_get_token_id(opened(whisper_context, ctx), *_place(i_segment, i_token))


def whisper_full_get_token_data(ctx: Any, i_segment: Any, i_token: Any) -> whisper_token_data:
    """All that is known about a token of a segment."""
    data = capi.whisper_full_get_token_data(opened(whisper_context, ctx), *_place(i_segment, i_token))
    made: whisper_token_data = filled(whisper_token_data, data)
    return made


def whisper_full_get_token_p(ctx: Any, i_segment: Any, i_token: Any) -> float:
    """Probability of a token of a segment."""
    return capi.whisper_full_get_token_p(opened(whisper_context, ctx), *_place(i_segment, i_token))
