"""What writers of GGUF files call Whisper's settings and tensors, and what we call them.

Facts were taken from GGUF's specification, from published files and from their writers: whisper.cpp's names (which are
OpenAI's), those of Hugging Face, of transcribe.cpp, and of two smaller projects.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "FILTERS", "HEAD_SIZE", "IGNORED", "PROJECTIONS", "RESERVED", "SETTINGS", "SPECIAL", "own_key", "own_name",
]  # fmt: skip

_KEY: Final = re.compile(r"(?:[\w-]+\.)?[\w-]*whisper\.(.+)")

SETTINGS: Final[dict[str, tuple[str, ...]]] = {
    "n_vocab": ("vocab_size", "n_vocab", "vocab.size", "decoder.vocab_size", "decoder.n_vocab", "encoder.n_vocab"),
    "n_audio_ctx": (
        "encoder.context_length", "n_audio_ctx", "encoder.n_audio_ctx", "encoder.max_source_positions",
        "audio.context_length", "audio.ctx",
    ),
    "n_audio_state": (
        "encoder.embedding_length", "n_audio_state", "encoder.n_audio_state", "encoder.d_model", "embedding_length",
        "d_model",
    ),
    "n_audio_head": (
        "encoder.attention.head_count", "n_audio_head", "encoder.n_audio_head", "encoder.n_heads",
        "encoder.head_count",
    ),
    "n_audio_layer": (
        "encoder.block_count", "n_audio_layer", "encoder.n_audio_layer", "encoder.n_layers", "encoder.layer_count",
    ),
    "n_text_ctx": (
        "decoder.context_length", "n_text_ctx", "decoder.n_text_ctx", "decoder.max_target_positions",
        "text.context_length", "text.ctx",
    ),
    "n_text_state": (
        "decoder.embedding_length", "n_text_state", "decoder.n_text_state", "decoder.d_model", "embedding_length",
        "d_model",
    ),
    "n_text_head": (
        "decoder.attention.head_count", "n_text_head", "decoder.n_text_head", "decoder.n_heads", "decoder.head_count",
    ),
    "n_text_layer": (
        "decoder.block_count", "n_text_layer", "decoder.n_text_layer", "decoder.n_layers", "decoder.layer_count",
    ),
    "n_mels": (
        "encoder.mels_count", "n_mels", "encoder.n_mels", "encoder.num_mel_bins", "num_mel_bins", "mel_bins",
        "audio.mel_count",
    ),
}  # fmt: skip
"""Setting -> its keys without the architecture in front. The first one is the specification's, and ours."""

SPECIAL: Final[dict[str, tuple[str, ...]]] = {
    "eot": ("token.eot", "eot", "text_token_end"),
    "sot": ("token.sot", "sot_token_id", "decoder_start_token_id"),
    "translate": ("token.translate", "translate_token_id"),
    "transcribe": ("token.transcribe", "transcribe_token_id"),
    "solm": ("token.solm",),
    "prev": ("token.prev", "prev_sot_token_id"),
    "nosp": ("token.nosp",),
    "not": ("token.not", "no_timestamps_token_id"),
    "beg": ("token.beg",),
}
"""Special token -> keys of its id, likewise."""

_ATTENTION: Final[dict[str, tuple[str, ...]]] = {
    "query": ("query", "q_proj", "q"),
    "key": ("key", "k_proj", "k"),
    "value": ("value", "v_proj", "v"),
    "out": ("out", "out_proj", "output"),
}

_PARTS: Final[dict[str, tuple[str, ...]]] = {
    "attn_ln": ("self_attn_layer_norm", "norm_attn", "norm_self", "attn_norm"),
    "cross_attn_ln": ("encoder_attn_layer_norm", "norm_cross", "cross_attn_norm"),
    "mlp_ln": ("final_layer_norm", "norm_ffn", "ffn_norm"),
    "mlp.0": ("fc1", "ffn.fc1", "ffn_up"),
    "mlp.2": ("fc2", "ffn.fc2", "ffn_down"),
} | {
    f"{own}.{part}": tuple(f"{prefix}{joint}{other}" for prefix in prefixes for joint in "._" for other in others)
    for own, prefixes in (("attn", ("attn", "self_attn")), ("cross_attn", ("cross_attn", "encoder_attn")))
    for part, others in _ATTENTION.items()
}
"""Part of a block -> what others call it."""

_TOP: Final[dict[str, tuple[str, ...]]] = {
    "encoder.conv1": ("encoder.conv.0",),
    "encoder.conv2": ("encoder.conv.1",),
    "encoder.ln_post": ("encoder.layer_norm", "encoder.final_norm", "encoder.output_norm"),
    "encoder.positional_embedding": ("encoder.embed_positions", "encoder.pos_emb", "encoder.position_embd"),
    "decoder.positional_embedding": ("decoder.embed_positions", "decoder.pos_emb", "decoder.position_embd"),
    "decoder.token_embedding": ("decoder.embed_tokens", "decoder.token_embd"),
    "decoder.ln": ("decoder.layer_norm", "decoder.final_norm", "decoder.output_norm"),
}


def _inverse(table: dict[str, tuple[str, ...]]) -> dict[str, str]:
    return {other: own for own, others in table.items() for other in (own, *others)}


_PART_OF: Final = _inverse(_PARTS)
_TOP_OF: Final = _inverse(_TOP)
_NAME: Final = re.compile(r"(?:model\.)?(enc|dec)(?:oder)?\.(.+)")
_BLOCK: Final = re.compile(r"(?:blocks|layers|blk)\.(0|[1-9]\d{0,3})\.(.+)\.(weight|bias)")

FILTERS: Final = ("mel_filters", "frontend.mel_filterbank", "whisper.mel_filters", "audio.mel_filters")
"""Tensors that hold the mel filters; the first one is our name."""
PROJECTIONS: Final = ("proj_out.weight", "lm_head.weight", "decoder.proj.weight", "output.weight")
"""Output projections: Whisper's is the token embedding once more."""
IGNORED: Final = frozenset({"frontend.window"})
HEAD_SIZE: Final = 64
"""Channels of one attention head in all published models."""
RESERVED: Final = frozenset({"architecture", "alignment", "file_type", "quantization_version", "type"})
"""Keys of `general` that tell of the file, not of the model."""


def own_key(key: str) -> str | None:
    """Return a key without its architecture ("whisper.", "stt.whisper.", ...); None where it is not Whisper's."""
    match = _KEY.fullmatch(key)
    return match[1] if match else None


def own_name(name: str) -> str | None:
    """Return whisper.cpp's name of a tensor, or None where it is no part of Whisper's network."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    side = "encoder" if match[1] == "enc" else "decoder"
    block = _BLOCK.fullmatch(match[2])
    if block is not None:
        part = _PART_OF.get(block[2])
        return f"{side}.blocks.{block[1]}.{part}.{block[3]}" if part else None
    stem, dot, kind = f"{side}.{match[2]}".rpartition(".")
    if kind not in ("weight", "bias"):
        stem, dot, kind = f"{side}.{match[2]}", "", ""
    own = _TOP_OF.get(stem)
    if own is None:
        return None
    return own if own.endswith("positional_embedding") else own + dot + kind
