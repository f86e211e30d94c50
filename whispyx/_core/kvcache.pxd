from libc.stdint cimport int32_t, int64_t, uint64_t

from whispyx._core.batch cimport Batch
from whispyx._core.devices cimport Device
from whispyx._core.handles cimport Backend, Buffer, Meta
from whispyx._ggml.ggml cimport ggml_tensor, ggml_type


cdef struct Cell:
    int32_t pos             # -1: free
    uint64_t seqs           # bit s: sequence s uses this cell


cdef bint keeps_caches(Device device, ggml_type type, int n_state) except -1

cdef class KvCache:
    cdef Meta meta
    cdef Buffer buffer
    cdef Cell * cells
    cdef ggml_tensor * k    # (n_layer, n_cells, n_state), flat
    cdef ggml_tensor * v    # the same
    cdef readonly int n_cells
    cdef readonly int n_state
    cdef readonly int n_layer
    cdef readonly int n_decoders    # how many decoders it was made for
    cdef int head                   # where the search for a free cell starts
    cdef int n_used                 # one past the last cell in use
    cdef size_t n_bytes(self) noexcept
    cdef void close(self) noexcept
    cdef bint adopt(self, KvCache old) noexcept
    cdef void clear(self) noexcept nogil
    cdef bint place(self, Batch batch, int64_t * slots) noexcept nogil
    cdef void seq_rm(self, int seq, int pos_from) noexcept nogil
    cdef void seq_cp(self, int source, int dest) noexcept nogil
    cdef void seq_move(self, int first, int n, const int * source) noexcept nogil
    cdef void recount(self) noexcept nogil
    @staticmethod
    cdef KvCache create(Backend backend, ggml_type type, int n_state, int n_layer, int n_cells, str what,
                        bint clean=*)
