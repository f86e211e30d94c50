from whispyx._core.description cimport Description

cdef Description describe(object source)
