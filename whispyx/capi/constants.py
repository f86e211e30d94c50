"""Constants, enums and small types of whisper.h, and those of ggml.h that it uses."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from whispyx import constants

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from whispyx.capi.objects import whisper_context, whisper_state
    from whispyx.capi.structs import whisper_token_data

__all__ = [
    "GGML_LOG_LEVEL_CONT",
    "GGML_LOG_LEVEL_DEBUG",
    "GGML_LOG_LEVEL_ERROR",
    "GGML_LOG_LEVEL_INFO",
    "GGML_LOG_LEVEL_NONE",
    "GGML_LOG_LEVEL_WARN",
    "WHISPER_AHEADS_BASE",
    "WHISPER_AHEADS_BASE_EN",
    "WHISPER_AHEADS_CUSTOM",
    "WHISPER_AHEADS_LARGE_V1",
    "WHISPER_AHEADS_LARGE_V2",
    "WHISPER_AHEADS_LARGE_V3",
    "WHISPER_AHEADS_LARGE_V3_TURBO",
    "WHISPER_AHEADS_MEDIUM",
    "WHISPER_AHEADS_MEDIUM_EN",
    "WHISPER_AHEADS_NONE",
    "WHISPER_AHEADS_N_TOP_MOST",
    "WHISPER_AHEADS_SMALL",
    "WHISPER_AHEADS_SMALL_EN",
    "WHISPER_AHEADS_TINY",
    "WHISPER_AHEADS_TINY_EN",
    "WHISPER_CHUNK_SIZE",
    "WHISPER_GRETYPE_ALT",
    "WHISPER_GRETYPE_CHAR",
    "WHISPER_GRETYPE_CHAR_ALT",
    "WHISPER_GRETYPE_CHAR_NOT",
    "WHISPER_GRETYPE_CHAR_RNG_UPPER",
    "WHISPER_GRETYPE_END",
    "WHISPER_GRETYPE_RULE_REF",
    "WHISPER_HOP_LENGTH",
    "WHISPER_N_FFT",
    "WHISPER_SAMPLE_RATE",
    "WHISPER_SAMPLING_BEAM_SEARCH",
    "WHISPER_SAMPLING_GREEDY",
    "ggml_abort_callback",
    "ggml_log_callback",
    "ggml_log_level",
    "whisper_alignment_heads_preset",
    "whisper_encoder_begin_callback",
    "whisper_gretype",
    "whisper_logits_filter_callback",
    "whisper_new_segment_callback",
    "whisper_pos",
    "whisper_progress_callback",
    "whisper_sampling_strategy",
    "whisper_seq_id",
    "whisper_token",
]

WHISPER_SAMPLE_RATE: Final = constants.SAMPLE_RATE
"""Samples per second."""
WHISPER_N_FFT: Final = constants.N_FFT
"""Samples in one analysis window."""
WHISPER_HOP_LENGTH: Final = constants.HOP_LENGTH
"""Samples from one mel frame to the next."""
WHISPER_CHUNK_SIZE: Final = constants.CHUNK_SIZE
"""Seconds in one encoder window."""

whisper_pos: TypeAlias = int
"""Position of a token in its sequence (int32_t)."""
whisper_token: TypeAlias = int
"""Id of a token (int32_t)."""
whisper_seq_id: TypeAlias = int
"""Number of a sequence in the self-attention cache (int32_t)."""


class whisper_sampling_strategy(enum.IntEnum):
    """How the next token is chosen."""

    WHISPER_SAMPLING_GREEDY = 0
    WHISPER_SAMPLING_BEAM_SEARCH = 1


class whisper_alignment_heads_preset(enum.IntEnum):
    """Whose cross-attention heads follow the sound, for `dtw_token_timestamps`."""

    WHISPER_AHEADS_NONE = 0
    WHISPER_AHEADS_N_TOP_MOST = 1
    WHISPER_AHEADS_CUSTOM = 2
    WHISPER_AHEADS_TINY_EN = 3
    WHISPER_AHEADS_TINY = 4
    WHISPER_AHEADS_BASE_EN = 5
    WHISPER_AHEADS_BASE = 6
    WHISPER_AHEADS_SMALL_EN = 7
    WHISPER_AHEADS_SMALL = 8
    WHISPER_AHEADS_MEDIUM_EN = 9
    WHISPER_AHEADS_MEDIUM = 10
    WHISPER_AHEADS_LARGE_V1 = 11
    WHISPER_AHEADS_LARGE_V2 = 12
    WHISPER_AHEADS_LARGE_V3 = 13
    WHISPER_AHEADS_LARGE_V3_TURBO = 14


class whisper_gretype(enum.IntEnum):
    """Kinds of grammar elements."""

    WHISPER_GRETYPE_END = 0
    WHISPER_GRETYPE_ALT = 1
    WHISPER_GRETYPE_RULE_REF = 2
    WHISPER_GRETYPE_CHAR = 3
    WHISPER_GRETYPE_CHAR_NOT = 4
    WHISPER_GRETYPE_CHAR_RNG_UPPER = 5
    WHISPER_GRETYPE_CHAR_ALT = 6


class ggml_log_level(enum.IntEnum):
    """Levels of log lines; CONT goes on with the line before."""

    GGML_LOG_LEVEL_NONE = 0
    GGML_LOG_LEVEL_DEBUG = 1
    GGML_LOG_LEVEL_INFO = 2
    GGML_LOG_LEVEL_WARN = 3
    GGML_LOG_LEVEL_ERROR = 4
    GGML_LOG_LEVEL_CONT = 5


WHISPER_SAMPLING_GREEDY: Final = whisper_sampling_strategy.WHISPER_SAMPLING_GREEDY
WHISPER_SAMPLING_BEAM_SEARCH: Final = whisper_sampling_strategy.WHISPER_SAMPLING_BEAM_SEARCH

WHISPER_AHEADS_NONE: Final = whisper_alignment_heads_preset.WHISPER_AHEADS_NONE
WHISPER_AHEADS_N_TOP_MOST: Final = whisper_alignment_heads_preset.WHISPER_AHEADS_N_TOP_MOST
WHISPER_AHEADS_CUSTOM: Final = whisper_alignment_heads_preset.WHISPER_AHEADS_CUSTOM
WHISPER_AHEADS_TINY_EN: Final = whisper_alignment_heads_preset.WHISPER_AHEADS_TINY_EN
WHISPER_AHEADS_TINY: Final = whisper_alignment_heads_preset.WHISPER_AHEADS_TINY
WHISPER_AHEADS_BASE_EN: Final = whisper_alignment_heads_preset.WHISPER_AHEADS_BASE_EN
WHISPER_AHEADS_BASE: Final = whisper_alignment_heads_preset.WHISPER_AHEADS_BASE
WHISPER_AHEADS_SMALL_EN: Final = whisper_alignment_heads_preset.WHISPER_AHEADS_SMALL_EN
WHISPER_AHEADS_SMALL: Final = whisper_alignment_heads_preset.WHISPER_AHEADS_SMALL
WHISPER_AHEADS_MEDIUM_EN: Final = whisper_alignment_heads_preset.WHISPER_AHEADS_MEDIUM_EN
WHISPER_AHEADS_MEDIUM: Final = whisper_alignment_heads_preset.WHISPER_AHEADS_MEDIUM
WHISPER_AHEADS_LARGE_V1: Final = whisper_alignment_heads_preset.WHISPER_AHEADS_LARGE_V1
WHISPER_AHEADS_LARGE_V2: Final = whisper_alignment_heads_preset.WHISPER_AHEADS_LARGE_V2
WHISPER_AHEADS_LARGE_V3: Final = whisper_alignment_heads_preset.WHISPER_AHEADS_LARGE_V3
WHISPER_AHEADS_LARGE_V3_TURBO: Final = whisper_alignment_heads_preset.WHISPER_AHEADS_LARGE_V3_TURBO

WHISPER_GRETYPE_END: Final = whisper_gretype.WHISPER_GRETYPE_END
WHISPER_GRETYPE_ALT: Final = whisper_gretype.WHISPER_GRETYPE_ALT
WHISPER_GRETYPE_RULE_REF: Final = whisper_gretype.WHISPER_GRETYPE_RULE_REF
WHISPER_GRETYPE_CHAR: Final = whisper_gretype.WHISPER_GRETYPE_CHAR
WHISPER_GRETYPE_CHAR_NOT: Final = whisper_gretype.WHISPER_GRETYPE_CHAR_NOT
WHISPER_GRETYPE_CHAR_RNG_UPPER: Final = whisper_gretype.WHISPER_GRETYPE_CHAR_RNG_UPPER
WHISPER_GRETYPE_CHAR_ALT: Final = whisper_gretype.WHISPER_GRETYPE_CHAR_ALT

GGML_LOG_LEVEL_NONE: Final = ggml_log_level.GGML_LOG_LEVEL_NONE
GGML_LOG_LEVEL_DEBUG: Final = ggml_log_level.GGML_LOG_LEVEL_DEBUG
GGML_LOG_LEVEL_INFO: Final = ggml_log_level.GGML_LOG_LEVEL_INFO
GGML_LOG_LEVEL_WARN: Final = ggml_log_level.GGML_LOG_LEVEL_WARN
GGML_LOG_LEVEL_ERROR: Final = ggml_log_level.GGML_LOG_LEVEL_ERROR
GGML_LOG_LEVEL_CONT: Final = ggml_log_level.GGML_LOG_LEVEL_CONT

whisper_new_segment_callback: TypeAlias = "Callable[[whisper_context, whisper_state, int, Any], object]"
"""(ctx, state, n_new, user_data): the last n_new segments of `state` are new."""
whisper_progress_callback: TypeAlias = "Callable[[whisper_context, whisper_state, int, Any], object]"
"""(ctx, state, progress, user_data): progress is 0 to 100."""
whisper_encoder_begin_callback: TypeAlias = "Callable[[whisper_context, whisper_state, Any], bool]"
"""(ctx, state, user_data): false stops before the next window."""
whisper_logits_filter_callback: TypeAlias = (
    "Callable[[whisper_context, whisper_state, Sequence[whisper_token_data], int, NDArray[np.float32], Any], object]"
)
"""(ctx, state, tokens, n_tokens, logits, user_data): logits (n_vocab,) may be written, during the call only."""
ggml_abort_callback: TypeAlias = Callable[[Any], bool]
"""(user_data): true stops the run."""
ggml_log_callback: TypeAlias = Callable[[ggml_log_level, str, Any], object]
"""(level, text, user_data): one line with its line feed."""
