cdef int n_code_points(const unsigned char * text, Py_ssize_t n) noexcept nogil
cdef int expected_after(const unsigned char * text, Py_ssize_t n, int expected) noexcept nogil
cdef bint continues(const unsigned char * text, Py_ssize_t n) noexcept nogil
cdef double voice_length(const unsigned char * text, Py_ssize_t n) noexcept nogil
