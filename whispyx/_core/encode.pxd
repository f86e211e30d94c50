from whispyx._core.state cimport State

cdef int encode_window(State state, int offset, int n_threads) except -1
cdef int cross_of(State state, const float[:, ::1] encoder, int n_threads) except -1
