from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError

import pytest

from whispyx import Segment, Timings, Token, Transcript
from whispyx._assemble import SegmentBuilder, Utf8Joiner

from .fakes import EOT, FakeSegment, FakeToken


def build(*said: FakeSegment, duration: float = 60.0) -> list[Segment]:
    builder = SegmentBuilder(duration, EOT)
    for segment in said:
        builder.add(segment)  # type: ignore[arg-type]
    return builder.segments


def test_a_transcript_is_a_sequence_of_its_segments() -> None:
    parts = (Segment(0, 0.0, 1.0, " One."), Segment(1, 1.0, 2.0, " Two."))
    transcript = Transcript(segments=parts)
    assert list(transcript) == list(parts)
    assert len(transcript) == 2 and transcript[1] is parts[1] and transcript[:1] == parts[:1]
    assert transcript.text == str(transcript) == "One. Two."


def test_an_empty_transcript_is_true_as_it_is_a_result() -> None:
    assert Transcript() and len(Transcript()) == 0 and Transcript().text == ""


def test_results_are_frozen_and_take_no_new_attributes() -> None:
    segment = Segment(0, 0.0, 1.0, "x")
    with pytest.raises(FrozenInstanceError):
        segment.text = "y"  # type: ignore[misc]
    assert not hasattr(segment, "__dict__") and not hasattr(Token(1, "x", b"x", 1.0, 0.0), "__dict__")


def test_speed_is_audio_seconds_per_second() -> None:
    assert Transcript(duration=11.0, timings=Timings(total_ms=500.0)).speed == pytest.approx(22.0)
    assert Transcript(duration=11.0).speed is None


def test_to_dict_is_json_even_with_infinite_numbers() -> None:
    segment = Segment(0, 0.0, 1.0, "x", (Token(1, "x", b"\xff", 0.0, -math.inf),), avg_logprob=math.nan)
    plain = json.loads(json.dumps(Transcript(segments=(segment,)).to_dict(), allow_nan=False))
    assert plain["segments"][0]["avg_logprob"] is None
    assert plain["segments"][0]["tokens"][0]["logprob"] is None
    assert plain["options"]["temperature_inc"] == 0.2


def test_compression_ratio_is_high_for_repeated_text_and_zero_for_none() -> None:
    assert Segment(0, 0, 1, "").compression_ratio == 0.0
    assert Segment(0, 0, 1, "the same words " * 40).compression_ratio > 2.4
    assert Segment(0, 0, 1, "A quick brown fox.").compression_ratio < 1.5


def test_times_become_seconds() -> None:
    (segment,) = build(FakeSegment(123, 456, b" x"))
    assert (segment.start, segment.end) == (1.23, 4.56)


def test_no_time_goes_beyond_the_audio_or_before_its_start() -> None:
    token = FakeToken(1, b" x", t0=1090, t1=3000)
    first, second = build(FakeSegment(-5, 900, b" x"), FakeSegment(1050, 3000, b" x", (token,)), duration=11.0)
    assert (first.start, first.end) == (0.0, 9.0)
    assert (second.start, second.end) == (10.5, 11.0)
    assert (second.tokens[0].start, second.tokens[0].end) == (10.9, 11.0)


def test_a_segment_never_ends_before_it_starts() -> None:
    (segment,) = build(FakeSegment(500, 400, b" x"))
    assert segment.start == segment.end == 5.0


def test_tokens_without_times_have_none() -> None:
    (segment,) = build(FakeSegment(0, 100, b" x", (FakeToken(1, b" x"),)))
    assert segment.tokens[0].start is None and segment.tokens[0].end is None


def test_a_character_split_over_tokens_stands_whole_at_the_token_that_completes_it() -> None:
    data = "日".encode()
    tokens = tuple(FakeToken(i, data[i : i + 1]) for i in range(3))
    (segment,) = build(FakeSegment(0, 100, data, tokens))
    assert segment.text == "日"
    assert [token.text for token in segment.tokens] == ["", "", "日"]
    assert b"".join(token.data for token in segment.tokens) == data


def test_special_tokens_do_not_break_a_split_character() -> None:
    data = "é".encode()
    tokens = (FakeToken(1, data[:1]), FakeToken(EOT + 107, b"[_BEG_]"), FakeToken(2, data[1:]))
    (segment,) = build(FakeSegment(0, 100, data, tokens))
    assert [token.text for token in segment.tokens] == ["", "[_BEG_]", "é"]
    assert [token.special for token in segment.tokens] == [False, True, False]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_character_split_over_segments_comes_out_whole(cut: int) -> None:
    text = "a日ü🙂z"
    data = text.encode()
    first, second = build(FakeSegment(0, 100, data[:cut]), FakeSegment(100, 200, data[cut:]))
    assert first.text + second.text == text


def test_a_character_split_over_three_segments_comes_out_whole() -> None:
    data = "🙂".encode()
    parts = build(*(FakeSegment(i, i + 1, piece) for i, piece in enumerate((data[:1], data[1:2], data[2:]))))
    assert "".join(segment.text for segment in parts) == "🙂"
    assert [segment.id for segment in parts] == [0, 1, 2]


def test_bytes_of_no_character_are_left_out_of_texts_and_kept_as_data() -> None:
    data = "日".encode()
    first, second = build(
        FakeSegment(0, 100, b"a" + data[:2], (FakeToken(1, b"a" + data[:2]),)), FakeSegment(1, 2, b"b")
    )
    assert (first.text, second.text) == ("a", "b")
    assert (first.tokens[0].text, first.tokens[0].data) == ("a", b"a" + data[:2])
    assert build(FakeSegment(0, 100, b"a\xffb"))[0].text == "ab"


def test_an_unfinished_character_at_the_very_end_is_left_out() -> None:
    assert [segment.text for segment in build(FakeSegment(0, 100, b"x\xe6\x97"))] == ["x"]


def test_each_segment_is_handed_out_once_and_never_changed_afterwards() -> None:
    data = "日本".encode()
    builder = SegmentBuilder(60.0, EOT)
    handed = []
    for i, piece in enumerate((data[:2], data[2:4], b"", data[4:], data[:1])):
        handed.append(builder.add(FakeSegment(i, i + 1, piece)))  # type: ignore[arg-type]
    assert handed == builder.segments
    assert [segment.id for segment in handed] == [0, 1, 2, 3, 4]


def test_joining_is_the_same_as_decoding_at_once_for_valid_text() -> None:
    text = "Привет, 世界! 🙂"
    joiner = Utf8Joiner()
    pieces = [joiner.feed(bytes([byte])) for byte in text.encode()]
    assert "".join(pieces) == text
