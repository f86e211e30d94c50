"""Segments cut to a number of characters."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whispyx._core.align.wrap import wrap
from whispyx._core.hparams import HParams
from whispyx._core.results import SegmentData, TokenData
from whispyx._core.vocab import Vocab

VOCAB = Vocab(HParams(51864, 1500, 384, 6, 4, 448, 384, 6, 4, 80, 1), [b" hello"])
BEG, EOT = VOCAB.beg, VOCAB.eot


def segment(pieces: list[bytes], t0: int = 100, step: int = 10, special: bool = False) -> SegmentData:
    """A timestamp, then a text token per piece, each 100 ms long, then a timestamp."""
    tokens = [TokenData(id=BEG, text=b"[_BEG_]", t0=t0, t1=t0)]
    for i, piece in enumerate(pieces):
        tokens.append(TokenData(id=i, text=piece, t0=t0 + step * i, t1=t0 + step * (i + 1)))
    end = t0 + step * len(pieces)
    tokens.append(TokenData(id=BEG + 50, text=b"[_TT_50]", t0=end, t1=end))
    shown = b"".join(t.text for t in tokens if special or t.id < EOT)
    return SegmentData(t0=t0, t1=end, text=shown, tokens=tokens, no_speech_prob=0.25, speaker_turn_next=True,
                       avg_logprob=-0.5, temperature=0.4)  # fmt: skip


def texts(pieces: list[SegmentData]) -> list[str]:
    return [piece.text.decode() for piece in pieces]


def test_a_segment_is_cut_before_the_token_that_does_not_fit() -> None:
    pieces = wrap(segment([b" one", b" two", b",", b" three", b" four"]), 9, False, VOCAB)
    assert texts(pieces) == [" one two,", " three", " four"]
    assert [(p.t0, p.t1) for p in pieces] == [(100, 130), (130, 140), (140, 150)]
    assert [len(p.tokens) for p in pieces] == [4, 1, 2]  # the timestamps stay with their neighbours


def test_words_stay_whole_on_request() -> None:
    pieces = wrap(segment([b" un", b"believ", b"able", b" luck"]), 3, True, VOCAB)
    assert texts(pieces) == [" unbelievable", " luck"]
    assert texts(wrap(segment([b" un", b"believ", b"able", b" luck"]), 6, False, VOCAB)) == [
        " un",
        "believ",
        "able",
        " luck",
    ]


def test_a_first_word_that_is_too_long_leaves_the_timestamp_alone() -> None:
    """So does whisper.cpp: its first piece has no text then."""
    pieces = wrap(segment([b" one", b" two"]), 1, False, VOCAB)
    assert texts(pieces) == ["", " one", " two"]
    assert [(p.t0, p.t1) for p in pieces] == [(100, 100), (100, 110), (110, 120)]


def test_a_segment_that_fits_stays_the_same_object() -> None:
    whole = segment([b" one", b" two"])
    assert wrap(whole, 8, False, VOCAB) == [whole]
    assert wrap(whole, 0, False, VOCAB)[0] is whole


def test_B18_characters_count_and_not_bytes() -> None:
    words = [ch.encode() for ch in "日本語の文章です"]
    assert texts(wrap(segment(words), 4, False, VOCAB)) == ["日本語の", "文章です"]


def test_B18_a_character_is_never_cut() -> None:
    """Each byte a token of its own, the worst that a vocabulary can do."""
    for text in ("日本語の文章です", "naïve café", "😀😃😄", "привет"):
        for max_len in (1, 2, 3, 5):
            pieces = wrap(segment([bytes([b]) for b in text.encode()]), max_len, False, VOCAB)
            assert "".join(texts(pieces)) == text
            assert max(len(t) for t in texts(pieces)) <= max_len


def test_B18_every_piece_has_the_fields_of_the_whole() -> None:
    pieces = wrap(segment([b" one", b" two", b" three"]), 5, False, VOCAB)
    assert len(pieces) == 3
    for piece in pieces:
        assert (piece.no_speech_prob, piece.avg_logprob) == (0.25, -0.5)
        assert piece.temperature == pytest.approx(0.4)
    assert [piece.speaker_turn_next for piece in pieces] == [False, False, True]


def test_special_tokens_stay_in_the_text_when_they_were_asked_for() -> None:
    whole = segment([b" one", b" two"], special=True)
    pieces = wrap(whole, 4, False, VOCAB)
    assert b"".join(piece.text for piece in pieces) == whole.text
    assert pieces[0].text == b"[_BEG_] one"


def test_without_token_times_the_characters_say_when_a_piece_begins() -> None:
    whole = segment([b"aaaa", b"bb", b"bb"])
    untimed = [TokenData(**{**t.as_dict(), "t0": -1, "t1": -1}) for t in whole.tokens]
    whole = SegmentData(t0=0, t1=80, text=whole.text, tokens=untimed)
    assert [(p.t0, p.t1) for p in wrap(whole, 4, False, VOCAB)] == [(0, 40), (40, 80)]


@settings(max_examples=150, deadline=None)
@given(st.text(min_size=1, max_size=40), st.integers(1, 12), st.booleans(), st.integers(0, 10**6))
def test_pieces_of_any_text_join_to_it(text: str, max_len: int, on_word: bool, seed: int) -> None:
    """Bytes dealt to tokens at random; pieces are whole characters, in order, inside the segment."""
    raw, rng, parts = text.encode("utf-8", "replace"), random.Random(seed), []
    while raw:
        n = rng.randint(1, 4)
        parts.append(raw[:n])
        raw = raw[n:]
    whole = segment(parts)
    pieces = wrap(whole, max_len, on_word, VOCAB)
    assert b"".join(p.text for p in pieces) == whole.text
    for piece in pieces:
        piece.text.decode()
    assert [t for p in pieces for t in p.tokens] == list(whole.tokens)
    edges = [whole.t0] + [p.t1 for p in pieces]
    assert [p.t0 for p in pieces] == edges[:-1] and edges == sorted(edges) and edges[-1] == whole.t1


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=4), min_size=1, max_size=20), st.integers(1, 6))
def test_bytes_that_are_no_text_are_kept(parts: list[bytes], max_len: int) -> None:
    whole = segment(parts)
    assert b"".join(p.text for p in wrap(whole, max_len, False, VOCAB)) == whole.text
