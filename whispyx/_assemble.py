"""From the engine's segments (bytes, 10 ms units) to the segments people read (text, seconds)."""

from __future__ import annotations

import codecs
from collections.abc import Container
from typing import TYPE_CHECKING, Final

from .constants import SAMPLE_RATE
from .results import Segment, Token

if TYPE_CHECKING:
    from ._core.results import SegmentData, TokenData
    from .audio import Samples

__all__ = ["SegmentBuilder", "Utf8Joiner", "is_steady"]

_UNITS_PER_SECOND: Final = 100
_SAMPLES_PER_UNIT: Final = SAMPLE_RATE // _UNITS_PER_SECOND

STEADY_DB: Final = 6.0
"""Loudness of silence, hum and hiss varies less than this; that of speech by 20 dB and more, in loud noise by 7."""


def is_steady(samples: Samples) -> bool:
    """Return whether the loudness of a sound hardly varies, as that of silence, hum or hiss and not that of speech.

    Compares the loud and the quiet among pieces of 20 ms: their 95th and 10th percentiles, in decibels.
    """
    import numpy as np  # not before it is needed

    n = SAMPLE_RATE // 50
    pieces = samples[: len(samples) // n * n].reshape(-1, n)
    if not len(pieces):
        return False
    power = np.einsum("ij,ij->i", pieces, pieces, dtype=np.float64) / n
    quiet, loud = np.percentile(10.0 * np.log10(power + 1e-10), (10, 95))
    return bool(loud - quiet < STEADY_DB)


class Utf8Joiner:
    """Decodes pieces of UTF-8 that may be cut inside a character; bytes that belong to no character are left out."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    def feed(self, piece: bytes) -> str:
        """Return the characters that `piece` completes; the start of an unfinished one is kept for the next piece."""
        return self._decoder.decode(piece)


class SegmentBuilder:
    """Turns the segments of one run into `Segment`s, in order.

    A character stands whole where its last byte is: no segment or token is changed after it was handed out.

    Parameters
    ----------
    duration : float
        Seconds of audio; no time goes beyond it.
    eot : int
        Id of the end-of-text token: this one and all above it are special.
    words : set of int
        Ids above it that are text all the same.
    samples : float32 array (n_samples,) or None
        The sound: tells which segments are no speech. None: no segment is marked.
    no_speech_thold : float
        The model takes a window for silence above this probability.
    """

    def __init__(
        self,
        duration: float,
        eot: int,
        samples: Samples | None = None,
        no_speech_thold: float = 1.0,
        words: Container[int] = (),
    ) -> None:
        self.segments: list[Segment] = []
        self._samples = samples
        self._no_speech_thold = no_speech_thold
        self._duration = duration
        self._eot, self._words = eot, words
        self._text = Utf8Joiner()
        self._token_text = Utf8Joiner()

    def add(self, data: SegmentData) -> Segment:
        """Take the engine's next segment; return what is made of it."""
        start = self._seconds(data.t0)
        segment = Segment(
            id=len(self.segments),
            start=start,
            end=max(start, self._seconds(data.t1)),
            text=self._text.feed(data.text),
            tokens=tuple(self._token(token) for token in data.tokens),
            avg_logprob=data.avg_logprob,
            no_speech_prob=data.no_speech_prob,
            temperature=data.temperature,
            speaker_turn_next=data.speaker_turn_next,
            no_speech=self._no_speech(data),
        )
        self.segments.append(segment)
        return segment

    def _no_speech(self, data: SegmentData) -> bool:
        """Whether the model doubts that somebody speaks here, and nothing in the sound contradicts."""
        if self._samples is None or data.no_speech_prob <= self._no_speech_thold:
            return False
        first, last = (max(0, units) * _SAMPLES_PER_UNIT for units in (data.t0, data.t1))
        return is_steady(self._samples[first:last])

    def _token(self, token: TokenData) -> Token:
        special = token.id >= self._eot and token.id not in self._words
        known = token.t0 >= 0 and token.t1 >= 0
        start = self._seconds(token.t0)
        return Token(
            id=token.id,
            text=token.text.decode("utf-8", "replace") if special else self._token_text.feed(token.text),
            data=token.text,
            probability=token.p,
            logprob=token.plog,
            start=start if known else None,
            end=max(start, self._seconds(token.t1)) if known else None,
            special=special,
        )

    def _seconds(self, units: int) -> float:
        return min(max(units, 0) / _UNITS_PER_SECOND, self._duration)
