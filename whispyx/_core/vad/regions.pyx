"""From speech probabilities to regions of speech, one function for each rule (whisper.cpp's `segments_from_probs`).

A region begins at the first window at or above the threshold, and ends where the probability has been below a lower
one for long enough. Then regions that lie close together are joined, short ones dropped, and the rest padded.
Everything here counts samples from the start of the recording.
"""

from libc.stdint cimport int64_t

import numpy as np

from whispyx.errors import ParamsError

cdef enum:
    SPLIT_SILENCE = 1568    # 98 ms: a pause at which a region that becomes too long may be cut
    JOIN_GAP = 3200         # 200 ms: regions closer than this are one
    PER_MS = 16
    PER_S = 16000
    PER_CS = 160

cdef int64_t UNLIMITED = 1 << 62
cdef double LONGEST_S = 100000.0
cdef float HYSTERESIS = 0.15
cdef float LOWEST_END = 0.01


cdef struct Limits:
    float begin             # speech at or above
    float end               # silence below
    int64_t min_speech, min_silence, max_speech, pad, total


cdef struct Scan:
    bint in_speech
    int64_t start           # of the current region
    int64_t temp_end        # where silence began within it; 0: it did not
    int64_t prev_end        # end of the speech before its last long enough pause; 0: there was none
    int64_t next_start      # where speech went on after that pause


cdef int64_t max_speech_samples(double seconds, int64_t pad, int64_t window) noexcept:
    """Longest region before padding. 0 s and very long times mean no limit; fractions of a second count."""
    if seconds <= 0.0 or seconds > LONGEST_S:
        return UNLIMITED
    return max(<int64_t>(PER_S * seconds) - window - 2 * pad, <int64_t>0)


cdef Limits limits_of(params, int64_t window, int64_t n_windows) except *:
    cdef Limits out
    out.begin = params.threshold
    out.end = max(out.begin - HYSTERESIS, LOWEST_END)
    out.min_speech = <int64_t>params.min_speech_duration_ms * PER_MS
    out.min_silence = <int64_t>params.min_silence_duration_ms * PER_MS
    out.pad = <int64_t>params.speech_pad_ms * PER_MS
    out.max_speech = max_speech_samples(params.max_speech_duration_s, out.pad, window)
    out.total = n_windows * window
    return out


cdef void forget_pauses(Scan * s) noexcept:
    s.temp_end = s.prev_end = s.next_start = 0


cdef void resume(Scan * s, int64_t at) noexcept:
    """Speech after a pause that was too short to end the region."""
    if s.temp_end != 0:
        s.temp_end = 0
        if s.next_start < s.prev_end:
            s.next_start = at


cdef bint begin(Scan * s, int64_t at) noexcept:
    """Speech out of silence begins a region."""
    if s.in_speech:
        return False
    s.in_speech = True
    s.start = at
    return True


cdef bint cut(Scan * s, const Limits * lim, int64_t at, list found) except -1:
    """A region that is too long ends at its last pause, or here when it has none. True: this window is done with."""
    if not s.in_speech or at - s.start <= lim.max_speech:
        return False
    if s.prev_end != 0:
        found.append((s.start, s.prev_end))
        if s.next_start < s.prev_end:
            s.in_speech = False
        else:
            s.start = s.next_start
        forget_pauses(s)
        return False
    found.append((s.start, at))
    forget_pauses(s)
    s.in_speech = False
    return True


cdef int end(Scan * s, const Limits * lim, int64_t at, list found) except -1:
    """Silence within a region: remember it, and end the region when it is long enough."""
    if not s.in_speech:
        return 0
    if s.temp_end == 0:
        s.temp_end = at
    if at - s.temp_end > SPLIT_SILENCE:
        s.prev_end = s.temp_end
    if at - s.temp_end < lim.min_silence:
        return 0
    if s.temp_end - s.start > lim.min_speech:
        found.append((s.start, s.temp_end))
    forget_pauses(s)
    s.in_speech = False
    return 0


cdef int finish(Scan * s, const Limits * lim, list found) except -1:
    """A region that is open at the end of the recording ends there."""
    if s.in_speech and lim.total - s.start > lim.min_speech:
        found.append((s.start, lim.total))
    return 0


cdef list scan(const float[::1] probs, const Limits * lim, int64_t window):
    cdef list found = []
    cdef Scan s
    cdef Py_ssize_t i
    cdef int64_t at
    cdef float p
    s.in_speech = False
    s.start = 0
    forget_pauses(&s)
    for i in range(probs.shape[0]):
        p, at = probs[i], i * window
        if p >= lim.begin:
            resume(&s, at)
            if begin(&s, at):
                continue
        if cut(&s, lim, at, found):
            continue
        if p < lim.end:
            end(&s, lim, at, found)
    finish(&s, lim, found)
    return found


cdef list join(list found):
    """Make one of neighbours with less than 200 ms between them."""
    cdef list out = []
    for start, stop in found:
        if out and start - out[len(out) - 1][1] < JOIN_GAP:
            out[len(out) - 1] = (out[len(out) - 1][0], stop)
        else:
            out.append((start, stop))
    return out


cdef list long_enough(list found, const Limits * lim):
    return [region for region in found if region[1] - region[0] >= lim.min_speech]


cdef list padded(list found, const Limits * lim):
    """Widen every region on both sides; neighbours with too little between them share what there is."""
    cdef list out = [list(region) for region in found]
    cdef int64_t gap
    cdef Py_ssize_t i, last = len(out) - 1
    if last < 0:
        return []
    out[0][0] = max(0, out[0][0] - lim.pad)
    for i in range(last):
        gap = out[i + 1][0] - out[i][1]
        if gap < 2 * lim.pad:
            out[i][1] += gap // 2
            out[i + 1][0] -= gap // 2
        else:
            out[i][1] += lim.pad
            out[i + 1][0] -= lim.pad
    out[last][1] = min(out[last][1] + lim.pad, lim.total)
    return [(start, stop) for start, stop in out]


cpdef list regions(object probs, object params, int n_window=512):
    """Return where speech is.

    Parameters
    ----------
    probs
        float32 (n_windows,), the speech probability of each window.
    params
        A VadParams.
    n_window
        Samples of a window.

    Returns
    -------
    list of (int, int)
        First sample, and the one after the last, of each region, in order and without overlap. The last one may end
        beyond the recording, with the last window.

    Raises
    ------
    ParamsError
        Probabilities of another dtype or shape, NaN among them, or a window below one sample.
    """
    array = np.asarray(probs)
    if array.dtype != np.float32 or array.ndim != 1:
        raise ParamsError(
            f"probabilities must be a one-dimensional float32 array, not {array.ndim}-dimensional {array.dtype}"
        )
    if np.isnan(array).any():
        raise ParamsError("there are NaN among the probabilities")
    if n_window < 1:
        raise ParamsError(f"n_window is {n_window}; at least 1 is needed")
    cdef const float[::1] view = np.ascontiguousarray(array)
    cdef Limits lim = limits_of(params, n_window, view.shape[0])
    return padded(long_enough(join(scan(view, &lim, n_window)), &lim), &lim)


cpdef list to_cs(list found):
    """Return regions in hundredths of a second instead of samples, halves rounded up."""
    return [((start + PER_CS // 2) // PER_CS, (stop + PER_CS // 2) // PER_CS) for start, stop in found]
