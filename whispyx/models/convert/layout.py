"""Which CTranslate2 variable becomes which tensor of a legacy ggml file, and the settings that follow from shapes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from ..formats.manifest import Settings
from .ct2 import Ct2File

__all__ = ["TensorPlan", "all_tensors", "n_stored_tokens", "plan_tensors", "read_any_settings", "read_settings"]

Role = Literal["matrix", "conv", "plain"]

# CTranslate2 numbers its activations; both forms of GELU are what Whisper's graph computes.
_GELU: Final = (1, 3)
_EOT: Final = {51864: 50256, 51865: 50257, 51866: 50257}


@dataclass(frozen=True)
class TensorPlan:
    """One tensor to write: rows from `start` of `source`, under `name`, with `shape` (slowest axis first)."""

    name: str
    shape: tuple[int, ...]
    role: Role
    source: str
    source_shape: tuple[int, ...]
    start: int = 0

    @property
    def stop(self) -> int:
        return self.start + self.shape[0]


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
    """Derive the hyperparameters, and refuse what the ggml layout cannot express."""
    settings = read_any_settings(model)
    if settings.n_vocab not in _EOT:
        raise model.error(
            f"a vocabulary of {settings.n_vocab} tokens is not Whisper's (expected one of {sorted(_EOT)})"
        )
    return settings


def n_stored_tokens(settings: Settings) -> int:
    """Tokens that are text: all before the end-of-text token."""
    return _EOT[settings.n_vocab]


def read_any_settings(model: Ct2File) -> Settings:
    """Derive the hyperparameters from tensor shapes, whatever the number of tokens; refuse other networks."""
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


def _linear(ggml: str, ct2: str, rows: int, columns: int, *, part: int = 0, parts: int = 1) -> Iterator[TensorPlan]:
    """Weight and bias of a projection, which may be number `part` of `parts` stacked ones of the same size."""
    start, total = part * rows, parts * rows
    yield TensorPlan(f"{ggml}.weight", (rows, columns), "matrix", f"{ct2}/weight", (total, columns), start)
    yield TensorPlan(f"{ggml}.bias", (rows,), "plain", f"{ct2}/bias", (total,), start)


def _attention(ggml: str, ct2: str, width: int, *, cross: bool) -> Iterator[TensorPlan]:
    """Split the stacked projections. Self-attention stacks q, k, v; cross-attention has q alone, then k, v."""
    stacks = (("query",), ("key", "value"), ("out",)) if cross else (("query", "key", "value"), ("out",))
    for number, stack in enumerate(stacks):
        for part, name in enumerate(stack):
            plans = _linear(f"{ggml}.{name}", f"{ct2}/linear_{number}", width, width, part=part, parts=len(stack))
            # Whisper's keys have no bias (softmax would cancel it); CTranslate2 stores zeros for it.
            yield from (plan for plan in plans if plan.name != f"{ggml}.key.bias")


def _norm(ggml: str, ct2: str, width: int) -> Iterator[TensorPlan]:
    yield TensorPlan(f"{ggml}.weight", (width,), "plain", f"{ct2}/gamma", (width,))
    yield TensorPlan(f"{ggml}.bias", (width,), "plain", f"{ct2}/beta", (width,))


def _block(side: str, index: int, width: int) -> Iterator[TensorPlan]:
    ggml, ct2 = f"{side}.blocks.{index}", f"{side}/layer_{index}"
    yield from _norm(f"{ggml}.attn_ln", f"{ct2}/self_attention/layer_norm", width)
    yield from _attention(f"{ggml}.attn", f"{ct2}/self_attention", width, cross=False)
    if side == "decoder":
        yield from _norm(f"{ggml}.cross_attn_ln", f"{ct2}/attention/layer_norm", width)
        yield from _attention(f"{ggml}.cross_attn", f"{ct2}/attention", width, cross=True)
    yield from _norm(f"{ggml}.mlp_ln", f"{ct2}/ffn/layer_norm", width)
    yield from _linear(f"{ggml}.mlp.0", f"{ct2}/ffn/linear_0", 4 * width, width)
    yield from _linear(f"{ggml}.mlp.2", f"{ct2}/ffn/linear_1", width, 4 * width)


def _positions(side: str, n_ctx: int, width: int) -> TensorPlan:
    shape = (n_ctx, width)
    return TensorPlan(f"{side}.positional_embedding", shape, "plain", f"{side}/position_encodings/encodings", shape)


def all_tensors(settings: Settings) -> Iterator[TensorPlan]:
    """Yield every tensor of a model of these settings, in the order of whisper.cpp's files."""
    width = settings.n_audio_state
    yield _positions("encoder", settings.n_audio_ctx, width)
    for number, n_in in ((1, settings.n_mels), (2, width)):
        kernel, ct2 = (width, n_in, 3), f"encoder/conv{number}"
        yield TensorPlan(f"encoder.conv{number}.weight", kernel, "conv", f"{ct2}/weight", kernel)
        yield TensorPlan(f"encoder.conv{number}.bias", (width, 1), "plain", f"{ct2}/bias", (width,))
    for index in range(settings.n_audio_layer):
        yield from _block("encoder", index, width)
    yield from _norm("encoder.ln_post", "encoder/layer_norm", width)
    yield _positions("decoder", settings.n_text_ctx, width)
    shape = (settings.n_vocab, width)
    yield TensorPlan("decoder.token_embedding.weight", shape, "matrix", "decoder/embeddings/weight", shape)
    for index in range(settings.n_text_layer):
        yield from _block("decoder", index, width)
    yield from _norm("decoder.ln", "decoder/layer_norm", width)


def plan_tensors(model: Ct2File, settings: Settings) -> list[TensorPlan]:
    """List every tensor to write, in file order, after checking that each source has the shape it must have."""
    plans = list(all_tensors(settings))
    for plan in plans:
        found = model[plan.source].shape
        if found != plan.source_shape:
            raise model.error(f"{plan.source!r} should have the shape {plan.source_shape}, but has {found}")
    return plans
