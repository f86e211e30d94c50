"""Writers: a transcript as plain text, subtitles or JSON.

`write` puts one to a text stream, `save` to a file: always UTF-8 with "\\n" line ends, and a file is there whole or not
at all. `register` adds a format, which the command line then offers too.
"""

from __future__ import annotations

from .document import JSON
from .registry import Writer, formats, register, save, write, writer_for
from .subtitles import SRT, VTT
from .text import TXT

__all__ = ["JSON", "SRT", "TXT", "VTT", "Writer", "formats", "register", "save", "write", "writer_for"]

for _writer in (TXT, SRT, VTT, JSON):
    register(_writer)
