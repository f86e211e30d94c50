"""The recogniser on our own kernels: three graphs that are built once, each a chain of custom operations.

Every stage (a block of the encoder, of the decoder, …) is one node. ggml runs a node on all threads of its pool, waits
for all of them between nodes, and asks there whether to stop. What a graph works on stands in its job, which is filled
before each run; so nothing is built or planned per token.
"""

from libc.stdint cimport int32_t, int64_t, uint16_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from whispyx._core.batch cimport Batch
from whispyx._core.clock cimport now_us
from whispyx._core.handles cimport Backend, Buffer, Meta
from whispyx._core.kernels cimport Memory, wx_decode, wx_encode, wx_head, wx_kernels, wx_row, wx_sync
from whispyx._core.kvcache cimport KvCache
from whispyx._core.pace cimport Pace
from whispyx._core.packed cimport Packed
from whispyx._ggml.ggml cimport (
    GGML_N_TASKS_MAX,
    GGML_TYPE_F32,
    ggml_build_forward_expand,
    ggml_cgraph,
    ggml_custom_4d,
    ggml_new_graph_custom,
    ggml_new_tensor_1d,
    ggml_tensor,
)
from whispyx._ggml.ggml_backend cimport (
    GGML_BACKEND_BUFFER_USAGE_ANY,
    ggml_backend_get_default_buffer_type,
)

cdef enum:
    SPARE_NODES = 8
    RESERVED_OUTPUTS = 8


cdef void encode_node(ggml_tensor * dst, int ith, int nth, void * stage) noexcept nogil:
    cdef const Stage * s = <const Stage *>stage
    s.table.encode(<const wx_encode *>s.job, s.number, ith, nth)


cdef void decode_node(ggml_tensor * dst, int ith, int nth, void * stage) noexcept nogil:
    cdef const Stage * s = <const Stage *>stage
    cdef int64_t start = now_us() if ith == 0 else 0
    s.table.decode(<const wx_decode *>s.job, s.number, ith, nth)
    if ith == 0:
        s.spent.us += now_us() - start
        s.spent.n_runs += s.number == 0


cdef class Fused:
    """Graphs, jobs and working memory of one State."""

    @staticmethod
    cdef Fused create(Packed packed, Backend cpu):
        cdef Fused self = Fused.__new__(Fused)
        cdef const wx_kernels * table = packed.table
        cdef int n_encode = packed.model.n_audio_layer + 2, n_decode = packed.model.n_text_layer + 1
        cdef int n_state = packed.model.n_state, n_ctx = packed.model.n_audio_ctx
        self.packed, self.crosses, self.pace = packed, [], Pace()
        self.stages = <Stage *>calloc(n_encode + 1 + n_decode, sizeof(Stage))
        if self.stages == NULL:
            raise MemoryError
        self.sync = Memory.create(sizeof(wx_sync), "the kernels")
        self.encode_job.model = self.decode_job.model = &packed.model
        self.encode_job.sync = self.decode_job.sync = <wx_sync *>self.sync.ptr
        self.mel = Memory.create(<size_t>packed.model.n_mels * 2 * n_ctx * sizeof(float), "a window")
        self.out = Memory.create(<size_t>n_ctx * n_state * sizeof(float), "the encoder's output")
        self.encode_job.mel, self.encode_job.out = <const float *>self.mel.ptr, <float *>self.out.ptr
        self.need_windows(1)
        self.meta = Meta.create(n_encode + n_decode + SPARE_NODES, n_encode + 1 + n_decode + 3 * SPARE_NODES)
        self.encode_graph = self._graph(0, n_encode, &self.encode_job, True, 0)
        self.cross_graph = self._graph(n_encode, 1, &self.encode_job, True, n_encode)
        self.decode_graph = self._graph(0, n_decode, &self.decode_job, False, n_encode + 1)
        self.buffer = Buffer.for_tensors(self.meta, ggml_backend_get_default_buffer_type(cpu.ptr),
                                         GGML_BACKEND_BUFFER_USAGE_ANY, "the kernels' graphs")
        return self

    def __cinit__(self):
        memset(self.window_of, 0, sizeof(self.window_of))
        memset(self.ctx_of, 0, sizeof(self.ctx_of))

    def __dealloc__(self):
        self._free()

    cdef void _free(self) noexcept:
        free(self.stages)
        free(self.rows)
        free(self.cells)
        self.stages, self.rows, self.cells = NULL, NULL, NULL
        self.rows_size = self.cells_size = 0

    cdef void close(self) noexcept:
        cdef Memory block
        if self.buffer is not None:
            self.buffer.close()
        if self.meta is not None:
            self.meta.close()
        for block in [self.sync, self.mel, self.out, self.scratch, *self.crosses]:
            if block is not None:
                block.close()
        self.crosses = []
        self.packed = None      # whoever keeps a closed state does not keep the weights
        self._free()

    cdef int n_slept(self) noexcept nogil:
        """How often a thread has gone to sleep because another one was not running."""
        return (<wx_sync *>self.sync.ptr).slept

    cdef size_t n_bytes(self) noexcept:
        cdef size_t total = 0
        cdef Memory block
        for block in [self.mel, self.out, self.scratch, *self.crosses]:
            if block is not None:
                total += block.size
        return total

    cdef ggml_cgraph * _graph(self, int first, int n, void * job, bint encoder, int at) except NULL:
        """Chain stages first … first + n - 1; `at` is where their entries in `stages` begin."""
        cdef ggml_cgraph * graph = ggml_new_graph_custom(self.meta.ptr, n + SPARE_NODES, False)
        cdef ggml_tensor * x = ggml_new_tensor_1d(self.meta.ptr, GGML_TYPE_F32, 1)
        cdef Stage * stage
        cdef int i
        for i in range(n):
            stage = &self.stages[at + i]
            stage.table, stage.job, stage.number = self.packed.table, job, first + i
            stage.spent = &self.decoder_spent
            x = ggml_custom_4d(self.meta.ptr, GGML_TYPE_F32, 1, 1, 1, 1, &x, 1, encode_node if encoder else decode_node,
                               GGML_N_TASKS_MAX, stage)
        ggml_build_forward_expand(graph, x)
        return graph

    cdef int need_scratch(self, size_t size) except -1:
        """Both kinds of job use the same memory: no two of them run at once."""
        if self.scratch is None or self.scratch.size < size:
            self.scratch = None     # nothing in it outlives a job, so both need not be there at once
            self.scratch = Memory.create(size, "the working memory of the kernels")
        self.encode_job.scratch = self.decode_job.scratch = self.scratch.ptr
        return 0

    cdef int need_windows(self, int n) except -1:
        """Have keys and values for n windows side by side."""
        cdef Memory block
        while len(self.crosses) < n:
            block = Memory.create(
                self.packed.table.cross_bytes(&self.packed.model, self.packed.model.n_audio_ctx),
                "keys and values of a window")
            self.cross_of[len(self.crosses)] = block.ptr
            self.crosses.append(block)
        return 0

    cdef void one_window(self) noexcept:
        """Let all sequences share the first window again, and free the others."""
        memset(self.window_of, 0, sizeof(self.window_of))
        del self.crosses[1:]

    cdef int reserve(self, int n_threads) except -1:
        """Get the memory of the largest window and the longest prompt, so that no job runs out of it half-way."""
        cdef size_t size = self.packed.table.decode_bytes(
            &self.packed.model, self.packed.model.n_text_ctx, RESERVED_OUTPUTS, n_threads)
        if self.packed.model.encoder != NULL:
            size = max(size, self.packed.table.encode_bytes(
                &self.packed.model, self.packed.model.n_audio_ctx, n_threads))
        return self.need_scratch(size)

    cdef float * set_window(self, int window, int n_ctx, int n_threads) except NULL:
        """Make a window the one that is encoded next, and return where its spectrogram goes, (n_mels, 2 n_ctx)."""
        cdef Memory cross = self.crosses[window]
        self.need_scratch(self.packed.table.encode_bytes(&self.packed.model, n_ctx, n_threads))
        self.encode_job.n_ctx = n_ctx
        self.encode_job.cross = cross.ptr
        self.ctx_of[window] = n_ctx
        return <float *>self.mel.ptr

    cdef int set_batch(self, Batch batch, KvCache kv, const int64_t * slots, float * logits, int n_threads) except -1:
        """Make a batch, whose cells are chosen, the one that is decoded next."""
        cdef size_t n = batch.n_tokens
        cdef void * grown
        if n > self.rows_size:
            grown = realloc(self.rows, n * sizeof(wx_row))
            if grown == NULL:
                raise MemoryError
            self.rows, self.rows_size = <wx_row *>grown, n
        if n * self.packed.model.n_text_ctx > self.cells_size:
            grown = realloc(self.cells, n * self.packed.model.n_text_ctx * sizeof(int32_t))
            if grown == NULL:
                raise MemoryError
            self.cells, self.cells_size = <int32_t *>grown, n * self.packed.model.n_text_ctx
        self.need_scratch(self.packed.table.decode_bytes(
            &self.packed.model, <int32_t>n, batch.n_outputs, n_threads))
        self.decode_job.rows, self.decode_job.n_rows = self.rows, <int32_t>n
        self.decode_job.n_outputs, self.decode_job.logits = batch.n_outputs, logits
        self.decode_job.self_k, self.decode_job.self_v = <uint16_t *>kv.k.data, <uint16_t *>kv.v.data
        self.decode_job.n_cells = kv.n_cells
        self.decode_job.n_watched = 0
        with nogil:
            self._fill(batch, kv, slots)
        return 0

    cdef int set_watch(self, const wx_head * heads, int n_heads, int n_positions, float * look) except -1:
        """Have the next batch say where heads look."""
        self.decode_job.watched, self.decode_job.n_watched = heads, n_heads
        self.decode_job.n_positions, self.decode_job.look = n_positions, look
        return 0

    cdef void _fill(self, Batch batch, KvCache kv, const int64_t * slots) noexcept nogil:
        """A token sees the cells of its sequences at its own position and before, listed by position.

        The order of the list is that of the sums, so it must not depend on where other sequences have their cells.
        """
        cdef int i, n_rows = 0, n_outputs = 0
        cdef int32_t * cells = self.cells
        cdef bint early
        cdef int kind
        for kind in range(2):           # the kernels want rows of earlier text first
            early = kind == 0
            for i in range(batch.n_tokens):
                if batch.early[i] != early:
                    continue
                cells += self._fill_row(&self.rows[n_rows], batch, i, kv, <int32_t>slots[i], cells)
                self.rows[n_rows].output = -1
                if batch.wants_logits[i]:
                    self.rows[n_rows].output = n_outputs
                    n_outputs += 1
                n_rows += 1
            if early:
                self.decode_job.n_early = n_rows

    cdef int _fill_row(
        self, wx_row * row, Batch batch, int i, KvCache kv, int32_t slot, int32_t * cells) noexcept nogil:
        """Fill the row of token i, whose list of cells goes to `cells`, and return how many they are."""
        cdef int j, n = 0, pos, seq = 0, window
        row.token, row.pos, row.slot, row.cells = batch.token[i], batch.pos[i], slot, cells
        for pos in range(batch.pos[i] + 1):
            cells[pos] = -1
        for j in range(kv.n_used):
            if kv.cells[j].seqs & batch.seqs[i] and 0 <= kv.cells[j].pos <= batch.pos[i]:
                cells[kv.cells[j].pos] = j
        for pos in range(batch.pos[i] + 1):
            if cells[pos] >= 0:
                cells[n] = cells[pos]
                n += 1
        row.n_cells = n
        while seq < MAX_WINDOWS - 1 and not batch.seqs[i] >> seq & 1:
            seq += 1
        window = self.window_of[seq]
        row.cross, row.n_ctx = self.cross_of[window], self.ctx_of[window]
        return n
