cdef void job_begins() noexcept
cdef void job_ends() noexcept
cdef int share_of(int wanted) noexcept nogil
cdef void at_work(int n) noexcept


cdef class Pace:
    cdef int left_out       # threads that are not used for now
    cdef int bad            # runs in a row in which a thread had to wait for one that was not running
    cdef int hold           # runs until one thread more is tried
    cdef int patience       # runs to hold after the next trial that fails
    cdef bint trying
    cdef int threads(self, int wanted) noexcept nogil
    cdef void ran(self, int used, int slept) noexcept nogil
