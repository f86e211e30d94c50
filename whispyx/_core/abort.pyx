"""Stopping a job from outside: a flag, the caller's callback and Python's signals, asked while ggml computes.

ggml calls `on_abort` after every node of a graph, from the thread that started the computation. Taking the GIL each
time would slow the graph down, so Python is asked at most every 20 ms.
"""

from cpython.exc cimport PyErr_CheckSignals

from whispyx._core.clock cimport now_us
from whispyx._ggml.ggml cimport c_bool

from whispyx.errors import Aborted

cdef enum:
    POLL_US = 20000


cdef class AbortPoll:
    cdef void reset(self) noexcept:
        """Make ready for a new job."""
        self.error = None
        self.requested = False
        self.last_us = now_us()

    cdef void begin(self, object callback) noexcept:
        """Have a callback for the job that begins. It is asked at once: the job may be shorter than the pause."""
        self.callback = callback
        self.last_us = 0

    cdef bint ask(self) noexcept:
        """Ask signals and callback now. An exception is kept for `raise_pending`, and counts as yes."""
        try:
            PyErr_CheckSignals()
            if self.callback is not None and self.callback():
                self.requested = True
        except BaseException as error:
            self.error = error
            self.requested = True
        return self.requested

    cdef bint stopped(self) noexcept nogil:
        cdef int64_t now
        if self.requested:
            return True
        now = now_us()
        if now - self.last_us < POLL_US:
            return False
        self.last_us = now
        with gil:
            return self.ask()

    cdef int raise_pending(self) except -1:
        """Raise what stopped the job, if something did."""
        error, self.error = self.error, None
        if error is not None:
            raise error
        if self.requested:
            raise Aborted("the job was stopped by its abort callback")
        return 0

    def poll(self) -> bool:
        """Whether the job is to stop, for work that is done outside of ggml."""
        return self.requested or self.ask()

    def request(self) -> None:
        """Stop the running job from any thread."""
        self.requested = True


cdef c_bool on_abort(void * data) noexcept nogil:
    return (<AbortPoll>data).stopped()
