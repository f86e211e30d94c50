# Declarations from ggml-backend.h, names and order as there; only what whispyx uses.

from libc.stdint cimport uint8_t

from whispyx._ggml.ggml cimport ggml_abort_callback, ggml_cgraph, ggml_context, ggml_status, ggml_tensor

cdef extern from "ggml-backend.h" nogil:
    struct ggml_backend_buffer_type:
        pass

    struct ggml_backend_buffer:
        pass

    struct ggml_backend:
        pass

    struct ggml_backend_reg:
        pass

    struct ggml_backend_device:
        pass

    struct ggml_backend_sched:
        pass

    ctypedef ggml_backend_buffer_type * ggml_backend_buffer_type_t
    ctypedef ggml_backend_buffer * ggml_backend_buffer_t
    ctypedef ggml_backend * ggml_backend_t
    ctypedef ggml_backend_reg * ggml_backend_reg_t
    ctypedef ggml_backend_device * ggml_backend_dev_t
    ctypedef ggml_backend_sched * ggml_backend_sched_t

    enum ggml_backend_buffer_usage:
        GGML_BACKEND_BUFFER_USAGE_ANY
        GGML_BACKEND_BUFFER_USAGE_WEIGHTS
        GGML_BACKEND_BUFFER_USAGE_COMPUTE

    void ggml_backend_buffer_free(ggml_backend_buffer_t buffer)
    void * ggml_backend_buffer_get_base(ggml_backend_buffer_t buffer)
    size_t ggml_backend_buffer_get_size(ggml_backend_buffer_t buffer)
    void ggml_backend_buffer_clear(ggml_backend_buffer_t buffer, uint8_t value)
    bint ggml_backend_buffer_is_host(ggml_backend_buffer_t buffer)
    void ggml_backend_buffer_set_usage(ggml_backend_buffer_t buffer, ggml_backend_buffer_usage usage)

    void ggml_backend_free(ggml_backend_t backend)
    ggml_backend_buffer_type_t ggml_backend_get_default_buffer_type(ggml_backend_t backend)

    void ggml_backend_tensor_set(ggml_tensor * tensor, const void * data, size_t offset, size_t size)
    void ggml_backend_tensor_get(const ggml_tensor * tensor, void * data, size_t offset, size_t size)

    enum ggml_backend_dev_type:
        GGML_BACKEND_DEVICE_TYPE_CPU
        GGML_BACKEND_DEVICE_TYPE_GPU
        GGML_BACKEND_DEVICE_TYPE_IGPU
        GGML_BACKEND_DEVICE_TYPE_ACCEL
        GGML_BACKEND_DEVICE_TYPE_META

    struct ggml_backend_dev_caps:
        bint async_ "async"
        bint host_buffer
        bint buffer_from_host_ptr
        bint events

    struct ggml_backend_dev_props:
        const char * name
        const char * description
        size_t memory_free
        size_t memory_total
        ggml_backend_dev_type type
        const char * device_id
        ggml_backend_dev_caps caps

    const char * ggml_backend_dev_name(ggml_backend_dev_t device)
    const char * ggml_backend_dev_description(ggml_backend_dev_t device)
    void ggml_backend_dev_memory(ggml_backend_dev_t device, size_t * free, size_t * total)
    ggml_backend_dev_type ggml_backend_dev_type_ "ggml_backend_dev_type" (ggml_backend_dev_t device)
    ggml_backend_t ggml_backend_dev_init(ggml_backend_dev_t device, const char * params)
    ggml_backend_buffer_type_t ggml_backend_dev_buffer_type(ggml_backend_dev_t device)
    void ggml_backend_dev_get_props(ggml_backend_dev_t device, ggml_backend_dev_props * props)
    ggml_backend_buffer_t ggml_backend_dev_buffer_from_host_ptr(ggml_backend_dev_t device, void * ptr, size_t size,
                                                                size_t max_tensor_size)
    size_t ggml_backend_buft_get_alignment(ggml_backend_buffer_type_t buft)
    size_t ggml_backend_buffer_get_alloc_size(ggml_backend_buffer_t buffer, ggml_tensor * tensor)
    ggml_status ggml_backend_tensor_alloc(ggml_backend_buffer_t buffer, ggml_tensor * tensor, void * addr)
    bint ggml_backend_supports_op(ggml_backend_t backend, const ggml_tensor * op)
    bint ggml_backend_supports_buft(ggml_backend_t backend, ggml_backend_buffer_type_t buft)
    ggml_backend_buffer_type_t ggml_backend_buffer_get_type(ggml_backend_buffer_t buffer)
    const char * ggml_backend_buffer_name(ggml_backend_buffer_t buffer)
    ggml_backend_dev_t ggml_backend_buft_get_device(ggml_backend_buffer_type_t buft)
    bint ggml_backend_dev_supports_op(ggml_backend_dev_t device, const ggml_tensor * op)

    size_t ggml_backend_reg_dev_count(ggml_backend_reg_t reg)
    ggml_backend_dev_t ggml_backend_reg_dev_get(ggml_backend_reg_t reg, size_t index)
    void * ggml_backend_reg_get_proc_address(ggml_backend_reg_t reg, const char * name)

    ctypedef void (*ggml_backend_set_n_threads_t)(ggml_backend_t backend, int n_threads) noexcept nogil
    ctypedef ggml_backend_buffer_type_t * (*ggml_backend_dev_get_extra_bufts_t)(
        ggml_backend_dev_t device) noexcept nogil
    ctypedef void (*ggml_backend_set_abort_callback_t)(
        ggml_backend_t backend, ggml_abort_callback abort_callback, void * abort_callback_data) noexcept nogil

    struct ggml_backend_feature:
        const char * name
        const char * value

    ctypedef ggml_backend_feature * (*ggml_backend_get_features_t)(ggml_backend_reg_t reg) noexcept nogil

    ggml_status ggml_backend_graph_compute(ggml_backend_t backend, ggml_cgraph * cgraph)

    ggml_backend_sched_t ggml_backend_sched_new(ggml_backend_t * backends, ggml_backend_buffer_type_t * bufts,
                                                int n_backends, size_t graph_size, bint parallel, bint op_offload)
    void ggml_backend_sched_free(ggml_backend_sched_t sched)
    bint ggml_backend_sched_reserve(ggml_backend_sched_t sched, ggml_cgraph * measure_graph)
    size_t ggml_backend_sched_get_buffer_size(ggml_backend_sched_t sched, ggml_backend_t backend)
    ggml_backend_t ggml_backend_sched_get_tensor_backend(ggml_backend_sched_t sched, ggml_tensor * node)
    void ggml_backend_sched_set_tensor_backend(ggml_backend_sched_t sched, ggml_tensor * node,
                                               ggml_backend_t backend)
    bint ggml_backend_sched_alloc_graph(ggml_backend_sched_t sched, ggml_cgraph * graph)
    ggml_status ggml_backend_sched_graph_compute(ggml_backend_sched_t sched, ggml_cgraph * graph)
    void ggml_backend_sched_reset(ggml_backend_sched_t sched)

# Not in a header of the base library: plugins offer these by name through ggml_backend_reg_get_proc_address.
from whispyx._ggml.ggml cimport ggml_threadpool_params, ggml_threadpool_t

ctypedef ggml_threadpool_t (*ggml_threadpool_new_t)(ggml_threadpool_params * params) noexcept nogil
ctypedef void (*ggml_threadpool_free_t)(ggml_threadpool_t threadpool) noexcept nogil
ctypedef void (*ggml_backend_cpu_set_threadpool_t)(ggml_backend_t backend, ggml_threadpool_t threadpool) noexcept nogil
