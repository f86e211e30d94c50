from whispyx._core.graph.decoder cimport Head
from whispyx._core.state cimport State

cdef int read_tokens(State state, object tokens, int n_past, bint all_logits) except -1
cdef int decode_batch(State state, int n_threads) except -1
cdef int watch_batch(State state, const Head * heads, int n_heads, int n_positions, float * out,
                     int n_threads) except -1
cdef int need_rows(State state, int n) except -1
