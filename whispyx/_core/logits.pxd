from whispyx._core.sequence cimport Decoder, Token
from whispyx._core.vocab cimport Vocab


cdef class LogitRules:
    cdef int n_vocab, eot, beg, n_audio_ctx
    cdef int * always           # ids that are never sampled
    cdef int n_always
    cdef int blank
    cdef bint suppress_blank, no_timestamps, single_segment
    cdef int max_tokens
    cdef int max_initial        # last timestamp allowed as the first token; -1: no limit
    cdef void _suppress(self, Decoder decoder, float * row) noexcept nogil
    cdef int process(self, Decoder decoder, float * row, float temperature) except -1
    cdef int sample(self, Decoder decoder, float temperature, Token * token) except -1
