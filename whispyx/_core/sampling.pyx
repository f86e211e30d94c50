# distutils: language = c++
"""Random choice of the next token. One generator per decoder, seeded for every run, so that runs repeat."""

from libc.math cimport exp
from libcpp.vector cimport vector

cdef extern from "<random>" namespace "std" nogil:
    cdef cppclass mt19937:
        mt19937(unsigned int seed) except +

    cdef cppclass discrete_distribution[T]:
        discrete_distribution(vector[double].iterator first, vector[double].iterator last) except +
        T operator()(mt19937 & engine) except +


cdef class Rng:
    """32-bit Mersenne twister with the C++ standard's categorical distribution, as whisper.cpp uses them."""

    def __cinit__(self):
        self.engine = new mt19937(0)

    def __dealloc__(self):
        cdef mt19937 * engine = <mt19937 *>self.engine
        del engine

    cdef void seed(self, unsigned int seed) noexcept:
        (<mt19937 *>self.engine)[0] = mt19937(seed)

    cdef int draw(self, const float * logits, int n, double log_z) except -1 nogil:
        """Draw an index with probability exp(logits - log_z)."""
        cdef vector[double] weights
        cdef discrete_distribution[int] * choose
        cdef int i
        weights.resize(n)
        for i in range(n):
            # whisper.cpp keeps probabilities as floats; the same rounding gives the same draws.
            weights[i] = <float>exp(logits[i] - log_z)
        choose = new discrete_distribution[int](weights.begin(), weights.end())
        i = choose[0]((<mt19937 *>self.engine)[0])
        del choose
        return i
