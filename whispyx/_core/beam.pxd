from whispyx._core.kvcache cimport KvCache
from whispyx._core.logits cimport LogitRules
from whispyx._core.sequence cimport Decoder, EndRules, Token


cdef enum:
    MAX_OFFERS = 8          # decoders, and continuations of each


cdef struct Candidate:
    int source              # decoder that it continues
    double sum_all
    Token token


cdef class BeamSearch:
    cdef int size           # continuations per decoder
    cdef bint draw          # whisper.cpp's random continuations instead of the best ones
    cdef int wanted         # finished texts to collect; 0: a finished text keeps its place
    cdef list saved         # copies of the decoders before a step
    cdef list finished      # texts that have left the beam
    cdef Candidate * pool
    cdef int n_pool
    cdef void reset(self) noexcept
    cdef int expand(self, Decoder decoder, LogitRules rules) except -1
    cdef void sort(self) noexcept nogil
    cdef bint same(self, const Candidate * a, const Candidate * b) noexcept
    cdef int next_candidate(self, int at, list taken) except -2
    cdef int next_draw(self, int at, int i_step) noexcept
    cdef int give(self, Decoder decoder, const Candidate * candidate, int i_step, const EndRules * ends) except -1
    cdef int step(self, list decoders, int n, LogitRules rules, KvCache kv, int first, int i_step,
                  const EndRules * ends) except -1
