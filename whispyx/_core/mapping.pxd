from whispyx._core.source cimport Source


cdef void handle_bus_errors() noexcept

cdef class Mapping:
    cdef readonly str name
    cdef char * ptr
    cdef readonly size_t size
    cdef int fd                     # kept open, to see whether the file is still what it was
    cdef int slot                   # of the table that the signal handler looks into
    cdef bint intact(self) noexcept nogil
    cdef int check(self) except -1
    @staticmethod
    cdef Mapping of(Source source)
