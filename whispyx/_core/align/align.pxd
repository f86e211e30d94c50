from whispyx._core.align.fit cimport Loudness
from whispyx._core.state cimport State

cdef int align_window(State state, list segments, int seek, int n_frames, int lang_id, int n_threads,
                      bint translate=*, bint marks=*, Loudness loudness=*) except -1
