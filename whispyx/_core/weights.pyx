"""The tensors of a model: what a file must hold, and where each one is once loaded."""

from libc.stdint cimport uintptr_t
from libc.stdlib cimport calloc, free

from whispyx._core.handles cimport Buffer, Meta
from whispyx._core.hparams cimport HParams
from whispyx._core.mapping cimport Mapping, handle_bus_errors
from whispyx._ggml.ggml cimport ggml_tensor

from whispyx.errors import ModelFormatError

# What may be stored in a tensor: F32 only, a convolution kernel (f32 or f16: ggml unfolds the input to f16), or any
# weight type ggml can multiply by.
F32_ONLY, CONV, WEIGHT = "f32", "conv", "weight"

ENCODER = "encoder."    # what the names of the encoder's tensors begin with


def expected_tensors(HParams hp) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return name -> (shape in file order, fastest dimension first, storage rule) of every tensor of a model."""
    cdef int s = hp.n_audio_state
    table = {
        "encoder.positional_embedding": ((s, hp.n_audio_ctx), F32_ONLY),
        "encoder.conv1.weight": ((3, hp.n_mels, s), CONV),
        "encoder.conv1.bias": ((1, s), F32_ONLY),
        "encoder.conv2.weight": ((3, s, s), CONV),
        "encoder.conv2.bias": ((1, s), F32_ONLY),
        "encoder.ln_post.weight": ((s,), F32_ONLY),
        "encoder.ln_post.bias": ((s,), F32_ONLY),
        "decoder.positional_embedding": ((s, hp.n_text_ctx), F32_ONLY),
        "decoder.token_embedding.weight": ((s, hp.n_vocab), WEIGHT),
        "decoder.ln.weight": ((s,), F32_ONLY),
        "decoder.ln.bias": ((s,), F32_ONLY),
    }

    def attention(prefix: str) -> None:
        table[f"{prefix}_ln.weight"] = table[f"{prefix}_ln.bias"] = ((s,), F32_ONLY)
        for part in ("query", "key", "value", "out"):
            table[f"{prefix}.{part}.weight"] = ((s, s), WEIGHT)
            if part != "key":
                table[f"{prefix}.{part}.bias"] = ((s,), F32_ONLY)

    for side, n_layer in (("encoder", hp.n_audio_layer), ("decoder", hp.n_text_layer)):
        for i in range(n_layer):
            block = f"{side}.blocks.{i}"
            attention(f"{block}.attn")
            if side == "decoder":
                attention(f"{block}.cross_attn")
            table[f"{block}.mlp_ln.weight"] = table[f"{block}.mlp_ln.bias"] = ((s,), F32_ONLY)
            table[f"{block}.mlp.0.weight"] = ((s, 4 * s), WEIGHT)
            table[f"{block}.mlp.0.bias"] = ((4 * s,), F32_ONLY)
            table[f"{block}.mlp.2.weight"] = ((4 * s, s), WEIGHT)
            table[f"{block}.mlp.2.bias"] = ((s,), F32_ONLY)
    return table


cdef class Weights:
    """Tensors by name and by role. Read-only once `bind` has run."""

    def __cinit__(self):
        self.metas, self.buffers, self.tensors = [], [], {}
        self.maps, self.mapped = [], []

    cdef ggml_tensor * get(self, str name) except NULL:
        address = self.tensors.get(name)
        if address is None:
            raise ModelFormatError(f"the model has no tensor {name!r}")
        return <ggml_tensor *><uintptr_t>address

    cdef int _norm(self, str name, Norm * norm) except -1:
        norm.w = self.get(f"{name}.weight")
        norm.b = self.get(f"{name}.bias")
        return 0

    cdef int _linear(self, str name, Linear * linear, bint bias=True) except -1:
        linear.w = self.get(f"{name}.weight")
        linear.b = self.get(f"{name}.bias") if bias else NULL
        return 0

    cdef int _attention(self, str name, Attention * attn) except -1:
        self._norm(f"{name}_ln", &attn.ln)
        self._linear(f"{name}.query", &attn.query)
        self._linear(f"{name}.key", &attn.key, False)
        self._linear(f"{name}.value", &attn.value)
        self._linear(f"{name}.out", &attn.out)
        return 0

    cdef int _layers(self, str side, Layer * layers, int n_layer) except -1:
        cdef int i
        for i in range(n_layer):
            block = f"{side}.blocks.{i}"
            self._attention(f"{block}.attn", &layers[i].attn)
            if side == "decoder":
                self._attention(f"{block}.cross_attn", &layers[i].cross)
            self._norm(f"{block}.mlp_ln", &layers[i].mlp_ln)
            self._linear(f"{block}.mlp.0", &layers[i].mlp_0)
            self._linear(f"{block}.mlp.2", &layers[i].mlp_2)
        return 0

    cdef int bind(self, HParams hp) except -1:
        """Find every tensor's role. All tensors of `expected_tensors` must be there, the encoder's all or none."""
        self.encoder = <Layer *>calloc(hp.n_audio_layer, sizeof(Layer))
        self.decoder = <Layer *>calloc(hp.n_text_layer, sizeof(Layer))
        if self.encoder == NULL or self.decoder == NULL:
            raise MemoryError
        self.has_encoder = any([name.startswith(ENCODER) for name in self.tensors])
        if self.has_encoder:
            self.e_pe = self.get("encoder.positional_embedding")
            self._linear("encoder.conv1", &self.conv1)
            self._linear("encoder.conv2", &self.conv2)
            self._norm("encoder.ln_post", &self.ln_post)
            self._layers("encoder", self.encoder, hp.n_audio_layer)
        self.d_pe = self.get("decoder.positional_embedding")
        self.d_te = self.get("decoder.token_embedding.weight")
        self._norm("decoder.ln", &self.d_ln)
        self._layers("decoder", self.decoder, hp.n_text_layer)
        self.n_tensors = len(self.tensors)
        return 0

    cdef bint is_mapped(self, ggml_tensor * tensor) noexcept:
        cdef Buffer buffer
        for buffer in self.mapped:
            if tensor.buffer == buffer.ptr:
                return True
        return False

    cdef bint intact(self) noexcept:
        """Whether files that are mapped are still what they were."""
        cdef Mapping mapping
        for mapping in self.maps:
            if not mapping.intact():
                return False
        return True

    cdef void before_reading(self) noexcept:
        """To be called on the thread that computes, each time."""
        if self.maps:
            handle_bus_errors()

    cdef int check(self) except -1:
        """Raise DeviceError or ModelError where the data are no longer what was loaded."""
        cdef Mapping mapping
        self.watch.check()
        for mapping in self.maps:
            mapping.check()
        return 0

    cdef size_t n_bytes(self) noexcept:
        """Memory of the model's own, without files that are mapped."""
        cdef size_t total = 0
        cdef Buffer buffer
        for buffer in self.buffers:
            total += buffer.size()
        if self.packed is not None:
            total += self.packed.n_bytes()
        return total

    cdef void close(self) noexcept:
        cdef Buffer buffer
        cdef Meta meta
        for buffer in self.buffers + self.mapped:
            buffer.close()
        for meta in self.metas:
            meta.close()
        self.buffers, self.metas, self.maps, self.mapped, self.tensors, self.packed = [], [], [], [], {}, None
        free(self.encoder)
        free(self.decoder)
        self.encoder = self.decoder = NULL

    def __dealloc__(self):
        # The lists free their handles themselves.
        free(self.encoder)
        free(self.decoder)
