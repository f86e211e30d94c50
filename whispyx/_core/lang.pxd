from whispyx._core.state cimport State

cdef object detect(State state, int seek, int n_threads)
