"""Default parameters."""

from __future__ import annotations

from whispyx.capi._struct import checked_int
from whispyx.capi.constants import WHISPER_SAMPLING_BEAM_SEARCH, WHISPER_SAMPLING_GREEDY, whisper_sampling_strategy
from whispyx.capi.full_params import whisper_full_params
from whispyx.capi.structs import whisper_context_params, whisper_vad_context_params, whisper_vad_params
from whispyx.errors import ParamsError

__all__ = [
    "whisper_context_default_params",
    "whisper_context_default_params_by_ref",
    "whisper_free_context_params",
    "whisper_free_params",
    "whisper_full_default_params",
    "whisper_full_default_params_by_ref",
    "whisper_vad_default_context_params",
    "whisper_vad_default_params",
]


def whisper_context_default_params() -> whisper_context_params:
    """whisper_context_params whisper_context_default_params(void)

    New context parameters.
    """
    return whisper_context_params()


def whisper_context_default_params_by_ref() -> whisper_context_params:
    """whisper_context_params * whisper_context_default_params_by_ref(void)

    As whisper_context_default_params. It needs no whisper_free_context_params.
    """
    return whisper_context_params()


def whisper_full_default_params(strategy: whisper_sampling_strategy | int) -> whisper_full_params:
    """whisper_full_params whisper_full_default_params(whisper_sampling_strategy strategy)

    New parameters for one of the two strategies: five candidates with the greedy one, five beams with beam search.
    """
    number = checked_int("strategy", strategy)
    params = whisper_full_params()
    if number == WHISPER_SAMPLING_GREEDY:
        params.greedy.best_of = 5
    elif number == WHISPER_SAMPLING_BEAM_SEARCH:
        params.beam_search.beam_size = 5
    else:
        raise ParamsError(
            f"strategy is {number}; WHISPER_SAMPLING_GREEDY (0) and WHISPER_SAMPLING_BEAM_SEARCH (1) exist"
        )
    params.strategy = number
    return params


def whisper_full_default_params_by_ref(strategy: whisper_sampling_strategy | int) -> whisper_full_params:
    """whisper_full_params * whisper_full_default_params_by_ref(whisper_sampling_strategy strategy)

    As whisper_full_default_params. It needs no whisper_free_params.
    """
    return whisper_full_default_params(strategy)


def whisper_free_params(params: whisper_full_params | None) -> None:
    """void whisper_free_params(whisper_full_params * params)

    Does nothing: Python frees the struct when nobody holds it any more. May be called as often as wanted.
    """
    if params is not None and not isinstance(params, whisper_full_params):
        raise TypeError(f"whisper_free_params: a whisper_full_params is needed, not {params!r}")


def whisper_free_context_params(params: whisper_context_params | None) -> None:
    """void whisper_free_context_params(whisper_context_params * params)

    Does nothing: Python frees the struct when nobody holds it any more. May be called as often as wanted.
    """
    if params is not None and not isinstance(params, whisper_context_params):
        raise TypeError(f"whisper_free_context_params: a whisper_context_params is needed, not {params!r}")


def whisper_vad_default_params() -> whisper_vad_params:
    """whisper_vad_params whisper_vad_default_params(void)

    New parameters of voice activity detection.
    """
    return whisper_vad_params()


def whisper_vad_default_context_params() -> whisper_vad_context_params:
    """whisper_vad_context_params whisper_vad_default_context_params(void)

    New parameters of a voice activity model.
    """
    return whisper_vad_context_params()
