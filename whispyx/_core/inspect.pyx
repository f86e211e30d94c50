"""Intermediate results of a State by name, for tests."""

from libc.stdint cimport uint16_t
from libc.string cimport memcpy

import numpy as np

from whispyx._core.state cimport State
from whispyx._ggml.ggml cimport ggml_nbytes, ggml_tensor
from whispyx._ggml.ggml_backend cimport ggml_backend_tensor_get

from whispyx.errors import ParamsError, StateError


cdef object tensor_of(State state, str name):
    """Return an intermediate result of the last encode, for tests.

    "conv", "encoder" and "enc.<i>" (debug only) are float32 (n_ctx, n_state); "cross_k.<i>" and "cross_v.<i>"
    are float16 (n_ctx, n_state), keys with their factor d**-0.25.
    """
    cdef int layer = -1
    if state.encoded_ctx == 0:
        raise StateError("nothing has been encoded yet")
    kind, _, number = name.partition(".")
    if number.isdecimal() and len(number) < 9:
        layer = int(number)
    elif number:
        raise ParamsError(f"there is no tensor {name!r}")
    if state.fused is not None and kind == "encoder" and not number:
        return fused_output(state)
    if state.fused is not None:
        raise StateError(f"{name!r} can be read only with compute='exact'")
    if kind == "conv" and not number:
        return read_f32(state, state.conv_out)
    if kind == "encoder" and not number:
        if state.external_out is not None:
            return state.external_out.copy()
        return read_f32(state, state.encoder.out)
    if kind == "enc" and state.debug and state.encoder.out != NULL and 0 <= layer < state.hp.n_audio_layer:
        return read_f32(state, state.encoder.block[layer])
    if kind in ("cross_k", "cross_v") and 0 <= layer < state.hp.n_text_layer:
        return read_cross(state, kind == "cross_k", layer)
    raise ParamsError(f"there is no tensor {name!r}")


cdef object fused_output(State state):
    cdef size_t n = <size_t>state.encoded_ctx * state.hp.n_audio_state
    out = np.empty((state.encoded_ctx, state.hp.n_audio_state), dtype=np.float32)
    cdef float[:, ::1] view = out
    memcpy(&view[0, 0], state.fused.encode_job.out, n * sizeof(float))
    return out


cdef object read_f32(State state, ggml_tensor * tensor):
    if tensor == NULL:
        raise StateError("the encoder's output was given from outside: the encoder has not run")
    out = np.empty((tensor.ne[1], tensor.ne[0]), dtype=np.float32)
    cdef float[:, ::1] view = out
    with nogil:
        ggml_backend_tensor_get(tensor, &view[0, 0], 0, ggml_nbytes(tensor))
    state.watch.check()
    return out


cdef object read_cross(State state, bint keys, int layer):
    cdef size_t n = <size_t>state.encoded_ctx * state.hp.n_text_state
    cdef size_t start = <size_t>layer * state.kv_cross.n_cells * state.hp.n_text_state
    transposed = not keys and not state.flash
    shape = (state.encoded_ctx, state.hp.n_text_state)
    out = np.empty(shape[::-1] if transposed else shape, dtype=np.uint16)
    cdef uint16_t[:, ::1] view = out
    cdef ggml_tensor * source = state.kv_cross.k if keys else state.kv_cross.v
    with nogil:
        ggml_backend_tensor_get(source, &view[0, 0], start * 2, n * 2)
    state.watch.check()
    out = out.view(np.float16)
    return out.T.copy() if transposed else out
