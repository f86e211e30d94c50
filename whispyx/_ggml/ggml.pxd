# Declarations from ggml.h, names and order as there; only what whispyx uses.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t

cdef extern from "ggml.h" nogil:
    const int GGML_MAX_DIMS
    const int GGML_MAX_N_THREADS

    enum ggml_status:
        GGML_STATUS_ALLOC_FAILED
        GGML_STATUS_FAILED
        GGML_STATUS_SUCCESS
        GGML_STATUS_ABORTED

    struct ggml_object:
        pass

    struct ggml_context:
        pass

    struct ggml_cgraph:
        pass

    enum ggml_type:
        GGML_TYPE_F32
        GGML_TYPE_F16
        GGML_TYPE_Q4_0
        GGML_TYPE_Q4_1
        GGML_TYPE_Q5_0
        GGML_TYPE_Q5_1
        GGML_TYPE_Q8_0
        GGML_TYPE_Q2_K
        GGML_TYPE_Q6_K
        GGML_TYPE_I8
        GGML_TYPE_I16
        GGML_TYPE_I32
        GGML_TYPE_I64
        GGML_TYPE_BF16
        GGML_TYPE_COUNT

    enum ggml_prec:
        GGML_PREC_DEFAULT
        GGML_PREC_F32

    enum ggml_ftype:
        GGML_FTYPE_UNKNOWN
        GGML_FTYPE_ALL_F32
        GGML_FTYPE_MOSTLY_F16

    enum ggml_log_level:
        GGML_LOG_LEVEL_NONE
        GGML_LOG_LEVEL_DEBUG
        GGML_LOG_LEVEL_INFO
        GGML_LOG_LEVEL_WARN
        GGML_LOG_LEVEL_ERROR
        GGML_LOG_LEVEL_CONT

    enum ggml_sched_priority:
        GGML_SCHED_PRIO_NORMAL

    struct ggml_init_params:
        size_t mem_size
        void * mem_buffer
        bint no_alloc

    enum ggml_op:
        GGML_OP_NONE
        GGML_OP_VIEW
        GGML_OP_RESHAPE
        GGML_OP_PERMUTE
        GGML_OP_TRANSPOSE

    const char * ggml_op_name(ggml_op op)

    struct ggml_tensor:
        ggml_type type
        ggml_op op
        int64_t ne[4]
        size_t nb[4]
        void * data
        ggml_tensor * view_src
        void * buffer

    # C's bool: a callback must return exactly this type.
    ctypedef bint c_bool "bool"

    ctypedef c_bool (*ggml_abort_callback)(void * data) noexcept nogil

    int ggml_graph_n_nodes(ggml_cgraph * cgraph)
    ggml_tensor * ggml_graph_node(ggml_cgraph * cgraph, int i)

    const char * ggml_version()

    ctypedef uint16_t ggml_fp16_t
    void ggml_fp32_to_fp16_row(const float * x, ggml_fp16_t * y, int64_t n)
    ctypedef struct ggml_bf16_t:
        uint16_t bits
    void ggml_fp32_to_bf16_row(const float * x, ggml_bf16_t * y, int64_t n)

    int64_t ggml_time_us()

    size_t ggml_nbytes(const ggml_tensor * tensor)
    int64_t ggml_blck_size(ggml_type type)
    size_t ggml_row_size(ggml_type type, int64_t ne)
    const char * ggml_type_name(ggml_type type)
    size_t ggml_element_size(const ggml_tensor * tensor)
    size_t ggml_tensor_overhead()

    ggml_context * ggml_init(ggml_init_params params)
    void ggml_reset(ggml_context * ctx)
    void ggml_free(ggml_context * ctx)

    ggml_tensor * ggml_new_tensor(ggml_context * ctx, ggml_type type, int n_dims, const int64_t * ne)
    ggml_tensor * ggml_new_tensor_1d(ggml_context * ctx, ggml_type type, int64_t ne0)
    ggml_tensor * ggml_new_tensor_2d(ggml_context * ctx, ggml_type type, int64_t ne0, int64_t ne1)
    ggml_tensor * ggml_new_tensor_4d(ggml_context * ctx, ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2,
                                     int64_t ne3)

    ggml_tensor * ggml_view_tensor(ggml_context * ctx, ggml_tensor * src)

    ggml_tensor * ggml_set_name(ggml_tensor * tensor, const char * name)
    void ggml_set_input(ggml_tensor * tensor)
    void ggml_set_output(ggml_tensor * tensor)

    ggml_tensor * ggml_add(ggml_context * ctx, ggml_tensor * a, ggml_tensor * b)
    ggml_tensor * ggml_mul(ggml_context * ctx, ggml_tensor * a, ggml_tensor * b)
    ggml_tensor * ggml_scale(ggml_context * ctx, ggml_tensor * a, float s)
    ggml_tensor * ggml_gelu(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_norm(ggml_context * ctx, ggml_tensor * a, float eps)
    ggml_tensor * ggml_mul_mat(ggml_context * ctx, ggml_tensor * a, ggml_tensor * b)
    ggml_tensor * ggml_cpy(ggml_context * ctx, ggml_tensor * a, ggml_tensor * b)
    ggml_tensor * ggml_cast(ggml_context * ctx, ggml_tensor * a, ggml_type type)
    ggml_tensor * ggml_cont(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_reshape_2d(ggml_context * ctx, ggml_tensor * a, int64_t ne0, int64_t ne1)
    ggml_tensor * ggml_reshape_3d(ggml_context * ctx, ggml_tensor * a, int64_t ne0, int64_t ne1, int64_t ne2)
    ggml_tensor * ggml_view_1d(ggml_context * ctx, ggml_tensor * a, int64_t ne0, size_t offset)
    ggml_tensor * ggml_view_2d(ggml_context * ctx, ggml_tensor * a, int64_t ne0, int64_t ne1, size_t nb1,
                               size_t offset)
    ggml_tensor * ggml_view_3d(ggml_context * ctx, ggml_tensor * a, int64_t ne0, int64_t ne1, int64_t ne2,
                               size_t nb1, size_t nb2, size_t offset)
    ggml_tensor * ggml_permute(ggml_context * ctx, ggml_tensor * a, int axis0, int axis1, int axis2, int axis3)
    ggml_tensor * ggml_transpose(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_get_rows(ggml_context * ctx, ggml_tensor * a, ggml_tensor * b)
    ggml_tensor * ggml_set_rows(ggml_context * ctx, ggml_tensor * a, ggml_tensor * b, ggml_tensor * c)
    ggml_tensor * ggml_soft_max_ext(ggml_context * ctx, ggml_tensor * a, ggml_tensor * mask, float scale,
                                    float max_bias)
    ggml_tensor * ggml_conv_1d_ph(ggml_context * ctx, ggml_tensor * a, ggml_tensor * b, int s, int d)
    ggml_tensor * ggml_flash_attn_ext(ggml_context * ctx, ggml_tensor * q, ggml_tensor * k, ggml_tensor * v,
                                      ggml_tensor * mask, float scale, float max_bias, float logit_softcap)
    void ggml_flash_attn_ext_set_prec(ggml_tensor * a, ggml_prec prec)

    void ggml_build_forward_expand(ggml_cgraph * cgraph, ggml_tensor * tensor)
    ggml_cgraph * ggml_new_graph_custom(ggml_context * ctx, size_t size, bint grads)
    size_t ggml_graph_overhead_custom(size_t size, bint grads)

    enum:
        GGML_N_TASKS_MAX

    ctypedef void (*ggml_custom_op_t)(ggml_tensor * dst, int ith, int nth, void * userdata) noexcept nogil
    ggml_tensor * ggml_custom_4d(ggml_context * ctx, ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3,
                                 ggml_tensor ** args, int n_args, ggml_custom_op_t fun, int n_tasks, void * userdata)

    ctypedef void (*ggml_log_callback)(ggml_log_level level, const char * text, void * user_data) noexcept
    void ggml_log_set(ggml_log_callback log_callback, void * user_data)

    ctypedef void (*ggml_to_float_t)(const void * x, float * y, int64_t k) noexcept nogil

    struct ggml_type_traits:
        ggml_to_float_t to_float

    const ggml_type_traits * ggml_get_type_traits(ggml_type type)
    bint ggml_quantize_requires_imatrix(ggml_type type)
    size_t ggml_quantize_chunk(ggml_type type, const float * src, void * dst, int64_t start, int64_t nrows,
                               int64_t n_per_row, const float * imatrix)

    struct ggml_threadpool_params:
        bint cpumask[512]
        int n_threads
        ggml_sched_priority prio
        uint32_t poll
        bint strict_cpu
        bint paused

    struct ggml_threadpool:
        pass

    ctypedef ggml_threadpool * ggml_threadpool_t

    void ggml_threadpool_params_init(ggml_threadpool_params * p, int n_threads)
