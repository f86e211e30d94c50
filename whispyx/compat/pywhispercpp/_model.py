"""Loading a model and asking about it: settings, tokens, languages."""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from whispyx import capi
from whispyx.compat.pywhispercpp._structs import (
    handle,
    opened,
    whisper_context,
    whisper_context_params,
    whisper_model_loader,
)
from whispyx.compat.pywhispercpp._values import SIZE, as_int, as_text
from whispyx.errors import ModelError, ModelNotFoundError, ParamsError


class _Listener(logging.Handler):
    """Remembers the last error line of the thread that makes it."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.thread, self.said = threading.get_ident(), ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self.thread:
            self.said = record.getMessage()


@contextmanager
def reasons() -> Iterator[_Listener]:
    """Listen to what `whispyx.capi` says when a function returns None."""
    listener, logger = _Listener(), logging.getLogger("whispyx.capi")
    logger.addHandler(listener)
    try:
        yield listener
    finally:
        logger.removeHandler(listener)


def loaded(what: str, load: Callable[[], Any]) -> Any:
    """Return what `load` made.

    Raises
    ------
    ModelNotFoundError, ModelError
        It made nothing. (The extension returns an object that crashes the process at its first use.)
    """
    with reasons() as listener:
        made = load()
    if made is not None:
        return made
    reason = listener.said or f"{what} cannot be loaded"
    if isinstance(what, str) and not os.path.exists(what) and not what.startswith("<"):
        raise ModelNotFoundError(reason)
    raise ModelError(reason)


def _params_of(params: Any) -> Any:
    if not isinstance(params, whisper_context_params):
        raise TypeError(f"a whisper_context_params is needed, not {params!r}")
    return params._c


def whisper_context_default_params() -> whisper_context_params:
    """New parameters for loading a model."""
    new = whisper_context_params()
    new._c = capi.whisper_context_default_params()
    return new


def whisper_init_from_file_with_params(path_model: Any, params: Any) -> Any:
    """Load a model file. ModelError when that fails, ModelNotFoundError when there is no such file."""
    path = as_text("path_model", os.fspath(path_model) if isinstance(path_model, os.PathLike) else path_model)
    kept = _params_of(params)
    return handle(whisper_context, loaded(path, lambda: capi.whisper_init_from_file_with_params(path, kept)))


def _capsule_bytes(capsule: Any, size: int) -> Any:
    """Return the memory that a capsule of any name points to."""
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    pointer = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return (ctypes.c_char * size).from_address(pointer)


def whisper_init_from_buffer_with_params(buffer: Any, buffer_size: Any, params: Any) -> Any:
    """Load a model from memory: a capsule with a pointer, as in the extension, or any bytes-like object."""
    size, kept = as_int("buffer_size", buffer_size, SIZE), _params_of(params)
    if type(buffer).__name__ == "PyCapsule":
        buffer = _capsule_bytes(buffer, size)
    try:
        memoryview(buffer)
    except TypeError:
        raise TypeError(f"buffer must be a capsule or bytes-like, not {type(buffer).__name__}") from None
    made = loaded("<memory>", lambda: capi.whisper_init_from_buffer_with_params(buffer, size, kept))
    return handle(whisper_context, made)


def whisper_init_with_params(loader: Any, params: Any) -> Any:
    """Load a model through functions of the caller, which `loader` holds."""
    kept = _params_of(params)
    if not isinstance(loader, whisper_model_loader):
        raise TypeError(f"a whisper_model_loader is needed, not {loader!r}")
    return handle(whisper_context, loaded("<loader>", lambda: capi.whisper_init_with_params(loader, kept)))


def whisper_free(ctx: Any) -> None:
    """Free a model. Doing so twice is fine."""
    capi.whisper_free(opened(whisper_context, ctx))


def whisper_ctx_init_openvino_encoder(ctx: Any, model_path: Any, device: Any, cache_dir: Any) -> int:
    """Use OpenVINO for the encoder: 0, or 1 when that cannot be done."""
    texts = [None if text is None else as_text("argument", text) for text in (model_path, device, cache_dir)]
    return capi.whisper_ctx_init_openvino_encoder(opened(whisper_context, ctx), texts[0], texts[1] or "CPU", texts[2])


def whisper_n_len(ctx: Any) -> int:
    """Frames of the spectrogram, without the silence behind it."""
    return capi.whisper_n_len(opened(whisper_context, ctx))


def whisper_n_vocab(ctx: Any) -> int:
    """Size of the vocabulary."""
    return capi.whisper_n_vocab(opened(whisper_context, ctx))


def whisper_n_text_ctx(ctx: Any) -> int:
    """Positions of the decoder."""
    return capi.whisper_n_text_ctx(opened(whisper_context, ctx))


def whisper_n_audio_ctx(ctx: Any) -> int:
    """Positions of the encoder."""
    return capi.whisper_n_audio_ctx(opened(whisper_context, ctx))


def whisper_is_multilingual(ctx: Any) -> int:
    """1 for a model of all languages, 0 for one of English."""
    return int(capi.whisper_is_multilingual(opened(whisper_context, ctx)))


def whisper_model_ftype(ctx: Any) -> int:
    """Number of the weights' type."""
    return capi.whisper_model_ftype(opened(whisper_context, ctx))


def whisper_model_n_audio_ctx(ctx: Any) -> int:
    """Positions of the encoder."""
    return capi.whisper_model_n_audio_ctx(opened(whisper_context, ctx))


def whisper_model_n_audio_head(ctx: Any) -> int:
    """Attention heads of the encoder."""
    return capi.whisper_model_n_audio_head(opened(whisper_context, ctx))


def whisper_model_n_audio_layer(ctx: Any) -> int:
    """Layers of the encoder."""
    return capi.whisper_model_n_audio_layer(opened(whisper_context, ctx))


def whisper_model_n_audio_state(ctx: Any) -> int:
    """Width of the encoder."""
    return capi.whisper_model_n_audio_state(opened(whisper_context, ctx))


def whisper_model_n_mels(ctx: Any) -> int:
    """Bands of the spectrogram."""
    return capi.whisper_model_n_mels(opened(whisper_context, ctx))


def whisper_model_n_text_ctx(ctx: Any) -> int:
    """Positions of the decoder."""
    return capi.whisper_model_n_text_ctx(opened(whisper_context, ctx))


def whisper_model_n_text_head(ctx: Any) -> int:
    """Attention heads of the decoder."""
    return capi.whisper_model_n_text_head(opened(whisper_context, ctx))


def whisper_model_n_text_layer(ctx: Any) -> int:
    """Layers of the decoder."""
    return capi.whisper_model_n_text_layer(opened(whisper_context, ctx))


def whisper_model_n_text_state(ctx: Any) -> int:
    """Width of the decoder."""
    return capi.whisper_model_n_text_state(opened(whisper_context, ctx))


def whisper_model_n_vocab(ctx: Any) -> int:
    """Size of the vocabulary."""
    return capi.whisper_model_n_vocab(opened(whisper_context, ctx))


def whisper_model_type_readable(ctx: Any) -> str:
    """The model's size: "tiny", "base" …"""
    return capi.whisper_model_type_readable(opened(whisper_context, ctx))


def whisper_tokenize(ctx: Any, text: Any, tokens: Any, n_max_tokens: Any) -> int:
    """How many tokens a text has; minus that when there are more than n_max_tokens.

    The ids are written to `tokens`, a list or an int32 array. The extension takes a number there, and gives no ids
    away; a number works here too.
    """
    room, plain = as_int("n_max_tokens", n_max_tokens), as_text("text", text)
    held = opened(whisper_context, ctx)
    if room < 0:
        raise ParamsError(f"n_max_tokens is {room}; it counts what there is room for")
    if isinstance(tokens, list) or hasattr(tokens, "shape"):
        return capi.whisper_tokenize(held, plain, tokens, room)
    as_int("tokens", tokens)
    count = capi.whisper_token_count(held, plain)
    return count if count <= room else -count


def whisper_token_to_bytes(ctx: Any, token: Any) -> bytes:
    """The bytes of a token, which may be part of a character. IndexError outside the vocabulary."""
    held, number = opened(whisper_context, ctx), as_int("token", token)
    n_vocab = capi.whisper_n_vocab(held)
    if not 0 <= number < n_vocab:
        raise IndexError(f"token is {number}; the vocabulary has {n_vocab}")
    return capi.whisper_token_to_str(held, number)


def whisper_token_to_str(ctx: Any, token: Any) -> str:
    """The text of a token. UnicodeDecodeError for part of a character: whisper_token_to_bytes takes every token."""
    return whisper_token_to_bytes(ctx, token).decode("utf-8")


def whisper_token_eot(ctx: Any) -> int:
    """End of transcript."""
    return capi.whisper_token_eot(opened(whisper_context, ctx))


def whisper_token_sot(ctx: Any) -> int:
    """Start of transcript."""
    return capi.whisper_token_sot(opened(whisper_context, ctx))


def whisper_token_prev(ctx: Any) -> int:
    """Start of previous text."""
    return capi.whisper_token_prev(opened(whisper_context, ctx))


def whisper_token_solm(ctx: Any) -> int:
    """Start of language model, or a change of speaker."""
    return capi.whisper_token_solm(opened(whisper_context, ctx))


def whisper_token_not(ctx: Any) -> int:
    """No timestamps."""
    return capi.whisper_token_not(opened(whisper_context, ctx))


def whisper_token_beg(ctx: Any) -> int:
    """The timestamp 0.00."""
    return capi.whisper_token_beg(opened(whisper_context, ctx))


def whisper_token_lang(ctx: Any, lang_id: Any) -> int:
    """The token of a language."""
    return capi.whisper_token_lang(opened(whisper_context, ctx), as_int("lang_id", lang_id))


def whisper_token_translate(ctx: Any) -> int:
    """The task of translating."""
    return capi.whisper_token_translate(opened(whisper_context, ctx))


def whisper_token_transcribe(ctx: Any) -> int:
    """The task of transcribing."""
    return capi.whisper_token_transcribe(opened(whisper_context, ctx))


def whisper_lang_max_id() -> int:
    """The largest language id."""
    return capi.whisper_lang_max_id()


def whisper_lang_id(lang: Any) -> int:
    """Id of a code or an English name, -1 when there is none."""
    return capi.whisper_lang_id(as_text("lang", lang))


def whisper_lang_str(id: Any) -> str | None:
    """Code of a language id, None when there is none."""
    return capi.whisper_lang_str(as_int("id", id))
