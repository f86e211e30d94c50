from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t


# Names and order as in the header.
cdef extern from "whispyx_kernels.h" nogil:
    enum:
        WX_KERNELS_ABI
        WX_ALIGN
        WX_F32, WX_F16, WX_BF16, WX_I8, WX_Q8, WX_G8, WX_N4
        WX_LOGIT_PARTS

    struct wx_matrix:
        int32_t type
        int32_t n_out, n_in
        void * data
        const float * around

    struct wx_logits:
        int32_t first
        wx_matrix w

    struct wx_linear:
        wx_matrix w
        const float * bias

    struct wx_norm:
        const float * w
        const float * b

    struct wx_encoder_layer:
        wx_norm attn_ln
        wx_linear qkv
        wx_linear out
        wx_norm mlp_ln
        wx_linear up, down

    struct wx_decoder_layer:
        wx_norm attn_ln
        wx_linear qkv
        wx_linear out
        wx_norm cross_ln
        wx_linear cross_q
        wx_linear cross_out
        wx_norm mlp_ln
        wx_linear up, down

    struct wx_model:
        int32_t n_mels, n_audio_ctx, n_state, n_audio_head, n_audio_layer
        int32_t n_text_ctx, n_text_head, n_text_layer, n_vocab
        int32_t cross_type, score_type
        wx_linear conv1, conv2
        const float * e_pe
        const wx_encoder_layer * encoder
        wx_norm ln_post
        wx_linear cross_kv
        const void * d_te
        int32_t d_te_type
        const float * d_pe
        const wx_decoder_layer * decoder
        wx_norm d_ln
        wx_logits logits[3]         # WX_LOGIT_PARTS
        int32_t beg, end

    struct wx_sync:
        int32_t slept

    struct wx_encode:
        const wx_model * model
        const float * mel
        int32_t n_ctx
        float * out
        void * cross
        void * scratch
        wx_sync * sync

    struct wx_row:
        int32_t token, pos
        int32_t slot
        int32_t n_cells
        const int32_t * cells
        const void * cross
        int32_t n_ctx
        int32_t output

    struct wx_head:
        int32_t layer, index

    struct wx_decode:
        const wx_model * model
        const wx_row * rows
        int32_t n_rows
        int32_t n_early
        int32_t n_outputs
        uint16_t * self_k
        uint16_t * self_v
        int64_t n_cells
        float * logits
        const wx_head * watched
        int32_t n_watched
        int32_t n_positions
        float * look
        void * scratch
        wx_sync * sync

    struct wx_scan:
        float top
        int32_t arg
        double total
        float time_top
        int32_t time_arg
        double time_total
        float text_top
        int32_t text_arg

    struct wx_kernels:
        uint32_t abi, size
        const char * name
        const char * bf16
        const char * i8
        size_t (*matrix_bytes)(int32_t type, int32_t n_out, int32_t n_in) noexcept nogil
        void (*pack)(const wx_matrix * m, int32_t first, int32_t n_rows, const void * src, int32_t src_type,
                     float factor) noexcept nogil
        size_t (*cross_bytes)(const wx_model * model, int32_t n_ctx) noexcept nogil
        size_t (*encode_bytes)(const wx_model * model, int32_t n_ctx, int32_t nth) noexcept nogil
        void (*encode)(const wx_encode * job, int32_t stage, int32_t ith, int32_t nth) noexcept nogil
        size_t (*decode_bytes)(const wx_model * model, int32_t n_rows, int32_t n_outputs, int32_t nth) noexcept nogil
        void (*decode)(const wx_decode * job, int32_t stage, int32_t ith, int32_t nth) noexcept nogil
        void (*scan)(const float * row, int32_t n, int32_t beg, wx_scan * found) noexcept nogil
        void (*mel)(const float * padded, int64_t first, int64_t last, const float * window, const float * filters,
                    int32_t n_mels, float * out) noexcept nogil
        double (*peak)(int32_t type, double seconds) noexcept nogil


cdef class Memory:
    cdef void * block
    cdef char * ptr         # aligned to WX_ALIGN
    cdef size_t size
    @staticmethod
    cdef Memory create(size_t size, str what)
    cdef void close(self) noexcept

cdef const wx_kernels * table() noexcept nogil
