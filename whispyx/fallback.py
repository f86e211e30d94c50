"""What was done on another device than by default: which, where instead, and why."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

__all__ = ["Fallback", "remember", "remembered"]

MOST_REMEMBERED: Final = 100


@dataclass(frozen=True, slots=True)
class Fallback:
    """One thing that could not be had, and what was used in its place.

    Attributes
    ----------
    wanted : str
        The device or plugin that comes first by the default order.
    used : str
        The device that was used instead.
    reason : str
        One sentence.
    """

    wanted: str
    used: str
    reason: str

    def __str__(self) -> str:
        return f"{self.used} instead of {self.wanted}: {self.reason}"


_lock: Final = threading.Lock()
_remembered: Final[dict[Fallback, None]] = {}


def remember(fallback: Fallback) -> None:
    """Keep a fallback for reports about the whole process, once."""
    with _lock:
        if len(_remembered) < MOST_REMEMBERED:
            _remembered[fallback] = None


def remembered() -> tuple[Fallback, ...]:
    """Return the fallbacks of all models of this process, oldest first."""
    with _lock:
        return tuple(_remembered)
