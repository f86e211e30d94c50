"""How whoever waits for a model is told how far it is."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Progress"]

Progress = Callable[[int, "int | None", str], None]
"""Called with what is done, the total (None: not known) and a word for the work; units are bytes."""
