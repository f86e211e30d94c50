"""Runs the encoder over one window: mel, convolutions, blocks, cross-attention cache."""

from libc.stdint cimport uint16_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

import numpy as np

from whispyx._core.clock cimport now_us
from whispyx._core.graph.conv cimport ConvGraph, build_conv
from whispyx._core.graph.cross cimport build_cross
from whispyx._core.graph.encoder cimport build_encoder
from whispyx._core.state cimport State
from whispyx._ggml.ggml cimport (
    GGML_TYPE_F32,
    ggml_cgraph,
    ggml_new_tensor_2d,
    ggml_set_input,
    ggml_tensor,
    ggml_view_tensor,
)
from whispyx._ggml.ggml_backend cimport ggml_backend_sched_reset, ggml_backend_tensor_set

from whispyx.constants import MAX_THREADS
from whispyx.errors import ParamsError, StateError

cdef enum:
    F16_MINUS_INF = 0xFC00


cdef int run_conv(State state, int offset, int n_ctx, int n_threads) except -1:
    cdef ConvGraph conv
    cdef int n_frames = 2 * n_ctx
    cdef size_t size = <size_t>n_frames * state.hp.n_mels * sizeof(float)
    cdef float * window
    ggml_backend_sched_reset(state.sched_conv.ptr)
    state.meta_conv.reset()
    conv = build_conv(state.meta_conv.ptr, state.weights, n_ctx, state.hp.n_mels)
    state.alloc(state.sched_conv, conv.graph, "the convolutions")
    window = <float *>malloc(size)
    if window == NULL:
        raise MemoryError
    try:
        with nogil:
            state.mel.window(offset, n_frames, window)
            ggml_backend_tensor_set(conv.mel, window, 0, size)
    finally:
        free(window)
    state.compute(state.sched_conv, conv.graph, n_threads)
    state.conv_out = conv.out
    return 0


cdef int set_pad_mask(ggml_tensor * mask) except -1:
    """Hide the rows past the audio context."""
    cdef int n_pad = <int>mask.ne[0], n_ctx = <int>mask.ne[1], i, j
    cdef size_t size = <size_t>n_pad * n_ctx * sizeof(uint16_t)
    cdef uint16_t * values = <uint16_t *>malloc(size)
    if values == NULL:
        raise MemoryError
    with nogil:
        for i in range(n_ctx):
            for j in range(n_pad):
                values[<size_t>i * n_pad + j] = 0 if j < n_ctx else F16_MINUS_INF
        ggml_backend_tensor_set(mask, values, 0, size)
    free(values)
    return 0


cdef int run_encoder(State state, int n_threads) except -1:
    ggml_backend_sched_reset(state.sched_encode.ptr)
    state.meta_encode.reset()
    # A view has no parents, so the graph starts at the result instead of computing the convolutions again.
    state.encoder = build_encoder(
        state.meta_encode.ptr, state.weights, ggml_view_tensor(state.meta_encode.ptr, state.conv_out),
        state.hp.n_audio_layer, state.hp.n_audio_head, state.flash, state.kv_pad, state.debug)
    state.alloc(state.sched_encode, state.encoder.graph, "the encoder")
    if state.encoder.pad_mask != NULL:
        set_pad_mask(state.encoder.pad_mask)
    return state.compute(state.sched_encode, state.encoder.graph, n_threads)


cdef int run_fused(State state, int offset, int n_ctx, int n_threads) except -1:
    """Convolutions and blocks on our kernels."""
    cdef float * window = state.fused.set_window(state.window, n_ctx, n_threads)
    with nogil:
        state.mel.window(offset, 2 * n_ctx, window)
    return state.compute_fused(state.fused.encode_graph, n_threads)


cdef int fill_fused(State state, const float[:, ::1] encoder, int n_threads) except -1:
    """The cross-attention cache from an output that was computed elsewhere."""
    state.fused.set_window(state.window, <int>encoder.shape[0], n_threads)
    with nogil:
        memcpy(state.fused.encode_job.out, &encoder[0, 0],
               <size_t>encoder.shape[0] * encoder.shape[1] * sizeof(float))
    return state.compute_fused(state.fused.cross_graph, n_threads)


cdef int run_cross(State state, int n_threads) except -1:
    cdef ggml_cgraph * graph
    ggml_backend_sched_reset(state.sched_cross.ptr)
    state.meta_cross.reset()
    graph = build_cross(
        state.meta_cross.ptr, state.weights, ggml_view_tensor(state.meta_cross.ptr, state.encoder.out),
        state.kv_cross, state.hp.n_text_layer, state.hp.n_text_head, state.flash)
    state.alloc(state.sched_cross, graph, "the cross-attention cache's graph")
    return state.compute(state.sched_cross, graph, n_threads)


cdef int cross_of(State state, const float[:, ::1] encoder, int n_threads) except -1:
    """Fill the cross-attention cache from an encoder output (n_ctx, n_state) that was computed elsewhere."""
    cdef long long start = now_us()
    state.encoded_ctx = 0
    state.n_logits = 0
    state.external_out = None
    state.conv_out = state.encoder.out = NULL
    fill_cross(state, encoder, n_threads)
    state.encoded_ctx = <int>encoder.shape[0]
    state.clocks.cross_us += now_us() - start
    return 0


cdef int fill_cross(State state, const float[:, ::1] encoder, int n_threads) except -1:
    cdef ggml_cgraph * graph
    cdef ggml_tensor * x
    if state.fused is not None:
        return fill_fused(state, encoder, n_threads)
    ggml_backend_sched_reset(state.sched_cross.ptr)
    state.meta_cross.reset()
    x = ggml_new_tensor_2d(state.meta_cross.ptr, GGML_TYPE_F32, encoder.shape[1], encoder.shape[0])
    ggml_set_input(x)
    graph = build_cross(state.meta_cross.ptr, state.weights, x, state.kv_cross, state.hp.n_text_layer,
                        state.hp.n_text_head, state.flash)
    state.alloc(state.sched_cross, graph, "the cross-attention cache's graph")
    with nogil:
        ggml_backend_tensor_set(x, &encoder[0, 0], 0, <size_t>encoder.shape[0] * encoder.shape[1] * sizeof(float))
    return state.compute(state.sched_cross, graph, n_threads)


cdef int run_external(State state, int offset, int n_ctx, int n_threads) except -1:
    """Have the window encoded by what was put in the place of the encoder."""
    cdef float[:, ::1] window
    cdef int n_frames = 2 * n_ctx
    if not 1 <= n_threads <= MAX_THREADS:
        raise ParamsError(f"n_threads is {n_threads}; 1 to {MAX_THREADS} are possible")
    mel = np.empty((state.hp.n_mels, n_frames), dtype=np.float32)
    window = mel
    with nogil:
        state.mel.window(offset, n_frames, &window[0, 0])
    state.external_out = state.external.run(mel, state.hp, n_threads, state.abort)
    return 0


cdef int encode_window(State state, int offset, int n_threads) except -1:
    """Encode the window at mel frame `offset`. On failure nothing of an older window can be decoded."""
    cdef int n_ctx = state.audio_ctx if state.audio_ctx > 0 else state.hp.n_audio_ctx
    cdef long long start = now_us(), encoded
    if state.weights is None:
        raise StateError("the model file holds no tensors: there is nothing to encode with")
    if state.mel is None:
        raise StateError("there is no mel spectrogram yet: call pcm_to_mel or set_mel first")
    if offset < 0:
        raise ParamsError(f"offset is {offset}; a window starts at frame 0 or later")
    state.encoded_ctx = 0
    state.n_logits = 0
    state.external_out = None
    if state.external is not None:
        state.conv_out = state.encoder.out = NULL
        run_external(state, offset, n_ctx, n_threads)
        encoded = now_us()
        fill_cross(state, state.external_out, n_threads)
    elif not state.weights.has_encoder:
        raise StateError("the model was loaded without its encoder, and none was given")
    elif state.fused is not None:
        run_fused(state, offset, n_ctx, n_threads)
        encoded = now_us()
        state.compute_fused(state.fused.cross_graph, n_threads)
    else:
        run_conv(state, offset, n_ctx, n_threads)
        run_encoder(state, n_threads)
        encoded = now_us()
        run_cross(state, n_threads)
    state.encoded_ctx = n_ctx
    state.clocks.encode_us += encoded - start
    state.clocks.cross_us += now_us() - encoded
    state.clocks.n_encode += 1
    return 0
