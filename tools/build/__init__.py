"""The build of whispyx: fetch ggml, compile it and its plugins, compile the Cython modules.

`setup.py` calls `commands`; `python -m tools.build --help` is for people. Only the standard library, setuptools and
Cython are imported here, because nothing else exists yet when a source distribution is built.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Final

__all__ = ["ROOT", "BuildError"]

ROOT: Final = Path(__file__).resolve().parents[2]
"""The top folder of the source tree."""


class BuildError(Exception):
    """The build cannot go on. The message is one paragraph: what was wanted, what came, what to do."""

    def paragraph(self) -> str:
        """Return the message folded to the width of a terminal."""
        text = " ".join(str(self).split())
        return textwrap.fill(f"whispyx build: {text}", width=100, break_long_words=False, break_on_hyphens=False)
