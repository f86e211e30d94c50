"""States, external encoders."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from whispyx.capi._log import log
from whispyx.capi._struct import as_text
from whispyx.capi.objects import context_of, default_state, state_in, to_free, whisper_state
from whispyx.encoders import OpenVinoEncoder
from whispyx.encoders.openvino_ir import encoder_path
from whispyx.errors import BackendError, ComputeError, ModelError, ParamsError, StateError

if TYPE_CHECKING:
    from whispyx.capi.objects import whisper_context

__all__ = [
    "whisper_ctx_init_openvino_encoder",
    "whisper_ctx_init_openvino_encoder_with_state",
    "whisper_free_state",
    "whisper_init_state",
]


def whisper_init_state(ctx: whisper_context) -> whisper_state | None:
    """whisper_state * whisper_init_state(whisper_context * ctx)

    A new state of the model; any number may exist. None (logged) when a device has no room or does not start, and when
    the context asks for token times by DTW with heads that the model does not have.
    """
    core = context_of(ctx, "whisper_init_state")
    if ctx.dtw_error is not None:
        log.error("whisper_init_state: %s", ctx.dtw_error)
        return None
    try:
        return whisper_state(ctx, core.new_state())
    except (BackendError, ComputeError) as error:
        log.error("whisper_init_state: %s", error)
        return None


def whisper_free_state(state: whisper_state | None) -> None:
    """void whisper_free_state(whisper_state * state)

    Frees a state. None and a state that was freed before are fine; one that is in use raises StateError.
    """
    held = to_free(whisper_state, state, "whisper_free_state")
    if held is not None:
        with held.job("whisper_free_state") as core:
            core.close()
            held.freed = True
            held.found = held.vad_segments = ()


def whisper_ctx_init_openvino_encoder_with_state(
    ctx: whisper_context,
    state: whisper_state,
    model_path: str | bytes | None = None,
    device: str | bytes | None = None,
    cache_dir: str | bytes | None = None,
) -> int:
    """int whisper_ctx_init_openvino_encoder_with_state(
        whisper_context * ctx, whisper_state * state, const char * model_path, const char * device,
        const char * cache_dir)

    Lets OpenVINO compute the encoder for a state. Returns 0; or 1 (logged) where the package openvino is not installed,
    has no such device, or cannot use the file, and where the file is for a model of another shape or was made from
    another model: the state then goes on as before. `model_path` None is the model's path with its ending replaced by
    "-encoder-openvino.xml"; `device` None is "CPU". `cache_dir` None is the model's path with the ending "-encoder-
    openvino-cache", or no cache where that folder cannot be made; "" is no cache. A model that was not loaded from a
    file has neither, so its encoder must be named. OpenVINO computes with the threads of each job.
    """
    function = "whisper_ctx_init_openvino_encoder"
    held = state_in(ctx, state, function)
    given = [as_text(*pair) for pair in (("model_path", model_path), ("device", device), ("cache_dir", cache_dir))]
    path, kind, cache = given
    own = ctx.core.path
    if path is None and own is None:
        log.error("%s: model_path is NULL, and the model does not come from a file that could tell it", function)
        return 1
    with held.job(function) as core:
        try:
            encoder = OpenVinoEncoder(encoder_path(own or "") if path is None else path, kind or "CPU", cache)
            if cache is None and own is not None:
                encoder.cache_dir = _cache_beside(own)
            core.set_encoder(encoder)
        except (BackendError, ModelError, ParamsError, StateError) as error:
            log.error("%s: %s", function, error)
            return 1
    log.info("%s: %s", function, encoder.name)
    return 0


def _cache_beside(model: str) -> str | None:
    """Return the folder beside a model in which OpenVINO may keep what it compiles; None where none can be made."""
    folder = encoder_path(model, "-encoder-openvino-cache")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        log.warning("OpenVINO works without a cache: %s cannot be made: %s", folder, error.strerror)
        return None
    if os.access(folder, os.W_OK | os.X_OK):
        return folder
    log.warning("OpenVINO works without a cache: %s cannot be written to", folder)
    return None


def whisper_ctx_init_openvino_encoder(
    ctx: whisper_context,
    model_path: str | bytes | None = None,
    device: str | bytes | None = None,
    cache_dir: str | bytes | None = None,
) -> int:
    """int whisper_ctx_init_openvino_encoder(
        whisper_context * ctx, const char * model_path, const char * device, const char * cache_dir)

    As whisper_ctx_init_openvino_encoder_with_state, on the context's own state.
    """
    state = default_state(ctx, "whisper_ctx_init_openvino_encoder")
    return whisper_ctx_init_openvino_encoder_with_state(ctx, state, model_path, device, cache_dir)
