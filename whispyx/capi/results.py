"""Results of the last run, also while it goes on.

Times are in units of 10 ms on the time line of the samples, with voice activity detection too. An index that is out of
range raises IndexError. Functions that end in `_from_state` take a state, the others the context's own one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whispyx.capi._convert import token_struct
from whispyx.capi._struct import checked_int
from whispyx.capi.objects import default_state, state_in, state_of

if TYPE_CHECKING:
    from whispyx._core.results import SegmentData, TokenData
    from whispyx.capi.constants import whisper_token
    from whispyx.capi.objects import whisper_context, whisper_state
    from whispyx.capi.structs import whisper_token_data

__all__ = [
    "whisper_full_get_segment_no_speech_prob",
    "whisper_full_get_segment_no_speech_prob_from_state",
    "whisper_full_get_segment_speaker_turn_next",
    "whisper_full_get_segment_speaker_turn_next_from_state",
    "whisper_full_get_segment_t0",
    "whisper_full_get_segment_t0_from_state",
    "whisper_full_get_segment_t1",
    "whisper_full_get_segment_t1_from_state",
    "whisper_full_get_segment_text",
    "whisper_full_get_segment_text_from_state",
    "whisper_full_get_token_data",
    "whisper_full_get_token_data_from_state",
    "whisper_full_get_token_id",
    "whisper_full_get_token_id_from_state",
    "whisper_full_get_token_p",
    "whisper_full_get_token_p_from_state",
    "whisper_full_get_token_t0",
    "whisper_full_get_token_t0_from_state",
    "whisper_full_get_token_t1",
    "whisper_full_get_token_t1_from_state",
    "whisper_full_get_token_text",
    "whisper_full_get_token_text_from_state",
    "whisper_full_get_vad_segment_t0",
    "whisper_full_get_vad_segment_t0_from_state",
    "whisper_full_get_vad_segment_t1",
    "whisper_full_get_vad_segment_t1_from_state",
    "whisper_full_lang_id",
    "whisper_full_lang_id_from_state",
    "whisper_full_n_segments",
    "whisper_full_n_segments_from_state",
    "whisper_full_n_tokens",
    "whisper_full_n_tokens_from_state",
    "whisper_full_n_vad_segments",
    "whisper_full_n_vad_segments_from_state",
]


def _segment(state: whisper_state, i_segment: int, function: str) -> SegmentData:
    segments = state_of(state, function).segments
    i = checked_int("i_segment", i_segment)
    if not 0 <= i < len(segments):
        raise IndexError(f"{function}: there is no segment {i}; there are {len(segments)}")
    return segments[i]


def _token(state: whisper_state, i_segment: int, i_token: int, function: str) -> TokenData:
    tokens = _segment(state, i_segment, function).tokens
    i = checked_int("i_token", i_token)
    if not 0 <= i < len(tokens):
        raise IndexError(f"{function}: there is no token {i} in segment {i_segment}; there are {len(tokens)}")
    return tokens[i]


def _vad_segment(state: whisper_state, i: int, function: str) -> tuple[int, int]:
    spans = state_of(state, function).vad_segments
    number = checked_int("i", i)
    if not 0 <= number < len(spans):
        raise IndexError(f"{function}: there is no segment {number}; there are {len(spans)}")
    return spans[number]


def whisper_full_n_segments_from_state(state: whisper_state) -> int:
    """int whisper_full_n_segments_from_state(whisper_state * state)

    How many segments there are.
    """
    return len(state_of(state, "whisper_full_n_segments").segments)


def whisper_full_n_segments(ctx: whisper_context) -> int:
    """int whisper_full_n_segments(whisper_context * ctx)

    How many segments there are.
    """
    return whisper_full_n_segments_from_state(default_state(ctx, "whisper_full_n_segments"))


def whisper_full_lang_id_from_state(state: whisper_state) -> int:
    """int whisper_full_lang_id_from_state(whisper_state * state)

    Language of the last run, given or detected; 0 before the first one, -1 when it could not be detected.
    """
    return state_of(state, "whisper_full_lang_id").lang_id


def whisper_full_lang_id(ctx: whisper_context) -> int:
    """int whisper_full_lang_id(whisper_context * ctx)

    Language of the last run, given or detected; 0 before the first one, -1 when it could not be detected.
    """
    return whisper_full_lang_id_from_state(default_state(ctx, "whisper_full_lang_id"))


def whisper_full_get_segment_t0_from_state(state: whisper_state, i_segment: int) -> int:
    """int64_t whisper_full_get_segment_t0_from_state(whisper_state * state, int i_segment)

    Start of a segment.
    """
    return _segment(state, i_segment, "whisper_full_get_segment_t0").t0


def whisper_full_get_segment_t0(ctx: whisper_context, i_segment: int) -> int:
    """int64_t whisper_full_get_segment_t0(whisper_context * ctx, int i_segment)

    Start of a segment.
    """
    return whisper_full_get_segment_t0_from_state(default_state(ctx, "whisper_full_get_segment_t0"), i_segment)


def whisper_full_get_segment_t1_from_state(state: whisper_state, i_segment: int) -> int:
    """int64_t whisper_full_get_segment_t1_from_state(whisper_state * state, int i_segment)

    End of a segment.
    """
    return _segment(state, i_segment, "whisper_full_get_segment_t1").t1


def whisper_full_get_segment_t1(ctx: whisper_context, i_segment: int) -> int:
    """int64_t whisper_full_get_segment_t1(whisper_context * ctx, int i_segment)

    End of a segment.
    """
    return whisper_full_get_segment_t1_from_state(default_state(ctx, "whisper_full_get_segment_t1"), i_segment)


def whisper_full_get_segment_speaker_turn_next_from_state(state: whisper_state, i_segment: int) -> bool:
    """bool whisper_full_get_segment_speaker_turn_next_from_state(whisper_state * state, int i_segment)

    Whether the speaker changes after a segment (with tdrz_enable).
    """
    return _segment(state, i_segment, "whisper_full_get_segment_speaker_turn_next").speaker_turn_next


def whisper_full_get_segment_speaker_turn_next(ctx: whisper_context, i_segment: int) -> bool:
    """bool whisper_full_get_segment_speaker_turn_next(whisper_context * ctx, int i_segment)

    Whether the speaker changes after a segment (with tdrz_enable).
    """
    return whisper_full_get_segment_speaker_turn_next_from_state(
        default_state(ctx, "whisper_full_get_segment_speaker_turn_next"), i_segment
    )


def whisper_full_get_segment_text_from_state(state: whisper_state, i_segment: int) -> bytes:
    """const char * whisper_full_get_segment_text_from_state(whisper_state * state, int i_segment)

    Text of a segment, whole characters in UTF-8.
    """
    return _segment(state, i_segment, "whisper_full_get_segment_text").text


def whisper_full_get_segment_text(ctx: whisper_context, i_segment: int) -> bytes:
    """const char * whisper_full_get_segment_text(whisper_context * ctx, int i_segment)

    Text of a segment, whole characters in UTF-8.
    """
    return whisper_full_get_segment_text_from_state(default_state(ctx, "whisper_full_get_segment_text"), i_segment)


def whisper_full_get_segment_no_speech_prob_from_state(state: whisper_state, i_segment: int) -> float:
    """float whisper_full_get_segment_no_speech_prob_from_state(whisper_state * state, int i_segment)

    Probability that nobody speaks in the window that a segment came from.
    """
    return _segment(state, i_segment, "whisper_full_get_segment_no_speech_prob").no_speech_prob


def whisper_full_get_segment_no_speech_prob(ctx: whisper_context, i_segment: int) -> float:
    """float whisper_full_get_segment_no_speech_prob(whisper_context * ctx, int i_segment)

    Probability that nobody speaks in the window that a segment came from.
    """
    return whisper_full_get_segment_no_speech_prob_from_state(
        default_state(ctx, "whisper_full_get_segment_no_speech_prob"), i_segment
    )


def whisper_full_n_tokens_from_state(state: whisper_state, i_segment: int) -> int:
    """int whisper_full_n_tokens_from_state(whisper_state * state, int i_segment)

    How many tokens a segment has, special and timestamp tokens too.
    """
    return len(_segment(state, i_segment, "whisper_full_n_tokens").tokens)


def whisper_full_n_tokens(ctx: whisper_context, i_segment: int) -> int:
    """int whisper_full_n_tokens(whisper_context * ctx, int i_segment)

    How many tokens a segment has, special and timestamp tokens too.
    """
    return whisper_full_n_tokens_from_state(default_state(ctx, "whisper_full_n_tokens"), i_segment)


def whisper_full_get_token_text_from_state(
    ctx: whisper_context, state: whisper_state, i_segment: int, i_token: int
) -> bytes:
    """const char * whisper_full_get_token_text_from_state(
        whisper_context * ctx, whisper_state * state, int i_segment, int i_token)

    Bytes of a token, which may hold part of a character.
    """
    state_in(ctx, state, "whisper_full_get_token_text")
    return _token(state, i_segment, i_token, "whisper_full_get_token_text").text


def whisper_full_get_token_text(ctx: whisper_context, i_segment: int, i_token: int) -> bytes:
    """const char * whisper_full_get_token_text(whisper_context * ctx, int i_segment, int i_token)

    Bytes of a token, which may hold part of a character.
    """
    return whisper_full_get_token_text_from_state(
        ctx, default_state(ctx, "whisper_full_get_token_text"), i_segment, i_token
    )


def whisper_full_get_token_id_from_state(state: whisper_state, i_segment: int, i_token: int) -> whisper_token:
    """whisper_token whisper_full_get_token_id_from_state(whisper_state * state, int i_segment, int i_token)

    Id of a token.
    """
    return _token(state, i_segment, i_token, "whisper_full_get_token_id").id


def whisper_full_get_token_id(ctx: whisper_context, i_segment: int, i_token: int) -> whisper_token:
    """whisper_token whisper_full_get_token_id(whisper_context * ctx, int i_segment, int i_token)

    Id of a token.
    """
    return whisper_full_get_token_id_from_state(default_state(ctx, "whisper_full_get_token_id"), i_segment, i_token)


def whisper_full_get_token_data_from_state(state: whisper_state, i_segment: int, i_token: int) -> whisper_token_data:
    """whisper_token_data whisper_full_get_token_data_from_state(whisper_state * state, int i_segment, int i_token)

    All about a token, as a struct of the caller's own. Its times are on the time line of the samples.
    """
    return token_struct(_token(state, i_segment, i_token, "whisper_full_get_token_data"))


def whisper_full_get_token_data(ctx: whisper_context, i_segment: int, i_token: int) -> whisper_token_data:
    """whisper_token_data whisper_full_get_token_data(whisper_context * ctx, int i_segment, int i_token)

    All about a token, as a struct of the caller's own. Its times are on the time line of the samples.
    """
    return whisper_full_get_token_data_from_state(default_state(ctx, "whisper_full_get_token_data"), i_segment, i_token)


def whisper_full_get_token_p_from_state(state: whisper_state, i_segment: int, i_token: int) -> float:
    """float whisper_full_get_token_p_from_state(whisper_state * state, int i_segment, int i_token)

    Probability of a token.
    """
    return _token(state, i_segment, i_token, "whisper_full_get_token_p").p


def whisper_full_get_token_p(ctx: whisper_context, i_segment: int, i_token: int) -> float:
    """float whisper_full_get_token_p(whisper_context * ctx, int i_segment, int i_token)

    Probability of a token.
    """
    return whisper_full_get_token_p_from_state(default_state(ctx, "whisper_full_get_token_p"), i_segment, i_token)


def whisper_full_get_token_t0_from_state(state: whisper_state, i_segment: int, i_token: int) -> int:
    """int64_t whisper_full_get_token_t0_from_state(whisper_state * state, int i_segment, int i_token)

    Start of a token; -1 without token_timestamps.
    """
    return _token(state, i_segment, i_token, "whisper_full_get_token_t0").t0


def whisper_full_get_token_t0(ctx: whisper_context, i_segment: int, i_token: int) -> int:
    """int64_t whisper_full_get_token_t0(whisper_context * ctx, int i_segment, int i_token)

    Start of a token; -1 without token_timestamps.
    """
    return whisper_full_get_token_t0_from_state(default_state(ctx, "whisper_full_get_token_t0"), i_segment, i_token)


def whisper_full_get_token_t1_from_state(state: whisper_state, i_segment: int, i_token: int) -> int:
    """int64_t whisper_full_get_token_t1_from_state(whisper_state * state, int i_segment, int i_token)

    End of a token; -1 without token_timestamps.
    """
    return _token(state, i_segment, i_token, "whisper_full_get_token_t1").t1


def whisper_full_get_token_t1(ctx: whisper_context, i_segment: int, i_token: int) -> int:
    """int64_t whisper_full_get_token_t1(whisper_context * ctx, int i_segment, int i_token)

    End of a token; -1 without token_timestamps.
    """
    return whisper_full_get_token_t1_from_state(default_state(ctx, "whisper_full_get_token_t1"), i_segment, i_token)


def whisper_full_n_vad_segments_from_state(state: whisper_state) -> int:
    """int whisper_full_n_vad_segments_from_state(whisper_state * state)

    How many stretches of speech voice activity detection found; 0 without it.
    """
    return len(state_of(state, "whisper_full_n_vad_segments").vad_segments)


def whisper_full_n_vad_segments(ctx: whisper_context) -> int:
    """int whisper_full_n_vad_segments(whisper_context * ctx)

    How many stretches of speech voice activity detection found; 0 without it.
    """
    return whisper_full_n_vad_segments_from_state(default_state(ctx, "whisper_full_n_vad_segments"))


def whisper_full_get_vad_segment_t0_from_state(state: whisper_state, i: int) -> int:
    """int64_t whisper_full_get_vad_segment_t0_from_state(whisper_state * state, int i)

    Start of a stretch of speech.
    """
    return _vad_segment(state, i, "whisper_full_get_vad_segment_t0")[0]


def whisper_full_get_vad_segment_t0(ctx: whisper_context, i: int) -> int:
    """int64_t whisper_full_get_vad_segment_t0(whisper_context * ctx, int i)

    Start of a stretch of speech.
    """
    return whisper_full_get_vad_segment_t0_from_state(default_state(ctx, "whisper_full_get_vad_segment_t0"), i)


def whisper_full_get_vad_segment_t1_from_state(state: whisper_state, i: int) -> int:
    """int64_t whisper_full_get_vad_segment_t1_from_state(whisper_state * state, int i)

    End of a stretch of speech.
    """
    return _vad_segment(state, i, "whisper_full_get_vad_segment_t1")[1]


def whisper_full_get_vad_segment_t1(ctx: whisper_context, i: int) -> int:
    """int64_t whisper_full_get_vad_segment_t1(whisper_context * ctx, int i)

    End of a stretch of speech.
    """
    return whisper_full_get_vad_segment_t1_from_state(default_state(ctx, "whisper_full_get_vad_segment_t1"), i)
