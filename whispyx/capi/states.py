"""States, external encoders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whispyx.capi._log import log
from whispyx.capi._struct import as_text
from whispyx.capi.objects import context_of, default_state, state_in, to_free, whisper_state
from whispyx.errors import BackendError, ComputeError

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

    Returns 1: whispyx has no OpenVINO encoder yet, as a whisper.cpp that was built without it (logged). The encoder of
    the model itself goes on being used.
    """
    state_in(ctx, state, "whisper_ctx_init_openvino_encoder")
    for name, value in (("model_path", model_path), ("device", device), ("cache_dir", cache_dir)):
        as_text(name, value)
    log.error("whisper_ctx_init_openvino_encoder: this build has no OpenVINO encoder; the model's own one is used")
    return 1


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
