from whispyx._core.weights cimport Layer, Linear, Norm
from whispyx._ggml.ggml cimport ggml_context, ggml_tensor

cdef ggml_tensor * layer_norm(ggml_context * g, ggml_tensor * x, const Norm * norm) noexcept nogil
cdef ggml_tensor * linear(ggml_context * g, ggml_tensor * x, const Linear * weights) noexcept nogil
cdef ggml_tensor * mlp(ggml_context * g, ggml_tensor * x, const Layer * layer) noexcept nogil
cdef ggml_tensor * by_head(ggml_context * g, ggml_tensor * x, int n_head) noexcept nogil
cdef ggml_tensor * attend(ggml_context * g, ggml_tensor * q, ggml_tensor * k, ggml_tensor * v_t, ggml_tensor * mask,
                          float scale) noexcept nogil
cdef ggml_tensor * attend_flash(ggml_context * g, ggml_tensor * q, ggml_tensor * k, ggml_tensor * v,
                                ggml_tensor * mask, float scale) noexcept nogil
