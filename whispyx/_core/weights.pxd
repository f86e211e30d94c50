from whispyx._core.devices cimport Watch
from whispyx._core.handles cimport Buffer, Meta
from whispyx._core.hparams cimport HParams
from whispyx._core.packed cimport Packed
from whispyx._ggml.ggml cimport ggml_tensor


cdef struct Linear:
    ggml_tensor * w     # (n_out, n_in)
    ggml_tensor * b     # (n_out,), NULL for keys


cdef struct Norm:
    ggml_tensor * w     # (n_state,)
    ggml_tensor * b     # (n_state,)


cdef struct Attention:
    Norm ln
    Linear query
    Linear key
    Linear value
    Linear out


cdef struct Layer:
    Attention attn
    Attention cross     # decoder only
    Norm mlp_ln
    Linear mlp_0        # (4 n_state, n_state)
    Linear mlp_2        # (n_state, 4 n_state)


cdef class Weights:
    cdef ggml_tensor * e_pe         # (n_audio_ctx, n_state)
    cdef Linear conv1               # w (n_state, n_mels, 3), b (n_state, 1)
    cdef Linear conv2               # w (n_state, n_state, 3), b (n_state, 1)
    cdef Norm ln_post
    cdef Layer * encoder
    cdef ggml_tensor * d_pe         # (n_text_ctx, n_state)
    cdef ggml_tensor * d_te         # (n_vocab, n_state): token embedding, and the output projection
    cdef Norm d_ln
    cdef Layer * decoder
    cdef list metas, buffers        # tensor headers and data, one pair per device
    cdef Watch watch                # of the devices that hold the data
    cdef list maps                  # of Mapping: files that are used where they are
    cdef list mapped                # of Buffer: ggml's view of them
    cdef size_t mapped_bytes        # of tensors in them
    cdef dict tensors               # name -> address of the ggml_tensor
    cdef Packed packed              # the weights for the kernels; then there are no tensors. None: the tensors are used
    cdef readonly int n_tensors
    cdef readonly bint has_encoder  # False: the encoder's tensors were left in the file
    cdef ggml_tensor * get(self, str name) except NULL
    cdef int _norm(self, str name, Norm * norm) except -1
    cdef int _linear(self, str name, Linear * linear, bint bias=*) except -1
    cdef int _attention(self, str name, Attention * attn) except -1
    cdef int _layers(self, str side, Layer * layers, int n_layer) except -1
    cdef int bind(self, HParams hp) except -1
    cdef bint is_mapped(self, ggml_tensor * tensor) noexcept
    cdef int check(self) except -1
    cdef bint intact(self) noexcept
    cdef void before_reading(self) noexcept
    cdef size_t n_bytes(self) noexcept
    cdef void close(self) noexcept
