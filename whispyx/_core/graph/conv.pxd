from whispyx._core.weights cimport Weights
from whispyx._ggml.ggml cimport ggml_cgraph, ggml_context, ggml_tensor

cdef struct ConvGraph:
    ggml_cgraph * graph
    ggml_tensor * mel       # input, (n_mels, 2 n_ctx)
    ggml_tensor * out       # (n_ctx, n_state)

cdef ConvGraph build_conv(ggml_context * g, Weights weights, int n_ctx, int n_mels) noexcept nogil
