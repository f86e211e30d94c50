"""From the engine's segments (bytes, 10 ms units) to the segments people read (text, seconds)."""

from __future__ import annotations

import codecs
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from .results import Segment, Token

if TYPE_CHECKING:
    from ._core.results import SegmentData, TokenData

__all__ = ["SegmentBuilder", "Utf8Joiner"]

_UNITS_PER_SECOND: Final = 100


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
    """

    def __init__(self, duration: float, eot: int) -> None:
        self.segments: list[Segment] = []
        self._duration = duration
        self._eot = eot
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
        )
        self._n_seen += 1
        return segment

    def _token(self, token: TokenData) -> Token:
        special = token.id >= self._eot
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
