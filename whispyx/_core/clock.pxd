from libc.stdint cimport int64_t

from whispyx._ggml.ggml cimport ggml_time_us


cdef inline int64_t now_us() noexcept nogil:
    """Microseconds of a clock that never goes back."""
    return ggml_time_us()
