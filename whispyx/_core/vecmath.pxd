cdef float max_of(const float * x, int n) noexcept nogil
cdef double sum_exp(const float * x, int n, float top) noexcept nogil
cdef int arg_max(const float * x, int n) noexcept nogil
