from whispyx._core.state cimport State

cdef object tensor_of(State state, str name)
