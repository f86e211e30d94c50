from whispyx._core.description cimport Description
from whispyx._core.source cimport Source

cdef int read_magic(Source source, str what) except -1
cdef Description describe(Source source)
