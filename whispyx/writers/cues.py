"""What subtitle formats share: clean lines of text, and times in whole milliseconds that never overlap."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ..results import Segment

__all__ = ["Cue", "clean_lines", "clock", "cues"]

# Control characters that no reader shows and some stumble over, and halves of surrogate pairs, which UTF-8 has no form
# for. Line ends and tabs stay.
_UNWRITABLE: Final = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff]")


@dataclass(frozen=True, slots=True)
class Cue:
    """One subtitle: times in milliseconds (start < end), and its lines."""

    start_ms: int
    end_ms: int
    lines: tuple[str, ...]


def clean_lines(text: str) -> tuple[str, ...]:
    """Return the lines of `text` that hold something, stripped, without characters that cannot be written."""
    lines = (line.strip() for line in _UNWRITABLE.sub("", text).splitlines())
    return tuple(line for line in lines if line)


def cues(segments: Iterable[Segment]) -> list[Cue]:
    """Return a cue for each segment of speech that has text.

    Times are rounded to 1 ms. A cue that would run into the next one ends where that one starts; one without length
    lasts 1 ms, as the formats know no empty cues.
    """
    raw = []
    latest = 0
    for segment in segments:
        lines = clean_lines(segment.text)
        if lines and not segment.no_speech:
            latest = max(latest, round(segment.start * 1000))
            raw.append((latest, round(segment.end * 1000), lines))
    found: list[Cue] = []
    free = 0  # the first millisecond that no cue has taken
    for i, (start, end, lines) in enumerate(raw):
        start = max(start, free)
        if i + 1 < len(raw):
            end = min(end, raw[i + 1][0])
        free = max(end, start + 1)
        found.append(Cue(start, free, lines))
    return found


def clock(milliseconds: int, fraction: str) -> str:
    """Return a time as HH:MM:SS and three digits after `fraction`; hours grow beyond two digits."""
    seconds, milli = divmod(milliseconds, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02d}:{minute:02d}:{second:02d}{fraction}{milli:03d}"
