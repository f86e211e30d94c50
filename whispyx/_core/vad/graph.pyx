"""The part of the Silero network that knows no past, for many windows at once.

Frames of 256 samples -> magnitudes of their spectrum -> four convolutions over the frames of a window -> the part of
the LSTM's gates that comes from its input. Shapes are written slowest dimension first; n is the number of windows. A
convolution is a sum of matrix products, one for each tap that lies on a frame: windows are the columns, so that one
product serves all of them.
"""

from whispyx._core.vad.model cimport N_FFT, N_FRAMES, N_LAYERS, N_TAPS, Conv, VadWeights
from whispyx._ggml.ggml cimport (
    GGML_TYPE_F32,
    ggml_add,
    ggml_build_forward_expand,
    ggml_cgraph,
    ggml_context,
    ggml_mul,
    ggml_mul_mat,
    ggml_new_graph_custom,
    ggml_new_tensor_2d,
    ggml_set_input,
    ggml_set_name,
    ggml_set_output,
    ggml_tensor,
    ggml_view_2d,
)

cdef extern from "ggml.h" nogil:
    ggml_tensor * ggml_sqrt(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_relu(ggml_context * ctx, ggml_tensor * a)

# Step of each convolution, in frames; it is not in the file.
cdef int[N_LAYERS] STRIDES = [1, 2, 2, 1]


cdef ggml_tensor * magnitudes(ggml_context * g, VadWeights weights, ggml_tensor * frames) noexcept nogil:
    """(4 n, 256) -> (4 n, n_bins)"""
    cdef ggml_tensor * re = ggml_mul_mat(g, weights.stft_re, frames)
    cdef ggml_tensor * im = ggml_mul_mat(g, weights.stft_im, frames)
    return ggml_sqrt(g, ggml_add(g, ggml_mul(g, re, re), ggml_mul(g, im, im)))


cdef ggml_tensor * convolve(ggml_context * g, const Conv * conv, ggml_tensor ** x, int n_x, int at) noexcept nogil:
    """Output of a convolution whose middle tap lies on frame `at`: n_x times (n, n_in) -> (n, n_out)."""
    cdef ggml_tensor * y = NULL
    cdef ggml_tensor * part
    cdef int k, i
    for k in range(N_TAPS):
        i = at + k - N_TAPS // 2
        if 0 <= i < n_x:
            part = ggml_mul_mat(g, conv.tap[k], x[i])
            y = part if y == NULL else ggml_add(g, y, part)
    return ggml_relu(g, ggml_add(g, y, conv.bias))


cdef FrontGraph build_front(ggml_context * g, VadWeights weights, int n) noexcept nogil:
    cdef FrontGraph out
    cdef ggml_tensor * spectrum
    cdef ggml_tensor * x[N_FRAMES]
    cdef ggml_tensor * y[N_FRAMES]
    cdef int layer, i, n_x = N_FRAMES, n_y
    out.graph = ggml_new_graph_custom(g, GRAPH_SIZE, False)
    out.frames = ggml_new_tensor_2d(g, GGML_TYPE_F32, N_FFT, <long long>N_FRAMES * n)
    ggml_set_name(out.frames, b"frames")
    ggml_set_input(out.frames)
    spectrum = magnitudes(g, weights, out.frames)
    for i in range(N_FRAMES):
        x[i] = ggml_view_2d(g, spectrum, spectrum.ne[0], n, spectrum.nb[1], spectrum.nb[1] * n * i)
    for layer in range(N_LAYERS):
        n_y = (n_x - 1) // STRIDES[layer] + 1
        for i in range(n_y):
            y[i] = convolve(g, &weights.conv[layer], x, n_x, i * STRIDES[layer])
        for i in range(n_y):
            x[i] = y[i]
        n_x = n_y
    out.gates = ggml_add(g, ggml_mul_mat(g, weights.gate_in, x[0]), weights.gate_bias)
    ggml_set_name(out.gates, b"gates")
    ggml_set_output(out.gates)
    ggml_build_forward_expand(out.graph, out.gates)
    return out
