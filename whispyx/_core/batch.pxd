from libc.stdint cimport int32_t, uint64_t


cdef class Batch:
    cdef readonly int n_tokens
    cdef readonly int capacity
    cdef int n_outputs          # tokens whose logits are wanted
    cdef int32_t * token
    cdef int32_t * pos
    cdef uint64_t * seqs        # bit s: the token belongs to sequence s
    cdef bint * wants_logits
    cdef bint * early           # text of before the window, whose logits nobody wants: may be computed more coarsely
    cdef void clear(self) noexcept nogil
    cdef void add(self, int token, int pos, uint64_t seqs, bint wants_logits, bint early=*) noexcept nogil
