from whispyx._core.kvcache cimport KvCache
from whispyx._core.weights cimport Weights
from whispyx._ggml.ggml cimport ggml_cgraph, ggml_context, ggml_tensor

cdef enum:
    MAX_HEADS = 24          # watched heads of one graph: 4 nodes each, within the graph's budget


cdef struct Head:
    int layer
    int index


cdef struct DecoderGraph:
    ggml_cgraph * graph
    ggml_tensor * token     # input (n_tokens,) i32
    ggml_tensor * pos       # input (n_tokens,) i32
    ggml_tensor * slot      # input (n_tokens,) i64: cells of the self cache to write
    ggml_tensor * mask      # input (n_tokens, n_kv) f16: 0 or -inf
    ggml_tensor * output    # input (n_outputs,) i32: rows whose logits are wanted; NULL when it is all of them, or none
    ggml_tensor * logits    # (n_outputs, n_vocab); NULL when heads are watched
    ggml_tensor * watched[MAX_HEADS]    # (n_tokens, n_positions) each: where the heads look

cdef DecoderGraph build_decoder(ggml_context * g, Weights weights, KvCache kv_self, KvCache kv_cross, int n_tokens,
                                int n_outputs, int n_kv, int n_audio_ctx, int n_layer, int n_head,
                                bint flash, const Head * heads=*, int n_heads=*,
                                int n_positions=*) noexcept nogil
