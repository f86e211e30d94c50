"""Tokens that go through the decoder together, each with its position and the sequences it belongs to."""

from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport calloc, free


cdef class Batch:
    """Room for `capacity` tokens; whoever fills it keeps within that (`decode` checks)."""

    def __cinit__(self, int capacity):
        self.capacity = capacity
        self.token = <int32_t *>calloc(capacity, sizeof(int32_t))
        self.pos = <int32_t *>calloc(capacity, sizeof(int32_t))
        self.seqs = <uint64_t *>calloc(capacity, sizeof(uint64_t))
        self.wants_logits = <bint *>calloc(capacity, sizeof(bint))
        self.early = <bint *>calloc(capacity, sizeof(bint))
        if self.token == NULL or self.pos == NULL or self.seqs == NULL or self.wants_logits == NULL \
                or self.early == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.token)
        free(self.pos)
        free(self.seqs)
        free(self.wants_logits)
        free(self.early)

    cdef void clear(self) noexcept nogil:
        self.n_tokens = self.n_outputs = 0

    cdef void add(self, int token, int pos, uint64_t seqs, bint wants_logits, bint early=False) noexcept nogil:
        cdef int i = self.n_tokens
        self.token[i] = token
        self.pos[i] = pos
        self.seqs[i] = seqs
        self.wants_logits[i] = wants_logits
        self.early[i] = early and not wants_logits
        self.n_outputs += wants_logits
        self.n_tokens += 1
