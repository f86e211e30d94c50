"""From whisper_full_params to the parameters of the core."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from whispyx._core.params import FullParams, VadParams
from whispyx._core.results import SegmentData, TokenData
from whispyx.capi._arrays import token_ids
from whispyx.capi._log import log
from whispyx.capi._struct import FLT_MAX, as_text
from whispyx.capi.constants import WHISPER_SAMPLING_BEAM_SEARCH
from whispyx.capi.grammar import grammar_of
from whispyx.capi.structs import whisper_token_data, whisper_vad_params
from whispyx.constants import MAX_DECODERS
from whispyx.errors import ParamsError, error_for

if TYPE_CHECKING:
    from whispyx.capi.full_params import whisper_full_params
    from whispyx.capi.objects import whisper_context, whisper_state

LARGE = 1e6
"""Thresholds beyond this act as infinity."""
SAME_NAMES = (
    "n_threads", "offset_ms", "no_context", "no_timestamps", "single_segment", "print_special", "print_realtime",
    "print_timestamps", "token_timestamps", "split_on_word", "tdrz_enable", "carry_initial_prompt", "detect_language",
    "suppress_blank", "suppress_nst", "vad",
)  # fmt: skip
AT_LEAST_0 = ("n_max_text_ctx", "max_len", "max_tokens", "audio_ctx")
THRESHOLDS = ("thold_pt", "thold_ptsum", "entropy_thold", "logprob_thold", "no_speech_thold", "grammar_penalty")
OFF_BELOW_0 = ("max_initial_ts", "length_penalty")


class Callbacks:
    """The callbacks of one run, and the exceptions that they raised.

    An exception of the caller's own must reach the caller even where it looks like one of the engine's.
    """

    def __init__(self, ctx: whisper_context, state: whisper_state, params: whisper_full_params) -> None:
        self.ctx, self.state = ctx, state
        self._raised: list[BaseException] = []  # parts that run side by side may each raise one
        self.new_segment = self._bound(params.new_segment_callback, params.new_segment_callback_user_data)
        self.progress = self._bound(params.progress_callback, params.progress_callback_user_data)
        self.begin = self._bound(params.encoder_begin_callback, params.encoder_begin_callback_user_data)
        self.logits = self._bound(params.logits_filter_callback, params.logits_filter_callback_user_data)
        self.abort = self._bound(params.abort_callback, params.abort_callback_user_data)

    def _bound(self, function: Callable[..., Any] | None, user_data: Any) -> Callable[..., Any] | None:
        if function is None:
            return None

        def call(*values: Any) -> Any:
            try:
                return function(*values, user_data)
            except BaseException as error:
                self._raised.append(error)
                raise

        return call

    def raised(self, error: BaseException) -> bool:
        """Say whether a callback raised this very exception."""
        return any(error is own for own in self._raised)

    def install(self, params: FullParams) -> None:
        """Put what is set into the core's parameters."""
        ctx, state = self.ctx, self.state
        new_segment, progress, begin, logits = self.new_segment, self.progress, self.begin, self.logits
        if new_segment is not None:

            def on_new(new: list[SegmentData]) -> None:
                new_segment(ctx, state, len(new))

            params.new_segment_callback = on_new
        if progress is not None:
            params.progress_callback = lambda done: progress(ctx, state, done)
        if begin is not None:
            params.encoder_begin_callback = lambda: bool(begin(ctx, state))
        if logits is not None:
            one_at_a_time = threading.Lock()  # parts of a recording run side by side

            def on_logits(tokens: list[TokenData], row: NDArray[np.float32]) -> None:
                with one_at_a_time:
                    logits(ctx, state, TokenArray(tokens), len(tokens), row)

            params.logits_filter_callback = on_logits
        if self.abort is not None:
            params.abort_callback = self.abort


class TokenArray(Sequence[whisper_token_data]):
    """const whisper_token_data *: tokens of the core, made into structs when they are looked at."""

    def __init__(self, tokens: Sequence[TokenData]) -> None:
        self._tokens = tokens

    def __len__(self) -> int:
        return len(self._tokens)

    @overload
    def __getitem__(self, i: int) -> whisper_token_data: ...
    @overload
    def __getitem__(self, i: slice) -> TokenArray: ...
    def __getitem__(self, i: int | slice) -> whisper_token_data | TokenArray:
        if isinstance(i, slice):
            return TokenArray(self._tokens[i])
        return token_struct(self._tokens[i])


def token_struct(token: TokenData) -> whisper_token_data:
    """Return a token as the struct of the header."""
    return whisper_token_data(
        id=token.id,
        tid=token.tid,
        p=token.p,
        plog=token.plog,
        pt=token.pt,
        ptsum=token.ptsum,
        t0=token.t0,
        t1=token.t1,
        t_dtw=token.t_dtw,
        vlen=token.vlen,
    )


def _limited(value: float, low: float, high: float) -> float:
    return value if math.isnan(value) else min(max(value, low), high)


def vad_params_of(params: whisper_vad_params) -> VadParams:
    """Return what the core's voice activity detection takes. What C lets pass without a meaning acts as the nearest
    value that has one."""
    longest = params.max_speech_duration_s
    return VadParams(
        threshold=_limited(params.threshold, 0.0, 1.0),
        min_speech_duration_ms=max(0, params.min_speech_duration_ms),
        min_silence_duration_ms=max(0, params.min_silence_duration_ms),
        max_speech_duration_s=FLT_MAX if longest < 0 else _limited(longest, 0.0, FLT_MAX),
        speech_pad_ms=max(0, params.speech_pad_ms),
        samples_overlap=_limited(params.samples_overlap, 0.0, 1e5),
    )


def _decoders(params: whisper_full_params, out: FullParams) -> None:
    """Set strategy and numbers of decoders; whisper_full's status -4 is a ParamsError that carries it."""
    best_of = max(1, params.greedy.best_of)
    most = best_of
    if params.strategy == WHISPER_SAMPLING_BEAM_SEARCH:
        if params.beam_search.beam_size < 1:
            raise ParamsError(f"beam_search.beam_size is {params.beam_search.beam_size}; at least one beam is needed")
        most = max(best_of, params.beam_search.beam_size)
    if most > MAX_DECODERS:
        raise error_for("whisper_full", -4, f"{most} > {MAX_DECODERS}")
    out.best_of = best_of
    if params.strategy == WHISPER_SAMPLING_BEAM_SEARCH:
        out.strategy = "beam_search"
        out.beam_size = params.beam_search.beam_size
        out.patience = max(-1.0, params.beam_search.patience)


def _task(params: whisper_full_params, out: FullParams, multilingual: bool) -> None:
    """Set language and task. An English-only model ignores both, as in C."""
    language = as_text("language", params.language)
    if not multilingual:
        if params.translate or language not in (None, "", "auto", "en", "english"):
            log.warning("the model knows English only: language and translate are ignored")
        out.language = None if language in (None, "", "auto") else "en"
        return
    out.translate = params.translate
    out.language = language


def core_params(ctx: whisper_context, params: whisper_full_params, callbacks: Callbacks) -> FullParams:
    """Return the core's parameters for a run.

    Raises
    ------
    ParamsError
        A value out of range for which C has no status; for -4 it carries the code.
    LanguageError
        An unknown language.
    """
    out = FullParams()
    _decoders(params, out)
    for name in SAME_NAMES:
        setattr(out, name, getattr(params, name))
    for name in AT_LEAST_0:
        setattr(out, name, max(0, getattr(params, name)))
    for name in THRESHOLDS:
        setattr(out, name, _limited(getattr(params, name), -LARGE, LARGE))
    for name in OFF_BELOW_0:
        value = getattr(params, name)
        setattr(out, name, _limited(value, -1.0, LARGE) if value > 0 else -1.0)
    # A duration of less than nothing leaves no audio, as does one that is shorter than a frame.
    out.duration_ms = 1 if params.duration_ms < 0 else params.duration_ms
    out.temperature = max(0.0, params.temperature) if params.temperature == params.temperature else math.nan
    out.temperature_inc = min(params.temperature_inc, 100.0) if params.temperature_inc > 0 else 0.0
    _task(params, out, ctx.core.vocab.is_multilingual)
    out.suppress_regex = as_text("suppress_regex", params.suppress_regex)
    if params.prompt_tokens is not None:
        out.prompt_tokens = token_ids("prompt_tokens", params.prompt_tokens, max(0, params.prompt_n_tokens),
                                      "prompt_n_tokens")  # fmt: skip
    else:
        out.initial_prompt = as_text("initial_prompt", params.initial_prompt)
    out.grammar = grammar_of(params)
    out.vad_model_path = as_text("vad_model_path", params.vad_model_path)
    out.vad_params = vad_params_of(params.vad_params)
    out.dtw = ctx.dtw
    callbacks.install(out)
    return out
