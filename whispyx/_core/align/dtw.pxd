cdef bint all_finite(const float * x, size_t n) noexcept nogil
cdef int add_head(float * weights, int n_tokens, int n_frames, int stride, int n_heads, double * cost) noexcept nogil
cdef int row_starts(const double * cost, int n_rows, int n_frames, int * first) noexcept nogil
