from whispyx._core.vocab cimport Vocab

cdef class History:
    cdef public list carried      # tokens in front of every window
    cdef public list rolling      # tokens of the windows so far
    cdef public list used         # the part of `rolling` that was in the last prompt
    cdef list prompt(self, Vocab vocab, list init, int n_max_text_ctx, int n_text_ctx, float temperature)
    cdef void forget(self) noexcept
