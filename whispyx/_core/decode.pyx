"""Runs a batch of tokens through the decoder: tokens in, logits out."""

from operator import index

from libc.stdint cimport int32_t, int64_t, uint16_t
from libc.stdlib cimport free, malloc, realloc

import numpy as np

from whispyx._core.batch cimport Batch
from whispyx._core.clock cimport now_us
from whispyx._core.graph.decoder cimport MAX_HEADS, DecoderGraph, Head, build_decoder
from whispyx._core.kernels cimport wx_head
from whispyx._core.kvcache cimport KvCache
from whispyx._core.state cimport State
from whispyx._ggml.ggml cimport ggml_cgraph
from whispyx._ggml.ggml_backend cimport ggml_backend_sched_reset, ggml_backend_tensor_get, ggml_backend_tensor_set

from whispyx.errors import ComputeError, ComputeMemoryError, ParamsError, StateError

cdef enum:
    F16_MINUS_INF = 0xFC00
    PROMPT_TOKENS = 16     # a batch of this size or more counts as a prompt in the timings, as in whisper.cpp


cdef int read_tokens(State state, object tokens, int n_past, bint all_logits) except -1:
    """Fill the state's batch with tokens of sequence 0 at positions n_past, n_past + 1, … after checking them."""
    cdef list ids = [index(token) for token in tokens]
    cdef int n = len(ids), i
    if not 1 <= n <= state.hp.n_text_ctx:
        raise ParamsError(f"{n} tokens were given; 1 to {state.hp.n_text_ctx} fit the text context")
    if n_past < 0 or n_past > state.hp.n_text_ctx - n:
        raise ParamsError(f"n_past {n_past} and {n} tokens are outside the text context of {state.hp.n_text_ctx}")
    for i in range(n):
        if not 0 <= ids[i] < state.hp.n_vocab:
            raise ParamsError(f"token {ids[i]} is outside the vocabulary (0 to {state.hp.n_vocab - 1})")
    if state.batch is None:
        raise StateError("the model file holds no tensors: there is nothing to decode with")
    state.batch.clear()
    for i in range(n):
        state.batch.add(ids[i], n_past + i, 1, all_logits or i == n - 1)
    return 0


cdef int make_room(State state, int n_outputs, int n_kv) except -1:
    cdef size_t logits = <size_t>n_outputs * state.hp.n_vocab * sizeof(float)
    cdef size_t mask = <size_t>state.batch.n_tokens * n_kv * sizeof(uint16_t)
    cdef void * grown
    cdef float[::1] rows
    if logits > state.logits_size:
        # An array of its own, not grown in place: one that was handed out stays valid.
        state.logit_store = np.empty(<size_t>n_outputs * state.hp.n_vocab, dtype=np.float32)
        rows = state.logit_store
        state.logit_rows, state.logits_size = &rows[0], logits
    if mask > state.mask_size:
        grown = realloc(state.mask, mask)
        if grown == NULL:
            raise MemoryError
        state.mask, state.mask_size = <uint16_t *>grown, mask
    return 0


cdef int need_rows(State state, int n) except -1:
    """Have room for n rows of logits; what they held may be lost."""
    return make_room(state, n, 0)


cdef void fill_mask(Batch batch, KvCache kv, int n_kv, uint16_t * mask) noexcept nogil:
    """A token sees the cells of its sequences at its own position and before."""
    cdef int i, j
    cdef uint16_t * row
    for i in range(batch.n_tokens):
        row = mask + <size_t>i * n_kv
        for j in range(n_kv):
            if kv.cells[j].pos >= 0 and kv.cells[j].pos <= batch.pos[i] and kv.cells[j].seqs & batch.seqs[i]:
                row[j] = 0
            else:
                row[j] = F16_MINUS_INF


cdef int set_inputs(State state, DecoderGraph * graph, int n_kv, int32_t * outputs) except -1:
    cdef Batch batch = state.batch
    cdef size_t n = batch.n_tokens
    fill_mask(batch, state.kv_self, n_kv, state.mask)
    with nogil:
        ggml_backend_tensor_set(graph.token, batch.token, 0, n * sizeof(int32_t))
        ggml_backend_tensor_set(graph.pos, batch.pos, 0, n * sizeof(int32_t))
        ggml_backend_tensor_set(graph.slot, state.slots, 0, n * sizeof(int64_t))
        ggml_backend_tensor_set(graph.mask, state.mask, 0, n * n_kv * sizeof(uint16_t))
        if graph.output != NULL:
            ggml_backend_tensor_set(graph.output, outputs, 0, batch.n_outputs * sizeof(int32_t))
    return 0


cdef int reserve_more(State state, ggml_cgraph * graph) except -1:
    """Get memory for a graph that is larger than what was reserved. ggml does not survive finding out by itself."""
    try:
        state._reserve_one(state.sched_decode, graph, "the decoder")
    except ComputeMemoryError:
        try:
            state._reserve_decode()     # what there was is gone as well
        except ComputeMemoryError:
            state.kv_self.n_decoders = 0
        raise
    return 0


cdef int run_fused(State state, int n_threads, const Head * heads, int n_heads, int n_positions,
                   float * watched) except -1:
    """Run the batch on our kernels."""
    cdef Batch batch = state.batch
    cdef wx_head looked[MAX_HEADS]
    cdef int i
    if n_heads == 0:
        make_room(state, batch.n_outputs, 0)
    state.fused.set_batch(batch, state.kv_self, state.slots, state.logit_rows, n_threads)
    if n_heads > 0:
        for i in range(n_heads):
            looked[i].layer, looked[i].index = heads[i].layer, heads[i].index
        state.fused.set_watch(looked, n_heads, n_positions, watched)
    state.compute_fused(state.fused.decode_graph, n_threads)
    state.n_logits = 0 if n_heads > 0 else batch.n_outputs
    return 0


cdef int run_decoder(State state, int n_threads, const Head * heads, int n_heads, int n_positions,
                     float * watched) except -1:
    """Run the batch for its logits or, with heads, for what these look at."""
    cdef Batch batch = state.batch
    cdef KvCache kv = state.kv_self
    cdef int n_kv = min(kv.n_cells, (kv.n_used + state.kv_step - 1) // state.kv_step * state.kv_step)
    cdef int i, n_outputs = 0
    cdef size_t n
    cdef DecoderGraph graph
    cdef int32_t * outputs
    make_room(state, batch.n_outputs, n_kv)
    ggml_backend_sched_reset(state.sched_decode.ptr)
    state.meta_decode.reset()
    graph = build_decoder(state.meta_decode.ptr, state.weights, kv, state.kv_cross, batch.n_tokens, batch.n_outputs,
                          n_kv, state.encoded_ctx, state.hp.n_text_layer, state.hp.n_text_head, state.flash,
                          heads, n_heads, n_positions)
    if n_heads > 0 or batch.n_outputs > max(2, kv.n_decoders):
        reserve_more(state, graph.graph)
        state.meta_decode.reset()
        graph = build_decoder(state.meta_decode.ptr, state.weights, kv, state.kv_cross, batch.n_tokens,
                              batch.n_outputs, n_kv, state.encoded_ctx, state.hp.n_text_layer, state.hp.n_text_head,
                              state.flash, heads, n_heads, n_positions)
    state.alloc(state.sched_decode, graph.graph, "the decoder")
    outputs = <int32_t *>malloc(batch.n_tokens * sizeof(int32_t))
    if outputs == NULL:
        raise MemoryError
    try:
        for i in range(batch.n_tokens):
            if batch.wants_logits[i]:
                outputs[n_outputs] = i
                n_outputs += 1
        set_inputs(state, &graph, n_kv, outputs)
    finally:
        free(outputs)
    state.compute(state.sched_decode, graph.graph, n_threads)
    if n_heads > 0:
        n = <size_t>batch.n_tokens * n_positions
        with nogil:
            for i in range(n_heads):
                ggml_backend_tensor_get(graph.watched[i], watched + i * n, 0, n * sizeof(float))
        return state.watch.check()
    with nogil:
        ggml_backend_tensor_get(graph.logits, state.logit_rows, 0, <size_t>n_outputs * state.hp.n_vocab * sizeof(float))
    state.watch.check()
    state.n_logits = n_outputs
    return 0


cdef int place_and_run(State state, int n_threads, const Head * heads, int n_heads, int n_positions,
                       float * watched) except -1:
    """On failure the batch's cells are free again, so the cache holds what it held before."""
    if state.kv_self is not None and state.kv_self.n_decoders < 1:
        state.need_decoders(1)      # an earlier job ran out of memory
    cdef Batch batch = state.batch
    cdef KvCache kv = state.kv_self
    cdef int64_t start = now_us(), spent
    cdef int i
    if state.encoded_ctx == 0:
        raise StateError("nothing has been encoded yet: call encode first")
    state.n_logits = 0
    if not kv.place(batch, state.slots):
        raise ComputeError(f"the self-attention cache has no room for {batch.n_tokens} tokens ({kv.n_cells} cells)")
    try:
        if state.fused is not None:
            run_fused(state, n_threads, heads, n_heads, n_positions, watched)
        else:
            run_decoder(state, n_threads, heads, n_heads, n_positions, watched)
    except BaseException:
        for i in range(batch.n_tokens):
            kv.cells[state.slots[i]].pos = -1
            kv.cells[state.slots[i]].seqs = 0
        kv.recount()
        raise
    spent = now_us() - start
    if batch.n_tokens == 1:
        state.clocks.decode_us += spent
        state.clocks.n_decode += 1
    elif batch.n_tokens < PROMPT_TOKENS:
        state.clocks.batchd_us += spent
        state.clocks.n_batchd += batch.n_tokens
    else:
        state.clocks.prompt_us += spent
        state.clocks.n_prompt += batch.n_tokens
    return 0


cdef int decode_batch(State state, int n_threads) except -1:
    """Decode the state's batch; row i of `state.logit_rows` belongs to the i-th token that wants logits."""
    return place_and_run(state, n_threads, NULL, 0, 0, NULL)


cdef int watch_batch(State state, const Head * heads, int n_heads, int n_positions, float * out,
                     int n_threads) except -1:
    """Run the state's batch and write where heads look: softmax over the first n_positions encoder positions.

    `heads` are at most MAX_HEADS of the model's, layers ascending; `out` is (n_heads, n_tokens, n_positions). The
    batch should want no logits: there are none afterwards.
    """
    if not 1 <= n_heads <= MAX_HEADS or not 1 <= n_positions <= state.encoded_ctx or state.batch.n_tokens < 1:
        raise ParamsError(f"{n_heads} heads cannot be watched over {n_positions} of {state.encoded_ctx} positions")
    return place_and_run(state, n_threads, heads, n_heads, n_positions, out)
