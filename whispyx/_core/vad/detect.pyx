"""Speech probabilities of a recording, one for each window of 512 samples (Silero VAD, as in whisper.cpp).

Windows are independent of each other up to the LSTM, so ggml computes that part for many at once; the LSTM then goes
from window to window in a plain loop. Each window is padded by 64 samples on both sides, mirrored at its ends as
whisper.cpp does. With `carry_context` the left ones are the samples before the window instead, as in training.
"""

from libc.math cimport isfinite
from libc.string cimport memcpy
from posix.unistd cimport getpid

import numpy as np

from whispyx._core.abort cimport AbortPoll, on_abort
from whispyx._core.check cimport as_samples
from whispyx._core.handles cimport Backend, Meta, Sched, ThreadPool
from whispyx._core.log cimport last_line
from whispyx._core.source cimport Source
from whispyx._core.vad.graph cimport GRAPH_SIZE, FrontGraph, build_front
from whispyx._core.vad.model cimport (
    HOP,
    LANES,
    N_CONTEXT,
    N_FFT,
    N_FRAMES,
    N_WINDOW,
    VadWeights,
    load_weights,
)
from whispyx._core.vecmath cimport sigmoid
from whispyx._ggml.ggml cimport GGML_STATUS_ABORTED, GGML_STATUS_ALLOC_FAILED, GGML_STATUS_SUCCESS, ggml_status
from whispyx._ggml.ggml_backend cimport (
    ggml_backend_sched_alloc_graph,
    ggml_backend_sched_graph_compute,
    ggml_backend_sched_reserve,
    ggml_backend_sched_reset,
)

from whispyx._core.devices import cpu_device
from whispyx._core.cores import usable_cores
from whispyx._core.source import open_source
from whispyx.constants import MAX_THREADS
from whispyx.errors import ComputeError, ComputeMemoryError, ParamsError, StateError

cdef enum:
    BLOCK = 256                             # windows computed at once, 8 s
    FEW = 32                                # so many are computed sooner by one thread than several can be woken
    PADDED = N_CONTEXT + N_WINDOW + N_CONTEXT

cdef extern from *:
    """
    #include <string.h>

    #if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
    #define WX_VAD_CLONES __attribute__((target_clones("default", "avx2,fma", "avx512f")))
    #else
    #define WX_VAD_CLONES
    #endif
    #define WX_VAD_LANES 32

    /* gates += W h. W lies in blocks of WX_VAD_LANES rows, each block column by column, so that the sums of one block
       stay in registers. */
    WX_VAD_CLONES static void wx_vad_recur(const float * w, const float * h, float * gates, int n_gates, int n_hidden) {
        for (int b = 0; b < n_gates; b += WX_VAD_LANES) {
            float sum[WX_VAD_LANES];
            memcpy(sum, gates + b, sizeof sum);
            for (int j = 0; j < n_hidden; j++, w += WX_VAD_LANES)
                for (int l = 0; l < WX_VAD_LANES; l++) sum[l] += w[l] * h[j];
            memcpy(gates + b, sum, sizeof sum);
        }
    }
    """
    const int WX_VAD_LANES
    void wx_vad_recur(const float * w, const float * h, float * gates, int n_gates, int n_hidden) noexcept nogil


cdef void lstm_step(VadWeights w, float * gates, float * h, float * c) noexcept nogil:
    """One step of the LSTM (Hochreiter and Schmidhuber 1997, with forget gates).

    gates (n_gates,) hold the input's part, in the order input, forget, cell, output, and are used up.
    """
    cdef int n = w.n_hidden, j
    cdef float * into = gates
    cdef float * keep = gates + n
    cdef float * cell = gates + 2 * n
    cdef float * out = gates + 3 * n
    wx_vad_recur(&w.recurrent[0, 0, 0], h, gates, w.n_gates, n)
    sigmoid(into, 2 * n, 1.0)
    sigmoid(cell, n, 2.0)
    sigmoid(out, n, 1.0)
    for j in range(n):
        c[j] = keep[j] * c[j] + into[j] * (2 * cell[j] - 1)
        h[j] = c[j]
    sigmoid(h, n, 2.0)
    for j in range(n):
        h[j] = out[j] * (2 * h[j] - 1)


cdef float probability(VadWeights w, const float * h) noexcept nogil:
    """The final layer."""
    cdef float out = w.final_bias
    cdef int j
    for j in range(w.n_hidden):
        out += w.final_weight[j] * max(h[j], <float>0.0)
    sigmoid(&out, 1, 1.0)
    return out


cdef void pad_window(const float * x, long long n, long long start, const float * before, float * out) noexcept nogil:
    """Write the window that begins at `start` with 64 samples on both sides; past the recording's end it is silent.

    `before` are the samples on its left, NULL: mirrored.
    """
    cdef int i, n_here = <int>min(<long long>N_WINDOW, n - start)
    memcpy(out + N_CONTEXT, x + start, n_here * sizeof(float))
    for i in range(n_here, N_WINDOW):
        out[N_CONTEXT + i] = 0.0
    if before == NULL:
        for i in range(1, N_CONTEXT + 1):
            out[N_CONTEXT - i] = out[N_CONTEXT + i]
    else:
        memcpy(out, before, N_CONTEXT * sizeof(float))
    for i in range(1, N_CONTEXT + 1):
        out[N_CONTEXT + N_WINDOW - 1 + i] = out[N_CONTEXT + N_WINDOW - 1 - i]


cdef class VadModel:
    """A voice activity model and its memory of the sound so far. One job at a time; made by `load`."""

    @staticmethod
    def load(source, *, int n_threads=4, carry_context: bool = False) -> VadModel:
        """Read a Silero model in ggml's layout.

        Parameters
        ----------
        source
            Path, bytes-like object or binary file object.
        n_threads
            Threads to compute with; more than there are cores to run on are not started.
        carry_context
            Let each window see the 64 samples before it, as the network was trained, instead of 64 mirrored ones, as
            whisper.cpp does.

        Raises
        ------
        ModelNotFoundError, ModelFormatError
            There is no such file, or it is not a whole and sound model.
        ParamsError
            `n_threads` is not 1 to 512.
        ComputeMemoryError, BackendNotFoundError, DeviceError
            No memory, no CPU plugin, no threads.
        """
        cdef VadModel self = VadModel.__new__(VadModel)
        cdef Source opened = open_source(source)
        try:
            self.weights = load_weights(opened)
        finally:
            opened.close()
        self.process = getpid()
        self.carry_context = bool(carry_context)
        self.own_abort = AbortPoll()
        self.cpu = Backend.create(cpu_device())
        self.meta = Meta.create(0, GRAPH_SIZE)
        self.sched = Sched.create([self.cpu], GRAPH_SIZE)
        self.h = np.zeros(self.weights.n_hidden, dtype=np.float32)
        self.c = np.zeros(self.weights.n_hidden, dtype=np.float32)
        self.gates = np.zeros(self.weights.n_gates, dtype=np.float32)
        self.forget()
        self.set_threads(n_threads)
        self._reserve()
        return self

    def _reserve(self) -> None:
        """Have the memory of the largest graph, so that a job cannot run out of it half-way."""
        cdef FrontGraph front = build_front(self.meta.ptr, self.weights, BLOCK)
        if not ggml_backend_sched_reserve(self.sched.ptr, front.graph):
            raise ComputeMemoryError("no memory for the voice activity graph", log=last_line())

    @property
    def n_window(self) -> int:
        """Samples of a window."""
        return N_WINDOW

    @property
    def version(self) -> tuple[int, int, int]:
        """Version of the network, as the file states it."""
        self.check_made()
        return self.weights.version

    @property
    def probs(self):
        """Speech probabilities of the last job, float32 (n_windows,), read-only; empty when none was done or it failed.

        Later jobs make a new array and leave this one alone.
        """
        self.check_made()
        return self.probabilities

    @property
    def state(self):
        """The LSTM's output and cells, float32 (2, n_hidden), as a copy."""
        self.check_made()
        return np.array([self.h, self.c])

    def detect(self, samples, *, abort_callback=None):
        """Compute the speech probability of every window of a recording.

        Parameters
        ----------
        samples
            float32 (n_samples,), 16 kHz mono, finite. The last window is filled up with silence.
        abort_callback
            () -> bool, asked every 20 ms while computing; True stops the job.

        Returns
        -------
        numpy.ndarray
            float32 (ceil(n_samples / 512),): `probs`.

        Raises
        ------
        AudioError
            The samples are no one-dimensional float32 array, or not finite.
        StateError
            The model is closed, in use, or was made before the process forked.
        Aborted, ComputeError
            Stopped, or failed. Probabilities are empty then, and the model's memory is that of silence.
        """
        return self._job(samples, True, abort_callback)

    def detect_no_reset(self, samples, *, abort_callback=None):
        """As `detect`, but as the continuation of the samples before; give multiples of 512 samples at a time."""
        return self._job(samples, False, abort_callback)

    def _job(self, samples, bint reset, abort_callback):
        self.check_made()
        cdef const float[::1] x = as_samples(samples)
        if abort_callback is not None and not callable(abort_callback):
            raise ParamsError(f"abort_callback must be callable or None, not {abort_callback!r}")
        self.enter()
        try:
            self.own_abort.callback = abort_callback
            self._run(x, reset, self.own_abort, self.n_threads)
        finally:
            self.own_abort.callback = None
            self.busy = False
        return self.probabilities

    cdef int run(self, const float[::1] x, bint reset, AbortPoll abort, int n_threads) except -1:
        """`detect` or `detect_no_reset` of samples that `as_samples` has passed, for a job with its own AbortPoll."""
        self.enter()
        try:
            return self._run(x, reset, abort, n_threads)
        finally:
            self.busy = False

    cdef int _run(self, const float[::1] x, bint reset, AbortPoll abort, int n_threads) except -1:
        cdef float[::1] out
        done = False
        try:
            self.set_threads(n_threads)
            if reset:
                self.forget()
            array = np.empty((x.shape[0] + N_WINDOW - 1) // N_WINDOW, dtype=np.float32)
            out = array
            if self.cpu.set_abort_callback != NULL:
                self.cpu.set_abort_callback(self.cpu.ptr, on_abort, <void *>abort)
            self._detect(x, out, abort)
            array.setflags(write=False)
            self.probabilities = array
            done = True
        finally:
            if self.cpu.set_abort_callback != NULL:
                self.cpu.set_abort_callback(self.cpu.ptr, NULL, NULL)
            if not done:
                self.forget()
        return 0

    cdef int _detect(self, const float[::1] x, float[::1] out, AbortPoll abort) except -1:
        cdef long long first = 0, n_windows = out.shape[0]
        cdef int n, i
        cdef FrontGraph front
        cdef const float * gates
        cdef VadWeights w = self.weights
        cdef bint stopped = False, sound = True
        while first < n_windows:
            n = <int>min(<long long>BLOCK, n_windows - first)
            self._front(x, first, n, &front, abort)
            gates = <const float *>front.gates.data
            with nogil:
                for i in range(n):
                    if abort.stopped():
                        stopped = True
                        break
                    memcpy(&self.gates[0], gates + <size_t>i * w.n_gates, w.n_gates * sizeof(float))
                    lstm_step(w, &self.gates[0], &self.h[0], &self.c[0])
                    out[first + i] = probability(w, &self.h[0])
                    sound = sound and isfinite(out[first + i])
            if stopped:
                abort.raise_pending()
            if not sound:
                raise ComputeError("the voice activity model gives values that are no numbers")
            first += n
        return 0

    cdef int _front(self, const float[::1] x, long long first, int n, FrontGraph * front, AbortPoll abort) except -1:
        """Compute what the LSTM gets from windows first … first + n - 1."""
        cdef float window[PADDED]
        cdef float * frames
        cdef const float * before
        cdef long long start
        cdef int i, t
        cdef bint ok
        cdef ggml_status status
        ggml_backend_sched_reset(self.sched.ptr)
        self.meta.reset()
        front[0] = build_front(self.meta.ptr, self.weights, n)
        with nogil:
            ok = ggml_backend_sched_alloc_graph(self.sched.ptr, front.graph)
        if not ok:
            raise ComputeMemoryError("no memory for the voice activity graph", log=last_line())
        self._use_threads(1 if n <= FEW else self.pool.n_threads)
        with nogil:
            frames = <float *>front.frames.data
            for i in range(n):
                start = (first + i) * N_WINDOW
                before = self.context if self.carry_context else NULL
                pad_window(&x[0], x.shape[0], start, before, window)
                memcpy(self.context, window + N_WINDOW, N_CONTEXT * sizeof(float))
                for t in range(N_FRAMES):
                    memcpy(frames + (<size_t>t * n + i) * N_FFT, window + t * HOP, N_FFT * sizeof(float))
            status = ggml_backend_sched_graph_compute(self.sched.ptr, front.graph)
        if status == GGML_STATUS_ABORTED:
            abort.raise_pending()
        if status == GGML_STATUS_ALLOC_FAILED:
            raise ComputeMemoryError("the CPU ran out of memory while computing", log=last_line())
        if status != GGML_STATUS_SUCCESS:
            raise ComputeError(f"the CPU failed while computing (ggml status {<int>status})", log=last_line())
        return 0

    cdef void forget(self) noexcept:
        """Be as after loading: nothing heard, no probabilities."""
        self.h[:] = 0.0
        self.c[:] = 0.0
        for i in range(N_CONTEXT):
            self.context[i] = 0.0
        self.probabilities = EMPTY

    def reset(self) -> None:
        """Forget the sound so far; the probabilities of the last job stay."""
        probabilities = self.probabilities
        self.enter()
        self.forget()
        self.probabilities = probabilities
        self.busy = False

    cdef int set_threads(self, int n_threads) except -1:
        cdef int n
        if not 1 <= n_threads <= MAX_THREADS:
            raise ParamsError(f"n_threads is {n_threads}; 1 to {MAX_THREADS} are possible")
        if self.pool is not None and self.n_threads == n_threads:
            return 0
        # Operations here take microseconds: threads without a core of their own would only be waited for.
        n = min(n_threads, usable_cores())
        if self.pool is None or self.pool.n_threads != n:
            if self.pool is not None:
                self.pool.close()
                self.pool = None
            self.pool = ThreadPool.create(self.cpu, n)
        self.n_threads = n_threads
        return 0

    cdef void _use_threads(self, int n) noexcept:
        """Let the pool compute the next graph, or this thread alone: a pool wakes all of its workers for each graph."""
        self.pool.attach(self.cpu.ptr, NULL if n == 1 else self.pool.ptr)
        if self.cpu.set_n_threads != NULL:
            self.cpu.set_n_threads(self.cpu.ptr, n)

    @property
    def threads(self) -> int:
        """Threads that compute."""
        self.check_made()
        return 0 if self.pool is None else self.pool.n_threads

    cdef int check_made(self) except -1:
        if self.weights is None:
            raise StateError("the voice activity model was never made: call VadModel.load(source)")
        return 0

    cdef int enter(self) except -1:
        self.check_made()
        if self.closed:
            raise StateError("the voice activity model is closed")
        if self.busy:
            raise StateError("the voice activity model is in use: one job at a time; load one for each thread")
        if self.process != getpid():
            raise StateError("the voice activity model was made before the process forked; its threads are not here")
        self.busy = True
        self.own_abort.reset()
        return 0

    def request_abort(self) -> None:
        """Stop the running job; may be called from any thread."""
        self.check_made()
        self.own_abort.request()

    def close(self) -> None:
        """Free the model. Closing twice is fine; closing a model in use raises StateError. `probs` stays readable."""
        if self.busy:
            raise StateError("the voice activity model is in use and cannot be closed")
        self.closed = True
        if self.sched is not None:
            self.sched.close()
        if self.meta is not None:
            self.meta.close()
        if self.pool is not None:
            self.pool.close()
        if self.cpu is not None:
            self.cpu.close()
        if self.weights is not None:
            self.weights.close()

    def __enter__(self) -> VadModel:
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()


EMPTY = np.empty(0, dtype=np.float32)
EMPTY.setflags(write=False)
if LANES != WX_VAD_LANES:
    raise ImportError("the voice activity modules do not fit together")
