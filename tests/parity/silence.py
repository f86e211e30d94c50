"""What whisper.cpp does around voice activity: the sound without silence, and the way back to the recording's times.

Written from a description of the rules. Regions are pairs of times in units of 10 ms.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

RATE: Final = 16000
GAP: Final = 1600  # samples of silence between two regions
Regions = list[tuple[int, int]]


def cut(samples: npt.NDArray[np.float32], regions: Regions, overlap_s: float) -> tuple[npt.NDArray[np.float32], Way]:
    """Return the sound of the regions, each but the last with some overlap and a short silence, and the way back."""
    parts: list[npt.NDArray[np.float32]] = []
    whole: list[tuple[int, int, int, int]] = []
    table: dict[int, int] = {}
    at = 0
    for i, (first, last) in enumerate(regions):
        final = i == len(regions) - 1
        begin, end = first * 160, min(last * 160, len(samples) - 1)
        stop = min(end + (0 if final else int(overlap_s * RATE)), len(samples) - 1)
        table.setdefault(_cs(at), first)
        table.setdefault(_cs(at + end - begin), last)
        whole.append((_cs(at), _cs(at + end - begin), first, last))
        parts.append(samples[begin:stop])
        at += stop - begin
        if not final:
            table.setdefault(_cs(at), last)
            parts.append(np.zeros(GAP, np.float32))
            at += GAP
            table.setdefault(_cs(at), regions[i + 1][0])
    joined = np.concatenate(parts) if parts else np.zeros(0, np.float32)
    return joined, Way(sorted(table.items()), whole)


def _cs(sample: int) -> int:
    return (100 * sample + RATE // 2) // RATE


@dataclass(frozen=True)
class Way:
    """Back from the time line without silence."""

    table: list[tuple[int, int]]
    regions: list[tuple[int, int, int, int]]  # start, end there; start, end in the recording

    def point(self, t: int) -> int:
        table = self.table
        if t <= table[0][0]:
            return table[0][1]
        if t >= table[-1][0]:
            return table[-1][1]
        for (x0, y0), (x1, y1) in itertools.pairwise(table):
            if t == x1:
                return y1
            if x0 <= t < x1:
                return y0 + (t - x0) * (y1 - y0) // (x1 - x0)
        raise AssertionError

    def segment(self, t0: int, t1: int) -> tuple[int, int]:
        start = self.point(t0)
        return start, max(self.point(t1), start + 10)

    def token(self, t: int) -> int:
        """Inside a region in proportion, between two regions the nearer end."""
        for i, (x0, x1, y0, y1) in enumerate(self.regions):
            if t <= x0:
                if i and t - self.regions[i - 1][1] < x0 - t:
                    return self.regions[i - 1][3]
                return y0
            if t <= x1:
                return y0 + (t - x0) * (y1 - y0) // max(1, x1 - x0)
        return self.regions[-1][3]

    def answer(self, answer: dict[str, Any]) -> dict[str, Any]:
        """An answer with all its times in the recording."""
        segments = []
        for old in answer["segments"]:
            segment = dict(old)
            segment["t0"], segment["t1"] = self.segment(old["t0"], old["t1"])
            first, last = segment["t0"], segment["t1"]
            starts, ends = [], []
            for t0, t1 in zip(old["token_t0"], old["token_t1"], strict=True):
                start = self.token(t0) if t0 >= 0 else t0
                end = max(self.token(t1), start + 1) if t1 >= 0 else t1
                # of our own: tokens lie in their segment, whose ends are mapped by another rule
                starts.append(min(max(start, first), last) if t0 >= 0 else t0)
                ends.append(min(max(end, first), last) if t1 >= 0 else t1)
            segment["token_t0"], segment["token_t1"] = starts, ends
            segments.append(segment)
        return {**answer, "segments": segments}
