"""What must hold for every result, whatever the sound: the invariants of the trials.

I1  0 <= start <= end <= length of the audio (+ 0.02 s), for segments, words and tokens
I2  starts never go back
I3  words lie inside their segment (± 0.02 s)
I4  all text is whole UTF-8 without U+FFFD, and the JSON can be read
I5  nothing on standard output or standard error (`child.run`)
I6  after an error the same model transcribes as before (`bench.Bench`)
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from whispyx._assemble import SegmentBuilder
from whispyx.results import Transcript
from whispyx.writers import write

RATE = 16000
SLACK_S = 0.02  # two units of time: what rounding to 10 ms may add on either side
EPS = 1e-6


class Broken(AssertionError):
    """An invariant does not hold."""


@dataclass
class Span:
    """Anything with a start and an end, in seconds."""

    what: str
    start: float
    end: float


def _check_spans(spans: Iterable[Span], length: float) -> None:
    latest = 0.0
    for span in spans:
        if not -EPS <= span.start <= span.end + EPS <= length + SLACK_S + 2 * EPS:
            raise Broken(f"I1: {span.what} from {span.start} to {span.end} s, of {length} s of audio")
        if span.start < latest - EPS:
            raise Broken(f"I2: {span.what} starts at {span.start} s, after one that starts at {latest} s")
        latest = span.start


def _check_inside(words: Iterable[Span], segment: Span) -> None:
    for word in words:
        if word.start < segment.start - SLACK_S - EPS or word.end > segment.end + SLACK_S + EPS:
            raise Broken(f"I3: {word.what} from {word.start} to {word.end} s lies outside of {segment}")


def _check_text(text: bytes | str, what: str) -> None:
    try:
        whole = text.decode("utf-8") if isinstance(text, bytes) else text.encode("utf-8").decode("utf-8")
    except UnicodeError as error:
        raise Broken(f"I4: the text of {what} is not whole UTF-8: {text!r} ({error})") from error
    if "\ufffd" in whole:
        raise Broken(f"I4: a replacement character in the text of {what}: {whole!r}")


def check_segments(segments: Sequence[Any], n_samples: int, eot: int) -> None:
    """Check the core's segments (`SegmentData`, times in 10 ms)."""
    length = n_samples / RATE
    shown = [Span(f"segment {i} {s.text!r}", s.t0 / 100, s.t1 / 100) for i, s in enumerate(segments)]
    _check_spans(shown, length)
    words, tokens, marks = [], [], []
    for segment, span in zip(segments, shown, strict=True):
        _check_text(segment.text, span.what)
        own = [Span(f"word {word.text!r}", word.t0, word.t1) for word in segment.words]
        _check_inside(own, span)
        words += own
        for word in segment.words:
            _check_text(word.text, "a word")
        spoken = [token for token in segment.tokens if token.id < eot]
        tokens += [
            Span(f"token {t.text!r} of {span.what}", t.t0 / 100, t.t1 / 100) for t in spoken if t.t0 >= 0 or t.t1 >= 0
        ]
        marks += [
            Span(f"DTW time of {t.text!r}", t.t_dtw_start / 100, t.t_dtw_end / 100) for t in spoken if t.t_dtw_end >= 0
        ]
    for group in (words, tokens, marks):
        _check_spans(group, length)
    check_transcript(transcript_of(segments, n_samples, eot))


def transcript_of(segments: Sequence[Any], n_samples: int, eot: int) -> Transcript:
    """What the friendly API makes of the core's segments."""
    builder = SegmentBuilder(n_samples / RATE, eot)
    for segment in segments:
        builder.add(segment)
    return Transcript(tuple(builder.segments), duration=n_samples / RATE)


def check_transcript(transcript: Transcript) -> None:
    """Check a friendly result and its JSON."""
    shown = [Span(f"segment {s.text!r}", s.start, s.end) for s in transcript]
    _check_spans(shown, transcript.duration)
    _check_spans(
        (
            Span(f"token {t.text!r}", t.start, t.end)
            for s in transcript
            for t in s.tokens
            if not t.special and t.start is not None and t.end is not None
        ),
        transcript.duration,
    )
    for segment in transcript:
        _check_text(segment.text, "a segment")
    stream = io.StringIO()
    write(transcript, stream, "json")
    try:
        found = json.loads(stream.getvalue())
    except ValueError as error:
        raise Broken(f"I4: the JSON cannot be read: {error}") from error
    if [s["text"] for s in found["segments"]] != [s.text for s in transcript]:
        raise Broken("I4: the JSON has other texts")
