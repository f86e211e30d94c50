cdef class Loudness:
    cdef float * level          # (n_frames,) dB of the power around each 10 ms
    cdef int n_frames           # 0: nothing is known
    cdef float floor, top       # dB: nearly the quietest and nearly the loudest of the recording
    cdef double voiced(self, long long frame) noexcept nogil


cdef int fit(const double * look, const double * voiced, const double * length, int n_words, int n_frames, int * start,
             int * end) noexcept nogil
