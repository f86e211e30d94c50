"""Tokens and vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from whispyx.capi._arrays import writable
from whispyx.capi._log import log
from whispyx.capi._struct import as_text, checked_int
from whispyx.capi.objects import context_of
from whispyx.errors import ParamsError

if TYPE_CHECKING:
    from whispyx.capi.constants import whisper_token
    from whispyx.capi.objects import whisper_context

__all__ = [
    "whisper_n_vocab",
    "whisper_token_beg",
    "whisper_token_count",
    "whisper_token_eot",
    "whisper_token_lang",
    "whisper_token_nosp",
    "whisper_token_not",
    "whisper_token_prev",
    "whisper_token_solm",
    "whisper_token_sot",
    "whisper_token_to_str",
    "whisper_token_transcribe",
    "whisper_token_translate",
    "whisper_tokenize",
]


def _ids(ctx: whisper_context, text: str | bytes, function: str) -> list[int]:
    vocab = context_of(ctx, function).vocab
    plain = as_text("text", text)
    if plain is None:
        raise ParamsError(f"{function}: text is NULL")
    return vocab.tokenize(plain)


def whisper_tokenize(ctx: whisper_context, text: str | bytes, tokens: Any, n_max_tokens: int) -> int:
    """int whisper_tokenize(whisper_context * ctx, const char * text, whisper_token * tokens, int n_max_tokens)

    Writes the ids of a text to `tokens`, a writable int32 array (n_max_tokens,) or a list, and returns how many there
    are; when there are more than n_max_tokens, writes nothing and returns minus their number. `tokens` may be None
    when n_max_tokens is 0. Byte-pair encoding as in training: ids differ from whisper.cpp's longest match.
    """
    ids = _ids(ctx, text, "whisper_tokenize")
    room = checked_int("n_max_tokens", n_max_tokens)
    if room < 0:
        raise ParamsError(f"n_max_tokens is {room}; it counts what there is room for")
    if len(ids) > room:
        if room:
            log.error("whisper_tokenize: %d tokens do not fit into %d", len(ids), room)
        return -len(ids)
    if isinstance(tokens, list):
        if len(tokens) < len(ids):
            raise ParamsError(f"tokens holds {len(tokens)}; {len(ids)} are written")
        tokens[: len(ids)] = ids
    elif ids:
        if tokens is None:
            raise ParamsError(f"tokens is NULL, but n_max_tokens is {room}")
        writable("tokens", tokens, np.int32, len(ids))[: len(ids)] = ids
    return len(ids)


def whisper_token_count(ctx: whisper_context, text: str | bytes) -> int:
    """int whisper_token_count(whisper_context * ctx, const char * text)

    How many tokens a text has.
    """
    return len(_ids(ctx, text, "whisper_token_count"))


def whisper_token_to_str(ctx: whisper_context, token: whisper_token) -> bytes:
    """const char * whisper_token_to_str(whisper_context * ctx, whisper_token token)

    The bytes of a token, which may hold part of a character. Raises ParamsError for an id outside the vocabulary.
    """
    return context_of(ctx, "whisper_token_to_str").vocab.token_bytes(checked_int("token", token, "whisper_token"))


def whisper_n_vocab(ctx: whisper_context) -> int:
    """int whisper_n_vocab(whisper_context * ctx)

    Size of the vocabulary, and of a row of logits.
    """
    return context_of(ctx, "whisper_n_vocab").vocab.n_vocab


def whisper_token_eot(ctx: whisper_context) -> whisper_token:
    """whisper_token whisper_token_eot(whisper_context * ctx)

    End of transcript; every smaller id is text.
    """
    return context_of(ctx, "whisper_token_eot").vocab.eot


def whisper_token_sot(ctx: whisper_context) -> whisper_token:
    """whisper_token whisper_token_sot(whisper_context * ctx)

    Start of transcript.
    """
    return context_of(ctx, "whisper_token_sot").vocab.sot


def whisper_token_solm(ctx: whisper_context) -> whisper_token:
    """whisper_token whisper_token_solm(whisper_context * ctx)

    Start of language model; models made for it use this id for a change of speaker.
    """
    return context_of(ctx, "whisper_token_solm").vocab.solm


def whisper_token_prev(ctx: whisper_context) -> whisper_token:
    """whisper_token whisper_token_prev(whisper_context * ctx)

    Start of previous text.
    """
    return context_of(ctx, "whisper_token_prev").vocab.prev


def whisper_token_nosp(ctx: whisper_context) -> whisper_token:
    """whisper_token whisper_token_nosp(whisper_context * ctx)

    No speech.
    """
    return context_of(ctx, "whisper_token_nosp").vocab.nosp


def whisper_token_not(ctx: whisper_context) -> whisper_token:
    """whisper_token whisper_token_not(whisper_context * ctx)

    No timestamps.
    """
    return context_of(ctx, "whisper_token_not").vocab.not_


def whisper_token_beg(ctx: whisper_context) -> whisper_token:
    """whisper_token whisper_token_beg(whisper_context * ctx)

    The timestamp 0.00; each id above it is 0.02 s later.
    """
    return context_of(ctx, "whisper_token_beg").vocab.beg


def whisper_token_lang(ctx: whisper_context, lang_id: int) -> whisper_token:
    """whisper_token whisper_token_lang(whisper_context * ctx, int lang_id)

    The token of a language. Raises ParamsError for one that the model does not have.
    """
    return context_of(ctx, "whisper_token_lang").vocab.lang_token(checked_int("lang_id", lang_id))


def whisper_token_translate(ctx: whisper_context) -> whisper_token:
    """whisper_token whisper_token_translate(whisper_context * ctx)

    The task of translating into English.
    """
    return context_of(ctx, "whisper_token_translate").vocab.translate


def whisper_token_transcribe(ctx: whisper_context) -> whisper_token:
    """whisper_token whisper_token_transcribe(whisper_context * ctx)

    The task of writing down what is said.
    """
    return context_of(ctx, "whisper_token_transcribe").vocab.transcribe
