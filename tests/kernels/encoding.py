"""An encoder of random weights: packed for a kernel library, and in float64 with NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.kernels.sets import BF16, F32, G8, I8, Library, aligned, ffi, pointer, rounded_bf16

Linear = tuple[np.ndarray, np.ndarray]
Norm = tuple[np.ndarray, np.ndarray]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def normalised(x: np.ndarray, norm: Norm) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5) * norm[0] + norm[1]


def linear(x: np.ndarray, wb: Linear) -> np.ndarray:
    return x @ wb[0].astype(np.float64).T + wb[1]


def attention(qkv: np.ndarray, n_head: int) -> np.ndarray:
    """Attention of every row to every row: (n, 3 n_state) to (n, n_state)."""
    q, k, v = (x.reshape(len(x), n_head, -1).transpose(1, 0, 2) for x in np.split(qkv, 3, axis=1))
    scores = q @ k.transpose(0, 2, 1)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return (weights @ v).transpose(1, 0, 2).reshape(len(qkv), -1)


class Encoder:
    """Sizes and weights; weights are what bf16 holds exactly, so that only what is computed from them is inexact.

    Parameters
    ----------
    sharpness : size of queries times keys: at 8 most of the weight of a softmax lies on a few positions.
    """

    def __init__(
        self, n_state: int, n_head: int, n_layer: int, *, n_mels: int = 80, sharpness: float = 2.0, seed: int = 0
    ) -> None:
        self.n_state, self.n_head, self.n_layer, self.n_mels = n_state, n_head, n_layer, n_mels
        self.rng = np.random.default_rng(seed + 1000 * n_state + n_head)
        self.conv1, self.conv2 = self._linear(n_state, 3 * n_mels), self._linear(n_state, 3 * n_state)
        self.positions = self._vector(1500 * n_state, 0.5).reshape(1500, n_state)
        self.layers: list[dict[str, Any]] = []
        for _ in range(n_layer):
            w, b = self._linear(3 * n_state, n_state)
            w[:n_state] = rounded_bf16(w[:n_state] * sharpness * (n_state // n_head) ** -0.5)
            b[n_state : 2 * n_state] = 0
            self.layers.append(
                {
                    "attn_ln": self._norm(),
                    "qkv": (w, b),
                    "out": self._linear(n_state, n_state),
                    "mlp_ln": self._norm(),
                    "up": self._linear(4 * n_state, n_state),
                    "down": self._linear(n_state, 4 * n_state),
                }
            )
        self.ln_post = self._norm()

    def _vector(self, n: int, size: float = 0.1) -> np.ndarray:
        return (size * self.rng.standard_normal(n)).astype(np.float32)

    def _linear(self, n_out: int, n_in: int) -> Linear:
        w = self.rng.standard_normal((n_out, n_in)).astype(np.float32) / np.float32(math.sqrt(n_in))
        return rounded_bf16(w), self._vector(n_out)

    def _norm(self) -> Norm:
        return 1 + self._vector(self.n_state), self._vector(self.n_state)

    def mel(self, n_ctx: int) -> np.ndarray:
        return np.random.default_rng(n_ctx).standard_normal((self.n_mels, 2 * n_ctx)).astype(np.float32)

    def run(self, mel: np.ndarray) -> np.ndarray:
        """Hidden states in float64, (n_ctx, n_state)."""

        def convolved(x: np.ndarray, wb: Linear, step: int) -> np.ndarray:
            padded = np.pad(x, ((1, 1), (0, 0)))
            rows = np.concatenate([padded[:-2], padded[1:-1], padded[2:]], axis=1)[::step]
            return gelu(linear(rows, wb))

        x = convolved(convolved(mel.T.astype(np.float64), self.conv1, 1), self.conv2, 2)
        x = x + self.positions[: len(x)]
        for layer in self.layers:
            x = x + linear(attention(linear(normalised(x, layer["attn_ln"]), layer["qkv"]), self.n_head), layer["out"])
            x = x + linear(gelu(linear(normalised(x, layer["mlp_ln"]), layer["up"])), layer["down"])
        return normalised(x, self.ln_post)


class Packed:
    """An encoder's weights in the form of one kernel library; convolutions are never of 8 bits.

    Scores are int8 beside int8 matrices, or as `scores` says; matrices named in `others` are of those types.
    """

    def __init__(self, encoder: Encoder, library: Library, kind: int, scores: int | None = None, **others: int) -> None:
        self.encoder, self.lib, self.kind = encoder, library, kind
        self.kept: list[Any] = []  # everything that the C structures point to
        e = encoder
        self.model = m = ffi.new("wx_model *")
        m.n_mels, m.n_audio_ctx, m.n_state, m.n_audio_head, m.n_audio_layer = (
            e.n_mels, 1500, e.n_state, e.n_head, e.n_layer
        )  # fmt: skip
        m.n_text_head = e.n_head
        m.score_type = kind if scores is None else scores
        conv_kind = BF16 if kind in (I8, G8) else kind
        self._linear(m.conv1, e.conv1, conv_kind)
        self._linear(m.conv2, e.conv2, conv_kind)
        m.e_pe = self._floats(e.positions)
        layers = ffi.new("wx_encoder_layer[]", max(1, e.n_layer))
        self.kept.append(layers)
        for to, layer in zip(layers, e.layers, strict=False):
            for name, value in layer.items():
                if name.endswith("_ln"):
                    self._norm(getattr(to, name), value)
                else:
                    self._linear(getattr(to, name), value, others.get(name, kind))
        m.encoder = layers
        self._norm(m.ln_post, e.ln_post)

    def _floats(self, array: np.ndarray) -> Any:
        array = np.ascontiguousarray(array, np.float32)
        self.kept.append(array)
        return pointer(array, "float *")

    def _norm(self, to: Any, value: Norm) -> None:
        to.w, to.b = self._floats(value[0]), self._floats(value[1])

    def _linear(self, to: Any, value: Linear, kind: int) -> None:
        packed = self.lib.pack(value[0], kind, F32)
        self.kept.append(packed)
        to.w, to.bias = packed.matrix[0], self._floats(value[1])

    def run(self, mel: np.ndarray, n_threads: int = 1) -> np.ndarray:
        """Hidden states of mel (n_mels, 2 n_ctx): float32 (n_ctx, n_state)."""
        table, n_ctx = self.lib.table, mel.shape[1] // 2
        mel = np.ascontiguousarray(mel, np.float32)
        memory = aligned(n_ctx * self.encoder.n_state * 4 + 64)
        scratch = aligned(table.encode_bytes(self.model, n_ctx, n_threads))
        job = ffi.new("wx_encode *")
        job.model, job.mel, job.n_ctx = self.model, pointer(mel, "float *"), n_ctx
        job.out, job.scratch = pointer(memory, "float *"), pointer(scratch)
        for stage in range(self.encoder.n_layer + 2):

            def call(sync: Any, ith: int, nth: int, stage: int = stage) -> None:
                job.sync = sync
                table.encode(job, stage, ith, nth)

            self.lib.together(n_threads, call)
        assert (memory[-64:] == 0xA5).all(), "written behind the hidden states"
        return memory[:-64].view(np.float32).reshape(n_ctx, -1)
