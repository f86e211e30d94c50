"""SubRip and WebVTT."""

from __future__ import annotations

import re
from typing import Final, TextIO

from ..results import Transcript
from .cues import clock, cues
from .registry import Writer

__all__ = ["SRT", "VTT"]

# A line of text that a SubRip reader would take for the times of another cue.
_TIMING: Final = re.compile(r"^(\s*\d+:\d+(?::\d+)?[,.]?\d*\s*)-->")
_VTT_ESCAPES: Final = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}


def _write_srt(transcript: Transcript, stream: TextIO) -> None:
    for number, cue in enumerate(cues(transcript), start=1):
        # SubRip has no escapes: the text stands as it is, but for an arrow where it would start another cue
        lines = "\n".join(_TIMING.sub(r"\1->", line) for line in cue.lines)
        stream.write(f"{number}\n{clock(cue.start_ms, ',')} --> {clock(cue.end_ms, ',')}\n{lines}\n\n")


def _write_vtt(transcript: Transcript, stream: TextIO) -> None:
    stream.write("WEBVTT\n")
    for cue in cues(transcript):
        lines = "\n".join(cue.lines).translate(_VTT_ESCAPES)
        stream.write(f"\n{clock(cue.start_ms, '.')} --> {clock(cue.end_ms, '.')}\n{lines}\n")


SRT: Final = Writer("srt", "SubRip subtitles", _write_srt)
VTT: Final = Writer("vtt", "WebVTT subtitles", _write_vtt)
