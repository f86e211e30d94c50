"""The weights of a model as the kernels want them: packed, and in the precision that was chosen.

Matrices that are multiplied by the same rows are one: queries, keys and values of a layer, and the keys and values of
all layers for the encoder's output. Queries carry the factor d^-1/2 of attention.
"""

from libc.math cimport sqrtf
from libc.stdint cimport int32_t, int64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from whispyx._core.hparams cimport HParams
from whispyx._core.kernels cimport (
    WX_BF16,
    WX_F16,
    WX_F32,
    WX_I8,
    Memory,
    table,
    wx_linear,
    wx_matrix,
    wx_norm,
)
from whispyx._ggml.ggml cimport (
    GGML_TYPE_BF16,
    GGML_TYPE_F16,
    GGML_TYPE_F32,
    ggml_get_type_traits,
    ggml_row_size,
    ggml_to_float_t,
    ggml_type,
)

from whispyx._core.cores import usable_cores
from whispyx.errors import BackendUnsupportedError, ComputeMemoryError, ModelFormatError

cdef enum:
    ARENA_BYTES = 1 << 20
    PACK_THREADS = 4
    LARGEST_HEAD = 512
    ROWS_PER_STEP = 64      # kernels pack ranges that begin at multiples of this side by side

# Which type the matrices of each role have. In "bf16" the decoder, which is small and repeats its errors token after
# token, keeps f16; what is in 8 bits costs less than bf16 does in the encoder: cross keys and values have many scales,
# and the logits that matter are computed again. Convolutions read the spectrogram, whose small differences 8 bits lose.
# docs/performance.md has the figures.
PLANS = {
    "f32": {"encoder": WX_F32, "conv": WX_F32, "decoder": WX_F32, "logits": WX_F32, "cross": WX_F32},
    "bf16": {"encoder": WX_BF16, "conv": WX_BF16, "decoder": WX_F16, "logits": WX_I8, "cross": WX_I8},
    "int8": {"encoder": WX_I8, "conv": WX_BF16, "decoder": WX_I8, "logits": WX_I8, "cross": WX_I8},
}

# A matrix is packed by a few threads, each a range of rows. Where the system starts none, this one does all.
cdef extern from *:
    """
    #include <pthread.h>
    #include "whispyx_kernels.h"

    typedef struct wx_pack_job {
        const wx_kernels * table;
        const wx_matrix * m;
        int first, n_rows;
        const char * src;
        size_t row_bytes;
        int src_type;
        float factor;
    } wx_pack_job;

    static void * wx_pack_part(void * given) {
        wx_pack_job * job = (wx_pack_job *) given;
        if (job->n_rows > 0)
            job->table->pack(job->m, job->first, job->n_rows, job->src, job->src_type, job->factor);
        return NULL;
    }

    static void wx_pack_rows(const wx_kernels * table, const wx_matrix * m, int first, int n_rows, const void * src,
                             size_t row_bytes, int src_type, float factor, int n_threads, int step) {
        wx_pack_job jobs[64];
        pthread_t threads[64];
        int started[64] = {0};
        if (first % step != 0 || n_rows < 2 * step) n_threads = 1;
        if (n_threads > 64) n_threads = 64;
        for (int i = n_threads - 1; i >= 0; i--) {
            int steps = (n_rows + step - 1) / step;
            int from = steps * i / n_threads * step, to = steps * (i + 1) / n_threads * step;
            if (to > n_rows) to = n_rows;
            jobs[i] = (wx_pack_job) {table, m, first + from, to - from, (const char *) src + from * row_bytes,
                                     row_bytes, src_type, factor};
            if (i == 0 || pthread_create(&threads[i], NULL, wx_pack_part, &jobs[i]) != 0) wx_pack_part(&jobs[i]);
            else started[i] = 1;
        }
        for (int i = 1; i < n_threads; i++) if (started[i]) pthread_join(threads[i], NULL);
    }
    """
    void wx_pack_rows(const void * table, const wx_matrix * m, int first, int n_rows, const void * src,
                      size_t row_bytes, int src_type, float factor, int n_threads, int step) noexcept nogil


EMBEDDING = "decoder.token_embedding.weight"


cdef int source_type(int type) noexcept:
    """The kernels' name of a type that they read as it is, -1 for others."""
    if type == GGML_TYPE_F32:
        return WX_F32
    if type == GGML_TYPE_F16:
        return WX_F16
    if type == GGML_TYPE_BF16:
        return WX_BF16
    return -1


cdef int widen(const void * raw, int type, float * to, size_t n) except -1:
    """Write n numbers of any type as f32."""
    cdef ggml_to_float_t to_float
    if type == GGML_TYPE_F32:
        with nogil:
            memcpy(to, raw, n * sizeof(float))
        return 0
    to_float = ggml_get_type_traits(<ggml_type>type).to_float
    if to_float == NULL:
        raise ModelFormatError(f"type number {type} is no kind of floats")
    with nogil:
        to_float(raw, to, <int64_t>n)
    return 0


cdef class Packed:
    """Packed weights. Read-only once every tensor has been taken."""

    @staticmethod
    cdef Packed create(HParams hp, str compute, bint with_encoder):
        cdef Packed self = Packed.__new__(Packed)
        cdef int s = hp.n_text_state, i
        self.table = table()
        if self.table == NULL:
            raise BackendUnsupportedError(f"compute={compute!r} needs the kernels, and there are none for this machine")
        if s > LARGEST_HEAD * min(hp.n_audio_head, hp.n_text_head):
            raise BackendUnsupportedError(
                f"the kernels know heads of {LARGEST_HEAD} numbers at most: use compute='exact'")
        self.kernels, self.compute = (<bytes>self.table.name).decode(), compute
        self.types, self.blocks = PLANS[compute], []
        self.encoder = <wx_encoder_layer *>calloc(hp.n_audio_layer, sizeof(self.encoder[0]))
        self.decoder = <wx_decoder_layer *>calloc(hp.n_text_layer, sizeof(self.decoder[0]))
        if self.encoder == NULL or self.decoder == NULL:
            raise MemoryError
        self.model.n_mels, self.model.n_audio_ctx, self.model.n_state = hp.n_mels, hp.n_audio_ctx, s
        self.model.n_audio_head, self.model.n_audio_layer = hp.n_audio_head, hp.n_audio_layer
        self.model.n_text_ctx, self.model.n_text_head = hp.n_text_ctx, hp.n_text_head
        self.model.n_text_layer, self.model.n_vocab = hp.n_text_layer, hp.n_vocab
        self.model.cross_type = self.types["cross"]
        if with_encoder:
            self.model.encoder = self.encoder
            self.linear(&self.model.conv1, self.types["conv"], s, 3 * hp.n_mels)
            self.linear(&self.model.conv2, self.types["conv"], s, 3 * s)
            for i in range(hp.n_audio_layer):
                self.linear(&self.encoder[i].qkv, self.types["encoder"], 3 * s, s)
                self.linear(&self.encoder[i].out, self.types["encoder"], s, s)
                self.linear(&self.encoder[i].up, self.types["encoder"], 4 * s, s)
                self.linear(&self.encoder[i].down, self.types["encoder"], s, 4 * s)
        self.linear(&self.model.cross_kv, self.types["encoder"], 2 * s * hp.n_text_layer, s)
        self.model.decoder = self.decoder
        for i in range(hp.n_text_layer):
            self.linear(&self.decoder[i].qkv, self.types["decoder"], 3 * s, s)
            self.linear(&self.decoder[i].out, self.types["decoder"], s, s)
            self.linear(&self.decoder[i].cross_q, self.types["decoder"], s, s)
            self.linear(&self.decoder[i].cross_out, self.types["decoder"], s, s)
            self.linear(&self.decoder[i].up, self.types["decoder"], 4 * s, s)
            self.linear(&self.decoder[i].down, self.types["decoder"], s, 4 * s)
        self.matrix(&self.model.logits, self.types["logits"], hp.n_vocab, s)
        return self

    def __dealloc__(self):
        free(self.encoder)
        free(self.decoder)

    cdef size_t n_bytes(self) noexcept:
        cdef size_t total = 0
        cdef Memory block
        for block in self.blocks:
            total += block.size
        return total

    cdef float * floats(self, size_t n) except NULL:
        """Return room for n numbers, zeroed and aligned."""
        cdef size_t size = (n * sizeof(float) + 63) // 64 * 64
        cdef float * at
        if self.arena is None or self.arena_used + size > self.arena.size:
            self.arena = Memory.create(max(size, <size_t>ARENA_BYTES), "the weights")
            self.arena_used = 0
            self.blocks.append(self.arena)
        at = <float *>(self.arena.ptr + self.arena_used)
        self.arena_used += size
        return at

    cdef int matrix(self, wx_matrix * m, int32_t type, int n_out, int n_in) except -1:
        cdef Memory block = Memory.create(self.table.matrix_bytes(type, n_out, n_in), "the weights")
        self.blocks.append(block)
        m.type, m.n_out, m.n_in, m.data = type, n_out, n_in, block.ptr
        return 0

    cdef int linear(self, wx_linear * linear, int32_t type, int n_out, int n_in) except -1:
        linear.bias = self.floats(n_out)
        return self.matrix(&linear.w, type, n_out, n_in)

    cdef int vector(self, float * to, const void * raw, int type, size_t n, float factor) except -1:
        cdef size_t i
        widen(raw, type, to, n)
        if factor != 1.0:
            for i in range(n):
                to[i] *= factor
        return 0

    cdef int rows(self, wx_matrix * m, int first, int n_rows, const void * raw, int type, float factor) except -1:
        """Pack rows of a matrix. Types that kernels do not read are widened a few rows at a time."""
        cdef int src = source_type(type), n_threads = min(PACK_THREADS, usable_cores()), step = ROWS_PER_STEP, at, n
        cdef size_t row_bytes = ggml_row_size(<ggml_type>type, m.n_in)
        cdef float * wide
        if src >= 0:
            with nogil:
                wx_pack_rows(self.table, m, first, n_rows, raw, row_bytes, src, factor, n_threads, step)
            return 0
        n = 16 * step
        wide = <float *>malloc(<size_t>n * m.n_in * sizeof(float))
        if wide == NULL:
            raise ComputeMemoryError("no memory to convert weights")
        try:
            for at in range(0, n_rows, n):
                widen(<const char *>raw + at * row_bytes, type, wide, <size_t>min(n, n_rows - at) * m.n_in)
                with nogil:
                    wx_pack_rows(self.table, m, first + at, min(n, n_rows - at), wide, m.n_in * sizeof(float), WX_F32,
                                 factor, n_threads, step)
        finally:
            free(wide)
        return 0

    cdef bint keeps(self, int type) noexcept:
        """Whether an embedding of this type stays as it is in the file."""
        return source_type(type) >= 0

    cdef char * embedding_room(self, size_t n_bytes) except NULL:
        """Return where an embedding that stays as it is is to be put before it is taken."""
        cdef Memory kept = Memory.create(n_bytes, "the weights")
        self.blocks.append(kept)
        self.model.d_te = kept.ptr
        return kept.ptr

    cdef int take(self, str name, const void * raw, int type, size_t n) except -1:
        """Take over a tensor of the file: n numbers of a ggml type."""
        cdef list path = name.split(".")
        cdef wx_model * m = &self.model
        cdef float * to
        self.n_tensors += 1
        if path[1] == "blocks":
            return self._take_block(path, raw, type, n)
        if name == EMBEDDING:
            return self._take_embedding(raw, type, n)
        if name == "encoder.conv1.weight":
            return self._take_conv(&m.conv1, raw, type, m.n_mels)
        if name == "encoder.conv2.weight":
            return self._take_conv(&m.conv2, raw, type, m.n_state)
        to = self.floats(n)
        self.vector(to, raw, type, n, 1.0)
        if name == "encoder.conv1.bias":
            m.conv1.bias = to
        elif name == "encoder.conv2.bias":
            m.conv2.bias = to
        elif name == "encoder.positional_embedding":
            m.e_pe = to
        elif name == "decoder.positional_embedding":
            m.d_pe = to
        elif name == "encoder.ln_post.weight":
            m.ln_post.w = to
        elif name == "encoder.ln_post.bias":
            m.ln_post.b = to
        elif name == "decoder.ln.weight":
            m.d_ln.w = to
        elif name == "decoder.ln.bias":
            m.d_ln.b = to
        else:
            raise ModelFormatError(f"there is no place for the tensor {name}")
        return 0

    cdef int _take_block(self, list path, const void * raw, int type, size_t n) except -1:
        """Take a tensor of a layer: side.blocks.i.part.…"""
        cdef int i = int(path[2])
        cdef bint encoder = path[0] == "encoder"
        cdef str part = path[3], kind = path[len(path) - 1]
        cdef wx_norm * ln
        cdef wx_linear * up
        cdef wx_linear * down
        if part.startswith("attn"):
            inner = "ln" if part == "attn_ln" else path[4]
            if encoder:
                return self._take_attention(&self.encoder[i].attn_ln, inner, kind, raw, type, n, &self.encoder[i].qkv,
                                            &self.encoder[i].out)
            return self._take_attention(&self.decoder[i].attn_ln, inner, kind, raw, type, n, &self.decoder[i].qkv,
                                        &self.decoder[i].out)
        if part.startswith("cross_attn"):
            return self._take_cross(i, "ln" if part == "cross_attn_ln" else path[4], kind, raw, type, n)
        ln = &self.encoder[i].mlp_ln if encoder else &self.decoder[i].mlp_ln
        up = &self.encoder[i].up if encoder else &self.decoder[i].up
        down = &self.encoder[i].down if encoder else &self.decoder[i].down
        if part == "mlp_ln":
            return self._take_norm(ln, kind, raw, type, n)
        return self._take_linear(up if path[4] == "0" else down, kind, raw, type, n)

    cdef int _take_attention(self, wx_norm * ln, str part, str kind, const void * raw, int type, size_t n,
                             wx_linear * qkv, wx_linear * out) except -1:
        cdef int s = self.model.n_state
        cdef int place
        cdef float factor = 1.0
        if part == "ln":
            return self._take_norm(ln, kind, raw, type, n)
        if part == "out":
            return self._take_linear(out, kind, raw, type, n)
        place = ("query", "key", "value").index(part)
        if place == 0:
            factor = self._scale(qkv)
        if kind == "bias":
            return self.vector(<float *>qkv.bias + place * s, raw, type, n, factor)
        return self.rows(&qkv.w, place * s, s, raw, type, factor)

    cdef int _take_cross(self, int layer, str part, str kind, const void * raw, int type, size_t n) except -1:
        cdef int s = self.model.n_state, first
        cdef wx_decoder_layer * to = &self.decoder[layer]
        cdef float scale = 1.0 / sqrtf(<float>s / self.model.n_text_head)
        if part == "ln":
            return self._take_norm(&to.cross_ln, kind, raw, type, n)
        if part == "out":
            return self._take_linear(&to.cross_out, kind, raw, type, n)
        if part == "query":
            if kind == "bias":
                return self.vector(<float *>to.cross_q.bias, raw, type, n, scale)
            return self.rows(&to.cross_q.w, 0, s, raw, type, scale)
        first = (2 * layer + (part == "value")) * s
        if kind == "bias":
            return self.vector(<float *>self.model.cross_kv.bias + first, raw, type, n, 1.0)
        return self.rows(&self.model.cross_kv.w, first, s, raw, type, 1.0)

    cdef float _scale(self, const wx_linear * qkv) noexcept:
        """d^-1/2 of the side that a layer belongs to."""
        cdef bint encoder = (<uintptr_t>qkv >= <uintptr_t>self.encoder and
                             <uintptr_t>qkv < <uintptr_t>(self.encoder + self.model.n_audio_layer))
        cdef int n_head = self.model.n_audio_head if encoder else self.model.n_text_head
        return 1.0 / sqrtf(<float>self.model.n_state / n_head)

    cdef int _take_norm(self, wx_norm * norm, str kind, const void * raw, int type, size_t n) except -1:
        cdef float * to = self.floats(n)
        self.vector(to, raw, type, n, 1.0)
        if kind == "weight":
            norm.w = to
        else:
            norm.b = to
        return 0

    cdef int _take_linear(self, wx_linear * linear, str kind, const void * raw, int type, size_t n) except -1:
        if kind == "bias":
            return self.vector(<float *>linear.bias, raw, type, n, 1.0)
        return self.rows(&linear.w, 0, linear.w.n_out, raw, type, 1.0)

    cdef int _take_conv(self, wx_linear * conv, const void * raw, int type, int n_in) except -1:
        """The file has (n_out, n_in, 3), and a frame of the input holds all its channels."""
        cdef size_t n_out = conv.w.n_out, n = n_out * n_in * 3, o, c, k
        cdef float * wide = <float *>malloc(2 * n * sizeof(float))
        cdef float * turned = wide + n
        if wide == NULL:
            raise ComputeMemoryError("no memory to convert weights")
        try:
            widen(raw, type, wide, n)
            with nogil:
                for o in range(n_out):
                    for c in range(<size_t>n_in):
                        for k in range(3):
                            turned[(o * 3 + k) * n_in + c] = wide[(o * n_in + c) * 3 + k]
            self.rows(&conv.w, 0, conv.w.n_out, turned, GGML_TYPE_F32, 1.0)
        finally:
            free(wide)
        return 0

    cdef int _take_embedding(self, const void * raw, int type, size_t n) except -1:
        """The embedding is read row by row; packed it is the output projection."""
        cdef Memory wide
        if self.keeps(type):
            self.model.d_te_type = source_type(type)
        else:
            self.model.d_te_type = WX_F32
            wide = Memory.create(n * sizeof(float), "the weights")
            self.blocks.append(wide)
            self.model.d_te = wide.ptr
            widen(raw, type, <float *>wide.ptr, n)
        return self.rows(&self.model.logits, 0, self.model.n_vocab, raw, type, 1.0)
