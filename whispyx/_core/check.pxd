cdef const float[::1] as_samples(object samples)
