from libc.stdint cimport int64_t


cdef struct Piece:                  # one region, all in hundredths of a second
    int64_t heard_t0, heard_t1      # on the time line of the filtered samples; what is copied beyond its end left out
    int64_t true_t0, true_t1        # in the recording


cdef struct Point:
    int64_t heard, true


cdef class TimeMap:
    cdef readonly int n_pieces, n_points
    cdef Piece * piece
    cdef Point * point

    cdef int64_t at_point(self, int64_t cs) noexcept nogil
    cdef double in_piece(self, double cs, bint whole) noexcept nogil
    cdef void map_segment(self, int64_t * t0, int64_t * t1) noexcept nogil
    cdef void map_token(self, int64_t * t0, int64_t * t1) noexcept nogil
    cdef int64_t map_instant(self, int64_t cs) noexcept nogil
    cdef double map_seconds(self, double seconds) noexcept nogil
    cdef void add_piece(self, int64_t heard_t0, int64_t heard_t1, int64_t true_t0, int64_t true_t1) noexcept
    cdef void add_point(self, int64_t heard, int64_t true) noexcept

cdef tuple gather_speech(const float[::1] x, list regions_cs, double overlap_s)
