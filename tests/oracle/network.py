"""The network: conv front, encoder, cross keys and values, decoder with its key/value cache."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .reader import ModelFile

Array = npt.NDArray[Any]
LN_EPS = 1e-5


def layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + LN_EPS) * weight + bias


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x * x)))


def gelu_erf(x: Array) -> Array:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


@dataclass
class SelfCache:
    """Keys and values `(n_past, S)` of each decoder layer for the tokens seen so far."""

    k: list[Array] = field(default_factory=list)
    v: list[Array] = field(default_factory=list)

    def copy(self) -> SelfCache:
        return SelfCache(list(self.k), list(self.v))


@dataclass(frozen=True)
class Encoded:
    """What the encoder made of one window. Rows are positions of 20 ms."""

    conv: Array  # (n_ctx, S) before the positional embedding
    blocks: list[Array]  # (n_ctx, S) after each block
    output: Array  # (n_ctx, S) after the last layer norm
    cross_k: list[Array]  # (n_ctx, S) per decoder layer, scaled by d^-1/4
    cross_v: list[Array]  # (n_ctx, S) per decoder layer


class Whisper:
    """A model ready to run.

    Parameters
    ----------
    model : what `read_model` returned.
    dtype : number type of every step.
    gelu : "tanh" as ggml computes it, or "erf" as the paper's code does.
    zero_rows_to : attend over all-zero rows appended up to a multiple of this many, in the encoder and in
        cross-attention. whisper.cpp does so (256) with flash attention on; 0 is the right thing.
    """

    def __init__(
        self,
        model: ModelFile,
        dtype: Any = np.float64,
        gelu: Literal["tanh", "erf"] = "tanh",
        zero_rows_to: int = 0,
    ) -> None:
        self.model = model
        self.s = model.settings
        self.w = {name: t.astype(dtype) for name, t in model.tensors.items()}
        self.dtype = dtype
        self.gelu = gelu_tanh if gelu == "tanh" else gelu_erf
        self.zero_rows_to = zero_rows_to

    def linear(self, name: str, x: Array) -> Array:
        y = x @ self.w[name + ".weight"].T
        bias = self.w.get(name + ".bias")
        return y if bias is None else y + bias

    def norm(self, name: str, x: Array) -> Array:
        return layer_norm(x, self.w[name + ".weight"], self.w[name + ".bias"])

    def _conv(self, name: str, x: Array, stride: int) -> Array:
        """Convolve `(channels, time)` with a kernel of 3, one zero on either side, then bias and GELU."""
        weight, bias = self.w[name + ".weight"], self.w[name + ".bias"].reshape(-1, 1)
        padded = np.pad(x, ((0, 0), (1, 1)))
        taps = np.lib.stride_tricks.sliding_window_view(padded, 3, axis=1)[:, ::stride]  # (channels, time, 3)
        return self.gelu(np.einsum("ock,ctk->ot", weight, taps, optimize=True) + bias)

    def conv(self, window: Array) -> Array:
        """Turn mel `(n_mels, 2 * n_ctx)` into `(n_ctx, S)`."""
        x = self._conv("encoder.conv1", np.asarray(window, self.dtype), 1)
        return self._conv("encoder.conv2", x, 2).T

    def _attend(self, q: Array, k: Array, v: Array, n_head: int, mask: Array | None = None) -> Array:
        """Multi-head attention; scores are q k^T, already scaled by the caller."""
        heads_q, heads_k, heads_v = (a.reshape(len(a), n_head, -1).transpose(1, 0, 2) for a in (q, k, v))
        scores = heads_q @ heads_k.transpose(0, 2, 1)
        if mask is not None:
            scores = scores + mask
        return (softmax(scores) @ heads_v).transpose(1, 0, 2).reshape(q.shape)

    def _with_zero_rows(self, x: Array) -> Array:
        return np.pad(x, ((0, -len(x) % self.zero_rows_to), (0, 0))) if self.zero_rows_to else x

    def _mlp(self, p: str, x: Array) -> Array:
        h = self.gelu(self.linear(p + ".mlp.0", self.norm(p + ".mlp_ln", x)))
        return x + self.linear(p + ".mlp.2", h)

    def encode(self, window: Array) -> Encoded:
        """Run the encoder and the cross-attention projections on mel `(n_mels, 2 * n_ctx)`."""
        conv = self.conv(window)
        x = conv + self.w["encoder.positional_embedding"][: len(conv)]
        n_head = self.s["n_audio_head"]
        scale = (x.shape[1] / n_head) ** -0.5
        blocks = []
        for i in range(self.s["n_audio_layer"]):
            p = f"encoder.blocks.{i}"
            h = self.norm(p + ".attn_ln", x)
            q, k, v = (self.linear(f"{p}.attn.{part}", h) for part in ("query", "key", "value"))
            mixed = self._attend(q * scale, self._with_zero_rows(k), self._with_zero_rows(v), n_head)
            x = self._mlp(p, x + self.linear(p + ".attn.out", mixed))
            blocks.append(x)
        output = self.norm("encoder.ln_post", x)
        quarter = (x.shape[1] / self.s["n_text_head"]) ** -0.25
        layers = [f"decoder.blocks.{i}.cross_attn" for i in range(self.s["n_text_layer"])]
        cross_k = [self.linear(p + ".key", output) * quarter for p in layers]
        cross_v = [self.linear(p + ".value", output) for p in layers]
        return Encoded(conv, blocks, output, cross_k, cross_v)

    def decode(self, tokens: list[int], encoded: Encoded, cache: SelfCache, scores: list[Array] | None = None) -> Array:
        """Feed `tokens` after what `cache` holds; return logits `(len(tokens), n_vocab)` and extend the cache.

        `scores` receives the cross-attention of each layer before its softmax, `(n_head, len(tokens), n_ctx)`.
        """
        n_past = len(cache.k[0]) if cache.k else 0
        n_head = self.s["n_text_head"]
        embedding = self.w["decoder.token_embedding.weight"]
        x = embedding[tokens] + self.w["decoder.positional_embedding"][n_past : n_past + len(tokens)]
        quarter = (x.shape[1] / n_head) ** -0.25
        columns, rows = np.arange(n_past + len(tokens)), np.arange(len(tokens)) + n_past
        mask = np.where(columns[None, :] <= rows[:, None], 0.0, -np.inf).astype(self.dtype)
        for i in range(self.s["n_text_layer"]):
            p = f"decoder.blocks.{i}"
            h = self.norm(p + ".attn_ln", x)
            q, k, v = (self.linear(f"{p}.attn.{part}", h) for part in ("query", "key", "value"))
            k = k * quarter
            if n_past:
                k, v = np.concatenate([cache.k[i], k]), np.concatenate([cache.v[i], v])
                cache.k[i], cache.v[i] = k, v
            else:
                cache.k.append(k)
                cache.v.append(v)
            x = x + self.linear(p + ".attn.out", self._attend(q * quarter, k, v, n_head, mask))
            q = self.linear(p + ".cross_attn.query", self.norm(p + ".cross_attn_ln", x)) * quarter
            if scores is not None:
                heads_q, heads_k = (a.reshape(len(a), n_head, -1).transpose(1, 0, 2) for a in (q, encoded.cross_k[i]))
                scores.append(heads_q @ heads_k.transpose(0, 2, 1))
            seen_k, seen_v = self._with_zero_rows(encoded.cross_k[i]), self._with_zero_rows(encoded.cross_v[i])
            x = x + self.linear(p + ".cross_attn.out", self._attend(q, seen_k, seen_v, n_head))
            x = self._mlp(p, x)
        return self.norm("decoder.ln", x) @ embedding.T
