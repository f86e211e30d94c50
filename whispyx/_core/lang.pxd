from whispyx._core.context cimport Context
from whispyx._core.state cimport State

cdef object detect(State state, int seek, int n_threads, int first=*)
cdef int check_pair(Context ctx, State state) except -1
