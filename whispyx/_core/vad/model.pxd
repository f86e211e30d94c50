from whispyx._core.handles cimport Buffer, Meta
from whispyx._core.source cimport Source
from whispyx._ggml.ggml cimport ggml_tensor

cdef enum:
    N_WINDOW = 512      # samples
    N_CONTEXT = 64      # samples before and after a window that its first and last frame reach into
    N_FFT = 256
    HOP = 128
    N_FRAMES = 4        # frames of 256 samples in 64 + 512 + 64
    N_LAYERS = 4
    N_TAPS = 3
    LANES = 32          # gates computed side by side


cdef struct Conv:
    ggml_tensor * tap[N_TAPS]       # (n_out, n_in) each, n_in padded
    ggml_tensor * bias              # (n_out,), n_out padded


cdef class VadWeights:
    cdef readonly tuple version
    cdef readonly int n_hidden
    cdef int n_gates                # 4 n_hidden, padded
    cdef Meta meta
    cdef Buffer buffer
    cdef ggml_tensor * stft_re      # (n_bins, 256), n_bins padded
    cdef ggml_tensor * stft_im
    cdef Conv conv[N_LAYERS]
    cdef ggml_tensor * gate_in      # (4 n_hidden, n_in), n_in padded
    cdef ggml_tensor * gate_bias    # (4 n_hidden,)
    cdef float[:, :, ::1] recurrent  # (n_gates / LANES, n_hidden, LANES)
    cdef float[::1] final_weight    # (n_hidden,)
    cdef float final_bias
    cdef void close(self) noexcept

cdef VadWeights load_weights(Source source)
