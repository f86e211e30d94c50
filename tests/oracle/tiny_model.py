"""Writes small models with random weights in the legacy ggml layout.

They know no language, but they run through every step of a real model, with the real number of token ids. Weights
are scaled so that the network neither dies out nor saturates; the end-of-text token is made likely from a chosen
position on, so that a window ends.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .mel import slaney_filters
from .quants import ENCODINGS, decode, encode, random_blocks
from .reader import MAGIC
from .tokens import Special

Array = npt.NDArray[Any]
LOGIT_SPREAD = 2.5  # standard deviation of the logits: words and timestamps both get their turn
QUANT_VERSION = 2


@dataclass(frozen=True)
class TinyModel:
    """The shape of a random model, its weight type (a name in `quants.ENCODINGS`) and its seed."""

    n_vocab: int = 51864
    n_audio_ctx: int = 100
    n_state: int = 64
    n_head: int = 2
    n_audio_layer: int = 2
    n_text_ctx: int = 448
    n_text_layer: int = 3
    n_mels: int = 80
    weight_type: str = "f16"
    seed: int = 1
    end_after: int = 24  # position in the text from which the end-of-text token becomes likely

    def write(self, path: str | Path) -> Path:
        """Write the model and return its path."""
        with open(path, "wb") as out:
            for part in self.parts():
                out.write(part)
        return Path(path)

    def to_bytes(self) -> bytes:
        return b"".join(self.parts())

    @property
    def file_type(self) -> int:
        encoding = ENCODINGS[self.weight_type]
        return encoding.file_type + (1000 * QUANT_VERSION if encoding.block > 1 else 0)

    def parts(self) -> Iterator[bytes]:
        """The file, piece by piece: head, vocabulary, one tensor record at a time."""
        s = self.n_state
        head = (self.n_vocab, self.n_audio_ctx, s, self.n_head, self.n_audio_layer)
        text = (self.n_text_ctx, s, self.n_head, self.n_text_layer, self.n_mels, self.file_type)
        yield struct.pack("<I11i", MAGIC, *head, *text)
        filters = slaney_filters(self.n_mels)
        yield struct.pack("<2i", *filters.shape) + filters.astype("<f4").tobytes()
        tokens = vocabulary(self.n_vocab)
        yield struct.pack("<i", len(tokens)) + b"".join(struct.pack("<I", len(t)) + t for t in tokens)
        rng = np.random.default_rng(self.seed)
        embedding = self.encoded(rng.normal(0, LOGIT_SPREAD * s**-0.5, (self.n_vocab, s)), self.weight_type, rng)
        ending = decode(ENCODINGS[self.weight_type], embedding).reshape(-1, s)[Special.of(self.n_vocab).eot]
        for name, weights, kind in self.tensors(rng, ending):
            yield record(name, weights.shape, kind) + self.encoded(weights, kind, rng)
        yield record("decoder.token_embedding.weight", (self.n_vocab, s), self.weight_type) + embedding

    @staticmethod
    def encoded(weights: Array, kind: str, rng: np.random.Generator) -> bytes:
        """The bytes of a tensor. The K types are random bits of the same spread: we have no encoder for them."""
        if ENCODINGS[kind].block == 256:
            return random_blocks(kind, weights.size, float(weights.std()), rng)
        return encode(kind, weights)

    def tensors(self, rng: np.random.Generator, ending: Array) -> Iterator[tuple[str, Array, str]]:
        """Name, weights (slowest axis first) and encoding of every tensor but the token embedding.

        `ending` is the embedding of the end-of-text token; late positions point its way.
        """
        s, w = self.n_state, self.weight_type
        conv_type = "f32" if w == "f32" else "f16"

        def normal(*shape: int, std: float = 1.0, mean: float = 0.0) -> Array:
            return rng.normal(mean, std, shape).astype(np.float32)

        def norm(name: str) -> Iterator[tuple[str, Array, str]]:
            yield f"{name}.weight", normal(s, std=0.1, mean=1.0), "f32"
            yield f"{name}.bias", normal(s, std=0.1), "f32"

        def linear(name: str, n_out: int, n_in: int, gain: float = 1.0, bias: bool = True) -> Any:
            yield f"{name}.weight", normal(n_out, n_in, std=gain * n_in**-0.5), w
            if bias:
                yield f"{name}.bias", normal(n_out, std=0.1), "f32"

        def attention(name: str, gain: float) -> Iterator[tuple[str, Array, str]]:
            yield from linear(f"{name}.query", s, s, gain)
            yield from linear(f"{name}.key", s, s, gain, bias=False)
            yield from linear(f"{name}.value", s, s)
            yield from linear(f"{name}.out", s, s)

        def block(name: str, cross: bool) -> Iterator[tuple[str, Array, str]]:
            yield from norm(f"{name}.attn_ln")
            yield from attention(f"{name}.attn", 1.5)
            if cross:
                yield from norm(f"{name}.cross_attn_ln")
                yield from attention(f"{name}.cross_attn", 2.0)  # sharp: what is heard must change what is said
            yield from norm(f"{name}.mlp_ln")
            yield from linear(f"{name}.mlp.0", 4 * s, s)
            yield from linear(f"{name}.mlp.2", s, 4 * s)

        yield "encoder.positional_embedding", normal(self.n_audio_ctx, s, std=0.5), "f32"
        yield "encoder.conv1.weight", normal(s, self.n_mels, 3, std=2 * (3 * self.n_mels) ** -0.5), conv_type
        yield "encoder.conv1.bias", normal(s, 1, std=0.1), "f32"
        yield "encoder.conv2.weight", normal(s, s, 3, std=2 * (3 * s) ** -0.5), conv_type
        yield "encoder.conv2.bias", normal(s, 1, std=0.1), "f32"
        for i in range(self.n_audio_layer):
            yield from block(f"encoder.blocks.{i}", cross=False)
        yield from norm("encoder.ln_post")

        positions = normal(self.n_text_ctx, s, std=0.5)
        positions[self.end_after :] += 4 * s**0.5 * ending / np.linalg.norm(ending)
        yield "decoder.positional_embedding", positions, "f32"
        for i in range(self.n_text_layer):
            yield from block(f"decoder.blocks.{i}", cross=True)
        yield from norm("decoder.ln")


def record(name: str, shape: tuple[int, ...], kind: str) -> bytes:
    """The head of a tensor record; sizes go from the fastest axis to the slowest."""
    head = struct.pack("<3i", len(shape), len(name), ENCODINGS[kind].tensor_type)
    return head + struct.pack(f"<{len(shape)}i", *shape[::-1]) + name.encode()


def vocabulary(n_vocab: int) -> list[bytes]:
    """Stored tokens: the 256 bytes, then made-up words, each with a space in front or not, all different."""
    special = Special.of(n_vocab)
    n_words = special.eot - 256
    consonants, vowels = b"bdfghklmnprstvz", b"aeiou"
    out = [bytes([b]) for b in range(256)]
    for i in range(n_words):
        n, word = i // 2, b""
        while n or not word:
            n, c = divmod(n, len(consonants))
            n, v = divmod(n, len(vowels))
            word += bytes([consonants[c], vowels[v]])
        out.append((b" " if i % 2 == 0 else b"") + word)
    return out


def speechlike(seconds: float, seed: int = 0) -> npt.NDArray[np.float32]:
    """Sound with pitch, loudness changes and pauses: enough for the spectrogram to differ from window to window."""
    rng = np.random.default_rng(seed)
    n = int(seconds * 16000)
    t = np.arange(n) / 16000
    pitch = 120 + 40 * np.sin(2 * np.pi * 0.7 * t) + 15 * np.sin(2 * np.pi * 2.3 * t)
    phase = 2 * np.pi * np.cumsum(pitch) / 16000
    voice = sum(np.sin(k * phase) / k for k in range(1, 12))
    loud = np.clip(np.sin(2 * np.pi * 1.9 * t) + 0.4 * np.sin(2 * np.pi * 0.31 * t), 0, None)
    return (0.2 * loud * voice + 0.003 * rng.standard_normal(n)).astype(np.float32)
