from whispyx._core.devices cimport Device, Watch
from whispyx._ggml.ggml cimport ggml_abort_callback, ggml_cgraph, ggml_context, ggml_tensor, ggml_threadpool_t
from whispyx._ggml.ggml_backend cimport (
    ggml_backend_buffer_t,
    ggml_backend_buffer_type_t,
    ggml_backend_buffer_usage,
    ggml_backend_cpu_set_threadpool_t,
    ggml_backend_sched_t,
    ggml_backend_set_abort_callback_t,
    ggml_backend_set_n_threads_t,
    ggml_backend_t,
    ggml_threadpool_free_t,
    ggml_threadpool_new_t,
)


cdef void prefer_huge_pages(void * base, size_t size) noexcept nogil


cdef class Meta:
    cdef ggml_context * ptr
    cdef void close(self) noexcept
    cdef void reset(self) noexcept nogil
    @staticmethod
    cdef Meta create(size_t n_tensors, size_t graph_size)


cdef class Buffer:
    cdef ggml_backend_buffer_t ptr
    cdef void close(self) noexcept
    cdef size_t size(self) noexcept
    cdef int put(self, ggml_tensor * tensor, void * at, str name) except -1
    @staticmethod
    cdef Buffer around(Device device, void * ptr, size_t size)
    @staticmethod
    cdef Buffer for_tensors(Meta meta, ggml_backend_buffer_type_t buft, ggml_backend_buffer_usage usage, str what)


cdef class Backend:
    cdef ggml_backend_t ptr
    cdef readonly Device device
    cdef ggml_backend_set_n_threads_t set_n_threads
    cdef ggml_backend_set_abort_callback_t set_abort_callback
    cdef void close(self) noexcept
    @staticmethod
    cdef Backend create(Device device)


cdef class ThreadPool:
    cdef ggml_threadpool_t ptr
    cdef readonly int n_threads
    cdef int process                # the one whose threads it has
    cdef ggml_threadpool_free_t free_fn
    cdef Backend backend
    cdef ggml_backend_cpu_set_threadpool_t attach
    cdef void close(self) noexcept
    @staticmethod
    cdef ThreadPool create(Backend cpu, int n_threads)


cdef class Sched:
    cdef ggml_backend_sched_t ptr
    cdef list backends
    cdef void close(self) noexcept
    cdef size_t buffer_size(self) noexcept
    cdef int check(self, ggml_cgraph * graph) except -1
    cdef dict placement(self, ggml_cgraph * graph)
    @staticmethod
    cdef Sched create(list backends, size_t graph_size)


cdef int no_room(Sched sched, Watch watch, str what) except -1
