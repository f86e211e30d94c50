cdef class Source:
    cdef readonly str name
    cdef readonly long long size
    cdef readonly long long pos
    cdef int read(self, void * out, size_t n, str what) except -1
    cdef int _read(self, void * out, size_t n) except -1
    cdef int seek(self, long long pos) except -1
    cdef bytes take(self, size_t n, str what)
    cdef int i32(self, str what) except? -1
    cdef int descriptor(self) noexcept
    cdef const char * memory(self) noexcept
    cdef int check_read(self, int failed, long long offset) except -1
    cdef int check_unchanged(self) except -1
    cdef void close(self) noexcept
