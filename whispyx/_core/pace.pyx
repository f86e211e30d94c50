"""How many threads a token is worth while other processes want the cores, too.

The threads of a step wait for each other some fifty times in a millisecond or two. When another process takes a core
away from one of them, all wait for it; fewer threads, each with a core of its own, are then faster than more. Whoever
waits long goes to sleep, and how often that happens tells the state of things. Results do not depend on it.
"""

from whispyx._core.cores import usable_cores

cdef enum:
    BAD_IN_A_ROW = 2
    FIRST_HOLD = 8
    LONGEST_HOLD = 128


cdef int n_running = 0      # jobs of the process; changed with the GIL only
cdef int n_cores = 1
cdef int n_working = 0      # threads that graphs of the kernels have been given, of all jobs; with the GIL only, too


cdef void job_begins() noexcept:
    global n_running, n_cores
    n_running += 1
    if n_running > 1:
        n_cores = usable_cores()


cdef void job_ends() noexcept:
    global n_running
    n_running -= 1


cdef int share_of(int wanted) noexcept nogil:
    """How many of its threads a job may use so that all jobs of the process together have a core for each.

    A job that is alone uses what it was given.
    """
    return wanted if n_running <= 1 else max(1, min(wanted, n_cores // n_running))


cdef void at_work(int n) noexcept:
    """Take note of n more threads that work on a graph, or of -n fewer."""
    global n_working
    n_working += n


def working() -> int:
    """Return how many threads work on graphs of our kernels now, in the whole process, for tests."""
    return n_working


def shares(int wanted, int n_jobs) -> int:
    """Return what each of n_jobs jobs uses of `wanted` threads, for tests."""
    for _ in range(n_jobs):
        job_begins()
    try:
        return share_of(wanted)
    finally:
        for _ in range(n_jobs):
            job_ends()


cdef class Pace:
    def __cinit__(self):
        self.patience = FIRST_HOLD

    cdef int threads(self, int wanted) noexcept nogil:
        """Return how many of the threads that are wanted the next run should use."""
        self.left_out = min(self.left_out, wanted - 1)
        self.trying = False
        if self.left_out > 0 and self.hold <= 0:
            self.trying = True
            return wanted - self.left_out + 1
        return wanted - self.left_out

    cdef void ran(self, int used, int slept) noexcept nogil:
        """Take note of a run: threads used, and how often one went to sleep."""
        if self.trying:
            self.trying = False
            if slept > 0:
                self.hold = self.patience
                self.patience = min(2 * self.patience, <int>LONGEST_HOLD)
                return
            self.left_out -= 1
            self.bad = 0
            self.hold = FIRST_HOLD      # one step at a time
            self.patience = FIRST_HOLD
            return
        self.hold -= 1
        self.bad = self.bad + 1 if slept > 0 else 0
        if used > 1 and self.bad >= BAD_IN_A_ROW:
            self.left_out += 1
            self.bad = 0
            self.hold = self.patience
            self.patience = min(2 * self.patience, <int>LONGEST_HOLD)


def plan(wanted: int, slept) -> list[int]:
    """Return the threads that each run would use, for tests; `slept(i, used)` tells how often one slept in run i."""
    cdef Pace pace = Pace()
    cdef int used, i = 0
    out = []
    while True:
        used = pace.threads(wanted)
        n = slept(i, used)
        if n is None:
            return out
        out.append(used)
        pace.ran(used, n)
        i += 1
