"""How much memory a model will take, from its sizes and the types of its tensors: nothing is loaded to find out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from whispyx._core.description import tensor_bytes
from whispyx._core.kernels import TYPES as KINDS
from whispyx._core.kvcache import pad256
from whispyx._core.packed import PLANS, logit_parts

from .types import TYPES

if TYPE_CHECKING:
    from whispyx._core.weightfile import WeightFile

__all__ = ["MemoryNeed", "memory_needs"]

_PANEL: Final = 64  # outputs that the kernels' panels have; the last is filled up
_BLOCK: Final = 32  # inputs that share a scale in "q8" and "n4"
_BLOCK_BYTES: Final = {"q8": _BLOCK + 2, "n4": _BLOCK // 2 + 2}
_ROW_EXTRA: Final = 8  # scale and sum of a row of "i8", or of a group of "g8"
_GROUP: Final = 64  # inputs that share a scale in "g8"
_ARENA: Final = 1 << 20  # vectors are placed in blocks of so many bytes
_EMBEDDING: Final = "decoder.token_embedding.weight"

_PLAIN: Final = {"f32": 4, "bf16": 2, "i8": 1}  # bytes of a number, without what rows and groups share
# Working memory, in windows of the encoder's output (n_audio_ctx x n_audio_state numbers of four bytes): measured with
# tiny and base, where it is 15.7 to 16.1, 6.2, 4.6 to 4.7, and 4.3 to 4.4.
_WINDOWS: Final = {"exact": 16.0, "f32": 6.2, "bf16": 4.7, "mixed": 4.4, "int8": 4.4}


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes of memory at one precision, on a CPU; estimates.

    Attributes
    ----------
    weights : int
        Of the model, once. "exact": as its tensors are in the file, or become where ggml cannot compute with their
        type. Others: as the kernels pack them.
    caches : int
        Of each job: keys and values of the text so far (one decoder) and of a window of sound.
    working : int
        Of each job: what encoder and decoder compute with, proportional to the encoder's output as was measured.
    """

    weights: int
    caches: int
    working: int

    @property
    def state(self) -> int:
        """Of each job."""
        return self.caches + self.working

    @property
    def total(self) -> int:
        """Of a model with one job."""
        return self.weights + self.state


def memory_needs(weights: WeightFile) -> dict[str, MemoryNeed]:
    """Return what a model needs at each precision: "exact", "f32", "bf16", "mixed", "int8"."""
    hp = weights.hparams
    window = 4 * hp.n_audio_ctx * hp.n_audio_state
    row = 2 * hp.n_text_state * hp.n_text_layer  # keys and values of one position, in numbers
    text = 2 * row * pad256(hp.n_text_ctx)
    found = {
        "exact": MemoryNeed(
            sum(_placed_bytes(weights, name) for name in weights.names()),
            text + 2 * row * pad256(hp.n_audio_ctx),
            round(_WINDOWS["exact"] * window),
        )
    }
    spectrogram = 4 * hp.n_mels * 2 * hp.n_audio_ctx
    for compute, numbers in PLANS.items():
        plan = {role: KINDS[number] for role, number in numbers.items()}
        found[compute] = MemoryNeed(
            _packed_bytes(weights, plan, compute),
            text + _PLAIN[plan["cross"]] * row * hp.n_audio_ctx,
            round(_WINDOWS[compute] * window) + window + spectrogram,
        )
    return found


def _placed_bytes(weights: WeightFile, name: str) -> int:
    found = tensor_bytes(weights.type_of(name), weights.shape_of(name)[::-1])
    assert found is not None  # the file was checked when it was opened
    return found


def _packed_bytes(weights: WeightFile, plan: dict[str, str], compute: str) -> int:
    hp, s = weights.hparams, weights.hparams.n_text_state
    encoder, decoder = plan["encoder"], plan["decoder"]
    total = _matrix(plan["conv"], s, 3 * hp.n_mels) + _matrix(plan["conv"], s, 3 * s)
    total += hp.n_audio_layer * _layer(encoder, s, plan)
    total += _matrix(plan.get("cross_kv", encoder), 2 * s * hp.n_text_layer, s)  # of the sound, for all layers
    total += hp.n_text_layer * (_layer(decoder, s, {}) + 2 * _matrix(decoder, s, s))
    logits = logit_parts(PLANS[compute]["logits"], hp.n_vocab, weights.vocab.eot)
    total += sum(_matrix(KINDS[kind], n, s) for kind, n in logits) + _embedding_bytes(weights, compute)
    vectors = s * (len(logits) > 1)  # what rare tokens lie around
    vectors += sum(
        math.prod(shape)
        for name in weights.names()
        if len(shape := weights.shape_of(name)) < 2 or name.endswith((".bias", "positional_embedding"))
    )
    return total + -(-4 * vectors // _ARENA) * _ARENA


def _layer(kind: str, s: int, others: dict[str, str]) -> int:
    """Queries, keys and values together, the output, and the two wide matrices of one layer."""
    shapes = {"qkv": (3 * s, s), "out": (s, s), "up": (4 * s, s), "down": (s, 4 * s)}
    return sum(_matrix(others.get(name, kind), *shape) for name, shape in shapes.items())


def _matrix(kind: str, n_out: int, n_in: int) -> int:
    rows = -(-n_out // _PANEL) * _PANEL
    if kind in _BLOCK_BYTES:
        return rows * (-(-n_in // _BLOCK) * _BLOCK_BYTES[kind])
    if kind == "i8":
        return rows * (-(-n_in // 4) * 4 + _ROW_EXTRA)
    if kind == "g8":
        return rows * (-(-n_in // 4) * 4 + -(-n_in // _GROUP) * _ROW_EXTRA)
    return rows * n_in * _PLAIN[kind]


def _embedding_bytes(weights: WeightFile, compute: str) -> int:
    """The table that tokens are looked up in: 16 bits, or what exactness needs."""
    kind = weights.type_of(_EMBEDDING)
    short = kind in (TYPES["f16"], TYPES["bf16"]) or compute != "f32"
    return math.prod(weights.shape_of(_EMBEDDING)) * (2 if short else 4)
