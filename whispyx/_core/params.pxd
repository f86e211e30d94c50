cdef class FullParams:
    cdef dict values

    cdef object get(self, str name)
