# Declarations from ggml-alloc.h; only what whispyx uses.

from whispyx._ggml.ggml cimport ggml_context, ggml_tensor
from whispyx._ggml.ggml_backend cimport ggml_backend_buffer_t, ggml_backend_buffer_type_t

cdef extern from "ggml-alloc.h" nogil:
    struct ggml_tallocr:
        size_t offset

    size_t ggml_backend_alloc_ctx_tensors_from_buft_size(ggml_context * ctx, ggml_backend_buffer_type_t buft)
    ggml_backend_buffer_t ggml_backend_alloc_ctx_tensors_from_buft(ggml_context * ctx,
                                                                   ggml_backend_buffer_type_t buft)
