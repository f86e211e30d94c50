"""Creating and freeing a context."""

from __future__ import annotations

import os
from typing import Any

from whispyx import plugins
from whispyx._core.align import heads
from whispyx._core.context import Context
from whispyx.capi._loader import read_all
from whispyx.capi._log import log
from whispyx.capi._struct import checked_int
from whispyx.capi.constants import (
    WHISPER_AHEADS_CUSTOM,
    WHISPER_AHEADS_NONE,
)
from whispyx.capi.objects import to_free, whisper_context
from whispyx.capi.states import whisper_free_state, whisper_init_state
from whispyx.capi.structs import whisper_ahead, whisper_aheads, whisper_context_params, whisper_model_loader
from whispyx.errors import BackendError, ComputeError, ModelError, ParamsError
from whispyx.models.formats.opening import open_model
from whispyx.plugins.kernels import check_compute
from whispyx.plugins.limits import may_map

__all__ = [
    "whisper_free",
    "whisper_init",
    "whisper_init_from_buffer",
    "whisper_init_from_buffer_no_state",
    "whisper_init_from_buffer_with_params",
    "whisper_init_from_buffer_with_params_no_state",
    "whisper_init_from_file",
    "whisper_init_from_file_no_state",
    "whisper_init_from_file_with_params",
    "whisper_init_from_file_with_params_no_state",
    "whisper_init_no_state",
    "whisper_init_with_params",
    "whisper_init_with_params_no_state",
]


def _custom_heads(aheads: whisper_aheads) -> list[tuple[int, int]]:
    if aheads.n_heads == 0 or aheads.heads is None:
        raise ParamsError("dtw_aheads is empty, but dtw_aheads_preset is WHISPER_AHEADS_CUSTOM")
    if aheads.n_heads > len(aheads.heads):
        raise ParamsError(f"dtw_aheads.n_heads is {aheads.n_heads}, but there are {len(aheads.heads)} heads")
    found = []
    for head in list(aheads.heads)[: aheads.n_heads]:
        pair = (head.n_text_layer, head.n_head) if isinstance(head, whisper_ahead) else tuple(head)
        if len(pair) != 2:
            raise ParamsError(f"an alignment head is a layer and a head, not {head!r}")
        found.append((checked_int("n_text_layer", pair[0]), checked_int("n_head", pair[1])))
    return found


def _set_heads(ctx: whisper_context, params: whisper_context_params) -> None:
    """Choose the heads for token times; a choice that is not possible keeps states from being made, as in C."""
    if not params.dtw_token_timestamps:
        return
    ctx.dtw = True
    preset = params.dtw_aheads_preset
    try:
        if preset == WHISPER_AHEADS_NONE:
            if ctx.core.alignment_heads is None:
                raise ParamsError("dtw_token_timestamps is set, but dtw_aheads_preset is WHISPER_AHEADS_NONE")
            ctx.core.set_aheads(ctx.core.alignment_heads)
            return
        custom = _custom_heads(params.dtw_aheads) if preset == WHISPER_AHEADS_CUSTOM else None
        ctx.core.set_aheads(heads.resolve(int(preset), params.dtw_n_top, custom, ctx.core.hparams))
    except ParamsError as error:
        ctx.dtw_error = str(error)
        log.error("no state can be made of this model: %s", error)


def _load(function: str, source: Any, params: whisper_context_params | None) -> whisper_context | None:
    if params is None:
        params = whisper_context_params()
    elif not isinstance(params, whisper_context_params):
        raise TypeError(f"{function}: params must be a whisper_context_params, not {params!r}")
    try:
        # WHISPYX_BACKEND names devices exactly; use_gpu and gpu_device choose among them, or among all.
        chosen = plugins.load()
        plugins.require_cpu()
        core = Context.load(
            open_model(source),
            use_gpu=params.use_gpu,
            gpu_device=params.gpu_device,
            flash_attn=params.flash_attn,
            backends=chosen.selected,
            fallback=chosen.may_fall_back,
            known=chosen.fallbacks,
            compute=check_compute(None),
            mmap=may_map(),
        )
    except (ModelError, BackendError, ComputeError, ParamsError) as error:
        log.error("%s: %s", function, error)
        return None
    ctx = whisper_context(core)
    _set_heads(ctx, params)
    return ctx


def _with_state(function: str, ctx: whisper_context | None) -> whisper_context | None:
    """Give a new context its default state; without one there is no context either."""
    if ctx is None:
        return None
    ctx.state = whisper_init_state(ctx)
    if ctx.state is None:
        log.error("%s: the model was loaded, but no state could be made", function)
        ctx.core.close()
        return None
    return ctx


def _path(function: str, path_model: str | bytes | os.PathLike[str]) -> str:
    if isinstance(path_model, (str, bytes, os.PathLike)):
        return os.fsdecode(path_model)
    raise TypeError(f"{function}: path_model must be a path, not {path_model!r}")


def _block(buffer: Any, buffer_size: int | None) -> memoryview:
    if isinstance(buffer, str):
        raise TypeError("buffer must hold bytes, not text")
    view = memoryview(buffer).cast("B")
    if buffer_size is None:
        return view
    size = checked_int("buffer_size", buffer_size, "size_t")
    if size > len(view):
        raise ParamsError(f"buffer_size is {size}, but the buffer holds {len(view)} bytes")
    return view[:size]


def _from_loader(function: str, loader: whisper_model_loader) -> bytes | bytearray | None:
    if not isinstance(loader, whisper_model_loader):
        raise TypeError(f"{function}: a whisper_model_loader is needed, not {loader!r}")
    try:
        return read_all(loader)
    except ModelError as error:
        log.error("%s: %s", function, error)
        return None


def whisper_init_from_file_with_params_no_state(
    path_model: str | bytes | os.PathLike[str], params: whisper_context_params
) -> whisper_context | None:
    """whisper_context * whisper_init_from_file_with_params_no_state(
        const char * path_model, whisper_context_params params)

    Loads a model file. None (logged) when there is no such file, it is damaged, or no device can hold it. Token times
    by DTW work with `flash_attn` too.
    """
    function = "whisper_init_from_file_with_params_no_state"
    return _load(function, _path(function, path_model), params)


def whisper_init_from_buffer_with_params_no_state(
    buffer: Any, buffer_size: int | None, params: whisper_context_params
) -> whisper_context | None:
    """whisper_context * whisper_init_from_buffer_with_params_no_state(
        void * buffer, size_t buffer_size, whisper_context_params params)

    Loads a model from memory, any bytes-like object; `buffer_size` None takes all of it.
    """
    return _load("whisper_init_from_buffer_with_params_no_state", _block(buffer, buffer_size), params)


def whisper_init_with_params_no_state(
    loader: whisper_model_loader, params: whisper_context_params
) -> whisper_context | None:
    """whisper_context * whisper_init_with_params_no_state(
        whisper_model_loader * loader, whisper_context_params params)

    Loads a model through functions of the caller, and closes the loader whatever happens. Any model that is one file
    will do: whisper.cpp's format, GGUF, OpenAI's.
    """
    function = "whisper_init_with_params_no_state"
    data = _from_loader(function, loader)
    return None if data is None else _load(function, data, params)


def whisper_init_from_file_with_params(
    path_model: str | bytes | os.PathLike[str], params: whisper_context_params
) -> whisper_context | None:
    """whisper_context * whisper_init_from_file_with_params(const char * path_model, whisper_context_params params)

    As whisper_init_from_file_with_params_no_state, and makes the context's own state; None (logged) without one.
    """
    ctx = whisper_init_from_file_with_params_no_state(path_model, params)
    return _with_state("whisper_init_from_file_with_params", ctx)


def whisper_init_from_buffer_with_params(
    buffer: Any, buffer_size: int | None, params: whisper_context_params
) -> whisper_context | None:
    """whisper_context * whisper_init_from_buffer_with_params(
        void * buffer, size_t buffer_size, whisper_context_params params)

    As whisper_init_from_buffer_with_params_no_state, and makes the context's own state; None (logged) without one.
    """
    ctx = whisper_init_from_buffer_with_params_no_state(buffer, buffer_size, params)
    return _with_state("whisper_init_from_buffer_with_params", ctx)


def whisper_init_with_params(loader: whisper_model_loader, params: whisper_context_params) -> whisper_context | None:
    """whisper_context * whisper_init_with_params(whisper_model_loader * loader, whisper_context_params params)

    As whisper_init_with_params_no_state, and makes the context's own state; None (logged) without one.
    """
    return _with_state("whisper_init_with_params", whisper_init_with_params_no_state(loader, params))


def whisper_init_from_file(path_model: str | bytes | os.PathLike[str]) -> whisper_context | None:
    """whisper_context * whisper_init_from_file(const char * path_model)

    As whisper_init_from_file_with_params with default parameters. Deprecated by whisper.h.
    """
    return whisper_init_from_file_with_params(path_model, whisper_context_params())


def whisper_init_from_buffer(buffer: Any, buffer_size: int | None = None) -> whisper_context | None:
    """whisper_context * whisper_init_from_buffer(void * buffer, size_t buffer_size)

    As whisper_init_from_buffer_with_params with default parameters. Deprecated by whisper.h.
    """
    return whisper_init_from_buffer_with_params(buffer, buffer_size, whisper_context_params())


def whisper_init(loader: whisper_model_loader) -> whisper_context | None:
    """whisper_context * whisper_init(whisper_model_loader * loader)

    As whisper_init_with_params with default parameters. Deprecated by whisper.h.
    """
    return whisper_init_with_params(loader, whisper_context_params())


def whisper_init_from_file_no_state(path_model: str | bytes | os.PathLike[str]) -> whisper_context | None:
    """whisper_context * whisper_init_from_file_no_state(const char * path_model)

    As whisper_init_from_file_with_params_no_state with default parameters. Deprecated by whisper.h.
    """
    return whisper_init_from_file_with_params_no_state(path_model, whisper_context_params())


def whisper_init_from_buffer_no_state(buffer: Any, buffer_size: int | None = None) -> whisper_context | None:
    """whisper_context * whisper_init_from_buffer_no_state(void * buffer, size_t buffer_size)

    As whisper_init_from_buffer_with_params_no_state with default parameters. Deprecated by whisper.h.
    """
    return whisper_init_from_buffer_with_params_no_state(buffer, buffer_size, whisper_context_params())


def whisper_init_no_state(loader: whisper_model_loader) -> whisper_context | None:
    """whisper_context * whisper_init_no_state(whisper_model_loader * loader)

    As whisper_init_with_params_no_state with default parameters. Deprecated by whisper.h.
    """
    return whisper_init_with_params_no_state(loader, whisper_context_params())


def whisper_free(ctx: whisper_context | None) -> None:
    """void whisper_free(whisper_context * ctx)

    Frees a context and its own state. None and a context that was freed before are fine; one whose state is in use
    raises StateError. Other states of the context must not be used any more, but may be freed.
    """
    held = to_free(whisper_context, ctx, "whisper_free")
    if held is not None:
        whisper_free_state(held.state)
        held.state = None
        held.core.close()
        held.freed = True
