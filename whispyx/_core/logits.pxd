from whispyx._core.kernels cimport wx_scan
from whispyx._core.sequence cimport Decoder, Token
from whispyx._core.vocab cimport Vocab


cdef class LogitRules:
    cdef int n_vocab, eot, beg, end, n_audio_ctx
    cdef int * always           # ids that are never sampled
    cdef int n_always
    cdef int * first_listed     # ids that are not sampled first, besides the blank and the end
    cdef int n_first_listed
    cdef int blank
    cdef bint suppress_blank, no_timestamps, single_segment
    cdef int max_tokens
    cdef int max_initial        # last timestamp allowed as the first token; -1: no limit
    cdef object filter          # the caller's callback, or None
    cdef object regex           # RegexSuppressor, or None
    cdef int * non_speech       # ids suppressed after the callback
    cdef int n_non_speech
    cdef float grammar_penalty
    cdef Vocab vocab
    cdef void _no_words(self, float * row, int last) noexcept nogil
    cdef void _suppress_before(self, Decoder decoder, float * row) noexcept nogil
    cdef int _filter(self, Decoder decoder, float * row) except -1
    cdef void _suppress_after(self, Decoder decoder, float * row) noexcept nogil
    cdef void _look(self, Decoder decoder, float * row) noexcept nogil
    cdef bint _time_wins(self, const wx_scan * found) noexcept nogil
    cdef void _times(self, Decoder decoder, Token * token) noexcept nogil
    cdef void _take(self, Decoder decoder, int id, Token * token) noexcept nogil
    cdef int process(self, Decoder decoder, float * row, float temperature) except -1
    cdef int sample(self, Decoder decoder, float temperature, Token * token) except -1
    cdef int candidates(self, Decoder decoder, int n, bint draw, Token * found) except -1
