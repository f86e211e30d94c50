"""Two small measurements of the machine: how fast it copies memory, and how fast ggml's CPU plugin multiplies matrices.

The sizes are those of whisper.cpp's micro-benchmarks. Between two runs Python looks for signals, so Ctrl-C stops them.
"""

import threading

from cpython.exc cimport PyErr_CheckSignals
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from whispyx._core.clock cimport now_us
from whispyx._core.handles cimport Backend, Buffer, Meta, Sched, ThreadPool
from whispyx._core.log cimport last_line
from whispyx._ggml.ggml cimport (
    GGML_STATUS_SUCCESS,
    GGML_TYPE_F16,
    GGML_TYPE_F32,
    GGML_TYPE_Q4_0,
    GGML_TYPE_Q4_1,
    GGML_TYPE_Q5_0,
    GGML_TYPE_Q5_1,
    GGML_TYPE_Q8_0,
    ggml_build_forward_expand,
    ggml_cgraph,
    ggml_mul_mat,
    ggml_new_graph_custom,
    ggml_new_tensor_2d,
    ggml_status,
    ggml_tensor,
    ggml_type,
)
from whispyx._ggml.ggml_backend cimport (
    GGML_BACKEND_BUFFER_USAGE_ANY,
    ggml_backend_buffer_clear,
    ggml_backend_get_default_buffer_type,
    ggml_backend_sched_graph_compute,
)

from whispyx._core.devices import cpu_device
from whispyx.constants import MAX_THREADS
from whispyx.errors import ComputeError, ComputeMemoryError, ParamsError

COPY_BYTES = 1 << 30
COPY_REPEATS = 20
MUL_MAT_SIZES = (64, 128, 256, 512, 1024, 2048, 4096)
MAX_RUNS, MIN_RUNS = 128, 3
MAX_SECONDS = 1.0

cdef dict TYPES = {
    "q4_0": <int>GGML_TYPE_Q4_0, "q4_1": <int>GGML_TYPE_Q4_1, "q5_0": <int>GGML_TYPE_Q5_0,
    "q5_1": <int>GGML_TYPE_Q5_1, "q8_0": <int>GGML_TYPE_Q8_0, "f16": <int>GGML_TYPE_F16, "f32": <int>GGML_TYPE_F32,
}
MUL_MAT_TYPES = tuple(TYPES)


cdef class Pair:
    """Two blocks of memory of the same size."""

    cdef char * source
    cdef char * dest
    cdef size_t size

    def __cinit__(self, size_t size):
        self.size = size
        self.source, self.dest = <char *>malloc(size), <char *>malloc(size)
        if self.source == NULL or self.dest == NULL:
            raise ComputeMemoryError(f"no memory for two blocks of {size / 1e6:.0f} MB")
        with nogil:
            memset(self.source, 1, size)    # pages exist once they are written
            memset(self.dest, 0, size)

    def __dealloc__(self):
        free(self.source)
        free(self.dest)

    def copy(self, size_t start, size_t end) -> None:
        """Copy one part; any number of threads may copy at once."""
        with nogil:
            memcpy(self.dest + start, self.source + start, end - start)

    def checksum(self) -> int:
        """Return the sum of the copy, so that it cannot be optimised away."""
        cdef unsigned long long total = 0
        cdef size_t i
        with nogil:
            for i in range(self.size):
                total += <unsigned char>self.dest[i]
        return total


def _copy_rate(Pair pair, int n_threads, int n_repeats) -> float:
    cdef long long start
    cdef size_t step = (pair.size + n_threads - 1) // n_threads
    parts = [(min(i * step, pair.size), min((i + 1) * step, pair.size)) for i in range(n_threads)]
    start = now_us()
    for _ in range(n_repeats):
        helpers = [threading.Thread(target=pair.copy, args=part, daemon=True) for part in parts[1:]]
        for helper in helpers:
            helper.start()
        pair.copy(*parts[0])
        for helper in helpers:
            helper.join()
        PyErr_CheckSignals()
    return 1e-3 * n_repeats * pair.size / max(1, now_us() - start)


def memcpy_rates(int n_threads, size_t n_bytes=COPY_BYTES, int n_repeats=COPY_REPEATS) -> list:
    """Copy `n_bytes` between two blocks again and again.

    Returns
    -------
    list of (str, float)
        What was measured and its GB/s: a first round, one thread, then 1 to `n_threads` threads.

    Raises
    ------
    ParamsError
        No thread, no byte or no repetition.
    ComputeMemoryError
        The memory is not there.
    """
    if not 1 <= n_threads <= MAX_THREADS or n_bytes < 1 or n_repeats < 1:
        raise ParamsError(f"{n_threads} threads (1 to {MAX_THREADS}), {n_bytes} bytes, {n_repeats} repetitions")
    cdef Pair pair = Pair(n_bytes)
    rates = [("heat-up", _copy_rate(pair, 1, 1)), ("1 thread", _copy_rate(pair, 1, n_repeats))]
    for n in range(1, n_threads + 1):
        rates.append((f"{n} thread{'' if n == 1 else 's'}", _copy_rate(pair, n, n_repeats)))
    if pair.checksum() != n_bytes:
        raise ComputeError("the copy differs from its source")
    return rates


def mul_mat_rate(str type_name, int n, int n_threads, int max_runs=MAX_RUNS, double max_seconds=MAX_SECONDS) -> tuple:
    """Multiply two n x n matrices on the CPU until time is up, three times at least.

    Parameters
    ----------
    type_name
        Type of the first matrix, one of `MUL_MAT_TYPES`; the second is f32.
    n
        Rows and columns, a multiple of 32.
    n_threads
        Threads, the caller's one included.
    max_runs, max_seconds
        When to stop.

    Returns
    -------
    tuple of (float, int)
        Billions of floating-point operations in a second (2 n³ each run), and how many runs there were.

    Raises
    ------
    ParamsError
        An argument is out of range.
    ComputeError, ComputeMemoryError
        The computation fails, or there is no memory for it.
    """
    cdef Meta meta
    cdef Buffer buffer
    cdef Backend backend
    cdef ThreadPool pool
    cdef Sched sched
    cdef ggml_tensor * a
    cdef ggml_tensor * b
    cdef ggml_tensor * c
    cdef ggml_cgraph * graph
    cdef ggml_status status
    cdef long long spent = 0, start
    cdef int runs = 0
    if type_name not in TYPES:
        raise ParamsError(f"there is no weight type {type_name!r} here; there are {', '.join(TYPES)}")
    if not 32 <= n <= 16384 or n % 32:
        raise ParamsError(f"n is {n}; a multiple of 32 up to 16384 is needed")
    if not 1 <= n_threads <= MAX_THREADS or max_runs < 1:
        raise ParamsError(f"{n_threads} threads (1 to {MAX_THREADS}), {max_runs} runs (at least 1)")
    backend = Backend.create(cpu_device())
    pool = ThreadPool.create(backend, n_threads)
    if backend.set_n_threads != NULL:
        backend.set_n_threads(backend.ptr, n_threads)
    sched = Sched.create([backend], 16)
    meta = Meta.create(3, 8)
    try:
        a = ggml_new_tensor_2d(meta.ptr, <ggml_type><int>TYPES[type_name], n, n)
        b = ggml_new_tensor_2d(meta.ptr, GGML_TYPE_F32, n, n)
        c = ggml_mul_mat(meta.ptr, a, b)
        graph = ggml_new_graph_custom(meta.ptr, 8, False)
        ggml_build_forward_expand(graph, c)
        buffer = Buffer.for_tensors(meta, ggml_backend_get_default_buffer_type(backend.ptr),
                                    GGML_BACKEND_BUFFER_USAGE_ANY, f"{n} x {n} matrices")
        # Zero is a sound value in every type, and no slower than others.
        ggml_backend_buffer_clear(buffer.ptr, 0)
        while runs < max_runs and (runs < MIN_RUNS or spent < max_seconds * 1e6):
            start = now_us()
            with nogil:
                status = ggml_backend_sched_graph_compute(sched.ptr, graph)
            if status != GGML_STATUS_SUCCESS:
                raise ComputeError(f"the CPU failed to multiply (ggml status {<int>status})", log=last_line())
            spent += now_us() - start
            runs += 1
            PyErr_CheckSignals()
    finally:
        sched.close()
        pool.close()
        if buffer is not None:
            buffer.close()
        meta.close()
        backend.close()
    return 2.0 * n * n * n * runs / max(spent, 1) / 1e3, runs
