"""Fits words into a stretch of sound: each word follows the one before, at once or after a pause.

The best placement is found over all of them (Viterbi over segments of free length). It weighs where attention looks,
whether the sound is loud, which it should not be in a pause, and how long a word of so many letters takes. Attention
alone is vague to a tenth of a second or two and knows no pauses.
"""

from libc.math cimport log, log10
from libc.stdlib cimport free, malloc, qsort

import numpy as np

from whispyx._core.check cimport as_samples

from whispyx.errors import ParamsError

cdef enum:
    HOP = 160                   # samples: 10 ms
    HALF = 200                  # loudness is taken over 25 ms
    PAUSE = 7                   # frames: shorter pauses belong to the words
    LONGEST = 300               # frames of one word

# Found on five clips with known word times, with two models, in wide optima.
cdef double LOOK = 0.4          # weight of attention, in standard deviations per frame
cdef double VOICE = 3.3         # of a pause's frame that is silent (lost where it is loud)
cdef double DURATION = 15.0     # of the squared logarithm of how much longer or shorter a word is than expected
cdef double BREAK = 8.0         # what a pause costs
cdef double QUIET = 0.3         # part of the way from the floor to the top below which sound is no voice
cdef double SOFT = 6.0          # dB around that, over which it changes
cdef double NEVER = -1e300

WEIGHTS = {"look": LOOK, "voice": VOICE, "duration": DURATION, "break": BREAK, "pause": PAUSE}


cdef int ascending(const void * a, const void * b) noexcept nogil:
    cdef float x = (<const float *>a)[0], y = (<const float *>b)[0]
    return (x > y) - (x < y)


cdef class Loudness:
    """Loudness of a recording every 10 ms.

    Parameters
    ----------
    samples
        float32 (n_samples,), 16 kHz mono, or None: nothing is known, and no pause will be found.
    """

    def __cinit__(self, samples):
        cdef const float[::1] x
        cdef int n, i
        cdef float * sorted_
        if samples is None or len(samples) == 0:
            return
        x = as_samples(samples)
        n = <int>(x.shape[0] // HOP) + 1
        self.level = <float *>malloc(n * sizeof(float))
        sorted_ = <float *>malloc(n * sizeof(float))
        if self.level == NULL or sorted_ == NULL:
            free(sorted_)
            raise MemoryError
        with nogil:
            for i in range(n):
                self.level[i] = sorted_[i] = decibel(&x[0], x.shape[0], <long long>i * HOP)
            qsort(sorted_, n, sizeof(float), ascending)
            self.floor, self.top = sorted_[(n - 1) // 20], sorted_[(n - 1) - (n - 1) // 20]
            # Digital silence says nothing about how loud a quiet voice is.
            self.floor = max(self.floor, self.top - 60)
        free(sorted_)
        self.n_frames = n

    cdef double voiced(self, long long frame) noexcept nogil:
        """From 1, loud, to -1, silent. Beyond the recording all is silent."""
        if self.n_frames == 0:
            return 1
        if frame < 0 or frame >= self.n_frames:
            return -1
        return max(-1.0, min(1.0, (self.level[frame] - self.floor - QUIET * (self.top - self.floor)) / SOFT))

    def __dealloc__(self):
        free(self.level)


cdef float decibel(const float * x, long long n, long long at) noexcept nogil:
    cdef long long i
    cdef double power = 0
    for i in range(max(<long long>0, at - HALF), min(n, at + HALF)):
        power += <double>x[i] * x[i]
    return <float>(10 * log10(power / (2 * HALF) + 1e-10))


cdef int fit(const double * look, const double * voiced, const double * length, int n_words, int n_frames, int * start,
             int * end) noexcept nogil:
    """Write first frame and end of each word. Return 0, 1 if there is less than a frame per word, -1 without memory.

    look (n_words, n_frames) says how much attention looks for a word; voiced (n_frames,) is 1 to -1; length (n_words,)
    is how many frames each word should take.
    """
    cdef size_t width = <size_t>n_frames + 1
    cdef double * begun = <double *>malloc(width * sizeof(double))  # best score of all before a word that begins here
    cdef double * ended = <double *>malloc(width * sizeof(double))  # … of all up to a word that ends here
    cdef double * looked = <double *>malloc(width * sizeof(double))
    cdef double * voice = <double *>malloc(width * sizeof(double))
    cdef double * lasting = <double *>malloc((LONGEST + 1) * sizeof(double))
    cdef int * began_at = <int *>malloc(n_words * width * sizeof(int))
    cdef int * ended_at = <int *>malloc(n_words * width * sizeof(int))
    cdef int k, e, s, d, best_e
    cdef double score, best
    cdef int status = -1
    if n_words > n_frames:
        status = 1
    elif (begun != NULL and ended != NULL and looked != NULL and voice != NULL and lasting != NULL
            and began_at != NULL and ended_at != NULL):
        voice[0] = looked[0] = 0
        for e in range(n_frames):
            voice[e + 1] = voice[e] + VOICE * voiced[e]
        for s in range(n_frames + 1):
            begun[s] = 0 if s == 0 else -voice[s] - BREAK
        for k in range(n_words):
            for e in range(n_frames):
                looked[e + 1] = looked[e] + LOOK * look[<size_t>k * n_frames + e]
            for d in range(1, LONGEST + 1):
                score = log(d / length[k])
                lasting[d] = -DURATION * score * score
            ended[0] = NEVER
            for e in range(1, n_frames + 1):
                best = NEVER
                began_at[k * width + e] = e - 1
                for d in range(1, min(e, <int>LONGEST) + 1):
                    score = begun[e - d] - looked[e - d] + lasting[d]
                    if score > best:
                        best = score
                        began_at[k * width + e] = e - d
                ended[e] = best + looked[e] if best > NEVER else NEVER
            # The next word begins at once, or after a pause since the best end.
            best, best_e = NEVER, 0
            for s in range(n_frames + 1):
                if s >= PAUSE and ended[s - PAUSE] > NEVER and ended[s - PAUSE] + voice[s - PAUSE] > best:
                    best, best_e = ended[s - PAUSE] + voice[s - PAUSE], s - PAUSE
                begun[s], ended_at[k * width + s] = ended[s], s
                if best > NEVER and best - voice[s] - BREAK > begun[s]:
                    begun[s], ended_at[k * width + s] = best - voice[s] - BREAK, best_e
        best, best_e = NEVER, n_frames
        for e in range(1, n_frames + 1):
            score = ended[e] if e == n_frames else ended[e] - (voice[n_frames] - voice[e]) - BREAK
            if ended[e] > NEVER and score > best:
                best, best_e = score, e
        for k in range(n_words - 1, -1, -1):
            end[k] = best_e
            start[k] = began_at[k * width + best_e]
            if k > 0:
                best_e = ended_at[(k - 1) * width + start[k]]
        status = 0
    free(begun)
    free(ended)
    free(looked)
    free(voice)
    free(lasting)
    free(began_at)
    free(ended_at)
    return status


def loudness_of(samples):
    """Return how loud a sound is every 10 ms, float64 (n_frames,): 1 is voice, -1 is silence."""
    cdef Loudness loudness = Loudness(samples)
    return np.array([loudness.voiced(i) for i in range(loudness.n_frames)])


def spans_of(look, voiced, length):
    """Fit words into a stretch of sound.

    Parameters
    ----------
    look
        (n_words, n_frames): how much attention looks for a word at a frame.
    voiced
        (n_frames,): 1 where the sound is loud, -1 where it is silent.
    length
        (n_words,): frames that each word should take, above 0.

    Returns
    -------
    list of (first frame, end)

    Raises
    ------
    ParamsError
        Shapes that do not belong together, values that are no numbers, or fewer frames than words.
    """
    cdef const double[:, ::1] a = np.ascontiguousarray(look, dtype=np.float64)
    cdef const double[::1] b = np.ascontiguousarray(voiced, dtype=np.float64)
    cdef const double[::1] c = np.ascontiguousarray(length, dtype=np.float64)
    cdef int n = <int>a.shape[0], m = <int>a.shape[1], status
    if n < 1 or n > m or b.shape[0] != m or c.shape[0] != n:
        raise ParamsError(f"{n} words do not fit {m} frames, or the other shapes are not theirs")
    if not (np.isfinite(a).all() and np.isfinite(b).all() and np.isfinite(c).all() and np.min(c) > 0):
        raise ParamsError("what is fitted must be finite numbers, lengths above 0")
    start, end = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    cdef int[::1] s = start, e = end
    with nogil:
        status = fit(&a[0, 0], &b[0], &c[0], n, m, &s[0], &e[0])
    if status != 0:
        raise MemoryError
    return list(zip(start.tolist(), end.tolist()))
