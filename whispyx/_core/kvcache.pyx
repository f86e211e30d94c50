"""Keys and values that attention has seen.

A cache is a set of cells. A cell holds the keys and values of one token position in every layer and knows which
sequences (decoders) use it, so decoders that share a beginning share its cells. Tokens go to any free cells: a row
index per token tells the graph where to write, so a fragmented cache never lacks room that is there.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from whispyx._core.batch cimport Batch
from whispyx._core.handles cimport Backend, Buffer, Meta
from whispyx._core.devices cimport Device
from whispyx._ggml.ggml cimport (
    GGML_TYPE_F32,
    GGML_TYPE_I64,
    ggml_context,
    ggml_cpy,
    ggml_element_size,
    ggml_new_tensor_1d,
    ggml_new_tensor_2d,
    ggml_set_name,
    ggml_set_rows,
    ggml_tensor,
    ggml_transpose,
    ggml_type,
    ggml_view_1d,
    ggml_view_2d,
)
from whispyx._ggml.ggml_backend cimport (
    GGML_BACKEND_BUFFER_USAGE_ANY,
    ggml_backend_buffer_clear,
    ggml_backend_buffer_is_host,
    ggml_backend_dev_supports_op,
    ggml_backend_get_default_buffer_type,
)


def pad256(int n) -> int:
    """Round up to the multiple of 256 that GPU attention kernels want."""
    return (n + 255) // 256 * 256


cdef bint keeps_caches(Device device, ggml_type type, int n_state) except -1:
    """Whether a device can write keys and values into a cache in its memory in every way that our graphs do.

    ggml moves no work whose result lies in memory that is there already: it ends the process instead.
    """
    cdef Meta meta = Meta.create(16, 0)
    cdef ggml_context * g = meta.ptr
    cdef ggml_tensor * cache = ggml_new_tensor_1d(g, type, 256 * <int64_t>n_state)
    cdef size_t row = cache.nb[0] * n_state
    cdef ggml_tensor * x = ggml_new_tensor_2d(g, GGML_TYPE_F32, n_state, 8)
    cdef ggml_tensor * flat = ggml_view_1d(g, cache, 8 * n_state, 0)
    cdef ggml_tensor * rows = ggml_view_2d(g, cache, n_state, 256, row, 0)
    cdef ggml_tensor * columns = ggml_view_2d(g, cache, 8, n_state, cache.nb[0] * 8, 0)
    cdef ggml_tensor * slot = ggml_new_tensor_1d(g, GGML_TYPE_I64, 8)
    cdef ggml_tensor * ops[7]
    cdef int i
    ops[0], ops[1], ops[2], ops[3] = cache, flat, rows, columns
    ops[4] = ggml_set_rows(g, rows, x, slot)
    ops[5] = ggml_cpy(g, x, flat)
    ops[6] = ggml_cpy(g, ggml_transpose(g, x), columns)
    for i in range(7):
        if not ggml_backend_dev_supports_op(device.dev, ops[i]):
            return False
    return True


cdef class KvCache:
    @staticmethod
    cdef KvCache create(Backend backend, ggml_type type, int n_state, int n_layer, int n_cells, str what,
                        bint clean=True):
        cdef KvCache self = KvCache.__new__(KvCache)
        cdef int64_t n = <int64_t>n_state * n_layer * n_cells
        self.n_state, self.n_layer, self.n_cells = n_state, n_layer, n_cells
        self.cells = <Cell *>malloc(n_cells * sizeof(Cell))
        if self.cells == NULL:
            raise MemoryError
        self.meta = Meta.create(2, 0)
        self.k = ggml_new_tensor_1d(self.meta.ptr, type, n)
        self.v = ggml_new_tensor_1d(self.meta.ptr, type, n)
        ggml_set_name(self.k, f"{what} k".encode())
        ggml_set_name(self.v, f"{what} v".encode())
        self.buffer = Buffer.for_tensors(self.meta, ggml_backend_get_default_buffer_type(backend.ptr),
                                         GGML_BACKEND_BUFFER_USAGE_ANY, what)
        if clean:
            # ggml attends rows that were never written with weight 0; they must not hold NaN.
            with nogil:
                ggml_backend_buffer_clear(self.buffer.ptr, 0)
        self.clear()
        return self

    cdef bint adopt(self, KvCache old) noexcept:
        """Take over what a smaller cache of the same model holds. False, and nothing done, unless a CPU can copy it."""
        cdef size_t row = ggml_element_size(self.k) * self.n_state, layer
        if not (ggml_backend_buffer_is_host(self.buffer.ptr) and ggml_backend_buffer_is_host(old.buffer.ptr)):
            return False
        memcpy(self.cells, old.cells, old.n_cells * sizeof(Cell))
        for layer in range(<size_t>self.n_layer):
            memcpy(<char *>self.k.data + layer * row * self.n_cells, <char *>old.k.data + layer * row * old.n_cells,
                   row * old.n_used)
            memcpy(<char *>self.v.data + layer * row * self.n_cells, <char *>old.v.data + layer * row * old.n_cells,
                   row * old.n_used)
        self.head, self.n_used = old.head, old.n_used
        return True

    cdef size_t n_bytes(self) noexcept:
        return self.buffer.size() if self.buffer is not None else 0

    cdef void close(self) noexcept:
        if self.buffer is not None:
            self.buffer.close()
            self.meta.close()
        free(self.cells)
        self.cells = NULL
        self.n_cells = 0

    def __dealloc__(self):
        free(self.cells)

    cdef void clear(self) noexcept nogil:
        """Free all cells."""
        cdef int i
        for i in range(self.n_cells):
            self.cells[i].pos = -1
            self.cells[i].seqs = 0
        self.head = self.n_used = 0

    cdef void recount(self) noexcept nogil:
        cdef int i
        self.n_used = 0
        for i in range(self.n_cells - 1, -1, -1):
            if self.cells[i].pos >= 0:
                self.n_used = i + 1
                break

    cdef bint place(self, Batch batch, int64_t * slots) noexcept nogil:
        """Give every token of a batch a free cell (its index in `slots`). False, and nothing changed, without room."""
        cdef int i = self.head, token = 0, tested = 0, t
        while token < batch.n_tokens and tested < self.n_cells:
            if i >= self.n_cells:
                i = 0
            if self.cells[i].pos < 0:
                slots[token] = i
                token += 1
            i += 1
            tested += 1
        if token < batch.n_tokens:
            return False
        for t in range(batch.n_tokens):
            self.cells[slots[t]].pos = batch.pos[t]
            self.cells[slots[t]].seqs = batch.seqs[t]
            if slots[t] >= self.n_used:
                self.n_used = <int>slots[t] + 1
        self.head = i
        return True

    cdef void seq_rm(self, int seq, int pos_from) noexcept nogil:
        """Take a sequence out of all cells at positions from `pos_from` on."""
        cdef int i
        cdef uint64_t bit = <uint64_t>1 << seq
        for i in range(self.n_cells):
            if self.cells[i].pos >= pos_from and self.cells[i].seqs & bit:
                self.cells[i].seqs &= ~bit
                if self.cells[i].seqs == 0:
                    self.cells[i].pos = -1
                    if i < self.head:
                        self.head = i
        self.recount()

    cdef void seq_cp(self, int source, int dest) noexcept nogil:
        """Let sequence `dest` use all cells of `source`."""
        cdef int i
        for i in range(self.n_cells):
            if self.cells[i].seqs & (<uint64_t>1 << source):
                self.cells[i].seqs |= <uint64_t>1 << dest

    cdef void seq_move(self, int first, int n, const int * source) noexcept nogil:
        """Let each sequence first + i, i < n, go on with the cells of first + source[i], all at once; -1: with none."""
        cdef int i, j
        cdef uint64_t low = ((<uint64_t>1 << n) - 1) << first, seqs
        for i in range(self.n_used):
            if not self.cells[i].seqs & low:
                continue
            seqs = self.cells[i].seqs & ~low
            for j in range(n):
                if source[j] >= 0 and self.cells[i].seqs >> (first + source[j]) & 1:
                    seqs |= <uint64_t>1 << (first + j)
            self.cells[i].seqs = seqs
            if seqs == 0:
                self.cells[i].pos = -1
                if i < self.head:
                    self.head = i
        self.recount()
