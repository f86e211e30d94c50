from whispyx._core.abort cimport AbortPoll
from whispyx._core.hparams cimport HParams


cdef class External:
    cdef readonly object given          # what the caller gave
    cdef readonly str name              # for messages
    cdef object session                 # None: `given` itself is called
    cdef bint closed
    cdef object run(self, object mel, HParams hp, int n_threads, AbortPoll abort)
    cdef void close(self) noexcept

cdef int check_external(object encoder, HParams hp, str model, str fingerprint) except -1
cdef External open_external(object encoder, HParams hp, str model, str fingerprint)
