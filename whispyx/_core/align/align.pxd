from whispyx._core.state cimport State

cdef int align_window(State state, list segments, int seek, int n_frames, int lang_id, int n_threads,
                      bint translate=*, bint marks=*) except -1
