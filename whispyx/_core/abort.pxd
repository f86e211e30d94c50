from libc.stdint cimport int64_t

from whispyx._ggml.ggml cimport c_bool


cdef class AbortPoll:
    cdef public object callback     # () -> bool, or None
    cdef object error               # exception raised while polling
    cdef bint requested
    cdef int64_t last_us
    cdef bint stopped(self) noexcept nogil
    cdef bint ask(self) noexcept
    cdef int raise_pending(self) except -1
    cdef void reset(self) noexcept
    cdef void begin(self, object callback) noexcept

cdef c_bool on_abort(void * data) noexcept nogil
