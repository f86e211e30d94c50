"""How much of what the machine gives in this run is used: operations of the encoder, bytes of a token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.engines import OURS
from bench.machine import Machine
from whispyx._core.kernels import TYPES
from whispyx._core.packed import PLANS, logit_parts

BYTES = {"f32": 4.0, "bf16": 2.0, "q8": 1 + 2 / 32, "i8": 1.0, "n4": 1 / 2 + 2 / 32}
"""Of a number of the decoder; "q8" and "n4" have a scale of 16 bits per 32."""
BEHIND_TEXT = 1608
"""Tokens from the end of text on."""
MULTIPLIED = {"f32": "f32", "bf16": "bf16", "i8": "int8", "g8": "int8"}
"""Which of the machine's products the encoder's types go through."""


def plan(compute: str) -> dict[str, str] | None:
    """What types the parts of a model have at a precision of our kernels; None for any other."""
    found = PLANS.get(compute)
    return found and {role: TYPES[number] for role, number in found.items()}


def encoder_parts(h: Any) -> dict[str, float]:
    """Operations of one window, cross keys and values included, by what is multiplied."""
    t, d, mels, layers = h.n_audio_ctx, h.n_audio_state, h.n_mels, h.n_audio_layer
    square = 2.0 * t * d * d
    return {
        "conv": 12.0 * t * d * mels + 3 * square,
        "qkv": 3 * square * layers,
        "scores": 2.0 * t * t * d * layers,
        "values": 2.0 * t * t * d * layers,
        "out": square * layers,
        "up": 4 * square * layers,
        "down": 4 * square * layers,
        "cross_kv": 2 * square * h.n_text_layer,
    }


def encoder_ops(h: Any) -> float:
    """Operations of one window, cross keys and values included."""
    return sum(encoder_parts(h).values())


def encoder_peak(h: Any, compute: str, peaks: dict[str, float]) -> float | None:
    """Operations per second of a window whose every product runs at the peak of its type; None if one is not known."""
    seconds = 0.0
    for part, ops in encoder_parts(h).items():
        peak = peaks.get(_multiplied(part, plan(compute)))
        if not peak:
            return None
        seconds += ops / peak
    return encoder_ops(h) / seconds


def _multiplied(part: str, types: dict[str, str] | None) -> str:
    if types is None:  # ggml's operations multiply halves as floats
        return "f32"
    kind = types.get("scores" if part == "values" else part, types["encoder"])
    return MULTIPLIED[kind]


def token_bytes(h: Any, compute: str) -> float:
    """Bytes that one greedy token reads: weights, and keys and values of the window."""
    d, types = h.n_text_state, plan(compute)
    layers, keys = (BYTES[types[role]] if types else 2.0 for role in ("decoder", "cross"))
    logits = 2.0 * h.n_vocab
    if types:
        parts = logit_parts(PLANS[compute]["logits"], h.n_vocab, h.n_vocab - BEHIND_TEXT)
        logits = sum(BYTES[TYPES[kind]] * n for kind, n in parts)
    window = 2 * h.n_audio_ctx * d * h.n_text_layer
    return layers * 14 * d * d * h.n_text_layer + logits * d + keys * window


def lines(hparams: dict[str, Any], medians: Any, machine: Machine, compute: str) -> Iterator[str]:
    """One line a model."""
    for model, h in hparams.items():
        values = medians.get((OURS, model), {})
        parts = []
        if "encode_ms" in values:
            rate = encoder_ops(h) / values["encode_ms"] * 1e3
            peak = encoder_peak(h, compute, machine.peaks)
            share = f" of {peak / 1e9:.0f} ({100 * rate / peak:.0f} %)" if peak else ""
            parts.append(f"encoder {rate / 1e9:.0f} GFLOP/s{share}")
        if "token_ms" in values:
            rate = token_bytes(h, compute) / values["token_ms"] * 1e3 / 1e9
            gives = machine.read_gb_s
            share = f" of {gives:.0f} ({100 * rate / gives:.0f} %)" if gives else ""
            parts.append(f"token {rate:.1f} GB/s{share}")
        if parts:
            yield f"roofline, {model}, {compute}: {'; '.join(parts)}"
