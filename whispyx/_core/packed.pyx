"""The weights of a model as the kernels want them: packed, and in the precision that was chosen.

Matrices that are multiplied by the same rows are one: queries, keys and values of a layer, and the keys and values of
all layers for the encoder's output. Queries carry the factor d^-1/2 of attention.
"""

from libc.math cimport sqrtf
from libc.stdint cimport int32_t, uint16_t, uintptr_t
from libc.stdlib cimport calloc, free

from whispyx._core.hparams cimport HParams
from whispyx._core.intake cimport Intake, source_type
from whispyx._core.kernels cimport (
    WX_BF16,
    WX_F16,
    WX_F32,
    WX_G8,
    WX_I8,
    WX_LOGIT_PARTS,
    WX_N4,
    WX_Q8,
    Memory,
    table,
    wx_linear,
    wx_logits,
    wx_matrix,
    wx_norm,
)
from whispyx._core.mapping cimport Mapping
from whispyx._ggml.ggml cimport GGML_TYPE_F32, ggml_row_size, ggml_type

from whispyx.errors import BackendUnsupportedError, ModelFormatError

cdef enum:
    ARENA_BYTES = 1 << 20
    PANEL = 64                  # parts of a matrix begin at multiples of this
    FREQUENT_TOKENS = 4096
    LARGEST_HEAD = 512

# Which type the matrices of each role have; "qkv", "out", "up", "down" and "cross_kv" are kinds of the encoder's. The
# decoder is bound by the memory that its weights come from, and repeats its errors token after token: 8 bits with a
# scale per 32 inputs, activations of 16 bits. What else is in 8 bits costs less than bf16 does in the encoder: cross
# keys and values have many scales, as have queries, keys, weights and values of the encoder's attention ("scores"),
# and the logits that matter are computed again. Of those, rare tokens have 4 bits: the rows of an embedding lie close
# together, and what they differ by from their mean is small. (Byte pairs are numbered by how often they occur: the
# first tokens are the frequent ones.) The encoder's matrices bear 8 bits with scales per group of inputs on both sides
# (all but the projection of attention, for which they save little); with a scale per row, one kind of them is further
# away than all in bf16. "mixed" is that plan; "bf16" has no more in 8 bits than the decoder, which is nearer to f32
# so, and logits and cross keys and values. Convolutions read the spectrogram, whose small differences 8 bits lose.
# docs/performance.md has the figures.
PLANS = {
    "f32": {"encoder": WX_F32, "scores": WX_F32, "conv": WX_F32, "decoder": WX_F32, "logits": WX_F32, "cross": WX_F32},
    "bf16": {"encoder": WX_BF16, "scores": WX_BF16, "conv": WX_BF16, "decoder": WX_Q8, "logits": WX_I8, "cross": WX_I8},
    "mixed": {"encoder": WX_BF16, "qkv": WX_G8, "up": WX_G8, "down": WX_G8, "cross_kv": WX_G8, "scores": WX_I8,
              "conv": WX_BF16, "decoder": WX_Q8, "logits": WX_N4, "cross": WX_I8},
    "int8": {"encoder": WX_I8, "scores": WX_I8, "conv": WX_BF16, "decoder": WX_Q8, "logits": WX_N4, "cross": WX_I8},
}

EMBEDDING = "decoder.token_embedding.weight"


def logit_parts(int type, int n_vocab, int eot) -> list[tuple[int, int]]:
    """Return types of ranges of tokens that follow each other, and how many each has, where logits are of `type`.

    Of WX_N4, only what lies between the frequent tokens and the end of text has 4 bits.
    """
    cdef int first = min(FREQUENT_TOKENS, n_vocab), last = max(first, eot // PANEL * PANEL)
    if type != WX_N4:
        return [(type, n_vocab)]
    if first == last:
        return [(WX_I8, n_vocab)]
    return [(WX_I8, first), (WX_N4, last - first), (WX_I8, n_vocab - last)]


cdef bint fits(HParams hp) noexcept:
    """Whether the kernels know heads of this size."""
    return hp.n_text_state <= LARGEST_HEAD * min(hp.n_audio_head, hp.n_text_head)


cdef class Packed:
    """Packed weights. Read-only once every tensor has been taken."""

    @staticmethod
    cdef Packed create(HParams hp, Vocab vocab, str compute, bint with_encoder, bint may_map):
        cdef Packed self = Packed.__new__(Packed)
        cdef int s = hp.n_text_state, i
        self.table = table()
        if self.table == NULL:
            raise BackendUnsupportedError(f"compute={compute!r} needs the kernels, and there are none for this machine")
        if not fits(hp):
            raise BackendUnsupportedError(
                f"the kernels know heads of {LARGEST_HEAD} numbers at most: use compute='exact'")
        self.kernels, self.compute = (<bytes>self.table.name).decode(), compute
        self.may_map = may_map
        self.types, self.blocks, self.matrices = PLANS[compute], [], []
        types, encoder = self.types, self.types["encoder"]
        self.encoder = <wx_encoder_layer *>calloc(hp.n_audio_layer, sizeof(self.encoder[0]))
        self.decoder = <wx_decoder_layer *>calloc(hp.n_text_layer, sizeof(self.decoder[0]))
        if self.encoder == NULL or self.decoder == NULL:
            raise MemoryError
        self.model.n_mels, self.model.n_audio_ctx, self.model.n_state = hp.n_mels, hp.n_audio_ctx, s
        self.model.n_audio_head, self.model.n_audio_layer = hp.n_audio_head, hp.n_audio_layer
        self.model.n_text_ctx, self.model.n_text_head = hp.n_text_ctx, hp.n_text_head
        self.model.n_text_layer, self.model.n_vocab = hp.n_text_layer, hp.n_vocab
        self.model.beg, self.model.end = vocab.beg, vocab.end
        self.model.cross_type, self.model.score_type = self.types["cross"], self.types["scores"]
        if with_encoder:
            self.model.encoder = self.encoder
            self.linear(&self.model.conv1, self.types["conv"], s, 3 * hp.n_mels)
            self.linear(&self.model.conv2, self.types["conv"], s, 3 * s)
            for i in range(hp.n_audio_layer):
                self.linear(&self.encoder[i].qkv, types.get("qkv", encoder), 3 * s, s)
                self.linear(&self.encoder[i].out, types.get("out", encoder), s, s)
                self.linear(&self.encoder[i].up, types.get("up", encoder), 4 * s, s)
                self.linear(&self.encoder[i].down, types.get("down", encoder), s, 4 * s)
        self.linear(&self.model.cross_kv, types.get("cross_kv", encoder), 2 * s * hp.n_text_layer, s)
        self.model.decoder = self.decoder
        for i in range(hp.n_text_layer):
            self.linear(&self.decoder[i].qkv, self.types["decoder"], 3 * s, s)
            self.linear(&self.decoder[i].out, self.types["decoder"], s, s)
            self.linear(&self.decoder[i].cross_q, self.types["decoder"], s, s)
            self.linear(&self.decoder[i].cross_out, self.types["decoder"], s, s)
            self.linear(&self.decoder[i].up, self.types["decoder"], 4 * s, s)
            self.linear(&self.decoder[i].down, self.types["decoder"], s, 4 * s)
        self._plan_logits(self.types["logits"], vocab.eot)
        self._make_room()
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
        """Note that room is needed for a matrix: see `_make_room`."""
        m.type, m.n_out, m.n_in = type, n_out, n_in
        self.matrices.append(<uintptr_t>m)
        return 0

    cdef int _make_room(self) except -1:
        """One block for all matrices: in huge pages it costs a small part of the page faults."""
        cdef wx_matrix * m
        cdef size_t total = 0, size
        cdef Memory block
        for address in self.matrices:
            m = <wx_matrix *><uintptr_t>address
            total += (self.table.matrix_bytes(m.type, m.n_out, m.n_in) + 63) // 64 * 64
        block = Memory.create(total, "the weights")
        self.blocks.append(block)
        total = 0
        for address in self.matrices:
            m = <wx_matrix *><uintptr_t>address
            m.data = block.ptr + total
            total += (self.table.matrix_bytes(m.type, m.n_out, m.n_in) + 63) // 64 * 64
        self.matrices = None
        return 0

    cdef int _plan_logits(self, int32_t type, int eot) except -1:
        cdef wx_logits * part = self.model.logits
        cdef int first = 0, n
        cdef int32_t kind
        for kind, n in logit_parts(type, self.model.n_vocab, eot):
            part.first = first
            self.matrix(&part.w, kind, n, self.model.n_state)
            if kind == WX_N4:
                part.w.around = self.floats(self.model.n_state)
            first += n
            part += 1
        return 0

    cdef int linear(self, wx_linear * linear, int32_t type, int n_out, int n_in) except -1:
        linear.bias = self.floats(n_out)
        return self.matrix(&linear.w, type, n_out, n_in)

    cdef int vector(self, float * to, int type, size_t n, float factor) except -1:
        return self.intake.vector(self.at, type, n, to, factor)

    cdef int rows(self, wx_matrix * m, int first, int n_rows, int type, float factor) except -1:
        return self.intake.rows(self.at, type, m, first, n_rows, factor)

    cdef int take(self, Intake intake, str name, long long at, int type, size_t n) except -1:
        """Have a tensor of the file read: n numbers of a ggml type that begin at byte `at`."""
        cdef list path = name.split(".")
        cdef wx_model * m = &self.model
        cdef float * to
        self.n_tensors += 1
        self.intake, self.at = intake, at
        if path[1] == "blocks":
            return self._take_block(path, type, n)
        if name == EMBEDDING:
            return self._take_embedding(type, n)
        if name == "encoder.conv1.weight":
            return self._take_conv(&m.conv1, type, m.n_mels)
        if name == "encoder.conv2.weight":
            return self._take_conv(&m.conv2, type, m.n_state)
        to = self.floats(n)
        self.vector(to, type, n, 1.0)
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

    cdef int _take_block(self, list path, int type, size_t n) except -1:
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
                return self._take_attention(&self.encoder[i].attn_ln, inner, kind, type, n, &self.encoder[i].qkv,
                                            &self.encoder[i].out)
            return self._take_attention(&self.decoder[i].attn_ln, inner, kind, type, n, &self.decoder[i].qkv,
                                        &self.decoder[i].out)
        if part.startswith("cross_attn"):
            return self._take_cross(i, "ln" if part == "cross_attn_ln" else path[4], kind, type, n)
        ln = &self.encoder[i].mlp_ln if encoder else &self.decoder[i].mlp_ln
        up = &self.encoder[i].up if encoder else &self.decoder[i].up
        down = &self.encoder[i].down if encoder else &self.decoder[i].down
        if part == "mlp_ln":
            return self._take_norm(ln, kind, type, n)
        return self._take_linear(up if path[4] == "0" else down, kind, type, n)

    cdef int _take_attention(self, wx_norm * ln, str part, str kind, int type, size_t n,
                             wx_linear * qkv, wx_linear * out) except -1:
        cdef int s = self.model.n_state
        cdef int place
        cdef float factor = 1.0
        if part == "ln":
            return self._take_norm(ln, kind, type, n)
        if part == "out":
            return self._take_linear(out, kind, type, n)
        place = ("query", "key", "value").index(part)
        if place == 0:
            factor = self._scale(qkv)
        if kind == "bias":
            return self.vector(<float *>qkv.bias + place * s, type, n, factor)
        return self.rows(&qkv.w, place * s, s, type, factor)

    cdef int _take_cross(self, int layer, str part, str kind, int type, size_t n) except -1:
        cdef int s = self.model.n_state, first
        cdef wx_decoder_layer * to = &self.decoder[layer]
        cdef float scale = 1.0 / sqrtf(<float>s / self.model.n_text_head)
        if part == "ln":
            return self._take_norm(&to.cross_ln, kind, type, n)
        if part == "out":
            return self._take_linear(&to.cross_out, kind, type, n)
        if part == "query":
            if kind == "bias":
                return self.vector(<float *>to.cross_q.bias, type, n, scale)
            return self.rows(&to.cross_q.w, 0, s, type, scale)
        first = (2 * layer + (part == "value")) * s
        if kind == "bias":
            return self.vector(<float *>self.model.cross_kv.bias + first, type, n, 1.0)
        return self.rows(&self.model.cross_kv.w, first, s, type, 1.0)

    cdef float _scale(self, const wx_linear * qkv) noexcept:
        """d^-1/2 of the side that a layer belongs to."""
        cdef bint encoder = (<uintptr_t>qkv >= <uintptr_t>self.encoder and
                             <uintptr_t>qkv < <uintptr_t>(self.encoder + self.model.n_audio_layer))
        cdef int n_head = self.model.n_audio_head if encoder else self.model.n_text_head
        return 1.0 / sqrtf(<float>self.model.n_state / n_head)

    cdef int _take_norm(self, wx_norm * norm, str kind, int type, size_t n) except -1:
        cdef float * to = self.floats(n)
        self.vector(to, type, n, 1.0)
        if kind == "weight":
            norm.w = to
        else:
            norm.b = to
        return 0

    cdef int _take_linear(self, wx_linear * linear, str kind, int type, size_t n) except -1:
        if kind == "bias":
            return self.vector(<float *>linear.bias, type, n, 1.0)
        return self.rows(&linear.w, 0, linear.w.n_out, type, 1.0)

    cdef int _take_conv(self, wx_linear * conv, int type, int n_in) except -1:
        """The file has (n_out, n_in, 3), and a frame of the input holds all its channels."""
        return self.intake.rows(self.at, type, &conv.w, 0, conv.w.n_out, 1.0, n_in)

    cdef int _take_embedding(self, int type, size_t n) except -1:
        """The embedding is read row by row, as it is in the file; packed it is the output projection.

        Of all that a file holds, this is the one tensor that is used as it is: a third of a small model. So it stays
        where it is, if it can. Kernels read it from any address.
        """
        cdef bint exact = self.compute == "f32"
        cdef bint kept = source_type(type) in (WX_F16, WX_BF16) or (exact and type == GGML_TYPE_F32)
        cdef bint wide = exact and not kept
        cdef wx_logits * part
        cdef size_t at
        cdef int i
        cdef Memory room = None
        # What is neither as short as f16 nor to be exact is kept as f16: only the rows of tokens are read of it, and of
        # the logits that are computed again.
        self.model.d_te_type = source_type(type) if kept else WX_F32 if wide else WX_F16
        if kept and self.may_map:
            self.mapping = Mapping.of(self.intake.source())
        if self.mapping is not None:
            self.model.d_te, self.mapped_bytes = self.mapping.ptr + self.at, ggml_row_size(<ggml_type>type, n)
        else:
            room = Memory.create(n * (sizeof(float) if self.model.d_te_type == WX_F32 else 2), "the weights")
            self.blocks.append(room)
            self.model.d_te = room.ptr
        for i in range(WX_LOGIT_PARTS):
            part = &self.model.logits[i]
            if part.w.n_out == 0:
                break
            if part.w.around != NULL:
                self.intake.mean(self.at, type, &part.w, part.first, <float *>part.w.around)
            # What one piece of the file becomes: rows of this part, and of the embedding in memory.
            at = <size_t>part.first * self.model.n_state
            self.intake.rows(self.at, type, &part.w, 0, part.w.n_out, 1.0, 0,
                             room.ptr + ggml_row_size(<ggml_type>type, at) if kept and room is not None else NULL,
                             <float *>room.ptr + at if wide else NULL,
                             NULL if kept or wide else <uint16_t *>room.ptr + at, part.first)
        return 0
