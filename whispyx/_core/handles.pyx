"""Owners of ggml objects, one class per kind.

Life cycle of each: `create` makes the object or raises; `close` frees it and may be called twice; the destructor
closes. Who holds a handle keeps alive what it depends on (a scheduler its backends, a pool its backend).
`live()` counts open handles per kind, so that a test can see a leak.
"""

from posix.unistd cimport getpid

from whispyx._core.devices cimport Device, Watch, device_error
from whispyx._core.log cimport last_line
from whispyx._ggml.ggml cimport (
    GGML_OP_NONE,
    GGML_OP_PERMUTE,
    GGML_OP_RESHAPE,
    GGML_OP_TRANSPOSE,
    GGML_OP_VIEW,
    GGML_STATUS_SUCCESS,
    ggml_cgraph,
    ggml_free,
    ggml_graph_n_nodes,
    ggml_graph_node,
    ggml_graph_overhead_custom,
    ggml_init,
    ggml_init_params,
    ggml_op_name,
    ggml_reset,
    ggml_tensor,
    ggml_tensor_overhead,
    ggml_threadpool_params,
    ggml_threadpool_params_init,
    ggml_threadpool_t,
)
from whispyx._ggml.ggml_alloc cimport (
    ggml_backend_alloc_ctx_tensors_from_buft,
    ggml_backend_alloc_ctx_tensors_from_buft_size,
)
from whispyx._ggml.ggml_backend cimport (
    ggml_backend_buffer_free,
    ggml_backend_buffer_get_alloc_size,
    ggml_backend_buffer_get_base,
    ggml_backend_buffer_get_size,
    ggml_backend_buffer_get_type,
    ggml_backend_buffer_is_host,
    ggml_backend_buffer_name,
    ggml_backend_buffer_set_usage,
    ggml_backend_buffer_t,
    ggml_backend_buft_get_device,
    ggml_backend_dev_buffer_from_host_ptr,
    ggml_backend_dev_get_props,
    ggml_backend_dev_init,
    ggml_backend_dev_name,
    ggml_backend_dev_props,
    ggml_backend_dev_t,
    ggml_backend_free,
    ggml_backend_sched_free,
    ggml_backend_sched_get_buffer_size,
    ggml_backend_sched_get_tensor_backend,
    ggml_backend_sched_new,
    ggml_backend_sched_t,
    ggml_backend_supports_buft,
    ggml_backend_supports_op,
    ggml_backend_t,
    ggml_backend_tensor_alloc,
    GGML_BACKEND_BUFFER_USAGE_WEIGHTS,
)

from whispyx.errors import BackendError, BackendUnsupportedError, ComputeMemoryError, DeviceError

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #endif

    /* Fewer page faults while a model is read, fewer misses of address translation while it computes. Only advice:
       whether it is taken does not matter. */
    static void wx_prefer_huge_pages(void * base, size_t size) {
    #if defined(__linux__) && defined(MADV_HUGEPAGE)
        uintptr_t huge = (uintptr_t) 2 << 20;
        uintptr_t from = ((uintptr_t) base + huge - 1) & ~(huge - 1);
        uintptr_t to = ((uintptr_t) base + size) & ~(huge - 1);
        if (from < to) (void) madvise((void *) from, to - from, MADV_HUGEPAGE);
    #else
        (void) base;
        (void) size;
    #endif
    }
    """
    void wx_prefer_huge_pages(void * base, size_t size) noexcept nogil


cdef void prefer_huge_pages(void * base, size_t size) noexcept nogil:
    wx_prefer_huge_pages(base, size)


# ggml asserts that a thread starts, which ends the process where the system refuses one (a container's limit of tasks,
# no memory for a stack). So the threads are tried first; some more, as those of the trial may take a moment to go.
cdef extern from *:
    """
    #include <pthread.h>
    #include <stdlib.h>

    static void * wx_wait(void * gate) {
        pthread_mutex_lock((pthread_mutex_t *) gate);
        pthread_mutex_unlock((pthread_mutex_t *) gate);
        return NULL;
    }

    static int wx_threads_start(int n) {
        pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
        pthread_t * threads = (pthread_t *) malloc((size_t) n * sizeof(pthread_t));
        int started = 0;
        if (threads == NULL) return 0;
        pthread_mutex_lock(&gate);
        while (started < n && pthread_create(&threads[started], NULL, wx_wait, &gate) == 0) started++;
        pthread_mutex_unlock(&gate);
        for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
        free(threads);
        return started == n;
    }
    """
    bint wx_threads_start(int n) noexcept nogil

cdef int SPARE_THREADS = 8

# Nor does ggml look whether the small things it needs for itself are there. So it is tried first whether they could be.
cdef extern from *:
    """
    static int wx_has_room(size_t size) {
        void * volatile block = malloc(size);
        if (block == NULL) return 0;
        free(block);
        return 1;
    }
    """
    bint wx_has_room(size_t size) noexcept nogil

cdef enum:
    SMALL_THINGS = 1 << 20
    SPLIT_INPUTS = 2 * 32       # tensor headers that a scheduler keeps per node (GGML_SCHED_MAX_SPLIT_INPUTS is 30)


cdef int check_room(size_t size, str what) except -1:
    if not wx_has_room(size + SMALL_THINGS):
        raise ComputeMemoryError(f"no memory for {what}: {(size + SMALL_THINGS) / 1e6:.1f} MB were asked for")
    return 0


# Polling level of the pool's workers between two graphs. One level is about 2 ms of spinning, which covers the host's
# work between two tokens; a worker that waits longer sleeps and leaves its core to others.
cdef int POLL = 1

cdef dict _live = {"meta": 0, "buffer": 0, "backend": 0, "pool": 0, "sched": 0}


def live() -> dict:
    """Return how many handles of each kind are open."""
    return dict(_live)


cdef class Meta:
    """A ggml context that holds tensor and graph headers, never data."""

    @staticmethod
    cdef Meta create(size_t n_tensors, size_t graph_size):
        cdef Meta self = Meta.__new__(Meta)
        cdef ggml_init_params params
        params.mem_size = n_tensors * ggml_tensor_overhead()
        if graph_size > 0:
            params.mem_size += graph_size * ggml_tensor_overhead() + ggml_graph_overhead_custom(graph_size, False)
        params.mem_buffer = NULL
        params.no_alloc = True
        check_room(params.mem_size, "tensor headers")
        self.ptr = ggml_init(params)
        if self.ptr == NULL:
            raise ComputeMemoryError("no memory for tensor headers")
        _live["meta"] += 1
        return self

    cdef void reset(self) noexcept nogil:
        """Drop all headers, keep the memory for the next ones."""
        ggml_reset(self.ptr)

    cdef void close(self) noexcept:
        if self.ptr != NULL:
            ggml_free(self.ptr)
            self.ptr = NULL
            _live["meta"] -= 1

    def __dealloc__(self):
        self.close()


cdef int check_lost(ggml_backend_dev_t dev, str what) except -1:
    """Raise if a device gives no memory because it cannot be used: then memory is not what is missing."""
    why = device_error(dev)
    if why is not None:
        name = (<bytes>ggml_backend_dev_name(dev)).decode("utf-8", "replace")
        raise DeviceError(f"device {name} is lost, so {what} cannot be placed there: {why}")
    return 0


cdef class Buffer:
    """Device memory that holds the data of one Meta's tensors."""

    @staticmethod
    cdef Buffer for_tensors(Meta meta, ggml_backend_buffer_type_t buft, ggml_backend_buffer_usage usage, str what):
        cdef Buffer self = Buffer.__new__(Buffer)
        cdef size_t need
        if buft == NULL:  # a plugin may find out only now that its device cannot be used
            raise DeviceError(f"the device for {what} could not be started", log=last_line())
        with nogil:
            need = ggml_backend_alloc_ctx_tensors_from_buft_size(meta.ptr, buft)
            self.ptr = ggml_backend_alloc_ctx_tensors_from_buft(meta.ptr, buft)
        if self.ptr == NULL:
            check_lost(ggml_backend_buft_get_device(buft), what)
            raise ComputeMemoryError(f"no memory for {what}: {need / 1e6:.1f} MB were asked for", log=last_line())
        ggml_backend_buffer_set_usage(self.ptr, usage)
        if ggml_backend_buffer_is_host(self.ptr):
            wx_prefer_huge_pages(ggml_backend_buffer_get_base(self.ptr), ggml_backend_buffer_get_size(self.ptr))
        _live["buffer"] += 1
        return self

    @staticmethod
    cdef Buffer around(Device device, void * ptr, size_t size):
        """A buffer of memory that is there already and outlives it; None where a device cannot use such."""
        cdef Buffer self = Buffer.__new__(Buffer)
        cdef ggml_backend_dev_props props
        ggml_backend_dev_get_props(device.dev, &props)
        if not props.caps.buffer_from_host_ptr:
            return None
        self.ptr = ggml_backend_dev_buffer_from_host_ptr(device.dev, ptr, size, size)
        if self.ptr == NULL:
            return None
        ggml_backend_buffer_set_usage(self.ptr, GGML_BACKEND_BUFFER_USAGE_WEIGHTS)
        _live["buffer"] += 1
        return self

    cdef int put(self, ggml_tensor * tensor, void * at, str name) except -1:
        """Have the data of a tensor that has none yet lie at an address in this buffer."""
        cdef char * base = <char *>ggml_backend_buffer_get_base(self.ptr)
        # ggml ends the process where this does not hold.
        if <char *>at < base or <char *>at + ggml_backend_buffer_get_alloc_size(self.ptr, tensor) > base + self.size():
            raise ComputeMemoryError(f"{name} does not lie in its file")
        if ggml_backend_tensor_alloc(self.ptr, tensor, at) != GGML_STATUS_SUCCESS:
            raise ComputeMemoryError(f"no place for {name}", log=last_line())
        return 0

    cdef size_t size(self) noexcept:
        return ggml_backend_buffer_get_size(self.ptr) if self.ptr != NULL else 0

    cdef void close(self) noexcept:
        cdef ggml_backend_buffer_t ptr = self.ptr
        if ptr != NULL:
            self.ptr = NULL     # first: without the GIL another thread may close it, too
            _live["buffer"] -= 1
            with nogil:         # a device may be far away
                ggml_backend_buffer_free(ptr)

    def __dealloc__(self):
        self.close()


cdef class Backend:
    """A stream of work on one device."""

    @staticmethod
    cdef Backend create(Device device):
        cdef Backend self = Backend.__new__(Backend)
        check_room(0, "a device")
        with nogil:
            self.ptr = ggml_backend_dev_init(device.dev, NULL)
        if self.ptr == NULL:
            why = device.error()
            raise DeviceError(f"device {device.name} could not be started{'' if why is None else f': {why}'}",
                              log=last_line() if why is None else None)
        self.device = device
        self.set_n_threads = <ggml_backend_set_n_threads_t>device.proc(b"ggml_backend_set_n_threads")
        self.set_abort_callback = <ggml_backend_set_abort_callback_t>device.proc(b"ggml_backend_set_abort_callback")
        _live["backend"] += 1
        return self

    cdef void close(self) noexcept:
        cdef ggml_backend_t ptr = self.ptr
        if ptr != NULL:
            self.ptr = NULL
            _live["backend"] -= 1
            with nogil:
                ggml_backend_free(ptr)

    def __dealloc__(self):
        self.close()


cdef class ThreadPool:
    """Worker threads of a CPU backend. Made once and kept: ggml would otherwise start threads for every graph."""

    @staticmethod
    cdef ThreadPool create(Backend cpu, int n_threads):
        cdef ThreadPool self = ThreadPool.__new__(ThreadPool)
        cdef ggml_threadpool_params params
        cdef bint startable
        cdef ggml_threadpool_new_t new_fn = <ggml_threadpool_new_t>cpu.device.proc(b"ggml_threadpool_new")
        self.free_fn = <ggml_threadpool_free_t>cpu.device.proc(b"ggml_threadpool_free")
        self.attach = <ggml_backend_cpu_set_threadpool_t>cpu.device.proc(b"ggml_backend_cpu_set_threadpool")
        if new_fn == NULL or self.free_fn == NULL or self.attach == NULL:
            raise BackendError(f"the plugin of {cpu.device.name} offers no thread pool ({cpu.device.plugin_path})")
        ggml_threadpool_params_init(&params, n_threads)
        params.poll = POLL
        if n_threads > 1:
            with nogil:
                startable = wx_threads_start(n_threads - 1 + min(n_threads - 1, SPARE_THREADS))
            if not startable:
                raise DeviceError(f"the system starts no {n_threads} threads for this job; ask for fewer (n_threads)")
        with nogil:
            self.ptr = new_fn(&params)
        if self.ptr == NULL:
            raise ComputeMemoryError(f"a pool of {n_threads} threads could not be started", log=last_line())
        self.n_threads = n_threads
        self.process = getpid()
        self.backend = cpu
        self.attach(cpu.ptr, self.ptr)
        _live["pool"] += 1
        return self

    cdef void close(self) noexcept:
        cdef ggml_threadpool_t ptr = self.ptr
        if ptr == NULL:
            return
        self.ptr = NULL
        _live["pool"] -= 1
        if self.backend is not None and self.backend.ptr != NULL:
            self.attach(self.backend.ptr, NULL)
        # A forked child has none of the workers: ggml would wait for them for ever, so there the pool is left alone.
        if self.process == getpid():
            with nogil:
                self.free_fn(ptr)

    def __dealloc__(self):
        self.close()


cdef class Sched:
    """A scheduler over backends in order of preference. The last backend must be a CPU (ggml asserts it)."""

    @staticmethod
    cdef Sched create(list backends, size_t graph_size):
        cdef Sched self = Sched.__new__(Sched)
        cdef int n = len(backends), i
        cdef ggml_backend_t ptrs[16]
        if n == 0 or n > 16 or (<Backend>backends[n - 1]).device.kind != "CPU":
            raise BackendError("a scheduler needs 1 to 16 backends, and the last one must be a CPU")
        for i in range(n):
            ptrs[i] = (<Backend>backends[i]).ptr
        check_room(graph_size * SPLIT_INPUTS * ggml_tensor_overhead(), "a scheduler")
        with nogil:
            self.ptr = ggml_backend_sched_new(ptrs, NULL, n, graph_size, False, True)
        if self.ptr == NULL:
            raise ComputeMemoryError("no memory for a scheduler", log=last_line())
        self.backends = list(backends)
        _live["sched"] += 1
        return self

    cdef int check(self, ggml_cgraph * graph) except -1:
        """Raise where ggml would end the process: a result lies in memory whose device cannot compute it."""
        cdef Backend backend
        cdef ggml_tensor * node
        cdef ggml_backend_buffer_t buffer
        cdef int i
        if len(self.backends) == 1:
            return 0
        for i in range(ggml_graph_n_nodes(graph)):
            node = ggml_graph_node(graph, i)
            buffer = <ggml_backend_buffer_t>(node.view_src.buffer if node.view_src != NULL else node.buffer)
            if buffer == NULL:
                continue
            for backend in self.backends:
                if (ggml_backend_supports_buft(backend.ptr, ggml_backend_buffer_get_type(buffer))
                        and ggml_backend_supports_op(backend.ptr, node)):
                    break
            else:
                raise BackendUnsupportedError(
                    f"no device computes {(<bytes>ggml_op_name(node.op)).decode()} into memory of "
                    f"{(<bytes>ggml_backend_buffer_name(buffer)).decode()}, where its result must lie")
        return 0

    cdef dict placement(self, ggml_cgraph * graph):
        """Return the operations of a graph that has its memory, counted by name, by the device that computes them."""
        cdef dict found = {}, ops
        cdef Backend backend
        cdef ggml_backend_t chosen
        cdef ggml_tensor * node
        cdef int i
        for i in range(ggml_graph_n_nodes(graph)):
            node = ggml_graph_node(graph, i)
            if node.op in (GGML_OP_NONE, GGML_OP_VIEW, GGML_OP_RESHAPE, GGML_OP_PERMUTE, GGML_OP_TRANSPOSE):
                continue
            chosen = ggml_backend_sched_get_tensor_backend(self.ptr, node)
            for backend in self.backends:
                if backend.ptr == chosen:
                    ops = found.setdefault(backend.device.name, {})
                    name = (<bytes>ggml_op_name(node.op)).decode()
                    ops[name] = ops.get(name, 0) + 1
        return found

    cdef size_t buffer_size(self) noexcept:
        cdef size_t total = 0
        cdef Backend backend
        if self.ptr != NULL:
            for backend in self.backends:
                total += ggml_backend_sched_get_buffer_size(self.ptr, backend.ptr)
        return total

    cdef void close(self) noexcept:
        cdef ggml_backend_sched_t ptr = self.ptr
        if ptr != NULL:
            self.ptr = NULL
            _live["sched"] -= 1
            with nogil:
                ggml_backend_sched_free(ptr)

    def __dealloc__(self):
        self.close()


cdef int no_room(Sched sched, Watch watch, str what) except -1:
    """Raise what it means that a scheduler got no memory."""
    cdef Backend backend
    watch.check()
    for backend in sched.backends:
        check_lost(backend.device.dev, what)
    raise ComputeMemoryError(f"no memory for {what}", log=last_line())
