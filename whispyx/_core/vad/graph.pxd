from whispyx._core.vad.model cimport VadWeights
from whispyx._ggml.ggml cimport ggml_cgraph, ggml_context, ggml_tensor

cdef enum:
    GRAPH_SIZE = 128


cdef struct FrontGraph:
    ggml_cgraph * graph
    ggml_tensor * frames    # in: (4 n, 256) samples, all first frames, then all second ones, …
    ggml_tensor * gates     # out: (n, n_gates) the input's part of the LSTM's gates

cdef FrontGraph build_front(ggml_context * g, VadWeights weights, int n) noexcept nogil
