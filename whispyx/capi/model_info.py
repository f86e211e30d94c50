"""Model and mel information."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from whispyx.capi.objects import context_of, default_state, state_of

if TYPE_CHECKING:
    from whispyx.capi.objects import whisper_context, whisper_state

__all__ = [
    "whisper_is_multilingual",
    "whisper_model_ftype",
    "whisper_model_n_audio_ctx",
    "whisper_model_n_audio_head",
    "whisper_model_n_audio_layer",
    "whisper_model_n_audio_state",
    "whisper_model_n_mels",
    "whisper_model_n_text_ctx",
    "whisper_model_n_text_head",
    "whisper_model_n_text_layer",
    "whisper_model_n_text_state",
    "whisper_model_n_vocab",
    "whisper_model_type",
    "whisper_model_type_readable",
    "whisper_n_audio_ctx",
    "whisper_n_len",
    "whisper_n_len_from_state",
    "whisper_n_text_ctx",
]

TYPES: Final = ("unknown", "tiny", "base", "small", "medium", "large")


def whisper_n_len(ctx: whisper_context) -> int:
    """int whisper_n_len(whisper_context * ctx)

    Length of the spectrogram in the context's own state, in frames of 10 ms, its padding left out; 0 when there is
    none.
    """
    return default_state(ctx, "whisper_n_len").core.n_len


def whisper_n_len_from_state(state: whisper_state) -> int:
    """int whisper_n_len_from_state(whisper_state * state)

    As whisper_n_len, of a state.
    """
    return state_of(state, "whisper_n_len_from_state").core.n_len


def whisper_n_text_ctx(ctx: whisper_context) -> int:
    """int whisper_n_text_ctx(whisper_context * ctx)

    Positions of the decoder.
    """
    return context_of(ctx, "whisper_n_text_ctx").hparams.n_text_ctx


def whisper_n_audio_ctx(ctx: whisper_context) -> int:
    """int whisper_n_audio_ctx(whisper_context * ctx)

    Positions of the encoder, 20 ms each.
    """
    return context_of(ctx, "whisper_n_audio_ctx").hparams.n_audio_ctx


def whisper_is_multilingual(ctx: whisper_context) -> int:
    """int whisper_is_multilingual(whisper_context * ctx)

    1 when the model knows more languages than English, else 0.
    """
    return int(context_of(ctx, "whisper_is_multilingual").vocab.is_multilingual)


def whisper_model_n_vocab(ctx: whisper_context) -> int:
    """int whisper_model_n_vocab(whisper_context * ctx)

    Size of the vocabulary.
    """
    return context_of(ctx, "whisper_model_n_vocab").hparams.n_vocab


def whisper_model_n_audio_ctx(ctx: whisper_context) -> int:
    """int whisper_model_n_audio_ctx(whisper_context * ctx)

    Positions of the encoder.
    """
    return context_of(ctx, "whisper_model_n_audio_ctx").hparams.n_audio_ctx


def whisper_model_n_audio_state(ctx: whisper_context) -> int:
    """int whisper_model_n_audio_state(whisper_context * ctx)

    Width of the encoder.
    """
    return context_of(ctx, "whisper_model_n_audio_state").hparams.n_audio_state


def whisper_model_n_audio_head(ctx: whisper_context) -> int:
    """int whisper_model_n_audio_head(whisper_context * ctx)

    Attention heads in an encoder layer.
    """
    return context_of(ctx, "whisper_model_n_audio_head").hparams.n_audio_head


def whisper_model_n_audio_layer(ctx: whisper_context) -> int:
    """int whisper_model_n_audio_layer(whisper_context * ctx)

    Layers of the encoder.
    """
    return context_of(ctx, "whisper_model_n_audio_layer").hparams.n_audio_layer


def whisper_model_n_text_ctx(ctx: whisper_context) -> int:
    """int whisper_model_n_text_ctx(whisper_context * ctx)

    Positions of the decoder.
    """
    return context_of(ctx, "whisper_model_n_text_ctx").hparams.n_text_ctx


def whisper_model_n_text_state(ctx: whisper_context) -> int:
    """int whisper_model_n_text_state(whisper_context * ctx)

    Width of the decoder.
    """
    return context_of(ctx, "whisper_model_n_text_state").hparams.n_text_state


def whisper_model_n_text_head(ctx: whisper_context) -> int:
    """int whisper_model_n_text_head(whisper_context * ctx)

    Attention heads in a decoder layer.
    """
    return context_of(ctx, "whisper_model_n_text_head").hparams.n_text_head


def whisper_model_n_text_layer(ctx: whisper_context) -> int:
    """int whisper_model_n_text_layer(whisper_context * ctx)

    Layers of the decoder.
    """
    return context_of(ctx, "whisper_model_n_text_layer").hparams.n_text_layer


def whisper_model_n_mels(ctx: whisper_context) -> int:
    """int whisper_model_n_mels(whisper_context * ctx)

    Bands of the spectrogram.
    """
    return context_of(ctx, "whisper_model_n_mels").hparams.n_mels


def whisper_model_ftype(ctx: whisper_context) -> int:
    """int whisper_model_ftype(whisper_context * ctx)

    Weight type of the file by number, without the version of its quantization.
    """
    return context_of(ctx, "whisper_model_ftype").hparams.ftype


def whisper_model_type(ctx: whisper_context) -> int:
    """int whisper_model_type(whisper_context * ctx)

    Size by number: 1 tiny, 2 base, 3 small, 4 medium, 5 large, 0 for any other.
    """
    return TYPES.index(context_of(ctx, "whisper_model_type").model_type)


def whisper_model_type_readable(ctx: whisper_context) -> str:
    """const char * whisper_model_type_readable(whisper_context * ctx)

    Size by name: "tiny", "base", "small", "medium", "large" or "unknown".
    """
    return context_of(ctx, "whisper_model_type_readable").model_type
