"""From where heads look to when tokens are spoken: costs, and the cheapest path through them.

Steps and tie rules are those of whisper.cpp 1.8.5 (`whisper_exp_compute_token_level_timestamps_dtw`), which follow
openai/whisper (`timing.py`); dynamic time warping after Sakoe and Chiba 1978.
"""

from libc.math cimport isfinite, sqrt
from libc.stdlib cimport free, malloc

import numpy as np

from whispyx.errors import ParamsError

cdef enum:
    HALF = 3                # frames to either side in the median
    DIAGONAL = 0
    NEXT_ROW = 1
    NEXT_FRAME = 2

cdef double EPS = 1e-9
cdef double INF = float("inf")


cdef bint all_finite(const float * x, size_t n) noexcept nogil:
    cdef size_t i
    for i in range(n):
        if not isfinite(x[i]):
            return False
    return True


cdef void standardise(float * weights, int n_tokens, int n_frames, int stride) noexcept nogil:
    """Give each frame mean 0 and variance 1 over the tokens: how much more does this token look here than others?"""
    cdef int i, j
    cdef double mean, square, d, scale
    for j in range(n_frames):
        mean = square = 0
        for i in range(n_tokens):
            mean += weights[<size_t>i * stride + j]
        mean /= n_tokens
        for i in range(n_tokens):
            d = weights[<size_t>i * stride + j] - mean
            square += d * d
        scale = 1 / sqrt(square / n_tokens + EPS)
        for i in range(n_tokens):
            weights[<size_t>i * stride + j] = <float>((weights[<size_t>i * stride + j] - mean) * scale)


cdef float median_at(const float * row, int n, int at) noexcept nogil:
    """Median of the 7 values around one; what lies outside is mirrored at the border. n is at least 4."""
    cdef float sorted_[2 * HALF + 1]
    cdef float value
    cdef int k, i, place
    for k in range(2 * HALF + 1):
        i = at + k - HALF
        if i < 0:
            i = -i
        elif i >= n:
            i = 2 * (n - 1) - i
        value = row[i]
        place = k
        while place > 0 and sorted_[place - 1] > value:
            sorted_[place] = sorted_[place - 1]
            place -= 1
        sorted_[place] = value
    return sorted_[HALF]


cdef int add_head(float * weights, int n_tokens, int n_frames, int stride, int n_heads, double * cost) noexcept nogil:
    """Take a head's share from the costs (n_tokens, n_frames): its weights, standardised and smoothed, over n_heads.

    weights is (n_tokens, stride), of which the first n_frames columns are used and changed.
    """
    cdef int i, j
    cdef const float * row
    standardise(weights, n_tokens, n_frames, stride)
    for i in range(n_tokens):
        row = weights + <size_t>i * stride
        for j in range(n_frames):
            # Too few frames to mirror: they are taken as they are, as in openai/whisper.
            cost[<size_t>i * n_frames + j] -= <double>(row[j] if n_frames <= HALF else median_at(row, n_frames, j)) \
                / n_heads
    return 0


cdef int row_starts(const double * cost, int n_rows, int n_frames, int * first) noexcept nogil:
    """Find the cheapest path through the costs and write the first frame of each row.

    A step goes one row, one frame or both further; on a tie it is one frame. Return 0, or -1 without memory.
    """
    cdef size_t width = <size_t>n_frames + 1
    cdef unsigned char * moves = <unsigned char *>malloc((<size_t>n_rows + 1) * width)
    cdef double * above = <double *>malloc(width * sizeof(double))
    cdef double * here = <double *>malloc(width * sizeof(double))
    cdef double * swap
    cdef double both, row, frame
    cdef int i, j, move, status = -1
    if moves != NULL and above != NULL and here != NULL:
        for j in range(n_frames + 1):
            above[j] = INF
        above[0] = 0
        for i in range(1, n_rows + 1):
            here[0] = INF
            for j in range(1, n_frames + 1):
                both, row, frame = above[j - 1], above[j], here[j - 1]
                if both < row and both < frame:
                    move = DIAGONAL
                elif row < both and row < frame:
                    move = NEXT_ROW
                    both = row
                else:
                    move = NEXT_FRAME
                    both = frame
                moves[i * width + j] = move
                here[j] = cost[<size_t>(i - 1) * n_frames + j - 1] + both
            swap, above = above, here
            here = swap
        i, j = n_rows, n_frames
        while i > 0 and j > 0:
            first[i - 1] = j - 1        # overwritten until the first frame of the row is reached
            move = moves[i * width + j]
            if move != NEXT_FRAME:
                i -= 1
            if move != NEXT_ROW:
                j -= 1
        while i > 0:                    # not with finite costs
            i -= 1
            first[i] = 0
        status = 0
    free(moves)
    free(above)
    free(here)
    return status


def costs_of(weights):
    """Return costs, float64 (n_tokens, n_frames), of attention weights, float32 (n_heads, n_tokens, n_frames).

    Raises
    ------
    ParamsError
        No head, token or frame, or a weight that is not finite.
    """
    array = np.array(weights, dtype=np.float32, order="C")      # a copy: the steps work in place
    if array.ndim != 3 or 0 in array.shape or not np.isfinite(array).all():
        raise ParamsError("weights must be finite numbers by head, token and frame, none of them empty")
    cdef float[:, :, ::1] view = array
    out = np.zeros(array.shape[1:], dtype=np.float64)
    cdef double[:, ::1] cost = out
    cdef int h, n_heads = <int>view.shape[0], n_tokens = <int>view.shape[1], n_frames = <int>view.shape[2]
    with nogil:
        for h in range(n_heads):
            add_head(&view[h, 0, 0], n_tokens, n_frames, n_frames, n_heads, &cost[0, 0])
    return out


def starts_of(costs):
    """Return the first frame of each row, int32 (n_rows,), on the cheapest path through costs (n_rows, n_frames).

    Raises
    ------
    ParamsError
        No row or frame, or a cost that is not finite.
    """
    array = np.ascontiguousarray(costs, dtype=np.float64)
    if array.ndim != 2 or 0 in array.shape or not np.isfinite(array).all():
        raise ParamsError("costs must be finite numbers by row and frame, none of them empty")
    cdef const double[:, ::1] view = array
    out = np.zeros(array.shape[0], dtype=np.int32)
    cdef int[::1] first = out
    cdef int status
    with nogil:
        status = row_starts(&view[0, 0], <int>view.shape[0], <int>view.shape[1], &first[0])
    if status != 0:
        raise MemoryError
    return out
