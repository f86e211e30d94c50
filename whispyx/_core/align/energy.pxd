from whispyx._core.results cimport SegmentData
from whispyx._core.vocab cimport Vocab


cdef class TokenClock:
    cdef object samples                 # keeps the memory of the energy
    cdef const float[::1] energy        # (n_samples,)
    cdef int n_samples
    cdef float thold_pt, thold_ptsum
    cdef int beg
    cdef Vocab vocab
    cdef long long t_beg, t_last        # cs: start of the window, end of the last segment
    cdef int tid_last
    cdef int times(self, SegmentData segment) except -1
