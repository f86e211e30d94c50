"""Cuts a recording down to its speech, and maps times in what is left back to the recording.

Regions are copied one after the other, each but the last with some of what follows it, and 0.1 s of silence between
them. Segments and tokens are mapped in different ways, as in whisper.cpp: a segment may span several regions, so its
ends are interpolated over the silence between them too; a token (since 1.9.2 there) belongs to one region, and one
that lies between two of them is moved to the nearer.

All times are hundredths of a second, but where seconds are said.
"""

from libc.math cimport isfinite
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

import numpy as np

from whispyx._core.check cimport as_samples

from whispyx.errors import ParamsError

cdef enum:
    PER_S = 16000
    PER_CS = 160
    SILENCE = 1600              # samples between two regions
    MIN_SEGMENT_CS = 10         # a mapped segment lasts at least this long
    MIN_TOKEN_CS = 1
    MAX_SAMPLES = 0x7FFFFFFF

cdef int64_t MAX_CS = 1 << 40


cdef inline int64_t to_cs(int64_t samples) noexcept nogil:
    return (samples + PER_CS // 2) // PER_CS


cdef class TimeMap:
    """Where each piece of the filtered samples lies in the recording. From `gather`; an empty one changes nothing."""

    def __dealloc__(self):
        free(self.piece)
        free(self.point)

    cdef void add_piece(self, int64_t heard_t0, int64_t heard_t1, int64_t true_t0, int64_t true_t1) noexcept:
        self.piece[self.n_pieces] = Piece(heard_t0, heard_t1, true_t0, true_t1)
        self.n_pieces += 1

    cdef void add_point(self, int64_t heard, int64_t true) noexcept:
        """Append a point of the segments' map. They come in order; of several at one time the first one counts."""
        if self.n_points and self.point[self.n_points - 1].heard == heard:
            return
        self.point[self.n_points] = Point(heard, true)
        self.n_points += 1

    cdef int64_t at_point(self, int64_t cs) noexcept nogil:
        """Map an end of a segment: linear between the two points around it, clamped outside of all."""
        cdef int low = 0, high = self.n_points - 1, middle
        cdef const Point * a
        cdef const Point * b
        if high < 0:
            return cs
        if cs <= self.point[0].heard:
            return self.point[0].true
        if cs >= self.point[high].heard:
            return self.point[high].true
        while high - low > 1:       # points[low].heard < cs <= points[high].heard
            middle = (low + high) // 2
            if self.point[middle].heard < cs:
                low = middle
            else:
                high = middle
        a, b = &self.point[low], &self.point[high]
        if b.heard == cs:
            return b.true
        return a.true + (cs - a.heard) * (b.true - a.true) // (b.heard - a.heard)

    cdef double in_piece(self, double cs, bint whole) noexcept nogil:
        """Map a time within its region: linear in it, outside of all regions the nearest boundary.

        `whole`: to whole hundredths, rounded down.
        """
        cdef int low = 0, high = self.n_pieces - 1, middle
        cdef const Piece * p
        cdef int64_t heard, true
        if high < 0:
            return cs
        while low < high:           # the first piece that ends at or after cs; the last one when none does
            middle = (low + high) // 2
            if <double>self.piece[middle].heard_t1 < cs:
                low = middle + 1
            else:
                high = middle
        p = &self.piece[low]
        if cs > p.heard_t1:
            return p.true_t1
        if cs <= p.heard_t0:
            if low > 0 and cs - self.piece[low - 1].heard_t1 <= p.heard_t0 - cs:
                return self.piece[low - 1].true_t1
            return p.true_t0
        heard, true = p.heard_t1 - p.heard_t0, p.true_t1 - p.true_t0
        if whole:
            return p.true_t0 + (<int64_t>cs - p.heard_t0) * true // heard
        return p.true_t0 + (cs - p.heard_t0) * true / heard

    cdef void map_segment(self, int64_t * t0, int64_t * t1) noexcept nogil:
        """Map both ends of a segment in place; it lasts at least 100 ms then (with an empty map nothing changes)."""
        if self.n_points == 0:
            return
        t0[0] = self.at_point(t0[0])
        t1[0] = max(self.at_point(t1[0]), t0[0] + MIN_SEGMENT_CS)

    cdef int64_t map_instant(self, int64_t cs) noexcept nogil:
        """Map a token's time; a negative one means that there is none, and stays."""
        return cs if cs < 0 else <int64_t>self.in_piece(<double>cs, True)

    cdef void map_token(self, int64_t * t0, int64_t * t1) noexcept nogil:
        """Map both ends of a token in place; it lasts at least 10 ms then. Negative times mean that there are none."""
        if self.n_pieces == 0:
            return
        t0[0] = self.map_instant(t0[0])
        if t1[0] >= 0:
            t1[0] = max(self.map_instant(t1[0]), t0[0] + MIN_TOKEN_CS)

    cdef double map_seconds(self, double seconds) noexcept nogil:
        """Map an end of a word, in seconds, as a token's is, but not rounded."""
        return seconds if seconds < 0 or self.n_pieces == 0 else self.in_piece(100.0 * seconds, False) / 100.0

    def segment_t0(self, int64_t cs) -> int:
        """Map the start of a segment."""
        return self.at_point(checked(cs))

    def segment_t1(self, int64_t cs) -> int:
        """Map the end of a segment, without its shortest duration: `segment` knows both ends."""
        return self.at_point(checked(cs))

    def segment(self, int64_t t0, int64_t t1) -> tuple[int, int]:
        """Map start and end of a segment; it lasts at least 100 ms then."""
        checked(t0)
        checked(t1)
        self.map_segment(&t0, &t1)
        return t0, t1

    def token_t0(self, int64_t cs) -> int:
        """Map the start of a token, or any instant within the speech; negative means none, and stays."""
        return self.map_instant(checked(cs))

    def token_t1(self, int64_t cs) -> int:
        """Map the end of a token, without its shortest duration: `token` knows both ends."""
        return self.map_instant(checked(cs))

    def token(self, int64_t t0, int64_t t1) -> tuple[int, int]:
        """Map start and end of a token; it lasts at least 10 ms then."""
        checked(t0)
        checked(t1)
        self.map_token(&t0, &t1)
        return t0, t1

    def seconds(self, double seconds) -> float:
        """Map an end of a word, in seconds; it is not rounded."""
        if not isfinite(seconds) or seconds > MAX_CS:
            raise ParamsError(f"{seconds} s is no time")
        return self.map_seconds(seconds)

    @property
    def points(self) -> list[tuple[int, int]]:
        """The segments' map: (time in the filtered samples, time in the recording)."""
        return [(self.point[i].heard, self.point[i].true) for i in range(self.n_points)]

    @property
    def pieces(self) -> list[tuple[int, int, int, int]]:
        """Of each region that was copied: start and end in the filtered samples, start and end in the recording."""
        return [(self.piece[i].heard_t0, self.piece[i].heard_t1, self.piece[i].true_t0, self.piece[i].true_t1)
                for i in range(self.n_pieces)]


cdef int64_t checked(int64_t cs) except? -1:
    if not -MAX_CS <= cs <= MAX_CS:
        raise ParamsError(f"{cs} is no time of a recording")
    return cs


cdef list checked_regions(object regions_cs):
    """Regions as a list of (int, int), in order."""
    cdef list out = []
    cdef int64_t before = 0, t0, t1
    for t0, t1 in regions_cs:
        if not before <= t0 <= t1 <= MAX_CS:
            raise ParamsError(f"region {len(out)} is {t0} to {t1}: regions must be in order, and end after they begin")
        out.append((t0, t1))
        before = t1
    return out


cdef struct Copy:
    int64_t start, length, copied       # samples: where from, of the region itself, of what is copied


cdef Copy copy_of(int64_t t0, int64_t t1, int64_t n, int64_t overlap) noexcept:
    """What is copied of a region. The recording's last sample never is, as in whisper.cpp."""
    cdef Copy out
    cdef int64_t stop = min(t1 * PER_CS, n - 1)
    out.start = min(t0 * PER_CS, n - 1)
    out.length = stop - out.start
    out.copied = min(stop + overlap, n - 1) - out.start
    return out


cdef tuple gather_speech(const float[::1] x, list regions_cs, double overlap_s):
    """`gather`, for samples and regions that are checked."""
    cdef TimeMap self = TimeMap.__new__(TimeMap)
    cdef int64_t n = x.shape[0], at = 0, total = 0, t0, t1, overlap = <int64_t>(<float>overlap_s * <float>PER_S)
    cdef int i, last = <int>len(regions_cs) - 1
    cdef float[::1] out
    cdef Copy c
    if n == 0 or last < 0:
        return np.empty(0, dtype=np.float32), self
    for i in range(last + 1):
        c = copy_of(regions_cs[i][0], regions_cs[i][1], n, overlap if i < last else 0)
        if c.copied > 0:
            total += c.copied + (SILENCE if i < last else 0)
    if total > MAX_SAMPLES:
        raise ParamsError(f"an overlap of {overlap_s} s makes {total} samples of speech; {MAX_SAMPLES} are possible")
    self.piece = <Piece *>calloc(last + 1, sizeof(Piece))
    self.point = <Point *>calloc(4 * (last + 1), sizeof(Point))
    if self.piece == NULL or self.point == NULL:
        raise MemoryError
    filtered = np.empty(total, dtype=np.float32)
    out = filtered
    for i in range(last + 1):
        t0, t1 = regions_cs[i]
        c = copy_of(t0, t1, n, overlap if i < last else 0)
        if c.copied <= 0:
            continue
        with nogil:
            memcpy(&out[at], &x[c.start], c.copied * sizeof(float))
        self.add_piece(to_cs(at), to_cs(at + c.length), t0, t1)
        self.add_point(to_cs(at), t0)
        self.add_point(to_cs(at + c.length), t1)
        at += c.copied
        if i < last:
            memset(&out[at], 0, SILENCE * sizeof(float))
            self.add_point(to_cs(at), t1)
            at += SILENCE
            self.add_point(to_cs(at), regions_cs[i + 1][0])
    return filtered, self


def gather(samples, regions_cs: list[tuple[int, int]], overlap_s: float = 0.1) -> tuple:
    """Return the speech of a recording, and the map of its times.

    Parameters
    ----------
    samples
        float32 (n_samples,), 16 kHz mono, finite.
    regions_cs
        Start and end of each region in hundredths of a second, in order (`regions`, `to_cs`).
    overlap_s
        Seconds that are copied past the end of every region but the last.

    Returns
    -------
    numpy.ndarray, TimeMap
        float32 (n_filtered,), and its map. Both are empty when there is no region.

    Raises
    ------
    AudioError, ParamsError
        Samples that are no finite float32 array; regions out of order; an overlap that is negative or no number.
    """
    cdef const float[::1] x = as_samples(samples)
    if not 0.0 <= overlap_s <= 1e5:
        raise ParamsError(f"the overlap is {overlap_s} s; 0 to 1e5 are possible")
    return gather_speech(x, checked_regions(regions_cs), overlap_s)
