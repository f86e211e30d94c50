"""From the engine's segments (bytes, 10 ms units) to the segments people read (text, seconds)."""

from __future__ import annotations

import codecs
from collections.abc import Container
from dataclasses import replace
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
    """Decodes pieces of UTF-8 that may be cut inside a character; bytes that can be no character become U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, piece: bytes) -> str:
        """Return the characters that `piece` completes; the start of an unfinished one is kept for the next piece."""
        return self._decoder.decode(piece)

    @property
    def pending(self) -> bool:
        """Whether the start of a character is waiting for its rest."""
        return bool(self._decoder.getstate()[0])

    def flush(self) -> str:
        """Give up on the waiting bytes: return U+FFFD for them, or nothing when there are none."""
        return self._decoder.decode(b"", final=True)


class SegmentBuilder:
    """Turns the segments of one run into `Segment`s, in order.

    A segment that ends inside a character is held back until the next one shows where the rest of it is, so that every
    segment is handed out once and never changes afterwards.

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
        self._held: Segment | None = None
        self._n_seen = 0

    def add(self, data: SegmentData) -> list[Segment]:
        """Take the engine's next segment; return the segments that are final now."""
        ready = self._release(continues=data.text[:1]) if self._held is not None else []
        segment = self._make(data)
        if self._text.pending:
            self._held = segment
        else:
            ready.append(segment)
        self.segments += ready
        return ready

    def finish(self) -> list[Segment]:
        """No segment follows: return the one held back, if any."""
        ready = self._release(continues=b"") if self._held is not None else []
        self.segments += ready
        return ready

    def _release(self, continues: bytes) -> list[Segment]:
        held, self._held = self._held, None
        assert held is not None
        if continues and 0x80 <= continues[0] < 0xC0:  # the rest of the character comes: the next segment gets it whole
            return [held]
        tokens = list(held.tokens)
        tail = self._token_text.flush()
        text_at = next((i for i in reversed(range(len(tokens))) if not tokens[i].special), None)
        if text_at is not None:
            tokens[text_at] = replace(tokens[text_at], text=tokens[text_at].text + tail)
        return [replace(held, text=held.text + self._text.flush(), tokens=tuple(tokens))]

    def _make(self, data: SegmentData) -> Segment:
        start = self._seconds(data.t0)
        segment = Segment(
            id=self._n_seen,
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
        self._n_seen += 1
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
