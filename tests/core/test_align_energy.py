"""Token times from timestamps and loudness, against the rules in plain Python and against known values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle.align import Guess, Timed, energy
from tests.oracle.tiny_model import speechlike
from whispyx._core.align.energy import TokenClock, energy_of
from whispyx._core.hparams import HParams
from whispyx._core.results import SegmentData, TokenData
from whispyx._core.vocab import Vocab
from whispyx.errors import AudioError

VOCAB = Vocab(HParams(51864, 1500, 384, 6, 4, 448, 384, 6, 4, 80, 1), [b" hello"])
BEG, EOT = VOCAB.beg, VOCAB.eot
SILENCE_20_S = np.zeros(480000, np.float32)


def segment(t0: int, t1: int, *tokens: TokenData) -> SegmentData:
    return SegmentData(t0=t0, t1=t1, text=b"".join(t.text for t in tokens if t.id < EOT), tokens=tokens)


def text(data: str | bytes, tid: int = 0, pt: float = 0.0, ptsum: float = 0.0) -> TokenData:
    raw = data.encode() if isinstance(data, str) else data
    return TokenData(id=7, tid=BEG + tid, pt=pt, ptsum=ptsum, text=raw)


def stamp(k: int) -> TokenData:
    return TokenData(id=BEG + k, tid=BEG + k, pt=0.9, ptsum=0.9, text=b"[_TT_%d]" % k if k else b"[_BEG_]")


def times(segment: SegmentData) -> list[tuple[int, int]]:
    return [(token.t0, token.t1) for token in segment.tokens]


def test_silence_shares_the_time_out_by_length() -> None:
    """Values that whisper.cpp gives: 20 s of silence, four words of weights 5.01, 5.01, 3.01, 5.01."""
    s = segment(0, 2000, stamp(0), text(" hello"), text(" hello"), text(" you"), text(" hello"), stamp(1000))
    TokenClock(SILENCE_20_S, 0.01, 0.01, VOCAB).fill(s)
    assert times(s) == [(0, 0), (0, 555), (555, 1110), (1110, 1443), (1443, 2000), (2000, 2000)]
    assert [round(token.vlen, 2) for token in s.tokens] == [7, 5.01, 5.01, 3.01, 5.01, 18]


@pytest.mark.parametrize(
    ("data", "length"),
    [
        (" ", 0.01),
        ("a", 1),
        (",", 2),
        (". ", 3.01),
        ("7!?", 9),
        ("é", 1),
        ("日本語。", 6),
        ("，、；：", 8),
        ("．！？…０９", 18),
        ("\u3000", 0.01),
        ("😀", 1),
        ("日".encode()[:2], 1),
        ("日".encode()[2:] + b"a", 1),
        (b"\xff", 1),
        (b"\xe3\x80A", 2),
    ],
)
def test_B19_length_counts_characters(data: str | bytes, length: float) -> None:
    """A character whose bytes lie in two tokens counts in the first."""
    s = segment(0, 100, text(data), stamp(50))
    TokenClock(SILENCE_20_S, 0.01, 0.01, VOCAB).fill(s)
    assert s.tokens[0].vlen == pytest.approx(length)


def burst(seconds: float, *loud: tuple[float, float]) -> Any:
    """Silence with a tone of 500 Hz in each of the given stretches of seconds."""
    t = np.arange(int(seconds * 16000)) / 16000
    inside = np.zeros(len(t), bool)
    for start, end in loud:
        inside |= (t >= start) & (t < end)
    return (0.5 * np.sin(2 * np.pi * 500 * t) * inside).astype(np.float32)


@pytest.mark.parametrize("window", [0, 3000, 6000])
def test_B20_a_token_of_a_later_window_finds_its_own_sound(window: int) -> None:
    """The same sound, 0 to 60 s later, with silence or noise in front: the same times, later."""
    noise = np.random.default_rng(1).normal(0, 0.3, window * 160).astype(np.float32)
    samples = np.concatenate([noise, burst(8.0, (1.0, 1.5), (3.0, 3.8))])
    s = segment(window + 80, window + 600, stamp(0), text(" one"), text(" two", 140, 0.9, 0.9), stamp(300))
    clock = TokenClock(samples, 0.01, 0.01, VOCAB)
    clock.fill(s)
    one, two = s.tokens[1:3]
    assert abs(one.t0 - window - 100) <= 1 and abs(two.t1 - window - 380) <= 1


def test_B21_without_samples_there_are_no_times() -> None:
    """And none of an earlier sound either: each run has its own clock."""
    for samples in (None, np.zeros(0, np.float32)):
        s = segment(0, 100, stamp(0), text(" a"), stamp(50))
        TokenClock(samples, 0.01, 0.01, VOCAB).fill(s)
        assert times(s) == [(-1, -1)] * 3


def test_an_empty_segment_and_a_lone_token() -> None:
    clock = TokenClock(SILENCE_20_S, 0.01, 0.01, VOCAB)
    clock.fill(segment(0, 100))
    lone = segment(40, 100, text(" a"))
    clock.fill(lone)
    assert times(lone) == [(40, 100)]


def test_samples_are_checked() -> None:
    with pytest.raises(AudioError):
        TokenClock(np.array([0.0, np.nan], np.float32), 0.01, 0.01, VOCAB)
    with pytest.raises(AudioError):
        TokenClock(np.zeros(100), 0.01, 0.01, VOCAB)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [1, 2, 32, 33, 64, 65, 66, 1000])
def test_energy_is_a_mean_over_65_samples(n: int) -> None:
    x = np.random.default_rng(n).normal(0, 1, n).astype(np.float32)
    expected = [np.abs(x[max(0, i - 32) : i + 33].astype(np.float64)).sum() / 65 for i in range(n)]
    np.testing.assert_allclose(energy_of(x), expected, rtol=1e-6)
    np.testing.assert_allclose(energy_of(x * np.float32(1e-30)), np.array(expected) * 1e-30, rtol=1e-5)


def test_loud_sound_leaves_nothing_behind_in_silence() -> None:
    x = np.random.default_rng(0).normal(0, 1e4, 20000).astype(np.float32)
    x[10000:] = 0
    assert not energy_of(x)[10033:].any()


PIECES = st.sampled_from([" hello", " a", ",", " 1984", "ly", ".", " ", "日本", "é"])
TOKENS = st.lists(
    st.tuples(PIECES, st.integers(0, 400), st.sampled_from([0.0, 0.5]), st.sampled_from([0.0, 0.5])),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 3),
    st.lists(st.tuples(st.booleans(), TOKENS, st.booleans(), st.integers(20, 400)), min_size=1, max_size=4),
)
def test_times_equal_the_rules_in_plain_python(seed: int, segments: list[Any]) -> None:
    samples = speechlike(6.0, seed)
    clock, truth = TokenClock(samples, 0.01, 0.01, VOCAB), Guess(samples, BEG, EOT)
    t1 = 0
    for opens, tokens, closes, length in segments:
        t0, t1 = t1, t1 + length
        ours = [stamp(0)] * opens + [text(*token) for token in tokens] + [stamp(length // 2)] * closes
        theirs = [Timed(t.id, t.tid, t.pt, t.ptsum, t.text.decode()) for t in ours]
        s = segment(t0, t1, *ours)
        clock.fill(s)
        truth.fill(t0, t1, theirs)
        assert times(s) == [(token.t0, token.t1) for token in theirs]
        flat = [t for pair in times(s) for t in pair]
        assert flat == sorted(flat)


def test_the_oracle_smooths_as_described() -> None:
    x = np.random.default_rng(3).normal(0, 1, 200)
    assert energy(x)[100] == pytest.approx(np.abs(x[68:133]).sum() / 65)
