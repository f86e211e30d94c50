from whispyx._core.kvcache cimport KvCache
from whispyx._core.weights cimport Weights
from whispyx._ggml.ggml cimport ggml_cgraph, ggml_context, ggml_tensor

cdef struct EncoderGraph:
    ggml_cgraph * graph
    ggml_tensor * pad_mask  # input (n_ctx, n_ctx_pad) f16, NULL without a pad cache
    ggml_tensor * out       # (n_ctx, n_state)
    ggml_tensor * block[128]    # (n_ctx, n_state) after each block; kept readable only in debug

cdef EncoderGraph build_encoder(ggml_context * g, Weights weights, ggml_tensor * conv, int n_layer, int n_head,
                                bint flash, KvCache kv_pad, bint debug) noexcept nogil
