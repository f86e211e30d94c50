from libc.stdint cimport int32_t, int64_t

from whispyx._core.batch cimport Batch
from whispyx._core.handles cimport Backend, Buffer, Meta
from whispyx._core.kernels cimport Memory, wx_decode, wx_encode, wx_head, wx_kernels, wx_row
from whispyx._core.kvcache cimport KvCache
from whispyx._core.pace cimport Pace
from whispyx._core.packed cimport Packed
from whispyx._ggml.ggml cimport ggml_cgraph, ggml_tensor

cdef enum:
    MAX_WINDOWS = 64        # as many as a cell of the self cache can name sequences


cdef struct Spent:
    int64_t us              # inside the decoder's operations, by the clock of the first thread
    int64_t n_runs


cdef struct Stage:
    const wx_kernels * table
    void * job
    int number
    Spent * spent


cdef class Fused:
    cdef Packed packed
    cdef Meta meta
    cdef Buffer buffer                  # of the graphs' tensors, one number each
    cdef ggml_cgraph * encode_graph
    cdef ggml_cgraph * cross_graph
    cdef ggml_cgraph * decode_graph
    cdef Stage * stages
    cdef wx_encode encode_job
    cdef wx_decode decode_job
    cdef Spent decoder_spent
    cdef Pace pace                      # how many threads a token is worth
    cdef Memory sync, mel, out, scratch
    cdef list crosses                   # of Memory: keys and values of each window
    cdef int32_t window_of[MAX_WINDOWS]     # by sequence
    cdef int32_t ctx_of[MAX_WINDOWS]        # encoder positions, by window
    cdef const void * cross_of[MAX_WINDOWS] # keys and values, by window
    cdef wx_row * rows
    cdef size_t rows_size
    cdef int32_t * cells
    cdef size_t cells_size
    @staticmethod
    cdef Fused create(Packed packed, Backend cpu)
    cdef ggml_cgraph * _graph(self, int first, int n, void * job, bint encoder, int at) except NULL
    cdef int need_scratch(self, size_t size) except -1
    cdef int need_windows(self, int n) except -1
    cdef void one_window(self) noexcept
    cdef int reserve(self, int n_threads) except -1
    cdef float * set_window(self, int window, int n_ctx, int n_threads) except NULL
    cdef int set_batch(self, Batch batch, KvCache kv, const int64_t * slots, float * logits, int n_threads) except -1
    cdef int set_watch(self, const wx_head * heads, int n_heads, int n_positions, float * look) except -1
    cdef void _fill(self, Batch batch, KvCache kv, const int64_t * slots) noexcept nogil
    cdef int _fill_row(
        self, wx_row * row, Batch batch, int i, KvCache kv, int32_t slot, int32_t * cells) noexcept nogil
    cdef int n_slept(self) noexcept nogil
    cdef size_t n_bytes(self) noexcept
    cdef void close(self) noexcept
    cdef void _free(self) noexcept
