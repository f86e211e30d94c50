from whispyx._core.attempt cimport Attempt
from whispyx._core.context cimport Context
from whispyx._core.emit cimport Emitter
from whispyx._core.params cimport FullParams
from whispyx._core.state cimport State


cdef enum Phase:
    START
    VAD
    MEL
    LANGUAGE
    SEEK
    ENCODE
    ATTEMPT
    PROMPT
    STEP
    RANK
    EMIT
    ADVANCE
    DONE


cdef class FullRun:
    cdef Context ctx
    cdef State state
    cdef FullParams params
    cdef object samples             # float32 (n,), or None: use the state's mel
    cdef int n_samples
    cdef Phase next
    cdef long long started_us
    cdef long long use              # the state's count of uses when this run last had it

    cdef int lang                   # id, -1: not known yet
    cdef object language_probability
    cdef bint no_timestamps
    cdef list temperatures, init, windows
    cdef list speech                # (t0, t1) of the regions with a voice
    cdef Emitter emitter
    cdef Attempt attempt            # the decoders, at one temperature after the other
    cdef int first                  # sequence of the first decoder; 0 unless runs share the state
    cdef int n_threads

    cdef int seek, seek_start, seek_end
    cdef int encoded_seek           # window in the cross cache, -1: none
    cdef int i_temperature

    cdef int enter(self) except -1
    cdef Phase _start(self) except *
    cdef Phase _vad(self) except *
    cdef Phase _mel(self) except *
    cdef Phase _language(self) except *
    cdef Phase _seek(self) except *
    cdef void _fit(self) noexcept
    cdef Phase _encode(self) except *
    cdef Phase _attempt(self) except *
    cdef Phase _decode(self) except *
    cdef int fill(self) except -1
    cdef int take(self, int row) except -1
    cdef Phase _rank(self) except *
    cdef Phase _emit(self) except *
    cdef Phase _advance(self) except *
    cdef int advance_phase(self) except -1
    cdef int _run_phase(self, Phase phase) except -1
    cdef void be_part(self, long long shift, object time_map, long long end) noexcept
