"""Start and end of tokens from the probabilities of timestamps and the loudness of the sound.

The rules of whisper.cpp 1.8.5 (`whisper_exp_compute_token_level_timestamps`) with two corrections: loudness is looked
up at a time of the whole recording, and the length of a text counts characters instead of bytes.
"""

import logging

from libc.math cimport fabsf, llrint
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

import numpy as np

from whispyx._core.align.chars cimport voice_length
from whispyx._core.check cimport as_samples
from whispyx._core.results cimport SegmentData, TokenData
from whispyx._core.vocab cimport Vocab

_logger = logging.getLogger("whispyx.core")

cdef enum:
    SAMPLE_RATE = 16000
    HALF_SMOOTH = 32            # samples to either side that loudness is averaged over
    HALF_WINDOW = 2000          # samples around a token that say what is loud: 125 ms to either side


cdef int64_t sample_of(int64_t cs, int64_t n_samples) noexcept nogil:
    return max(<int64_t>0, min(n_samples - 1, cs * SAMPLE_RATE // 100))


cdef int64_t time_of(int64_t sample) noexcept nogil:
    return 100 * sample // SAMPLE_RATE


cdef int smooth(const float * x, int64_t n, float * energy) noexcept nogil:
    """energy[i] = sum of |x| over i - 32 to i + 32, divided by 65. Return 0, or -1 without memory.

    The running sum is one of whole numbers, so that what was loud leaves nothing behind in silence.
    """
    cdef int64_t i, total = 0
    cdef int64_t * level
    cdef float top = 0
    cdef double unit
    for i in range(n):
        top = max(top, fabsf(x[i]))
    if top == 0:
        for i in range(n):
            energy[i] = 0
        return 0
    level = <int64_t *>malloc((2 * HALF_SMOOTH + 1) * sizeof(int64_t))     # a ring: levels still in the sum
    if level == NULL:
        return -1
    unit = <double>top / (<int64_t>1 << 40)
    for i in range(2 * HALF_SMOOTH + 1):
        level[i] = 0
    for i in range(n + HALF_SMOOTH):
        total -= level[i % (2 * HALF_SMOOTH + 1)]
        level[i % (2 * HALF_SMOOTH + 1)] = llrint(fabsf(x[i]) / unit) if i < n else 0
        total += level[i % (2 * HALF_SMOOTH + 1)]
        if i >= HALF_SMOOTH:
            energy[i - HALF_SMOOTH] = <float>(total * unit / (2 * HALF_SMOOTH + 1))
    free(level)
    return 0


def energy_of(samples):
    """Return the smoothed loudness of samples, float32 (n_samples,): the mean of |x| over 65 of them."""
    cdef const float[::1] x = as_samples(samples)
    out = np.empty(x.shape[0], dtype=np.float32)
    cdef float[::1] view = out
    cdef int status = 0
    if x.shape[0] > 0:
        with nogil:
            status = smooth(&x[0], x.shape[0], &view[0])
    if status != 0:
        raise MemoryError
    return out


cdef class TokenClock:
    """Gives the tokens of a run's segments their times, segment by segment in order.

    Parameters
    ----------
    samples
        float32 (n_samples,), 16 kHz mono: the sound that the times refer to. None or empty: there is no loudness to go
        by, and tokens keep unknown times.
    thold_pt, thold_ptsum
        How probable a token's timestamp, among the timestamps, and timestamps in all must be to be believed.
    vocab
        The model's vocabulary.
    """

    def __init__(self, samples, float thold_pt, float thold_ptsum, Vocab vocab not None) -> None:
        if samples is not None and len(samples) > 0:
            self.samples = energy_of(samples)
            self.energy = self.samples
            self.n_samples = <int>self.energy.shape[0]
        self.thold_pt, self.thold_ptsum = thold_pt, thold_ptsum
        self.beg, self.vocab = vocab.beg, vocab
        self.t_beg = self.t_last = 0
        self.tid_last = 0

    cdef int times(self, SegmentData segment) except -1:
        """Fill t0, t1 and vlen of the segment's tokens."""
        cdef list tokens = list(segment.tokens)
        cdef TokenData token
        if not tokens:
            return 0
        if self.n_samples == 0:
            _logger.warning("there are no samples, so tokens get no times")
            return 0
        if len(tokens) == 1:
            token = tokens[0]
            token.t0, token.t1 = segment.t0, segment.t1
            return 0
        believe(self, segment, tokens)
        share_out(tokens)
        put_in_order(tokens)
        fit_to_sound(self, tokens)
        keep_in_order(tokens)
        return 0

    def fill(self, SegmentData segment not None) -> None:
        """Fill t0, t1 and vlen of the segment's tokens, in units of 10 ms."""
        self.times(segment)


cdef int believe(TokenClock clock, SegmentData segment, list tokens) except -1:
    """Take the timestamps that are probable enough and not before earlier ones."""
    cdef TokenData token, before, after
    cdef int j, n = len(tokens)
    cdef long long stamp
    token = tokens[0]
    if token.id == clock.beg:
        after = tokens[1]
        token.t0 = token.t1 = after.t0 = segment.t0
        clock.t_beg = clock.t_last = segment.t0
        clock.tid_last = clock.beg
    else:
        # Where a pause lies between two segments, the second one's text is not spread over it.
        token.t0 = max(clock.t_last, segment.t0)
    before = None
    for j in range(n):
        token = tokens[j]
        stamp = clock.t_beg + 2 * (token.tid - clock.beg)
        token.vlen = <float>voice_length(token.text, len(token.text))
        if (token.pt > clock.thold_pt and token.ptsum > clock.thold_ptsum and token.tid > clock.tid_last
                and stamp <= segment.t1):
            if before is not None:
                before.t1 = stamp
            token.t0 = stamp
            clock.tid_last = token.tid
        before = token
    before = tokens[n - 2]
    token = tokens[n - 1]
    before.t1 = token.t0 = token.t1 = segment.t1
    clock.t_last = segment.t1
    return 0


cdef int share_out(list tokens) except -1:
    """Between two known times, give each token time in proportion to its length."""
    cdef TokenData token, after
    cdef int first = 0, last, j, n = len(tokens)
    cdef double total, span
    while first < n:
        last = first
        while last < n - 1 and (<TokenData>tokens[last]).t1 < 0:
            last += 1
        if last > first:
            total = 0
            for j in range(first, last + 1):
                total += (<TokenData>tokens[j]).vlen
            span = (<TokenData>tokens[last]).t1 - (<TokenData>tokens[first]).t0
            for j in range(first, last):
                token, after = tokens[j], tokens[j + 1]
                token.t1 = after.t0 = <long long>(
                    token.t0 + (span * token.vlen / total if total > 0 else span / (last - first + 1)))
        first = last + 1
    return 0


cdef int put_in_order(list tokens) except -1:
    """No token begins before the one in front of it ends."""
    cdef TokenData before = None, token, after
    cdef int j
    for j in range(len(tokens) - 1):
        token, after = tokens[j], tokens[j + 1]
        if token.t1 < 0:
            after.t0 = token.t1
        if before is not None and before.t1 > token.t0:
            token.t0 = before.t1
            token.t1 = max(token.t0, token.t1)
        before = token
    return 0


cdef int fit_to_sound(TokenClock clock, list tokens) except -1:
    """Move the start and the end of each text token to where the sound rises and falls."""
    cdef TokenData before = None, token, after
    cdef int j, n = len(tokens)
    cdef int64_t s0, s1, k, low, high
    cdef double total
    cdef float thold
    cdef const float * energy = &clock.energy[0]
    for j in range(n):
        token = tokens[j]
        after = tokens[j + 1] if j + 1 < n else None
        if clock.vocab.is_text(token.id):
            s0, s1 = sample_of(token.t0, clock.n_samples), sample_of(token.t1, clock.n_samples)
            low, high = max(<int64_t>0, s0 - HALF_WINDOW), min(<int64_t>clock.n_samples, s1 + HALF_WINDOW)
            if low >= high:
                before = token
                continue        # it ends long before it begins: see keep_in_order
            total = 0
            for k in range(low, high):
                total += energy[k]
            thold = <float>(0.5 * total / (high - low))

            k = s0
            if energy[k] > thold and before is not None:
                while k > 0 and energy[k] > thold:
                    k -= 1
                token.t0 = time_of(k)
                if token.t0 < before.t1:
                    token.t0 = before.t1
                else:
                    s0 = k
            else:
                while k < s1 and energy[k] < thold:
                    k += 1
                s0 = k
                token.t0 = time_of(k)

            k = s1
            if energy[k] > thold:
                while k < clock.n_samples - 1 and energy[k] > thold:
                    k += 1
                token.t1 = time_of(k)
                if after is not None and token.t1 > after.t0:
                    token.t1 = after.t0
            else:
                while k > s0 and energy[k] < thold:
                    k -= 1
                token.t1 = time_of(k)
        before = token
    return 0


cdef int keep_in_order(list tokens) except -1:
    """Whatever the rules before made of odd timestamps: a token ends after it begins, and after the one before."""
    cdef TokenData token = tokens[0]
    cdef long long now = min(token.t0, token.t1)
    for token in tokens:
        token.t0 = max(now, min(token.t0, token.t1))
        token.t1 = now = max(token.t0, token.t1)
    return 0
