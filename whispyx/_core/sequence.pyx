"""The tokens of one decoder in one window: when it ends, when it has failed, how good it is.

Rules of Radford et al. 2022, section 4.5, in whisper.cpp's form.
"""

from libc.math cimport INFINITY, log, pow
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from whispyx._core.sampling cimport Rng
from whispyx._core.vocab cimport Vocab

cdef enum:
    FRAMES_PER_WINDOW = 3000
    ENTROPY_TOKENS = 32
    N_TEXT = 512            # more than a window can hold
    LONGEST_PIECE = 16


cdef class Decoder:
    def __cinit__(self, int index, int capacity):
        self.index, self.capacity = index, capacity
        self.rng = Rng()
        self.tokens = <Token *>malloc(capacity * sizeof(Token))
        if self.tokens == NULL:
            raise MemoryError
        self.reset()

    def __dealloc__(self):
        free(self.tokens)

    cdef void reset(self) noexcept:
        self.n_tokens = self.result_len = 0
        self.seek_delta = FRAMES_PER_WINDOW
        self.failed = self.completed = self.has_ts = self.looped = self.untimed = False
        self.sum_logprobs = self.avg_logprobs = self.score = -INFINITY
        self.entropy = 0.0
        self.logits = NULL
        self.sum_all = 0.0
        self.grammar = None

    cdef void follow(self, Decoder other) noexcept:
        """Take over what another decoder has said. Its generator and its row of logits stay its own."""
        self.n_tokens, self.result_len, self.seek_delta = other.n_tokens, other.result_len, other.seek_delta
        self.failed, self.completed, self.has_ts = other.failed, other.completed, other.has_ts
        self.untimed = other.untimed
        self.sum_all, self.grammar = other.sum_all, other.grammar
        memcpy(self.tokens, other.tokens, other.n_tokens * sizeof(Token))

    cdef bint same_tokens(self, Decoder other) noexcept:
        cdef int i
        if self.n_tokens != other.n_tokens:
            return False
        for i in range(self.n_tokens):
            if self.tokens[i].id != other.tokens[i].id:
                return False
        return True

    cdef int append(self, const Token * token) except -1:
        if self.n_tokens >= self.capacity:
            raise IndexError("a decoder ran past its text context")
        self.tokens[self.n_tokens] = token[0]
        self.n_tokens += 1
        self.sum_all += token.plog
        return 0

    cdef void rank(self, float length_penalty, float entropy_thold) noexcept:
        """Cut to the tokens that count and score them. A loop (low entropy of the last tokens) is a failure.

        A text that has no time at all cannot be cut where its times end, so all of it counts.
        """
        cdef int i, j, same, n = self.n_tokens if self.untimed else self.result_len, first
        cdef double penalty
        self.n_tokens = n
        if n == 0:
            return
        self.sum_logprobs = 0.0
        for i in range(n):
            self.sum_logprobs += self.tokens[i].plog
        self.avg_logprobs = self.sum_logprobs / n
        penalty = pow((5.0 + n) / 6.0, length_penalty) if length_penalty > 0.0 else n
        self.score = self.sum_logprobs / penalty

        first = max(0, n - ENTROPY_TOKENS)
        self.entropy = 0.0
        for i in range(first, n):
            same = 0
            for j in range(first, n):
                same += self.tokens[j].id == self.tokens[i].id
            # Each of the `same` equal tokens adds its share of -p log p.
            self.entropy -= log(<double>same / (n - first)) / (n - first)
        if n > ENTROPY_TOKENS and self.entropy < entropy_thold:
            self.failed = self.looped = True


cdef int repeats(Decoder decoder, Vocab vocab) noexcept:
    """Return how often in a row a piece of 1 to 16 text tokens is said, the largest count of any piece."""
    cdef int size, start, again, i, n = 0, most = 1
    cdef int text[N_TEXT]
    for i in range(decoder.n_tokens):
        if vocab.is_text(decoder.tokens[i].id) and n < N_TEXT:
            text[n] = decoder.tokens[i].id
            n += 1
    for size in range(1, LONGEST_PIECE + 1):
        for start in range(n):
            again, i = 1, start
            while i + 2 * size <= n and memcmp(&text[i], &text[i + size], size * sizeof(int)) == 0:
                again += 1
                i += size
            most = max(most, again)
    return most


cdef void advance(Decoder decoder, int i, const EndRules * rules) noexcept:
    """Take note of the i-th token, just appended: timestamps, end of the text, failures."""
    cdef int token = decoder.tokens[i].id, new_delta
    cdef bint near_end
    if rules.beg < token < rules.end:
        new_delta = 2 * (token - rules.beg)
        if decoder.has_ts and decoder.seek_delta > new_delta and decoder.result_len < i:
            decoder.failed = True       # time went back
            return
        decoder.seek_delta = new_delta
        decoder.result_len = i + 1
        decoder.has_ts = True

    near_end = rules.seek + decoder.seek_delta + rules.delta_min >= rules.seek_end
    if token == rules.eot or (rules.max_tokens > 0 and i >= rules.max_tokens) or (decoder.has_ts and near_end):
        if decoder.result_len == 0 and not rules.no_timestamps:
            if near_end:
                decoder.result_len = i + 1
            else:
                # A text without any time does not say where the next window starts.
                decoder.failed = True
                decoder.untimed = token == rules.eot
                return
        if rules.single_segment or rules.no_timestamps:
            decoder.result_len = i + 1
            decoder.seek_delta = FRAMES_PER_WINDOW
        decoder.completed = True
        return

    if i == rules.max_steps - 1 and (decoder.result_len == 0 or decoder.seek_delta < FRAMES_PER_WINDOW // 2):
        decoder.failed = True           # most likely a repetition loop
