from whispyx._core.align.fit cimport Loudness
from whispyx._core.context cimport Context
from whispyx._core.params cimport FullParams
from whispyx._core.results cimport SegmentData
from whispyx._core.state cimport State


cdef void keep_inside(SegmentData segment)


cdef class Emitter:
    cdef Context ctx
    cdef State state
    cdef FullParams params
    cdef object samples         # float32 (n,), what was recognised; None: a ready spectrogram
    cdef object characters      # decoder of UTF-8: keeps the first bytes of a character for the next token
    cdef object clock           # TokenClock, or None
    cdef Loudness loudness      # None: no words are wanted
    cdef object time_map        # TimeMap, or None: times are those of the recording
    cdef long long shift        # where `samples` begin in the recording, 10 ms units
    cdef long long end          # of the recording, 10 ms units: a region of speech may end with a window beyond it
    cdef readonly list segments
    cdef int start(self) except -1
    cdef int window(self, list found, int seek, int n_frames, int lang, int n_threads) except -1
    cdef list dress(self, object segment)
    cdef int show(self, SegmentData segment) except -1
    cdef long long place(self, long long t) except? -1
    cdef int to_recording(self, object segment) except -1
    cdef int give_out(self, list pieces) except -1
