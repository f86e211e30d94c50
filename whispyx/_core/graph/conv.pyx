"""Mel frames to encoder positions: two convolutions, the second one halves the time resolution."""

from whispyx._core.weights cimport Weights
from whispyx._ggml.ggml cimport (
    GGML_TYPE_F32,
    ggml_add,
    ggml_build_forward_expand,
    ggml_context,
    ggml_cont,
    ggml_conv_1d_ph,
    ggml_gelu,
    ggml_new_graph_custom,
    ggml_new_tensor_2d,
    ggml_set_input,
    ggml_set_name,
    ggml_set_output,
    ggml_tensor,
    ggml_transpose,
)


cdef ConvGraph build_conv(ggml_context * g, Weights weights, int n_ctx, int n_mels) noexcept nogil:
    cdef ConvGraph out
    cdef ggml_tensor * x
    out.graph = ggml_new_graph_custom(g, 64, False)
    out.mel = ggml_new_tensor_2d(g, GGML_TYPE_F32, 2 * n_ctx, n_mels)
    ggml_set_name(out.mel, b"mel")
    ggml_set_input(out.mel)

    x = ggml_conv_1d_ph(g, weights.conv1.w, out.mel, 1, 1)        # (n_state, 2 n_ctx)
    x = ggml_gelu(g, ggml_add(g, x, weights.conv1.b))
    x = ggml_conv_1d_ph(g, weights.conv2.w, x, 2, 1)              # (n_state, n_ctx)
    x = ggml_gelu(g, ggml_add(g, x, weights.conv2.b))
    x = ggml_cont(g, ggml_transpose(g, x))                        # (n_ctx, n_state)
    ggml_set_name(x, b"conv")
    ggml_set_output(x)
    out.out = x
    ggml_build_forward_expand(out.graph, x)
    return out
