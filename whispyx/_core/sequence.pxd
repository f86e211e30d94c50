from whispyx._core.kernels cimport wx_scan
from whispyx._core.sampling cimport Rng
from whispyx._core.vocab cimport Vocab


cdef struct Token:
    int id
    int tid             # most probable timestamp
    float p             # probability of id
    float plog
    float pt            # share of tid among the timestamps
    float ptsum         # probability of all timestamps together


cdef class Decoder:
    cdef readonly int index
    cdef Token * tokens
    cdef int n_tokens, capacity
    cdef int result_len         # tokens that count: up to the last timestamp, or all
    cdef int seek_delta         # frames that the window's text covers
    cdef bint failed, completed, has_ts
    cdef bint looped            # failed because its tokens repeat
    cdef bint untimed           # failed because its text has ended and has no time at all
    cdef double sum_all         # log probability of all tokens so far; beams are compared by it
    cdef object grammar         # GrammarState, or None
    cdef double sum_logprobs, avg_logprobs, entropy, score
    cdef float * logits         # processed row of the next token; owned by the state
    cdef double log_z           # log of the sum of exp(logits)
    cdef wx_scan found          # what one pass over the row found; `arg` is the most probable token that may follow
    cdef Rng rng
    cdef void reset(self) noexcept
    cdef void follow(self, Decoder other) noexcept
    cdef bint same_tokens(self, Decoder other) noexcept
    cdef int append(self, const Token * token) except -1
    cdef void rank(self, float length_penalty, float entropy_thold) noexcept


cdef int repeats(Decoder decoder, Vocab vocab) noexcept


cdef struct EndRules:
    int beg, end, eot
    int max_tokens
    int max_steps               # tokens a window may have
    int seek, seek_end, delta_min
    bint single_segment, no_timestamps

cdef void advance(Decoder decoder, int i, const EndRules * rules) noexcept
