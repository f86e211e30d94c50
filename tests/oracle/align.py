"""Times of tokens and words, slowly and plainly: alignment by attention, and the guess from loudness."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .network import Encoded, SelfCache, Whisper, softmax

Array = npt.NDArray[Any]


# Alignment by attention ----------------------------------------------------------------------------------------------


def median_filter(x: Array, width: int = 7) -> Array:
    """Median over `width` neighbours along the last axis; the borders are mirrored without repeating the edge."""
    half = width // 2
    if x.shape[-1] <= half:
        return x
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(half, half)], mode="reflect")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, width, axis=-1), axis=-1)


def cost_matrix(weights: Array) -> Array:
    """Attention `(n_heads, n_tokens, n_frames)` to costs `(n_tokens, n_frames)`: low where a token is heard."""
    mean = weights.mean(axis=1, keepdims=True)
    variance = weights.var(axis=1, keepdims=True)
    return -median_filter((weights - mean) / np.sqrt(variance + 1e-9)).mean(axis=0)


def dtw_path(cost: Array) -> list[tuple[int, int]]:
    """The cheapest path from the first to the last cell; on ties one more column is taken."""
    n, m = cost.shape
    total = np.full((n + 1, m + 1), np.inf)
    came = np.full((n + 1, m + 1), -1)
    total[0, 0] = 0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            both, row, column = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
            move = 0 if both < row and both < column else 1 if row < both and row < column else 2
            came[i, j] = move
            total[i, j] = cost[i - 1, j - 1] + (both, row, column)[move]
    came[0, :], came[:, 0] = 2, 1
    i, j, path = n, m, []
    while i > 0 or j > 0:
        path.append((i - 1, j - 1))
        move = came[i, j]
        i, j = i - (move < 2), j - (move != 1)
    return path[::-1]


def row_starts(path: list[tuple[int, int]], n_rows: int) -> list[int]:
    """The first column of each row."""
    first: dict[int, int] = {}
    for row, column in path:
        first.setdefault(row, column)
    return [first[row] for row in range(n_rows)]


def attention(net: Whisper, encoded: Encoded, tokens: list[int], heads: list[tuple[int, int]], n_frames: int) -> Array:
    """Cross-attention weights `(n_heads, n_tokens, n_frames)`; the softmax sees only the first `n_frames` positions."""
    scores: list[Array] = []
    net.decode(tokens, encoded, SelfCache(), scores)
    return np.stack([softmax(scores[layer][head][:, :n_frames]) for layer, head in heads])


# The guess from loudness ---------------------------------------------------------------------------------------------


@dataclass
class Timed:
    """A token of a segment: what the decoder said about it, and its times."""

    id: int
    tid: int
    pt: float
    ptsum: float
    text: str
    t0: int = -1
    t1: int = -1


def energy(samples: Array) -> Array:
    """Mean of |x| over 65 samples, zeros outside."""
    return np.convolve(np.abs(samples.astype(np.float64)), np.ones(65), mode="same")[: len(samples)] / 65


def spoken_length(text: str) -> float:
    marks = dict.fromkeys(",，、；：", 2.0) | dict.fromkeys(".!?0123456789。．！？…０１２３４５６７８９", 3.0)
    length = sum(0.01 if ch in " \u3000" else marks.get(ch, 1.0) for ch in text)
    return float(np.float32(length))  # kept in single precision, and times are cut to whole units


@dataclass
class Guess:
    """The heuristic for one recording; segments are given in order.

    With `relative`, two defects of whisper.cpp 1.8.5 are there: loudness is looked up from the start of the segment on,
    and the first token may begin in the pause before it.
    """

    samples: Array
    beg: int
    eot: int
    thold_pt: float = 0.01
    thold_ptsum: float = 0.01
    relative: bool = False
    t_beg: int = 0
    t_last: int = 0
    tid_last: int = 0
    loud: Array = field(init=False)

    def __post_init__(self) -> None:
        self.loud = energy(self.samples)

    def fill(self, t0: int, t1: int, tokens: list[Timed]) -> None:
        n = len(tokens)
        if n == 1:
            tokens[0].t0, tokens[0].t1 = t0, t1
            return
        if tokens[0].id == self.beg:
            tokens[0].t0 = tokens[0].t1 = tokens[1].t0 = self.t_beg = self.t_last = t0
            self.tid_last = self.beg
        else:
            # of our own: not in the pause before the segment
            tokens[0].t0 = self.t_last if self.relative else max(self.t_last, t0)
        for j, token in enumerate(tokens):
            stamp = self.t_beg + 2 * (token.tid - self.beg)
            sure = token.pt > self.thold_pt and token.ptsum > self.thold_ptsum
            if sure and token.tid > self.tid_last and stamp <= t1:
                if j:
                    tokens[j - 1].t1 = stamp
                token.t0, self.tid_last = stamp, token.tid
        tokens[-2].t1 = tokens[-1].t0 = tokens[-1].t1 = self.t_last = t1
        self.fill_gaps(tokens)
        for j in range(n - 1):
            if tokens[j].t1 < 0:
                tokens[j + 1].t0 = tokens[j].t1
            if j and tokens[j - 1].t1 > tokens[j].t0:
                tokens[j].t0 = tokens[j - 1].t1
                tokens[j].t1 = max(tokens[j].t0, tokens[j].t1)
        shift = t0 if self.relative else 0
        for token in tokens:
            token.t0, token.t1 = token.t0 - shift, token.t1 - shift
        for j in range(n):
            if tokens[j].id < self.eot:
                self.adjust(tokens, j)
        for token in tokens:
            token.t0, token.t1 = token.t0 + shift, token.t1 + shift
        # Of our own: start <= end, and nothing goes back.
        now = min(tokens[0].t0, tokens[0].t1)
        for token in tokens:
            token.t0 = max(now, min(token.t0, token.t1))
            token.t1 = now = max(token.t0, token.t1)

    @staticmethod
    def fill_gaps(tokens: list[Timed]) -> None:
        ends = [j for j, token in enumerate(tokens) if token.t1 >= 0]
        first = 0
        for last in ends:
            lengths = [spoken_length(token.text) for token in tokens[first : last + 1]]
            span = tokens[last].t1 - tokens[first].t0
            for j in range(first, last):
                tokens[j].t1 = tokens[j + 1].t0 = int(tokens[j].t0 + span * lengths[j - first] / sum(lengths))
            first = last + 1

    def adjust(self, tokens: list[Timed], j: int) -> None:
        loud, last = self.loud, len(self.loud) - 1
        token = tokens[j]
        s0, s1 = (min(last, max(0, t * 160)) for t in (token.t0, token.t1))
        around = loud[max(0, s0 - 2000) : min(last + 1, s1 + 2000)]
        if not len(around):
            return
        level = around.mean() / 2
        k = s0
        if loud[s0] > level and j:
            while k and loud[k] > level:
                k -= 1
            if k // 160 < tokens[j - 1].t1:
                token.t0 = tokens[j - 1].t1
            else:
                token.t0, s0 = k // 160, k
        else:
            while loud[k] < level and k < s1:
                k += 1
            token.t0, s0 = k // 160, k
        k = s1
        if loud[s1] > level:
            while k < last and loud[k] > level:
                k += 1
            token.t1 = k // 160
            if j + 1 < len(tokens):
                token.t1 = min(token.t1, tokens[j + 1].t0)
        else:
            while loud[k] < level and k > s0:
                k -= 1
            token.t1 = k // 160


# Words ---------------------------------------------------------------------------------------------------------------


def placement_score(
    spans: list[tuple[int, int]], look: Array, voiced: Array, length: Array, weight: dict[str, float]
) -> float:
    """How good it is to have words at `spans`: attention, how long each lasts, and what a pause costs and brings."""
    n_frames = len(voiced)
    edges = [0, *(edge for span in spans for edge in span), n_frames]
    score = 0.0
    for k, (start, end) in enumerate(spans):
        score += weight["look"] * look[k, start:end].sum()
        score -= weight["duration"] * np.log((end - start) / length[k]) ** 2
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        if end > begin:
            score -= weight["voice"] * voiced[begin:end].sum() + weight["break"]
    return score


def placements(n_words: int, n_frames: int, pause: int) -> list[list[tuple[int, int]]]:
    """Every way to put words into frames. Pauses between words last at least `pause`; before and behind, any time."""
    out: list[list[tuple[int, int]]] = []

    def extend(spans: list[tuple[int, int]]) -> None:
        if len(spans) == n_words:
            out.append(spans)
            return
        last = spans[-1][1] if spans else 0
        for start in range(last, n_frames):
            if not spans or start == last or start - last >= pause:
                for end in range(start + 1, n_frames + 1):
                    extend([*spans, (start, end)])

    extend([])
    return out
