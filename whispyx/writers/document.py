"""JSON: everything a transcript knows."""

from __future__ import annotations

import json
import re
from typing import Final, TextIO

from ..results import Transcript
from .registry import Writer

__all__ = ["JSON", "SCHEMA"]

SCHEMA: Final = 1
"""Version of the shape of the document; a field is never removed or changed without a new number."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def _write_json(transcript: Transcript, stream: TextIO) -> None:
    document = json.dumps({"schema": SCHEMA, **transcript.to_dict()}, ensure_ascii=False, indent=2, allow_nan=False)
    # half a surrogate pair (a file name that is no UTF-8) can stand in JSON as an escape only
    stream.write(_SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", document) + "\n")


JSON: Final = Writer("json", "everything, as JSON", _write_json)
