"""Keys and values of the encoder output for every decoder layer, once per window."""

from libc.math cimport powf

from whispyx._core.graph.blocks cimport linear
from whispyx._core.kvcache cimport KvCache
from whispyx._core.weights cimport Weights
from whispyx._ggml.ggml cimport (
    ggml_build_forward_expand,
    ggml_cgraph,
    ggml_context,
    ggml_cpy,
    ggml_element_size,
    ggml_new_graph_custom,
    ggml_scale,
    ggml_tensor,
    ggml_transpose,
    ggml_view_1d,
    ggml_view_2d,
)


cdef ggml_cgraph * build_cross(ggml_context * g, Weights weights, ggml_tensor * encoder, KvCache kv_cross,
                               int n_layer, int n_head, bint flash) noexcept nogil:
    """Fill the cross cache from encoder (n_ctx, n_state).

    Layer i starts at row i * n_cells. Keys lie as (n_ctx, n_state), values likewise for flash attention and as
    (n_state, n_ctx) otherwise, where attention multiplies by the transposed values.
    """
    cdef ggml_cgraph * graph = ggml_new_graph_custom(g, 16 + 16 * n_layer, False)
    cdef int i, n_state = <int>encoder.ne[0], n_ctx = <int>encoder.ne[1]
    cdef size_t size = ggml_element_size(kv_cross.k), start
    cdef float scale = powf(<float>n_state / n_head, -0.25)
    cdef ggml_tensor * k
    cdef ggml_tensor * v
    for i in range(n_layer):
        start = size * n_state * kv_cross.n_cells * i
        k = ggml_scale(g, linear(g, encoder, &weights.decoder[i].cross.key), scale)     # (n_ctx, n_state)
        v = linear(g, encoder, &weights.decoder[i].cross.value)
        ggml_build_forward_expand(graph, ggml_cpy(g, k, ggml_view_1d(g, kv_cross.k, n_state * n_ctx, start)))
        if flash:
            v = ggml_cpy(g, v, ggml_view_1d(g, kv_cross.v, n_state * n_ctx, start))
        else:
            v = ggml_cpy(g, ggml_transpose(g, v), ggml_view_2d(g, kv_cross.v, n_ctx, n_state, size * n_ctx, start))
        ggml_build_forward_expand(graph, v)
    return graph
