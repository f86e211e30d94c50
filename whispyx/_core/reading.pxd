from whispyx._core.description cimport Record

cdef long long rows_of(Record record) noexcept
cdef size_t placed_bytes(Record record) except? 0
cdef object read_floats(Record record)


cdef class Rows:
    cdef char * raw             # a piece as it is in the file
    cdef float * wide           # the same as f32
    cdef int read(self, Record record, long long first, long long n, char * to) except -1
