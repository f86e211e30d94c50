# distutils: language = c++
"""Beam search: after every step the best continuations of all decoders take the decoders' places.

Every running decoder offers its `size` most probable next tokens. All offers are ordered by the log probability of the
whole text, then by decoder, and the running decoders take them in turn, never the same text twice. A finished text
keeps its place (whisper.cpp's form), or with patience leaves the beam until size * patience texts are finished (Kasai
et al. 2022, as OpenAI's reference decoder does).

In whisper.cpp the offers are random draws, among them equal ones; `draw` does the same, for comparisons.
"""

from libc.math cimport lround
from libc.stdlib cimport free, malloc

from whispyx._core.grammar cimport GrammarState
from whispyx._core.kvcache cimport KvCache
from whispyx._core.logits cimport LogitRules
from whispyx._core.sequence cimport Decoder, EndRules, Token, advance

from whispyx.constants import MAX_DECODERS


cdef class BeamSearch:
    """The beam of one run.

    Parameters
    ----------
    size
        Continuations that each decoder offers.
    capacity
        Tokens a decoder can hold.
    patience
        Above 0: how many times `size` texts are collected before the search ends. Else a finished text stays in the
        beam.
    draw
        Draw the continuations at random, with replacement.
    """

    def __cinit__(self, int size, int capacity, float patience=-1.0, bint draw=False):
        self.size, self.draw = size, draw
        self.wanted = max(1, <int>lround(size * patience)) if patience > 0.0 else 0
        self.saved = [Decoder(i, capacity) for i in range(MAX_DECODERS)]
        self.finished = []
        self.pool = <Candidate *>malloc(size * MAX_DECODERS * sizeof(Candidate))
        if self.pool == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.pool)

    cdef void reset(self) noexcept:
        self.finished = []

    cdef int expand(self, Decoder decoder, LogitRules rules) except -1:
        """Put a decoder's continuations into the pool and keep a copy of what it has said."""
        cdef Token tokens[MAX_OFFERS]
        cdef Candidate * candidate
        cdef int i, n = rules.candidates(decoder, self.size, self.draw, tokens)
        for i in range(n):
            candidate = &self.pool[self.n_pool]
            candidate.source, candidate.token = decoder.index, tokens[i]
            candidate.sum_all = decoder.sum_all + tokens[i].plog
            self.n_pool += 1
        (<Decoder>self.saved[decoder.index]).follow(decoder)
        return n

    cdef void sort(self) noexcept nogil:
        """Best text first, then the lower decoder; equal offers of one decoder stay in their order."""
        cdef int i, j
        cdef Candidate moved
        for i in range(1, self.n_pool):
            moved = self.pool[i]
            j = i
            while j > 0 and (self.pool[j - 1].sum_all < moved.sum_all or (
                    self.pool[j - 1].sum_all == moved.sum_all and self.pool[j - 1].source > moved.source)):
                self.pool[j] = self.pool[j - 1]
                j -= 1
            self.pool[j] = moved

    cdef bint same(self, const Candidate * a, const Candidate * b) noexcept:
        return a.token.id == b.token.id and (
            a.source == b.source or (<Decoder>self.saved[a.source]).same_tokens(self.saved[b.source]))

    cdef int next_candidate(self, int at, list taken) except -2:
        """Return the first candidate from `at` on whose text nobody has taken, -1 when there is none."""
        cdef int other
        while at < self.n_pool:
            for other in taken:
                if self.same(&self.pool[at], &self.pool[other]):
                    break
            else:
                return at
            at += 1
        return -1

    cdef int give(self, Decoder decoder, const Candidate * candidate, int i_step, const EndRules * ends) except -1:
        """Let a decoder go on with a candidate."""
        cdef Decoder source = self.saved[candidate.source]
        decoder.follow(source)
        if decoder.grammar is not None:
            decoder.grammar = (<GrammarState>decoder.grammar).copy()
        decoder.append(&candidate.token)
        advance(decoder, i_step, ends)
        return 0

    cdef int step(self, list decoders, int n, LogitRules rules, KvCache kv, int first, int i_step,
                  const EndRules * ends) except -1:
        """Choose the next token of n decoders, whose sequences begin at `first`. Returns how many offers there were."""
        cdef Decoder decoder, kept
        cdef int i, at = -1, n_offers
        cdef int source[MAX_OFFERS]
        cdef list taken = []
        self.n_pool = 0
        for i in range(n):
            source[i] = -1
            decoder = decoders[i]
            if not decoder.completed and not decoder.failed:
                self.expand(decoder, rules)
        self.sort()
        n_offers = self.n_pool
        for i in range(n):
            decoder = decoders[i]
            if decoder.completed or decoder.failed:
                continue
            while True:
                if self.draw:
                    at = self.next_draw(at, i_step)
                else:
                    at = self.next_candidate(at + 1, taken)
                if at < 0 and self.wanted:
                    decoder.failed = True       # every offer is taken
                    break
                at = max(at, 0)
                taken.append(at)
                self.give(decoder, &self.pool[at], i_step, ends)
                if not decoder.completed and not decoder.failed:
                    source[i] = self.pool[at].source
                    break
                if not self.wanted:
                    break
                if decoder.completed:
                    kept = Decoder(decoder.index, decoder.capacity)
                    kept.follow(decoder)
                    self.finished.append(kept)
        if self.wanted and len(self.finished) >= self.wanted:
            for i in range(n):
                decoder = decoders[i]
                if not decoder.completed:
                    decoder.failed = True
        kv.seq_move(first, n, source)
        return n_offers

    cdef int next_draw(self, int at, int i_step) noexcept:
        """Return the candidate after `at`, from the front again at the end; equal texts that follow it are one."""
        if i_step > 0 and at >= 0:
            while at + 1 < self.n_pool and self.same(&self.pool[at + 1], &self.pool[at]):
                at += 1
        return at + 1 if at + 1 < self.n_pool else 0
