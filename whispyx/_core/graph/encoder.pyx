"""Encoder blocks: positions attend to each other without a mask."""

from libc.math cimport sqrtf

from whispyx._core.graph.blocks cimport attend, attend_flash, by_head, layer_norm, linear, mlp
from whispyx._core.kvcache cimport KvCache
from whispyx._core.weights cimport Layer, Weights
from whispyx._ggml.ggml cimport (
    GGML_TYPE_F16,
    ggml_add,
    ggml_build_forward_expand,
    ggml_cast,
    ggml_cgraph,
    ggml_context,
    ggml_cpy,
    ggml_element_size,
    ggml_new_graph_custom,
    ggml_new_tensor_2d,
    ggml_permute,
    ggml_reshape_3d,
    ggml_set_input,
    ggml_set_name,
    ggml_set_output,
    ggml_tensor,
    ggml_view_1d,
    ggml_view_2d,
    ggml_view_3d,
)


cdef ggml_tensor * padded(ggml_context * g, ggml_cgraph * graph, ggml_tensor * x, ggml_tensor * cache, int n_head,
                          int n_pad) noexcept nogil:
    """Store x (n_ctx, n_state) in the pad cache and return its first n_pad rows by head, (n_head, n_pad, d)."""
    cdef size_t size = ggml_element_size(cache)
    cdef long long n_state = x.ne[0]
    ggml_build_forward_expand(graph, ggml_cpy(g, x, ggml_view_1d(g, cache, n_state * x.ne[1], 0)))
    return ggml_view_3d(g, cache, n_state // n_head, n_pad, n_head, size * n_state, size * n_state // n_head, 0)


cdef EncoderGraph build_encoder(ggml_context * g, Weights weights, ggml_tensor * conv, int n_layer, int n_head,
                                bint flash, KvCache kv_pad, bint debug) noexcept nogil:
    """Build the encoder over conv (n_ctx, n_state).

    With a pad cache, keys and values are stored as f16 and the length is rounded up to what GPU kernels want; the
    rows past n_ctx are masked out. Without one, attention reads the exact rows in f32.
    """
    cdef EncoderGraph out
    cdef const Layer * layer
    cdef ggml_tensor * x
    cdef ggml_tensor * y
    cdef ggml_tensor * q
    cdef ggml_tensor * k
    cdef ggml_tensor * v
    cdef int i, n_ctx = <int>conv.ne[1], n_state = <int>conv.ne[0]
    cdef int n_pad = (n_ctx + 255) // 256 * 256
    cdef float scale = 1.0 / sqrtf(<float>n_state / n_head)

    out.graph = ggml_new_graph_custom(g, 64 + 48 * n_layer, False)
    out.pad_mask = NULL
    if flash and kv_pad is not None and n_pad > n_ctx:
        out.pad_mask = ggml_new_tensor_2d(g, GGML_TYPE_F16, n_pad, n_ctx)
        ggml_set_name(out.pad_mask, b"pad_mask")
        ggml_set_input(out.pad_mask)

    # A shorter audio context uses the first positions.
    x = ggml_add(g, conv, ggml_view_2d(g, weights.e_pe, n_state, n_ctx, weights.e_pe.nb[1], 0))
    for i in range(n_layer):
        layer = &weights.encoder[i]
        y = layer_norm(g, x, &layer.attn.ln)
        q = by_head(g, linear(g, y, &layer.attn.query), n_head)           # (n_head, n_ctx, d)
        k = linear(g, y, &layer.attn.key)                                 # (n_ctx, n_state)
        v = linear(g, y, &layer.attn.value)
        if flash and kv_pad is not None:
            k = padded(g, out.graph, k, kv_pad.k, n_head, n_pad)
            v = padded(g, out.graph, v, kv_pad.v, n_head, n_pad)
            y = attend_flash(g, q, k, v, out.pad_mask, scale)
        elif flash:
            y = attend_flash(g, q, by_head(g, k, n_head), by_head(g, v, n_head), NULL, scale)
        else:
            k = ggml_cast(g, by_head(g, k, n_head), GGML_TYPE_F16)
            v = ggml_reshape_3d(g, v, n_state // n_head, n_head, n_ctx)
            v = ggml_cast(g, ggml_permute(g, v, 1, 2, 0, 3), GGML_TYPE_F16)   # (n_head, d, n_ctx)
            y = attend(g, q, k, v, NULL, scale)
        x = ggml_add(g, linear(g, y, &layer.attn.out), x)
        x = ggml_add(g, mlp(g, x, layer), x)
        if debug:
            # Keeps the block's output readable after the run; costs the memory of one more activation per block.
            ggml_set_output(x)
            ggml_build_forward_expand(out.graph, x)
        out.block[i] = x
    x = layer_norm(g, x, &weights.ln_post)
    ggml_set_name(x, b"encoder")
    ggml_set_output(x)
    out.out = x
    ggml_build_forward_expand(out.graph, x)
    return out
