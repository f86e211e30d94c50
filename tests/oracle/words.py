"""Compares words and their times with a forced alignment."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

SPELT = {"mr": "mister", "mrs": "missus"}


@dataclass
class Errors:
    """Signed errors in seconds of the words that were recognised, and how many were spoken."""

    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    n_true: int = 0


def spoken(path: Path) -> list[tuple[str, float, float]]:
    """Words of an alignment file with their start and end. The number of a variant of its sound is left out."""
    entries = json.loads(path.read_text(encoding="utf-8"))["w"]
    return [
        (re.sub(r"\(\d+\)", "", entry["t"]), entry["b"], entry["b"] + entry["d"])
        for entry in entries
        if not entry["t"].startswith("<")
    ]


def plain(text: str) -> str:
    word = re.sub(r"[^a-z']", "", text.lower())
    return SPELT.get(word, word)


def compare(words: Sequence[tuple[str, float, float]], path: Path) -> Errors:
    """Pair (text, start, end) of what was recognised with what was spoken, in order, and subtract."""
    truth = spoken(path)
    out = Errors(n_true=len(truth))
    ours, theirs = [plain(word[0]) for word in words], [word[0] for word in truth]
    for block in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks():
        for k in range(block.size):
            _, start, end = words[block.a + k]
            _, true_start, true_end = truth[block.b + k]
            out.starts.append(start - true_start)
            out.ends.append(end - true_end)
    return out
