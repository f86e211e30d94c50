from whispyx._core.state cimport State

cdef int encode_window(State state, int offset, int n_threads) except -1
