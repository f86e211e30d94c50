"""The full pipeline.

Status codes are those of whisper.h: 0 done; -1 voice activity detection failed; -2 the samples are not usable; -3 the
language is unknown or could not be detected; -4 too many decoders; -5 audio_ctx too large; -6 the encoder failed or the
run was aborted there; -7 no memory for more decoders; -8 and -9 the decoder failed, or the run was aborted, on the
prompt or later. The reason is logged. What C leaves undefined raises a typed exception; an exception in a callback
reaches the caller. In every case the segments so far can be read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from whispyx._core.parallel import ParallelRun
from whispyx._core.run import FullRun
from whispyx.capi._arrays import floats
from whispyx.capi._convert import Callbacks, core_params
from whispyx.capi._log import log
from whispyx.capi._struct import checked_int
from whispyx.capi.full_params import whisper_full_params
from whispyx.capi.languages import detect
from whispyx.capi.objects import default_state, state_in
from whispyx.errors import (
    Aborted,
    AudioError,
    ComputeError,
    DeviceError,
    LanguageError,
    ModelError,
    ParamsError,
    WhispyxError,
)
from whispyx.languages import lang_id

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from whispyx._core.params import FullParams
    from whispyx._core.state import State
    from whispyx.capi.objects import whisper_context, whisper_state

__all__ = ["whisper_full", "whisper_full_parallel", "whisper_full_with_state"]

UNKNOWN_LANGUAGE = -3
CODES: tuple[tuple[type[WhispyxError], int | None], ...] = (
    (ModelError, -1),
    (AudioError, -2),
    (LanguageError, UNKNOWN_LANGUAGE),
    (Aborted, -6),
    (ComputeError, -6),
    (DeviceError, -6),
    (ParamsError, None),
)
"""Status for an error that carries none of its own; None: it is the caller's to hear of."""


def _status(function: str, error: WhispyxError) -> int | None:
    """Return the status that C has for an error, None when it has none."""
    for kind, code in CODES:
        if isinstance(error, kind):
            status = error.code if error.code is not None else code
            if status is not None:
                log.error("%s: %s", function, error)
            return status
    return None


Make: TypeAlias = "Callable[[State, FullParams, NDArray[np.float32] | None], FullRun | ParallelRun]"


def _whole(
    function: str,
    ctx: whisper_context,
    held: whisper_state,
    params: whisper_full_params,
    samples: Any,
    n_samples: int | None,
    make: Make,
) -> int:
    """Do what all three functions have in common around the run that `make` makes."""
    if not isinstance(params, whisper_full_params):
        raise TypeError(f"{function}: params must be a whisper_full_params, not {params!r}")
    sound = floats("samples", samples, n_samples, "n_samples")
    with held.job(function) as core:
        held.found = held.vad_segments = ()
        held.lang_id = -1
        callbacks = Callbacks(ctx, held, params)
        try:
            plain = core_params(ctx, params, callbacks)
            given = -1 if plain.language is None else lang_id(plain.language)
            held.lang_id = given
            if sound is not None and sound.size:
                held.has_own_mel = False
            elif not held.has_own_mel or plain.vad:
                return 0  # nothing to hear, and an earlier run's spectrogram is not taken up again
            else:
                sound = None
            held.run = run = make(core, plain, sound)
            try:
                result = run.run()
            finally:
                held.run, held.found, held.vad_segments = None, run.segments, run.vad_segments
                held.lang_id = run.lang_id if run.lang_id >= 0 else given
            held.clock.add(result.timings)
            if result.language is not None:
                held.lang_id = lang_id(result.language)
            if held.lang_id < 0 and not plain.vad and held.ctx.core.n_tensors:
                return _language_of_little(function, held, plain)
        except WhispyxError as error:
            code = None if callbacks.raised(error) else _status(function, error)
            if code is None:
                raise
            return code
        return 0


def _language_of_little(function: str, held: whisper_state, plain: FullParams) -> int:
    """Detect the language of audio that is too short to be recognised: at least one frame is needed."""
    core, frame = held.core, plain.offset_ms // 10
    if core.n_len == 0:
        log.error("%s: the language cannot be detected: the audio is shorter than a frame", function)
        return UNKNOWN_LANGUAGE
    if frame < core.n_len:
        held.lang_id, _ = detect(held.ctx.core, core, frame, plain.n_threads)
    return 0 if held.lang_id >= 0 or frame >= core.n_len else UNKNOWN_LANGUAGE


def whisper_full_with_state(
    ctx: whisper_context,
    state: whisper_state,
    params: whisper_full_params,
    samples: Any,
    n_samples: int | None = None,
) -> int:
    """int whisper_full_with_state(
        whisper_context * ctx, whisper_state * state, whisper_full_params params, const float * samples, int n_samples)

    Recognises samples, floating point (n_samples,) at 16 kHz mono; `n_samples` None takes all. With no samples it
    works on the spectrogram that whisper_pcm_to_mel or whisper_set_mel put into the state, and finds nothing when
    there is none; what an earlier run heard is never taken up again. `params.vad` works here too. Returns the status,
    see this module.
    """
    held = state_in(ctx, state, "whisper_full_with_state")

    return _whole(
        "whisper_full_with_state",
        ctx,
        held,
        params,
        samples,
        n_samples,
        lambda core, plain, sound: FullRun(ctx.core, core, plain, sound),
    )


def whisper_full(ctx: whisper_context, params: whisper_full_params, samples: Any, n_samples: int | None = None) -> int:
    """int whisper_full(whisper_context * ctx, whisper_full_params params, const float * samples, int n_samples)

    As whisper_full_with_state, on the context's own state.
    """
    return whisper_full_with_state(ctx, default_state(ctx, "whisper_full"), params, samples, n_samples)


def whisper_full_parallel(
    ctx: whisper_context,
    params: whisper_full_params,
    samples: Any,
    n_samples: int | None = None,
    n_processors: int = 1,
) -> int:
    """int whisper_full_parallel(
        whisper_context * ctx, whisper_full_params params, const float * samples, int n_samples, int n_processors)

    Cuts the audio into n_processors parts and recognises them at once, each with n_threads threads. Words at the cuts
    may be lost. Times of segments and tokens are those of the whole audio. When a part fails, its status is returned.
    With one processor it is whisper_full.
    """
    function = "whisper_full_parallel"
    held = default_state(ctx, function)
    processors = checked_int("n_processors", n_processors)
    if processors < 1:
        raise ParamsError(f"{function}: n_processors is {processors}; at least one is needed")
    if processors == 1:
        return whisper_full_with_state(ctx, held, params, samples, n_samples)

    def make(core: State, plain: FullParams, sound: NDArray[np.float32] | None) -> ParallelRun:
        if sound is None:
            raise ParamsError(f"{function}: a stored spectrogram cannot be cut; give samples")
        return ParallelRun(ctx.core, core, plain, sound, processors)

    return _whole(function, ctx, held, params, samples, n_samples, make)
