cdef object last_line()
