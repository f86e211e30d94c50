from libc.stdint cimport int32_t

from whispyx._core.hparams cimport HParams
from whispyx._core.intake cimport Intake
from whispyx._core.mapping cimport Mapping
from whispyx._core.kernels cimport (
    Memory,
    wx_decoder_layer,
    wx_encoder_layer,
    wx_kernels,
    wx_linear,
    wx_logits,
    wx_matrix,
    wx_model,
    wx_norm,
)
from whispyx._core.vocab cimport Vocab


cdef str EMBEDDING


cdef class Packed:
    cdef const wx_kernels * table
    cdef wx_model model
    cdef wx_encoder_layer * encoder
    cdef wx_decoder_layer * decoder
    cdef readonly str compute           # "f32", "bf16", "mixed", "int8"
    cdef readonly str kernels           # name of the library
    cdef dict types                     # role -> type of its matrices
    cdef list blocks                    # of Memory
    cdef bint may_map
    cdef size_t mapped_bytes            # of the embedding, where it stays in its file
    cdef Mapping mapping                # of the file that the embedding stays in, or None
    cdef Memory arena                   # where the next vectors go
    cdef size_t arena_used
    cdef list matrices                  # addresses of those that have no room yet
    cdef Intake intake                  # where tensors that are taken are noted
    cdef long long at                   # where in the file the tensor that is taken begins
    cdef readonly int n_tensors
    cdef float * floats(self, size_t n) except NULL
    cdef int matrix(self, wx_matrix * m, int32_t type, int n_out, int n_in) except -1
    cdef int _make_room(self) except -1
    cdef int _plan_logits(self, int32_t type, int eot) except -1
    cdef int linear(self, wx_linear * linear, int32_t type, int n_out, int n_in) except -1
    cdef int vector(self, float * to, int type, size_t n, float factor) except -1
    cdef int rows(self, wx_matrix * m, int first, int n_rows, int type, float factor) except -1
    cdef int take(self, Intake intake, str name, long long at, int type, size_t n) except -1
    cdef int _take_block(self, list path, int type, size_t n) except -1
    cdef int _take_attention(self, wx_norm * ln, str part, str kind, int type, size_t n,
                             wx_linear * qkv, wx_linear * out) except -1
    cdef int _take_cross(self, int layer, str part, str kind, int type, size_t n) except -1
    cdef float _scale(self, const wx_linear * qkv) noexcept
    cdef int _take_norm(self, wx_norm * norm, str kind, int type, size_t n) except -1
    cdef int _take_linear(self, wx_linear * linear, str kind, int type, size_t n) except -1
    cdef int _take_conv(self, wx_linear * conv, int type, int n_in) except -1
    cdef int _take_embedding(self, int type, size_t n) except -1
    cdef size_t n_bytes(self) noexcept
    @staticmethod
    cdef Packed create(HParams hp, Vocab vocab, str compute, bint with_encoder, bint may_map)
