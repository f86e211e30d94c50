"""Voice activity detection."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from whispyx import plugins
from whispyx._core.vad.detect import VadModel
from whispyx._core.vad.regions import regions, to_cs
from whispyx.capi._arrays import floats
from whispyx.capi._convert import vad_params_of
from whispyx.capi._loader import read_all
from whispyx.capi._log import log
from whispyx.capi._struct import checked_int
from whispyx.capi.objects import to_free, whisper_vad_context, whisper_vad_segments
from whispyx.capi.structs import whisper_model_loader, whisper_vad_context_params, whisper_vad_params
from whispyx.errors import AudioError, BackendError, ComputeError, ModelError, StateError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "whisper_vad_detect_speech",
    "whisper_vad_detect_speech_no_reset",
    "whisper_vad_free",
    "whisper_vad_free_segments",
    "whisper_vad_init_from_file_with_params",
    "whisper_vad_init_with_params",
    "whisper_vad_n_probs",
    "whisper_vad_probs",
    "whisper_vad_reset_state",
    "whisper_vad_segments_from_probs",
    "whisper_vad_segments_from_samples",
    "whisper_vad_segments_get_segment_t0",
    "whisper_vad_segments_get_segment_t1",
    "whisper_vad_segments_n_segments",
]


def _context(vctx: whisper_vad_context | None, function: str) -> whisper_vad_context:
    if vctx is None:
        raise StateError(f"{function}: the context is NULL")
    if not isinstance(vctx, whisper_vad_context):
        raise TypeError(f"{function}: a whisper_vad_context is needed, not {vctx!r}")
    vctx.check(function)
    return vctx


def _load(function: str, source: Any, params: whisper_vad_context_params) -> whisper_vad_context | None:
    if not isinstance(params, whisper_vad_context_params):
        raise TypeError(f"{function}: params must be a whisper_vad_context_params, not {params!r}")
    try:
        plugins.load()
        plugins.require_cpu()
        return whisper_vad_context(VadModel.load(source, n_threads=params.n_threads))
    except (ModelError, BackendError, ComputeError) as error:
        log.error("%s: %s", function, error)
        return None


def whisper_vad_init_from_file_with_params(
    path_model: str | bytes | os.PathLike[str], params: whisper_vad_context_params
) -> whisper_vad_context | None:
    """whisper_vad_context * whisper_vad_init_from_file_with_params(
        const char * path_model, whisper_vad_context_params params)

    Loads a Silero model in ggml's layout. None (logged) when that fails.
    """
    function = "whisper_vad_init_from_file_with_params"
    if not isinstance(path_model, (str, bytes, os.PathLike)):
        raise TypeError(f"{function}: path_model must be a path, not {path_model!r}")
    return _load(function, os.fsdecode(path_model), params)


def whisper_vad_init_with_params(
    loader: whisper_model_loader, params: whisper_vad_context_params
) -> whisper_vad_context | None:
    """whisper_vad_context * whisper_vad_init_with_params(
        whisper_model_loader * loader, whisper_vad_context_params params)

    As whisper_vad_init_from_file_with_params, through functions of the caller. The loader is closed whatever happens.
    """
    function = "whisper_vad_init_with_params"
    if not isinstance(loader, whisper_model_loader):
        raise TypeError(f"{function}: a whisper_model_loader is needed, not {loader!r}")
    try:
        data = read_all(loader, vad=True)
    except ModelError as error:
        log.error("%s: %s", function, error)
        return None
    return _load(function, data, params)


def _detect(function: str, vctx: whisper_vad_context, samples: Any, n_samples: int | None, reset: bool) -> bool:
    held = _context(vctx, function)
    sound = floats("samples", samples, n_samples, "n_samples")
    if sound is None:
        sound = np.empty(0, dtype=np.float32)
    with held.job(function) as core:
        try:
            if reset:
                core.detect(sound)
            else:
                core.detect_no_reset(sound)
        except (AudioError, ComputeError) as error:
            log.error("%s: %s", function, error)
            return False
    return True


def whisper_vad_detect_speech(vctx: whisper_vad_context, samples: Any, n_samples: int | None = None) -> bool:
    """bool whisper_vad_detect_speech(whisper_vad_context * vctx, const float * samples, int n_samples)

    Computes the speech probability of every window of 512 samples, floating point (n_samples,) at 16 kHz mono, from a
    fresh start. False (logged) when the computation fails or a sample is not finite.
    """
    return _detect("whisper_vad_detect_speech", vctx, samples, n_samples, True)


def whisper_vad_detect_speech_no_reset(vctx: whisper_vad_context, samples: Any, n_samples: int | None = None) -> bool:
    """bool whisper_vad_detect_speech_no_reset(whisper_vad_context * vctx, const float * samples, int n_samples)

    As whisper_vad_detect_speech, but goes on where the call before ended: for sound that comes in pieces.
    """
    return _detect("whisper_vad_detect_speech_no_reset", vctx, samples, n_samples, False)


def whisper_vad_reset_state(vctx: whisper_vad_context) -> None:
    """void whisper_vad_reset_state(whisper_vad_context * vctx)

    Forgets the sound so far.
    """
    with _context(vctx, "whisper_vad_reset_state").job("whisper_vad_reset_state") as core:
        core.reset()


def whisper_vad_n_probs(vctx: whisper_vad_context) -> int:
    """int whisper_vad_n_probs(whisper_vad_context * vctx)

    How many windows the last call heard; 0 before the first one.
    """
    return len(_context(vctx, "whisper_vad_n_probs").core.probs)


def whisper_vad_probs(vctx: whisper_vad_context) -> NDArray[np.float32]:
    """float * whisper_vad_probs(whisper_vad_context * vctx)

    The speech probability of each window of the last call, float32 (n_probs,), read-only and not copied: it is valid
    until the next call.
    """
    return _context(vctx, "whisper_vad_probs").core.probs


def whisper_vad_segments_from_probs(
    vctx: whisper_vad_context, params: whisper_vad_params
) -> whisper_vad_segments | None:
    """whisper_vad_segments * whisper_vad_segments_from_probs(whisper_vad_context * vctx, whisper_vad_params params)

    Where the last call heard speech. The list may be empty.
    """
    function = "whisper_vad_segments_from_probs"
    held = _context(vctx, function)
    if not isinstance(params, whisper_vad_params):
        raise TypeError(f"{function}: params must be a whisper_vad_params, not {params!r}")
    with held.job(function) as core:
        found = regions(core.probs, vad_params_of(params), core.n_window)
    return whisper_vad_segments(to_cs(found))


def whisper_vad_segments_from_samples(
    vctx: whisper_vad_context, params: whisper_vad_params, samples: Any, n_samples: int | None = None
) -> whisper_vad_segments | None:
    """whisper_vad_segments * whisper_vad_segments_from_samples(
        whisper_vad_context * vctx, whisper_vad_params params, const float * samples, int n_samples)

    whisper_vad_detect_speech, then whisper_vad_segments_from_probs. None when the first fails.
    """
    if not whisper_vad_detect_speech(vctx, samples, n_samples):
        return None
    return whisper_vad_segments_from_probs(vctx, params)


def _list(segments: whisper_vad_segments | None, function: str) -> whisper_vad_segments:
    if segments is None:
        raise StateError(f"{function}: the segments are NULL")
    if not isinstance(segments, whisper_vad_segments):
        raise TypeError(f"{function}: whisper_vad_segments are needed, not {segments!r}")
    segments.check(function)
    return segments


def whisper_vad_segments_n_segments(segments: whisper_vad_segments) -> int:
    """int whisper_vad_segments_n_segments(whisper_vad_segments * segments)

    How many segments there are.
    """
    return len(_list(segments, "whisper_vad_segments_n_segments").spans)


def _edge(segments: whisper_vad_segments, i_segment: int, edge: int, function: str) -> float:
    spans = _list(segments, function).spans
    i = checked_int("i_segment", i_segment)
    if not 0 <= i < len(spans):
        raise IndexError(f"{function}: there is no segment {i}; there are {len(spans)}")
    return float(spans[i][edge])


def whisper_vad_segments_get_segment_t0(segments: whisper_vad_segments, i_segment: int) -> float:
    """float whisper_vad_segments_get_segment_t0(whisper_vad_segments * segments, int i_segment)

    Start of a segment, in units of 10 ms. Raises IndexError.
    """
    return _edge(segments, i_segment, 0, "whisper_vad_segments_get_segment_t0")


def whisper_vad_segments_get_segment_t1(segments: whisper_vad_segments, i_segment: int) -> float:
    """float whisper_vad_segments_get_segment_t1(whisper_vad_segments * segments, int i_segment)

    End of a segment, in units of 10 ms. Raises IndexError.
    """
    return _edge(segments, i_segment, 1, "whisper_vad_segments_get_segment_t1")


def whisper_vad_free_segments(segments: whisper_vad_segments | None) -> None:
    """void whisper_vad_free_segments(whisper_vad_segments * segments)

    Frees a list of segments. None and a list that was freed before are fine.
    """
    held = to_free(whisper_vad_segments, segments, "whisper_vad_free_segments")
    if held is not None:
        held.freed = True
        held.spans = ()


def whisper_vad_free(ctx: whisper_vad_context | None) -> None:
    """void whisper_vad_free(whisper_vad_context * ctx)

    Frees a model. None and one that was freed before are fine; one that is in use raises StateError.
    """
    held = to_free(whisper_vad_context, ctx, "whisper_vad_free")
    if held is not None:
        with held.job("whisper_vad_free") as core:
            core.close()
            held.freed = True
