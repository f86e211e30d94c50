"""Strict readers of SubRip and WebVTT, written from the formats' descriptions and not from our writers.

They take no malformed line and give (start, end, text) with times in milliseconds.
"""

from __future__ import annotations

import html
import re

Cue = tuple[int, int, str]

_SRT_TIMES = re.compile(r"(\d{2,}):([0-5]\d):([0-5]\d),(\d{3}) --> (\d{2,}):([0-5]\d):([0-5]\d),(\d{3})")
_VTT_TIMES = re.compile(r"(\d{2,}):([0-5]\d):([0-5]\d)\.(\d{3})[ \t]+-->[ \t]+(\d{2,}):([0-5]\d):([0-5]\d)\.(\d{3})")
_VTT_TAG = re.compile(r"</?[a-z]+(?:\.[^\s>]+)*(?:[ \t][^>]*)?>")


def _milliseconds(hours: str, minutes: str, seconds: str, fraction: str) -> int:
    return ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1000 + int(fraction)


def _cue(match: re.Match[str], text: str) -> Cue:
    fields = match.groups()
    start, end = _milliseconds(*fields[:4]), _milliseconds(*fields[4:])
    if end <= start:
        raise ValueError(f"a cue that does not last: {match[0]}")
    return start, end, text


def read_srt(document: str) -> list[Cue]:
    """SubRip: blocks of a number, a line of times and lines of text, a blank line after each."""
    if "\r" in document or (document and not document.endswith("\n\n")):
        raise ValueError("a block is not closed by a blank line, or lines end in CR")
    found: list[Cue] = []
    for block in document.split("\n\n")[:-1]:
        number, times, *lines = block.split("\n")
        match = _SRT_TIMES.fullmatch(times)
        if number != str(len(found) + 1) or match is None or not lines:
            raise ValueError(f"no cue: {block!r}")
        found.append(_cue(match, "\n".join(lines)))
    return found


def read_vtt(document: str) -> list[Cue]:
    """WebVTT: a header, then blocks of a line of times and lines of text, blank lines between (W3C, section 4)."""
    if "\r" in document or "\0" in document or not document.endswith("\n"):
        raise ValueError("a NUL, lines that end in CR, or no line end at the end")
    header, *blocks = document.removesuffix("\n").split("\n\n")
    if header != "WEBVTT":
        raise ValueError(f"no header: {header!r}")
    found: list[Cue] = []
    for block in blocks:
        times, *lines = block.split("\n")
        match = _VTT_TIMES.fullmatch(times)
        text = "\n".join(lines)
        if match is None or not text or "-->" in text:
            raise ValueError(f"no cue: {block!r}")
        if re.search(r"&(?!amp;|lt;|gt;|nbsp;|lrm;|rlm;|#\d+;)", text):
            raise ValueError(f"an ampersand that starts no character reference: {text!r}")
        found.append(_cue(match, html.unescape(_VTT_TAG.sub("", text))))
    return found
