"""What whisper.cpp does with the times of tokens, in plain Python: the heuristic for t0 and t1, and wrapping.

Written from a description of the rules, so that both engines' times can be checked. The defects of whisper.cpp
1.8.5 can be switched: it looks loudness up at a time counted from the segment's start (B20), and it weighs a text by
its bytes (B19). So can what breaks two of our invariants: tokens go back in time (I2) or begin before their segment,
in the pause in front of it (I3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tests.oracle.tokens import Special

RATE: Final = 16000
HALF: Final = 2000
Answer = dict[str, Any]


def energy_of(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Mean of |x| over 65 samples around each."""
    sums = np.concatenate([[0.0], np.cumsum(np.abs(samples.astype(np.float64)))])
    at = np.arange(len(samples))
    energy: npt.NDArray[np.float64] = (sums[np.minimum(at + 33, len(samples))] - sums[np.maximum(at - 32, 0)]) / 65
    return energy


def weight(text: bytes, by_bytes: bool) -> float:
    """How long a text takes to say."""
    total = 0.0
    for character in text.decode("latin-1") if by_bytes else text.decode("utf-8", "replace"):
        if character == " " or character == "\u3000":
            total += 0.01
        elif character in ",\uff0c\u3001\uff1b\uff1a":
            total += 2
        elif character in ".!?0123456789\u3002\uff0e\uff01\uff1f\u2026" or "\uff10" <= character <= "\uff19":
            total += 3
        else:
            total += 1
    return total


@dataclass
class Rules:
    """How token times are made."""

    special: Special
    texts: list[bytes]
    thold_pt: float = 0.01
    thold_ptsum: float = 0.01
    relative: bool = False  # B20
    by_bytes: bool = False  # B19
    astray: bool = False  # I2, I3

    def text(self, token: int) -> bytes:
        if token < len(self.texts):
            return self.texts[token]
        return b"[_TT_%d]" % (token - self.special.beg) if token > self.special.beg else b"[_BEG_]"


def token_times(
    segments: list[Answer], samples: npt.NDArray[np.float32], rules: Rules
) -> list[tuple[list[int], list[int]]]:
    """Start and end of every token, per segment, in units of 10 ms."""
    energy = energy_of(samples)
    beg, eot = rules.special.beg, rules.special.eot
    t_beg = t_last = tid_last = 0
    out = []
    for segment in segments:
        ids, n = segment["tokens"], len(segment["tokens"])
        first, last = segment["t0"], segment["t1"]
        t0, t1 = [-1] * n, [-1] * n
        out.append((t0, t1))
        if n < 2:
            t0[:], t1[:] = [first] * n, [last] * n
            continue
        if ids[0] == beg:
            t0[0] = t1[0] = t0[1] = t_beg = t_last = first
            tid_last = beg
        else:
            t0[0] = t_last if rules.astray else max(t_last, first)
        for j in range(n):
            stamp = t_beg + 2 * (segment["tid"][j] - beg)
            sure = segment["pt"][j] > rules.thold_pt and segment["ptsum"][j] > rules.thold_ptsum
            if sure and segment["tid"][j] > tid_last and stamp <= last:
                if j > 0:
                    t1[j - 1] = stamp
                t0[j] = stamp
                tid_last = segment["tid"][j]
        t1[n - 2] = t0[n - 1] = t1[n - 1] = t_last = last
        _share_out(t0, t1, [weight(rules.text(token), rules.by_bytes) for token in ids])
        for j in range(n - 1):
            if t1[j] < 0:
                t0[j + 1] = t1[j]
            if j > 0 and t1[j - 1] > t0[j]:
                t0[j] = t1[j - 1]
                t1[j] = max(t0[j], t1[j])
        _fit(t0, t1, [token < eot for token in ids], energy, first if rules.relative else 0)
        if not rules.astray:
            now = first
            for j in range(n):
                t0[j] = min(max(now, min(t0[j], t1[j])), last)
                t1[j] = now = min(max(t0[j], t1[j]), last)
    return out


def _share_out(t0: list[int], t1: list[int], weights: list[float]) -> None:
    """Between two known times, tokens get time in proportion to their weights, cut to whole units."""
    n, first = len(t0), 0
    while first < n:
        last = first
        while last < n - 1 and t1[last] < 0:
            last += 1
        span, total = t1[last] - t0[first], sum(weights[first : last + 1])
        for j in range(first, last):
            t1[j] = t0[j + 1] = int(t0[j] + span * weights[j] / total)
        first = last + 1


def _fit(t0: list[int], t1: list[int], is_text: list[bool], energy: npt.NDArray[np.float64], origin: int) -> None:
    """Move the ends of text tokens to where the sound rises and falls."""
    n_samples, n = len(energy), len(t0)

    def sample_of(t: int) -> int:
        return min(max(0, (t - origin) * RATE // 100), n_samples - 1)

    def time_of(k: int) -> int:
        return 100 * k // RATE + origin

    for j in range(n):
        if not is_text[j]:
            continue
        s0, s1 = sample_of(t0[j]), sample_of(t1[j])
        around = energy[max(0, s0 - HALF) : min(n_samples, s1 + HALF)]
        thold = 0.5 * float(around.mean()) if len(around) else 0.0
        k = s0
        if j > 0 and energy[k] > thold:
            while k > 0 and energy[k] > thold:
                k -= 1
            t0[j] = time_of(k)
            if t0[j] < t1[j - 1]:
                t0[j] = t1[j - 1]
            else:
                s0 = k
        else:
            while k < s1 and energy[k] < thold:
                k += 1
            s0 = k
            t0[j] = time_of(k)
        k = s1
        if energy[k] > thold:
            while k < n_samples - 1 and energy[k] > thold:
                k += 1
            t1[j] = time_of(k)
            if j < n - 1 and t1[j] > t0[j + 1]:
                t1[j] = t0[j + 1]
        else:
            while k > s0 and energy[k] < thold:
                k -= 1
            t1[j] = time_of(k)


def wrap(segment: Answer, rules: Rules, max_len: int, on_words: bool) -> list[Answer]:
    """Cut a segment with token times into pieces of at most `max_len` characters, never inside a character."""
    pieces: list[Answer] = []
    begin, length, start, pending = 0, 0, segment["t0"], b""
    ids = segment["tokens"]
    lists = [name for name, value in segment.items() if isinstance(value, list)]

    def close(end: int, until: int) -> None:
        text = b"".join(rules.text(token) for token in ids[begin:end] if token < rules.special.eot)
        piece = {**segment, **{name: segment[name][begin:end] for name in lists}}
        pieces.append({**piece, "t0": start, "t1": until, "text_hex": text.hex()})

    for j, token in enumerate(ids):
        if token >= rules.special.eot:
            continue
        text = rules.text(token)
        n = sum(byte & 0xC0 != 0x80 for byte in text)
        inside = bool(pending) and text[:1] != b"" and text[0] & 0xC0 == 0x80
        if length + n > max_len and j > begin and (not on_words or text.startswith(b" ")) and not inside:
            close(j, segment["token_t0"][j])
            begin, length, start = j, 0, segment["token_t0"][j]
        length += n
        try:
            (pending + text).decode()
            pending = b""
        except UnicodeDecodeError as error:
            pending = (pending + text)[error.start :] if error.reason == "unexpected end of data" else b""
    close(len(ids), segment["t1"])
    return pieces
