from whispyx._core.kvcache cimport KvCache
from whispyx._core.weights cimport Weights
from whispyx._ggml.ggml cimport ggml_cgraph, ggml_context, ggml_tensor

cdef ggml_cgraph * build_cross(ggml_context * g, Weights weights, ggml_tensor * encoder, KvCache kv_cross,
                               int n_layer, int n_head, bint flash) noexcept nogil
