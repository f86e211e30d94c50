cdef class Rng:
    cdef void * engine          # std::mt19937; hidden here so that only this module is C++
    cdef void seed(self, unsigned int seed) noexcept
    cdef int draw(self, const float * logits, int n, double log_z) except -1 nogil
