"""Pieces that the graphs are made of. Shapes are written as numpy would show them: slowest dimension first."""

from whispyx._core.weights cimport Layer, Linear, Norm
from whispyx._ggml.ggml cimport (
    GGML_PREC_F32,
    ggml_add,
    ggml_context,
    ggml_cont,
    ggml_flash_attn_ext,
    ggml_flash_attn_ext_set_prec,
    ggml_gelu,
    ggml_mul,
    ggml_mul_mat,
    ggml_norm,
    ggml_permute,
    ggml_reshape_2d,
    ggml_reshape_3d,
    ggml_soft_max_ext,
    ggml_tensor,
)

cdef float LN_EPS = 1e-5


cdef ggml_tensor * layer_norm(ggml_context * g, ggml_tensor * x, const Norm * norm) noexcept nogil:
    """(n, n_state) -> (n, n_state)"""
    return ggml_add(g, ggml_mul(g, ggml_norm(g, x, LN_EPS), norm.w), norm.b)


cdef ggml_tensor * linear(ggml_context * g, ggml_tensor * x, const Linear * weights) noexcept nogil:
    """(n, n_in) -> (n, n_out)"""
    cdef ggml_tensor * y = ggml_mul_mat(g, weights.w, x)
    return y if weights.b == NULL else ggml_add(g, y, weights.b)


cdef ggml_tensor * mlp(ggml_context * g, ggml_tensor * x, const Layer * layer) noexcept nogil:
    """(n, n_state) -> (n, n_state), normalisation included, residual not"""
    cdef ggml_tensor * y = layer_norm(g, x, &layer.mlp_ln)
    y = ggml_gelu(g, linear(g, y, &layer.mlp_0))      # (n, 4 n_state)
    return linear(g, y, &layer.mlp_2)


cdef ggml_tensor * by_head(ggml_context * g, ggml_tensor * x, int n_head) noexcept nogil:
    """(n, n_state) -> (n_head, n, d), a view"""
    return ggml_permute(g, ggml_reshape_3d(g, x, x.ne[0] // n_head, n_head, x.ne[1]), 0, 2, 1, 3)


cdef ggml_tensor * attend(ggml_context * g, ggml_tensor * q, ggml_tensor * k, ggml_tensor * v_t, ggml_tensor * mask,
                          float scale) noexcept nogil:
    """Attention with its scores stored.

    q (n_head, n, d), k (n_head, n_kv, d), v_t (n_head, d, n_kv), mask (n, n_kv) or NULL -> (n, n_state)
    """
    cdef ggml_tensor * scores = ggml_mul_mat(g, k, q)                              # (n_head, n, n_kv)
    cdef ggml_tensor * weights = ggml_soft_max_ext(g, scores, mask, scale, 0.0)
    cdef ggml_tensor * y = ggml_mul_mat(g, v_t, weights)                           # (n_head, n, d)
    return ggml_reshape_2d(g, ggml_cont(g, ggml_permute(g, y, 0, 2, 1, 3)), y.ne[0] * y.ne[2], y.ne[1])


cdef ggml_tensor * attend_flash(ggml_context * g, ggml_tensor * q, ggml_tensor * k, ggml_tensor * v,
                                ggml_tensor * mask, float scale) noexcept nogil:
    """Attention in one pass over the keys (Dao et al. 2022).

    q (n_head, n, d), k and v (n_head, n_kv, d), mask (n, n_kv) f16 or NULL -> (n, n_state)
    """
    cdef ggml_tensor * y = ggml_flash_attn_ext(g, q, k, v, mask, scale, 0.0, 0.0)  # (n, n_head, d)
    ggml_flash_attn_ext_set_prec(y, GGML_PREC_F32)
    return ggml_reshape_2d(g, y, y.ne[0] * y.ne[1], y.ne[2])
