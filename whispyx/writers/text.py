"""Plain text: a line per segment of speech."""

from __future__ import annotations

from typing import Final, TextIO

from ..results import Transcript
from .cues import clean_lines
from .registry import Writer

__all__ = ["TXT"]


def _write_txt(transcript: Transcript, stream: TextIO) -> None:
    for segment in transcript:
        line = " ".join(clean_lines(segment.text))
        if line and not segment.no_speech:
            stream.write(line + "\n")


TXT: Final = Writer("txt", "plain text, a line per segment", _write_txt)
