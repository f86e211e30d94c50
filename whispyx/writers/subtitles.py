"""SubRip and WebVTT."""

from __future__ import annotations

import re
from typing import Final, TextIO

from ..results import Transcript
from .cues import clock, cues
from .registry import Writer

__all__ = ["SRT", "VTT"]

# A line that begins with a time: under a line of digits a SubRip reader would take it for another cue.
_TIME: Final = re.compile(r"\d+[,.:，．。：]\d+[,.:，．。：]\d")
_VTT_ESCAPES: Final = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}


def _write_srt(transcript: Transcript, stream: TextIO) -> None:
    for number, cue in enumerate(cues(transcript), start=1):
        # SubRip has no escapes: the text stands as it is, but for what a reader would take for another cue
        if any(map(_TIME.match, cue.lines)):
            lines = " ".join(cue.lines).replace("-->", "->")
        else:
            lines = "\n".join(cue.lines)
        stream.write(f"{number}\n{clock(cue.start_ms, ',')} --> {clock(cue.end_ms, ',')}\n{lines}\n\n")


def _write_vtt(transcript: Transcript, stream: TextIO) -> None:
    stream.write("WEBVTT\n")
    for cue in cues(transcript):
        lines = "\n".join(cue.lines).translate(_VTT_ESCAPES)
        stream.write(f"\n{clock(cue.start_ms, '.')} --> {clock(cue.end_ms, '.')}\n{lines}\n")


SRT: Final = Writer("srt", "SubRip subtitles", _write_srt)
VTT: Final = Writer("vtt", "WebVTT subtitles", _write_vtt)
