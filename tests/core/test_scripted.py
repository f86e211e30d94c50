"""Runs whose every token is dictated by a logits filter, so that what follows from the tokens is known.

The times are worked out by hand from the rules of whisper.cpp 1.8.5; several were also seen there with the same script.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.core.tiny import pair
from tests.oracle.tiny_model import TinyModel
from whispyx._core.params import FullParams
from whispyx._core.run import full

EOT, SOLM, BEG = 50256, 50359, 50363
HELLO, WORLD = 1000, 2000
ELEVEN_SECONDS = np.zeros(176000, np.float32)


@pytest.fixture(scope="module")
def ctx() -> Iterator[Any]:
    with pair(TinyModel()).context(True) as ctx:
        yield ctx


def dictate(*windows: list[int], or_else: list[int] | None = None) -> Callable[[list[Any], np.ndarray], None]:
    """A filter that leaves one token likely per step: window by window, the last list again and again."""
    heard = -1

    def filter_(tokens: list[Any], logits: np.ndarray) -> None:
        nonlocal heard
        heard += not tokens
        script = windows[min(heard, len(windows) - 1)]
        wanted = script[len(tokens)] if len(tokens) < len(script) else EOT
        logits[:] = -1e4
        logits[wanted] = 0.0

    return filter_


def run(ctx: Any, script: Callable[..., None], samples: np.ndarray = ELEVEN_SECONDS, **fields: Any) -> Any:
    with ctx.new_state() as state:
        params = {"n_threads": 1, "temperature_inc": 0.0, "logits_filter_callback": script, **fields}
        return full(ctx, state, FullParams(**params), samples)


def times(result: Any) -> list[tuple[int, int]]:
    return [(s.t0, s.t1) for s in result.segments]


def test_a_closed_segment_moves_the_window_to_its_end(ctx: Any) -> None:
    result = run(ctx, dictate([BEG, HELLO, BEG + 200, BEG + 200]))
    assert times(result) == [(0, 400), (400, 800), (800, 1100)]  # the last one is closed at 12 s, after the sound


def test_B6_a_segment_begins_at_the_last_of_several_timestamps(ctx: Any) -> None:
    result = run(ctx, dictate([BEG, HELLO, BEG + 100, BEG + 150, WORLD, BEG + 300, BEG + 500]))
    assert times(result)[:2] == [(0, 200), (300, 600)]


def test_B7_one_timestamp_at_the_end_ends_the_window(ctx: Any) -> None:
    result = run(ctx, dictate([BEG, HELLO, BEG + 100]))
    assert times(result) == [(0, 200)] and len(result.windows) == 1


def test_text_behind_the_last_timestamp_is_left_for_the_next_window(ctx: Any) -> None:
    result = run(ctx, dictate([BEG, HELLO, BEG + 100, BEG + 100, WORLD], [BEG, WORLD, BEG + 200]))
    assert [(s.t0, s.t1, s.tokens[1].id) for s in result.segments] == [(0, 200, HELLO), (200, 600, WORLD)]


def test_B1_a_first_temperature_above_one_is_used(ctx: Any) -> None:
    result = run(ctx, dictate([BEG, HELLO, BEG + 100]), temperature=1.5, temperature_inc=0.2)
    assert times(result) == [(0, 200)] and result.windows[0].temperature == 1.5


def test_B2_without_timestamps_times_begin_at_the_window(ctx: Any) -> None:
    result = run(ctx, dictate([HELLO, WORLD]), no_timestamps=True)
    assert times(result) == [(0, 1099)]
    assert all(token.tid == BEG for segment in result.segments for token in segment.tokens)


def test_B3_an_open_end_is_the_end_of_the_sound(ctx: Any) -> None:
    assert times(run(ctx, dictate([BEG, HELLO]), single_segment=True)) == [(0, 1099)]


def test_B4_progress_ends_with_100(ctx: Any) -> None:
    seen: list[int] = []
    run(ctx, dictate([BEG, HELLO, BEG + 1400, BEG + 1400]), progress_callback=seen.append)
    assert seen[0] == 0 and seen[-1] == 100 and max(seen) == 100 and seen == sorted(seen)


def test_B11_B12_when_every_attempt_fails_the_best_one_is_taken_cut_where_its_times_end(ctx: Any) -> None:
    # Time that goes back fails the window at every temperature.
    result = run(ctx, dictate([BEG, HELLO, BEG + 100, BEG + 100, WORLD, WORLD]), temperature_inc=0.5,
                 samples=np.zeros(16000 * 40, np.float32), entropy_thold=-1.0)  # fmt: skip
    assert result.windows[0].temperature in (0.0, 0.5, 1.0)
    assert result.segments[0].tokens[-1].id == BEG + 100
    assert all(s.t0 <= s.t1 for s in result.segments)


def test_B12_a_text_without_any_time_is_kept_whole(ctx: Any) -> None:
    # There is nowhere to cut it, and no time says where the next window starts: it lasts the whole window.
    result = run(ctx, dictate([HELLO, WORLD, HELLO], [BEG, WORLD, BEG + 100]), samples=np.zeros(16000 * 40, np.float32))
    assert [[t.id for t in s.tokens] for s in result.segments] == [[HELLO, WORLD, HELLO, EOT], [BEG, WORLD, BEG + 100]]
    assert times(result) == [(0, 3000), (3000, 3200)]


def test_B17_max_tokens_ends_a_window_with_a_timestamp_and_skips_nothing(ctx: Any) -> None:
    def never_stop(tokens: list[Any], logits: np.ndarray) -> None:
        logits[:] = -1e4
        logits[BEG + 100 if len(tokens) >= 3 else HELLO if tokens else BEG] = 0.0

    result = run(ctx, never_stop, max_tokens=3)
    starts = [w.t0 for w in result.windows]
    assert starts == sorted(starts) and starts[1] - starts[0] == 200
    assert all(len(s.tokens) <= 5 for s in result.segments)


def test_a_speaker_turn_is_marked_where_it_may_be_said(ctx: Any) -> None:
    script = [BEG, HELLO, SOLM, BEG + 100, BEG + 100, WORLD, BEG + 200]
    result = run(ctx, dictate(script), tdrz_enable=True)
    assert [s.speaker_turn_next for s in result.segments[:2]] == [True, False]
    with pair(TinyModel()).context(True) as fresh:
        seen: list[float] = []

        def look(tokens: list[Any], logits: np.ndarray) -> None:
            seen.append(float(logits[SOLM]))

        run(fresh, look)
    assert seen and all(value == -np.inf for value in seen)  # suppressed in front of the filter


def test_the_filter_sees_the_tokens_so_far_and_may_keep_what_it_was_given(ctx: Any) -> None:
    kept: list[Any] = []
    lengths: list[int] = []
    script = dictate([BEG, HELLO, WORLD, BEG + 100])

    def look(tokens: list[Any], logits: np.ndarray) -> None:
        assert logits.dtype == np.float32 and logits.shape == (51864,)
        script(tokens, logits)
        kept.append(logits)
        lengths.append(len(tokens))

    result = run(ctx, look)
    assert lengths == [0, 1, 2, 3, 4]
    assert [int(row.argmax()) for row in kept] == [BEG, HELLO, WORLD, BEG + 100, EOT]
    assert [t.id for t in result.segments[0].tokens] == [BEG, HELLO, WORLD, BEG + 100]


def test_an_exception_of_the_filter_reaches_the_caller_with_the_segments_so_far(ctx: Any) -> None:
    script = dictate([BEG, HELLO, BEG + 200, BEG + 200])
    calls = 0

    def fail(tokens: list[Any], logits: np.ndarray) -> None:
        nonlocal calls
        calls += 1
        if calls > 6:
            raise ZeroDivisionError("mine")
        script(tokens, logits)

    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        run(ctx, fail)
    assert times(caught.value.partial) == [(0, 400)]  # type: ignore[attr-defined]


def test_token_times_divide_a_silent_segment_by_the_length_of_the_words(ctx: Any) -> None:
    texts = [ctx.vocab.token_bytes(i) for i in range(300, 5000)]
    by_length = {len(text): 300 + i for i, text in enumerate(texts) if re.fullmatch(rb" [a-z]+", text)}
    words = [*by_length.values(), *by_length.values(), *by_length.values(), *by_length.values()][:4]
    result = run(ctx, dictate([BEG, *words, BEG + 1000]), np.zeros(16000 * 21, np.float32), token_timestamps=True)
    tokens = result.segments[0].tokens
    weights = [0.01 + len(ctx.vocab.token_bytes(word)) - 1 for word in words]  # a space counts 0.01, a letter 1
    ends = [2000 * sum(weights[: i + 1]) / sum(weights) for i in range(4)]
    assert len(words) == 4
    assert (tokens[0].t0, tokens[0].t1) == (0, 0) and (tokens[-1].t0, tokens[-1].t1) == (2000, 2000)
    assert all(abs(token.t1 - end) <= 4 for token, end in zip(tokens[1:-1], ends, strict=True))  # cut at each step


def test_print_realtime_writes_segments_as_they_come(ctx: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run(ctx, dictate([BEG, HELLO, BEG + 200, BEG + 200]), print_realtime=True)
    lines = capsys.readouterr().out.splitlines()
    assert [line[:31] for line in lines] == [
        "[00:00:00.000 --> 00:00:04.000]",
        "[00:00:04.000 --> 00:00:08.000]",
        "[00:00:08.000 --> 00:00:11.000]",
    ]
    run(ctx, dictate([BEG, HELLO, BEG + 200, BEG + 200]))
    assert capsys.readouterr().out == ""


def test_print_special_keeps_special_tokens_in_the_text(ctx: Any) -> None:
    result = run(ctx, dictate([BEG, HELLO, BEG + 200, BEG + 200]), print_special=True)
    assert result.segments[0].text.startswith(b"[_BEG_]") and result.segments[0].text.endswith(b"[_TT_200]")


def byte_tokens(ctx: Any, text: bytes) -> list[int]:
    """The tokens of single bytes that make a text, whole characters or not."""
    of = {ctx.vocab.token_bytes(i): i for i in range(EOT)}
    return [of[bytes([byte])] for byte in text]


SUN = "日".encode()


@pytest.mark.parametrize("max_len", [0, 1])
def test_a_text_that_ends_within_a_character_ends_before_it(ctx: Any, max_len: int) -> None:
    """The end of the text, the limit of tokens and a timestamp all come between the bytes of a character."""
    said = byte_tokens(ctx, b"ab" + SUN[:2])
    for script, fields in (
        ([BEG, *said, EOT], {}),
        ([BEG, *said, *byte_tokens(ctx, SUN)], {"max_tokens": len(said)}),
        ([BEG, *said, BEG + 500], {}),
    ):
        result = run(ctx, dictate(script), token_timestamps=True, word_timestamps=True, max_len=max_len, **fields)
        assert b"".join(s.text for s in result.segments).startswith(b"ab")
        assert not any(byte > 0x7F for s in result.segments for byte in s.text)
        assert not any(byte > 0x7F for s in result.segments for word in s.words for byte in word.text)
        assert [t.id for s in result.segments for t in s.tokens][: len(script) - 1][1 : 1 + len(said)] == said
        if max_len:
            assert [s.text for s in result.segments][-1] == b"b"  # and no piece of what cannot be shown


def test_bytes_of_no_character_are_left_out_of_segments_and_words(ctx: Any) -> None:
    said = byte_tokens(ctx, b"a" + SUN[1:] + b"b\xff" + SUN + SUN[:1] + b"c")
    told: list[Any] = []
    result = run(ctx, dictate([BEG, *said, BEG + 500]), word_timestamps=True, new_segment_callback=told.extend)
    assert [s.text.decode() for s in result.segments] == ["ab日c"] == [s.text.decode() for s in told]
    assert "".join(word.text.decode() for word in result.segments[0].words) == "ab日c"
    assert [t.id for t in result.segments[0].tokens if t.id < EOT] == said


@pytest.mark.parametrize("special", [False, True])
def test_a_character_around_a_timestamp_or_the_end_of_a_window_stands_whole_behind_it(ctx: Any, special: bool) -> None:
    """In texts, in words, in pieces of a length, and with the texts of special tokens in between."""
    first, rest = byte_tokens(ctx, b"a" + SUN[:1]), byte_tokens(ctx, SUN[1:] + b" b")
    for windows in (
        [[BEG, *first, BEG + 100, BEG + 100, *rest, BEG + 500]],
        [[BEG, *first, BEG + 100, BEG + 100], [BEG, *rest, BEG + 450]],
    ):
        found = run(ctx, dictate(*windows), word_timestamps=True, print_special=special).segments
        texts = [re.sub(r"\[_\w+\]", "", s.text.decode()) for s in found]
        assert [text for text in texts if text] == ["a", "日 b"]
        assert special == (b"[_TT_100]" in found[0].text)
        assert [[word.text.decode() for word in s.words] for s in found if s.words] == [["a"], ["日", " b"]]
        short = run(ctx, dictate(*windows), token_timestamps=True, max_len=1).segments
        assert [s.text.decode() for s in short if s.text] == ["a", "日", " ", "b"]
        assert [t.id for s in short for t in s.tokens if t.id < EOT] == [*first, *rest]


def test_bytes_of_no_character_count_nothing_and_make_no_piece(ctx: Any) -> None:
    for said, max_len, texts in (
        (b"\xff\xfeab", 1, ["a", "b"]),
        (b"a\xff\xfeb", 1, ["a", "b"]),
        (b"\xff a", 1, [" ", "a"]),
        (b"ab\xff\xfe", 1, ["a", "b"]),
        (b"ab\xff\xff\xffcd ef", 5, ["abcd ", "ef"]),
    ):
        script = dictate([BEG, *byte_tokens(ctx, said), BEG + 500])
        result = run(ctx, script, token_timestamps=True, max_len=max_len)
        assert [s.text.decode() for s in result.segments] == texts
        assert b"".join(t.text for s in result.segments for t in s.tokens if t.id < EOT) == said


def test_a_segment_of_no_character_has_its_tokens_and_no_text(ctx: Any) -> None:
    said = byte_tokens(ctx, b"\xb6\xff")
    (first, *_) = run(ctx, dictate([BEG, *said, BEG + 500]), word_timestamps=True).segments
    assert (first.text, [word.text for word in first.words]) == (b"", [b""])
    assert [t.id for t in first.tokens if t.id < EOT] == said
