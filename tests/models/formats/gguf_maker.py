"""Builds GGUF files by hand, after the specification, and knows where each of their fields lies."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}
WIDTH, HEADS, N_AUDIO_CTX, N_TEXT_CTX, N_MELS = 64, 1, 6, 5, 80
TINY_VOCAB = 40
SPECIAL = {
    "eot": 20,
    "sot": 21,
    "translate": 24,
    "transcribe": 25,
    "solm": 26,
    "prev": 27,
    "nosp": 28,
    "not": 29,
    "beg": 30,
}


@dataclass(frozen=True)
class Field:
    """A number in the file that something follows from."""

    what: str
    offset: int
    size: int


@dataclass
class Gguf:
    """What goes into a file. Values are encoded already; tensors give dimensions fastest first, type and data."""

    keys: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    tensors: dict[str, tuple[tuple[int, ...], int, bytes]] = field(default_factory=dict)
    version: int = 3
    alignment: int = 32
    fields: list[Field] = field(default_factory=list)

    def encoded(self) -> bytes:
        out = bytearray(b"GGUF")

        def put(what: str, layout: str, value: int) -> None:
            self.fields.append(Field(what, len(out), struct.calcsize(layout)))
            out.extend(struct.pack(f"<{layout}", value))

        self.fields.clear()
        put("version", "I", self.version)
        put("number of tensors", "Q", len(self.tensors))
        put("number of keys", "Q", len(self.keys))
        for name, (kind, payload) in self.keys.items():
            put(f"length of key {name}", "Q", len(name.encode()))
            out.extend(name.encode())
            put(f"type of {name}", "I", kind)
            if kind == ARRAY:
                item, n = struct.unpack_from("<IQ", payload)
                put(f"item type of {name}", "I", item)
                put(f"items of {name}", "Q", n)
                out.extend(payload[12:])
            elif kind == STRING:
                put(f"length of {name}", "Q", len(payload) - 8)
                out.extend(payload[8:])
            else:
                self.fields.append(Field(f"value of {name}", len(out), len(payload)))
                out.extend(payload)
        offset = 0
        for name, (dims, kind, data) in self.tensors.items():
            put(f"length of the name of {name}", "Q", len(name.encode()))
            out.extend(name.encode())
            put(f"dimensions of {name}", "I", len(dims))
            for number, n in enumerate(dims):
                put(f"dimension {number} of {name}", "Q", n)
            put(f"type of {name}", "I", kind)
            put(f"offset of {name}", "Q", offset)
            offset += -(-len(data) // self.alignment) * self.alignment
        for _, _, data in self.tensors.values():
            out.extend(bytes(-len(out) % self.alignment))
            out.extend(data)
        return bytes(out)


def string(value: str | bytes) -> tuple[int, bytes]:
    raw = value.encode() if isinstance(value, str) else value
    return STRING, struct.pack("<Q", len(raw)) + raw


def number(kind: int, value: float) -> tuple[int, bytes]:
    return kind, struct.pack(f"<{CODES[kind]}", value)


def u32(value: int) -> tuple[int, bytes]:
    return number(U32, value)


def numbers(kind: int, values: Sequence[float]) -> tuple[int, bytes]:
    return ARRAY, struct.pack(f"<IQ{len(values)}{CODES[kind]}", kind, len(values), *values)


def strings(values: Iterable[str | bytes]) -> tuple[int, bytes]:
    parts = [string(value)[1] for value in values]
    return ARRAY, struct.pack("<IQ", STRING, len(parts)) + b"".join(parts)


def tensor_shapes(n_vocab: int, n_audio_layer: int = 1, n_text_layer: int = 1) -> dict[str, tuple[int, ...]]:
    """Dimensions of every tensor, fastest first, as the fact sheet of whisper.cpp's files lists them."""
    s = WIDTH
    shapes: dict[str, tuple[int, ...]] = {
        "encoder.positional_embedding": (s, N_AUDIO_CTX),
        "encoder.conv1.weight": (3, N_MELS, s),
        "encoder.conv1.bias": (1, s),
        "encoder.conv2.weight": (3, s, s),
        "encoder.conv2.bias": (1, s),
        "encoder.ln_post.weight": (s,),
        "encoder.ln_post.bias": (s,),
        "decoder.positional_embedding": (s, N_TEXT_CTX),
        "decoder.token_embedding.weight": (s, n_vocab),
        "decoder.ln.weight": (s,),
        "decoder.ln.bias": (s,),
    }
    for side, n_layer in (("encoder", n_audio_layer), ("decoder", n_text_layer)):
        for i in range(n_layer):
            block = f"{side}.blocks.{i}"
            for attention in ("attn", "cross_attn")[: 2 if side == "decoder" else 1]:
                for part in ("weight", "bias"):
                    shapes[f"{block}.{attention}_ln.{part}"] = (s,)
                for part in ("query", "key", "value", "out"):
                    shapes[f"{block}.{attention}.{part}.weight"] = (s, s)
                    if part != "key":
                        shapes[f"{block}.{attention}.{part}.bias"] = (s,)
            for part in ("weight", "bias"):
                shapes[f"{block}.mlp_ln.{part}"] = (s,)
            shapes[f"{block}.mlp.0.weight"], shapes[f"{block}.mlp.0.bias"] = (s, 4 * s), (4 * s,)
            shapes[f"{block}.mlp.2.weight"], shapes[f"{block}.mlp.2.bias"] = (4 * s, s), (s,)
    return shapes


def data_of(name: str, dims: tuple[int, ...], kind: int) -> bytes:
    """Bytes that differ from tensor to tensor, of type f32 (0), f16 (1) or q8_0 (8)."""
    n = 1
    for dim in dims:
        n *= dim
    size = {0: 4 * n, 1: 2 * n, 8: n // 32 * 34}[kind]
    pattern = name.encode() + bytes(range(256))
    return (pattern * (size // len(pattern) + 1))[:size]


def setting_keys(n_vocab: int) -> dict[str, tuple[int, bytes]]:
    return {
        "whisper.vocab_size": u32(n_vocab),
        "whisper.encoder.context_length": u32(N_AUDIO_CTX),
        "whisper.encoder.embedding_length": u32(WIDTH),
        "whisper.encoder.attention.head_count": u32(HEADS),
        "whisper.encoder.block_count": u32(1),
        "whisper.decoder.context_length": u32(N_TEXT_CTX),
        "whisper.decoder.embedding_length": u32(WIDTH),
        "whisper.decoder.attention.head_count": u32(HEADS),
        "whisper.decoder.block_count": u32(1),
        "whisper.encoder.mels_count": u32(N_MELS),
    }


def tiny(*, matrices: int = 1) -> Gguf:
    """A model in our layout with a vocabulary of 40 tokens, its special ids in keys."""
    keys = {"general.architecture": string("whisper"), "general.name": string("a tiny one"), **setting_keys(TINY_VOCAB)}
    keys |= {f"whisper.token.{name}": u32(value) for name, value in SPECIAL.items()}
    keys["whisper.languages"] = strings(["en", "de"])
    keys["whisper.alignment_heads"] = numbers(I32, [0, 0])
    keys["whisper.suppress_tokens"] = numbers(I32, [1, 2, 7])
    keys["whisper.token_count"] = u32(20)
    keys["tokenizer.ggml.tokens"] = strings([f"Ġ{number}" for number in range(20)])
    tensors = {}
    for name, dims in tensor_shapes(TINY_VOCAB).items():
        kind = matrices if len(dims) == 2 and dims[0] != 1 and "positional" not in name else 0
        tensors[name] = (dims, kind, data_of(name, dims, kind))
    return Gguf(keys, tensors)
