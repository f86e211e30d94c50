cdef double sum_exp(const float * x, int n, float top) noexcept nogil
cdef int arg_max(const float * x, int n) noexcept nogil
cdef int top_k(const float * x, int n, int k, int * found) noexcept nogil
cdef float probability_of(const float * row, int n, int i) noexcept nogil
cdef void sigmoid(float * x, int n, float slope) noexcept nogil
