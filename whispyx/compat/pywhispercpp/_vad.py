"""Voice activity detection. The extension has these functions, but cannot hand out a model; here they work."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whispyx import capi
from whispyx.compat.pywhispercpp._model import loaded
from whispyx.compat.pywhispercpp._run import _counted
from whispyx.compat.pywhispercpp._structs import (
    filled,
    handle,
    opened,
    whisper_vad_context_params,
    whisper_vad_context_wrapper,
    whisper_vad_params,
    whisper_vad_segments,
)
from whispyx.compat.pywhispercpp._values import as_int, as_text
from whispyx.errors import ComputeError


def whisper_vad_default_params() -> whisper_vad_params:
    """New parameters for telling speech from silence."""
    made: whisper_vad_params = filled(whisper_vad_params, capi.whisper_vad_default_params())
    return made


def whisper_vad_default_context_params() -> whisper_vad_context_params:
    """New parameters for loading a voice activity model."""
    made: whisper_vad_context_params = filled(whisper_vad_context_params, capi.whisper_vad_default_context_params())
    return made


def whisper_vad_init_from_file_with_params(path_model: Any, params: Any) -> Any:
    """Load a voice activity model. ModelError when that fails, ModelNotFoundError when there is no such file."""
    path = as_text("path_model", path_model)
    if not isinstance(params, whisper_vad_context_params):
        raise TypeError(f"a whisper_vad_context_params is needed, not {params!r}")
    made = loaded(path, lambda: capi.whisper_vad_init_from_file_with_params(path, params._c))
    return handle(whisper_vad_context_wrapper, made)


def whisper_vad_free(vctx: Any) -> None:
    """Free a voice activity model. Doing so twice is fine."""
    capi.whisper_vad_free(opened(whisper_vad_context_wrapper, vctx))


def whisper_vad_detect_speech(vctx: Any, samples: Any, n_samples: Any) -> bool:
    """Compute how likely speech is in every window of samples."""
    held = opened(whisper_vad_context_wrapper, vctx)
    return capi.whisper_vad_detect_speech(held, *_counted("samples", samples, n_samples))


def whisper_vad_n_probs(vctx: Any) -> int:
    """How many probabilities there are."""
    return capi.whisper_vad_n_probs(opened(whisper_vad_context_wrapper, vctx))


def whisper_vad_probs(vctx: Any) -> NDArray[np.float32]:
    """The probabilities, float32 (n_probs,): a copy."""
    return np.array(capi.whisper_vad_probs(opened(whisper_vad_context_wrapper, vctx)), dtype=np.float32)


def _params_of(params: Any) -> Any:
    if not isinstance(params, whisper_vad_params):
        raise TypeError(f"a whisper_vad_params is needed, not {params!r}")
    return params._c


def whisper_vad_segments_from_probs(vctx: Any, params: Any) -> Any:
    """Where speech is, from the probabilities that are there."""
    held, kept = opened(whisper_vad_context_wrapper, vctx), _params_of(params)
    return handle(whisper_vad_segments, capi.whisper_vad_segments_from_probs(held, kept))


def whisper_vad_segments_from_samples(vctx: Any, params: Any, samples: Any, n_samples: Any) -> Any:
    """Where speech is in samples."""
    held, kept = opened(whisper_vad_context_wrapper, vctx), _params_of(params)
    array, count = _counted("samples", samples, n_samples)
    found = capi.whisper_vad_segments_from_samples(held, kept, array, count)
    if found is None:
        raise ComputeError("voice activity detection failed")
    return handle(whisper_vad_segments, found)


def whisper_vad_segments_n_segments(segments: Any) -> int:
    """How many segments there are."""
    return capi.whisper_vad_segments_n_segments(opened(whisper_vad_segments, segments))


def whisper_vad_segments_get_segment_t0(segments: Any, i_segment: Any) -> float:
    """Start of a segment in units of 10 ms."""
    return capi.whisper_vad_segments_get_segment_t0(opened(whisper_vad_segments, segments), as_int("i", i_segment))


def whisper_vad_segments_get_segment_t1(segments: Any, i_segment: Any) -> float:
    """End of a segment in units of 10 ms."""
    return capi.whisper_vad_segments_get_segment_t1(opened(whisper_vad_segments, segments), as_int("i", i_segment))


def whisper_vad_free_segments(segments: Any) -> None:
    """Free a list of segments. Doing so twice is fine."""
    capi.whisper_vad_free_segments(opened(whisper_vad_segments, segments))
