"""Decoder blocks: tokens attend to earlier tokens of their sequence and to the encoder's output."""

from libc.math cimport powf

from whispyx._core.graph.blocks cimport attend, attend_flash, by_head, layer_norm, linear, mlp
from whispyx._core.kvcache cimport KvCache
from whispyx._core.weights cimport Layer, Weights
from whispyx._ggml.ggml cimport (
    GGML_TYPE_F16,
    GGML_TYPE_I32,
    GGML_TYPE_I64,
    ggml_add,
    ggml_build_forward_expand,
    ggml_cgraph,
    ggml_cont,
    ggml_context,
    ggml_element_size,
    ggml_get_rows,
    ggml_mul_mat,
    ggml_new_graph_custom,
    ggml_new_tensor_1d,
    ggml_new_tensor_2d,
    ggml_permute,
    ggml_scale,
    ggml_set_input,
    ggml_set_name,
    ggml_set_output,
    ggml_set_rows,
    ggml_soft_max_ext,
    ggml_tensor,
    ggml_type,
    ggml_view_2d,
    ggml_view_3d,
)


cdef ggml_tensor * input_1d(ggml_context * g, ggml_type type, int n, const char * name) noexcept nogil:
    cdef ggml_tensor * x = ggml_new_tensor_1d(g, type, n)
    ggml_set_name(x, name)
    ggml_set_input(x)
    return x


cdef ggml_tensor * cached(ggml_context * g, ggml_tensor * cache, size_t start, int n_state, int n_head,
                          int n_rows) noexcept nogil:
    """Rows of a layer by head, (n_head, n_rows, d), a view."""
    cdef size_t size = ggml_element_size(cache)
    return ggml_view_3d(g, cache, n_state // n_head, n_rows, n_head, size * n_state, size * (n_state // n_head), start)


cdef ggml_tensor * look(ggml_context * g, ggml_tensor * q, ggml_tensor * k, int head, int n_positions,
                        float scale) noexcept nogil:
    """Attention of one head over the first n_positions keys, (n_tokens, n_positions)."""
    cdef ggml_tensor * one_q = ggml_view_2d(g, q, q.ne[0], q.ne[1], q.nb[1], q.nb[2] * head)
    cdef ggml_tensor * one_k = ggml_view_2d(g, k, k.ne[0], n_positions, k.nb[1], k.nb[2] * head)
    cdef ggml_tensor * weights = ggml_soft_max_ext(g, ggml_mul_mat(g, one_k, one_q), NULL, scale, 0.0)
    ggml_set_output(weights)
    return weights


cdef DecoderGraph build_decoder(ggml_context * g, Weights weights, KvCache kv_self, KvCache kv_cross, int n_tokens,
                                int n_outputs, int n_kv, int n_audio_ctx, int n_layer, int n_head,
                                bint flash, const Head * heads=NULL, int n_heads=0,
                                int n_positions=0) noexcept nogil:
    """Build the decoder for a batch.

    New keys and values go to the cells in `slot`; attention then reads the first n_kv cells through `mask`.

    With `heads` (at most MAX_HEADS, layers ascending) the graph ends where the last of them is known and gives their
    cross-attention over the first n_positions encoder positions instead of logits.
    """
    cdef DecoderGraph out
    cdef const Layer * layer
    cdef ggml_cgraph * graph = ggml_new_graph_custom(g, 128 + 64 * n_layer, False)
    cdef int i, n_state = <int>weights.d_te.ne[0], d = n_state // n_head, n_watched = 0
    cdef size_t size = ggml_element_size(kv_self.k), start
    cdef float scale = powf(<float>d, -0.25)
    cdef ggml_tensor * x
    cdef ggml_tensor * y
    cdef ggml_tensor * q
    cdef ggml_tensor * k
    cdef ggml_tensor * v

    out.graph = graph
    out.logits = NULL
    out.token = input_1d(g, GGML_TYPE_I32, n_tokens, b"token")
    out.pos = input_1d(g, GGML_TYPE_I32, n_tokens, b"pos")
    out.slot = input_1d(g, GGML_TYPE_I64, n_tokens, b"slot")
    out.output = input_1d(g, GGML_TYPE_I32, n_outputs, b"output") if n_heads == 0 and n_outputs < n_tokens else NULL
    out.mask = ggml_new_tensor_2d(g, GGML_TYPE_F16, n_kv, n_tokens)
    ggml_set_name(out.mask, b"mask")
    ggml_set_input(out.mask)

    x = ggml_add(g, ggml_get_rows(g, weights.d_te, out.token), ggml_get_rows(g, weights.d_pe, out.pos))
    for i in range(n_layer):
        layer = &weights.decoder[i]

        y = layer_norm(g, x, &layer.attn.ln)                                          # (n_tokens, n_state)
        q = by_head(g, ggml_scale(g, linear(g, y, &layer.attn.query), scale), n_head)  # (n_head, n_tokens, d)
        k = ggml_scale(g, linear(g, y, &layer.attn.key), scale)                       # (n_tokens, n_state)
        v = linear(g, y, &layer.attn.value)
        start = size * n_state * kv_self.n_cells * i
        ggml_build_forward_expand(graph, ggml_set_rows(
            g, ggml_view_2d(g, kv_self.k, n_state, kv_self.n_cells, size * n_state, start), k, out.slot))
        ggml_build_forward_expand(graph, ggml_set_rows(
            g, ggml_view_2d(g, kv_self.v, n_state, kv_self.n_cells, size * n_state, start), v, out.slot))
        k = cached(g, kv_self.k, start, n_state, n_head, n_kv)                        # (n_head, n_kv, d)
        v = cached(g, kv_self.v, start, n_state, n_head, n_kv)
        if flash:
            y = attend_flash(g, q, k, v, out.mask, 1.0)
        else:
            y = attend(g, q, k, ggml_cont(g, ggml_permute(g, v, 1, 0, 2, 3)), out.mask, 1.0)
        x = ggml_add(g, linear(g, y, &layer.attn.out), x)

        y = layer_norm(g, x, &layer.cross.ln)
        q = by_head(g, linear(g, y, &layer.cross.query), n_head)                      # (n_head, n_tokens, d)
        start = size * n_state * kv_cross.n_cells * i
        k = cached(g, kv_cross.k, start, n_state, n_head, n_audio_ctx)                # (n_head, n_audio_ctx, d)
        # The cached keys carry one factor d^-1/4; the other one is the scale here.
        while n_watched < n_heads and heads[n_watched].layer == i:
            out.watched[n_watched] = look(g, q, k, heads[n_watched].index, n_positions, scale)
            ggml_build_forward_expand(graph, out.watched[n_watched])
            n_watched += 1
        if 0 < n_heads == n_watched:
            return out
        if flash:
            v = cached(g, kv_cross.v, start, n_state, n_head, n_audio_ctx)
            y = attend_flash(g, q, k, v, NULL, scale)
        else:
            v = ggml_view_3d(g, kv_cross.v, n_audio_ctx, d, n_head, size * n_audio_ctx, size * n_audio_ctx * d, start)
            y = attend(g, q, k, v, NULL, scale)
        x = ggml_add(g, linear(g, y, &layer.cross.out), x)

        x = ggml_add(g, mlp(g, x, layer), x)

    if out.output != NULL:
        x = ggml_get_rows(g, x, out.output)                                           # (n_outputs, n_state)
    x = layer_norm(g, x, &weights.d_ln)
    out.logits = ggml_mul_mat(g, weights.d_te, x)                                     # (n_outputs, n_vocab)
    ggml_set_name(out.logits, b"logits")
    ggml_set_output(out.logits)
    ggml_build_forward_expand(graph, out.logits)
    return out
