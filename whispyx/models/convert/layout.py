"""Which CTranslate2 variable becomes which tensor of a legacy ggml file, and the settings that follow from shapes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Final, Literal

from .ct2 import Ct2File

__all__ = ["Settings", "TensorPlan", "plan_tensors", "read_settings"]

Role = Literal["matrix", "conv", "plain"]

# CTranslate2 numbers its activations; both forms of GELU are what Whisper's graph computes.
_GELU: Final = (1, 3)
_EOT: Final = {51864: 50256, 51865: 50257, 51866: 50257}


@dataclass(frozen=True)
class Settings:
    """The hyperparameters in the order in which the file header has them (without the file type)."""

    n_vocab: int
    n_audio_ctx: int
    n_audio_state: int
    n_audio_head: int
    n_audio_layer: int
    n_text_ctx: int
    n_text_state: int
    n_text_head: int
    n_text_layer: int
    n_mels: int

    def header(self) -> tuple[int, ...]:
        return astuple(self)

    @property
    def n_stored_tokens(self) -> int:
        """Tokens that are text: all before the end-of-text token."""
        return _EOT[self.n_vocab]


@dataclass(frozen=True)
class TensorPlan:
    """One tensor to write: rows [start, stop) of `source`, under `name`, with `shape` (slowest axis first)."""

    name: str
    shape: tuple[int, ...]
    role: Role
    source: str
    start: int
    stop: int


def _count_layers(model: Ct2File, side: str) -> int:
    pattern = re.compile(rf"{side}/layer_(\d+)/")
    numbers = {int(match[1]) for name in model.variables if (match := pattern.match(name))}
    if numbers != set(range(len(numbers))):
        raise model.error(f"the {side} layers are not numbered without gaps: {sorted(numbers)}")
    if not numbers:
        raise model.error(f"there is no {side} layer")
    return len(numbers)


def _shape(model: Ct2File, name: str, rank: int) -> tuple[int, ...]:
    shape = model[name].shape
    if len(shape) != rank or 0 in shape:
        raise model.error(f"{name!r} should have {rank} dimensions, none empty, but its shape is {shape}")
    return shape


def read_settings(model: Ct2File) -> Settings:
    """Derive the hyperparameters from tensor shapes, and refuse what the ggml layout cannot express."""
    n_vocab, n_text_state = _shape(model, "decoder/embeddings/weight", 2)
    n_audio_ctx, n_audio_state = _shape(model, "encoder/position_encodings/encodings", 2)
    n_text_ctx, _ = _shape(model, "decoder/position_encodings/encodings", 2)
    _, n_mels, _ = _shape(model, "encoder/conv1/weight", 3)
    settings = Settings(
        n_vocab=n_vocab,
        n_audio_ctx=n_audio_ctx,
        n_audio_state=n_audio_state,
        n_audio_head=model.scalar("encoder/num_heads"),
        n_audio_layer=_count_layers(model, "encoder"),
        n_text_ctx=n_text_ctx,
        n_text_state=n_text_state,
        n_text_head=model.scalar("decoder/num_heads"),
        n_text_layer=_count_layers(model, "decoder"),
        n_mels=n_mels,
    )
    if n_vocab not in _EOT:
        raise model.error(f"a vocabulary of {n_vocab} tokens is not Whisper's (expected one of {sorted(_EOT)})")
    if n_mels not in (80, 128):
        raise model.error(f"{n_mels} mel bands are not Whisper's (expected 80 or 128)")
    if n_audio_state != n_text_state:
        raise model.error(f"encoder and decoder differ in width ({n_audio_state} and {n_text_state})")
    for side, n_head in (("encoder", settings.n_audio_head), ("decoder", settings.n_text_head)):
        if n_head < 1 or n_audio_state % n_head:
            raise model.error(f"the {side} has {n_head} heads, which do not divide its width {n_audio_state}")
    for name, allowed in (
        ("decoder/pre_norm", (1,)),
        ("decoder/activation", _GELU),
        ("encoder/activation", _GELU),
        ("decoder/alibi", (0,)),
        ("decoder/scale_embeddings", (0,)),
        ("decoder/start_from_zero_embedding", (0,)),
    ):
        if name in model and model.scalar(name) not in allowed:
            raise model.error(f"{name} = {model.scalar(name)} is not how Whisper computes (expected {allowed[0]})")
    return settings


def _attention(
    ggml: str, ct2: str, width: int, *, cross: bool
) -> Iterator[tuple[str, tuple[int, ...], Role, str, tuple[int, int]]]:
    """Split the stacked projections. Self-attention stacks q, k, v; cross-attention has q alone, then k, v."""
    parts = ("query", "key", "value")
    for index, part in enumerate(parts):
        layer, row = (0, index) if not cross else ((0, 0) if part == "query" else (1, index - 1))
        rows = (row * width, (row + 1) * width)
        yield f"{ggml}.{part}.weight", (width, width), "matrix", f"{ct2}/linear_{layer}/weight", rows
        if part != "key":  # Whisper's keys have no bias; CTranslate2 stores zeros for it
            yield f"{ggml}.{part}.bias", (width,), "plain", f"{ct2}/linear_{layer}/bias", rows
    last = 2 if cross else 1
    yield f"{ggml}.out.weight", (width, width), "matrix", f"{ct2}/linear_{last}/weight", (0, width)
    yield f"{ggml}.out.bias", (width,), "plain", f"{ct2}/linear_{last}/bias", (0, width)


def _norm(ggml: str, ct2: str, width: int) -> Iterator[tuple[str, tuple[int, ...], Role, str, tuple[int, int]]]:
    yield f"{ggml}.weight", (width,), "plain", f"{ct2}/gamma", (0, width)
    yield f"{ggml}.bias", (width,), "plain", f"{ct2}/beta", (0, width)


def _block(
    side: str, index: int, width: int
) -> Iterator[tuple[str, tuple[int, ...], Role, str, tuple[int, int]]]:
    ggml, ct2 = f"{side}.blocks.{index}", f"{side}/layer_{index}"
    yield from _norm(f"{ggml}.attn_ln", f"{ct2}/self_attention/layer_norm", width)
    yield from _attention(f"{ggml}.attn", f"{ct2}/self_attention", width, cross=False)
    if side == "decoder":
        yield from _norm(f"{ggml}.cross_attn_ln", f"{ct2}/attention/layer_norm", width)
        yield from _attention(f"{ggml}.cross_attn", f"{ct2}/attention", width, cross=True)
    yield from _norm(f"{ggml}.mlp_ln", f"{ct2}/ffn/layer_norm", width)
    for number, (rows, columns) in ((0, (4 * width, width)), (2, (width, 4 * width))):
        linear = f"{ct2}/ffn/linear_{number // 2}"
        yield f"{ggml}.mlp.{number}.weight", (rows, columns), "matrix", f"{linear}/weight", (0, rows)
        yield f"{ggml}.mlp.{number}.bias", (rows,), "plain", f"{linear}/bias", (0, rows)


def _all_tensors(s: Settings) -> Iterator[tuple[str, tuple[int, ...], Role, str, tuple[int, int]]]:
    width = s.n_audio_state
    position = "position_encodings/encodings"
    yield "encoder.positional_embedding", (s.n_audio_ctx, width), "plain", f"encoder/{position}", (0, s.n_audio_ctx)
    for number, n_in in ((1, s.n_mels), (2, width)):
        conv = f"encoder/conv{number}"
        yield f"encoder.conv{number}.weight", (width, n_in, 3), "conv", f"{conv}/weight", (0, width)
        yield f"encoder.conv{number}.bias", (width, 1), "plain", f"{conv}/bias", (0, width)
    for index in range(s.n_audio_layer):
        yield from _block("encoder", index, width)
    yield from _norm("encoder.ln_post", "encoder/layer_norm", width)
    yield "decoder.positional_embedding", (s.n_text_ctx, width), "plain", f"decoder/{position}", (0, s.n_text_ctx)
    embedding = "decoder/embeddings/weight"
    yield "decoder.token_embedding.weight", (s.n_vocab, width), "matrix", embedding, (0, s.n_vocab)
    for index in range(s.n_text_layer):
        yield from _block("decoder", index, width)
    yield from _norm("decoder.ln", "decoder/layer_norm", width)


def _expected_source_shape(plan: TensorPlan, cross: bool) -> tuple[int, ...]:
    rows = plan.shape[0]
    if plan.source.endswith("self_attention/linear_0/weight") or plan.source.endswith("self_attention/linear_0/bias"):
        rows *= 3
    elif cross and "/linear_1/" in plan.source:
        rows *= 2
    return (rows, *(plan.shape[1:] if plan.role != "plain" or plan.name.endswith("embedding") else ()))


def plan_tensors(model: Ct2File, settings: Settings) -> list[TensorPlan]:
    """List every tensor to write, in file order, after checking that each source has the shape it must have."""
    plans = []
    for name, shape, role, source, (start, stop) in _all_tensors(settings):
        plan = TensorPlan(name, shape, role, source, start, stop)
        expected = _expected_source_shape(plan, ".cross_attn." in name)
        if model[source].shape != expected:
            raise model.error(f"{source!r} should have the shape {expected}, but has {model[source].shape}")
        plans.append(plan)
    return plans
