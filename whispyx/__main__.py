"""`python -m whispyx` is the command line."""

from __future__ import annotations

import sys

from .cli import program

if __name__ == "__main__":
    sys.exit(program())
