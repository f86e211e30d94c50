from whispyx._core.abort cimport AbortPoll
from whispyx._core.handles cimport Backend, Meta, Sched, ThreadPool
from whispyx._core.vad.graph cimport FrontGraph
from whispyx._core.vad.model cimport N_CONTEXT, VadWeights


cdef class VadModel:
    cdef readonly bint carry_context
    cdef readonly bint closed
    cdef bint busy
    cdef int process                # the one it was made in
    cdef int n_threads              # as asked for
    cdef VadWeights weights
    cdef Backend cpu
    cdef ThreadPool pool
    cdef Meta meta
    cdef Sched sched
    cdef AbortPoll own_abort        # used when a job brings none
    cdef float[::1] h               # (n_hidden,) output of the LSTM
    cdef float[::1] c               # (n_hidden,) its cells
    cdef float[::1] gates           # (n_gates,) scratch
    cdef float context[N_CONTEXT]   # the last samples of the window before
    cdef object probabilities       # float32 (n_windows,) of the last job, read-only

    cdef int run(self, const float[::1] x, bint reset, AbortPoll abort, int n_threads) except -1
    cdef void forget(self) noexcept
    cdef int enter(self) except -1
    cdef int check_made(self) except -1
    cdef int _run(self, const float[::1] x, bint reset, AbortPoll abort, int n_threads) except -1
    cdef int set_threads(self, int n_threads) except -1
    cdef void _use_threads(self, int n) noexcept
    cdef int _detect(self, const float[::1] x, float[::1] out, AbortPoll abort) except -1
    cdef int _front(self, const float[::1] x, long long first, int n, FrontGraph * front, AbortPoll abort) except -1
