"""Writes Hugging Face Whisper folders of tiny size, and reads tensors back through a manifest."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from whispyx.models.formats.manifest import GGML_TYPES, Manifest

WIDTH, HEADS, N_MELS, N_AUDIO_CTX, N_TEXT_CTX = 8, 2, 80, 12, 16
LANGUAGES = ("en", "zh", "de")
Array = npt.NDArray[Any]
Stored = tuple[str, Array]
"""A safetensors type and an array with its bits; BF16 is uint16."""

DTYPES = {"F32": "float32", "F16": "float16", "F64": "float64", "I8": "int8", "U8": "uint8", "I64": "int64"}


def byte_letters() -> list[str]:
    """The letter for each byte: those that print stand for themselves, the others are U+0100, U+0101, … in order."""
    letters, n_other = [], 0
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174:
            letters.append(chr(byte))
        else:
            letters.append(chr(256 + n_other))
            n_other += 1
    return letters


def special_tokens(languages: tuple[str, ...] = LANGUAGES) -> list[str]:
    """From the end of the text on, in Whisper's order."""
    names = ["endoftext", "startoftranscript", *languages, "translate", "transcribe", "startoflm", "startofprev"]
    names += ["nospeech", "notimestamps", *(f"{i * 0.02:.2f}" for i in range(1501))]
    return [f"<|{name}|>" for name in names]


N_VOCAB = 256 + len(special_tokens())


def stored(values: Array, dtype: str) -> Stored:
    """Values as a safetensors type; BF16 cuts the lower half of the bits off."""
    if dtype == "BF16":
        return dtype, (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return dtype, values.astype(DTYPES[dtype])


def as_float(tensor: Stored) -> Array:
    dtype, array = tensor
    if dtype == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


def names_of(n_audio_layer: int, n_text_layer: int) -> dict[str, str]:
    """Hugging Face's names by whisper.cpp's, written out from both projects' modules."""
    names = {
        "encoder.conv1.weight": "encoder.conv1.weight",
        "encoder.conv1.bias": "encoder.conv1.bias",
        "encoder.conv2.weight": "encoder.conv2.weight",
        "encoder.conv2.bias": "encoder.conv2.bias",
        "encoder.positional_embedding": "encoder.embed_positions.weight",
        "encoder.ln_post.weight": "encoder.layer_norm.weight",
        "encoder.ln_post.bias": "encoder.layer_norm.bias",
        "decoder.positional_embedding": "decoder.embed_positions.weight",
        "decoder.token_embedding.weight": "decoder.embed_tokens.weight",
        "decoder.ln.weight": "decoder.layer_norm.weight",
        "decoder.ln.bias": "decoder.layer_norm.bias",
    }
    for side, n_layer in (("encoder", n_audio_layer), ("decoder", n_text_layer)):
        for i in range(n_layer):
            ours, theirs = f"{side}.blocks.{i}", f"{side}.layers.{i}"
            modules = {"mlp.0": "fc1", "mlp.2": "fc2", "mlp_ln": "final_layer_norm", "attn_ln": "self_attn_layer_norm"}
            attentions = {"attn": "self_attn"}
            if side == "decoder":
                modules["cross_attn_ln"] = "encoder_attn_layer_norm"
                attentions["cross_attn"] = "encoder_attn"
            for mine, their in attentions.items():
                modules |= {f"{mine}.query": f"{their}.q_proj", f"{mine}.value": f"{their}.v_proj"}
                modules |= {f"{mine}.out": f"{their}.out_proj"}
                names[f"{ours}.{mine}.key.weight"] = f"{theirs}.{their}.k_proj.weight"
            for mine, their in modules.items():
                for part in ("weight", "bias"):
                    names[f"{ours}.{mine}.{part}"] = f"{theirs}.{their}.{part}"
    return names


def shape_of(name: str, n_vocab: int = N_VOCAB) -> tuple[int, ...]:
    """Shape of a tensor in Hugging Face's layout, by whisper.cpp's name."""
    w = WIDTH
    whole = {
        "encoder.conv1.weight": (w, N_MELS, 3),
        "encoder.conv2.weight": (w, w, 3),
        "encoder.positional_embedding": (N_AUDIO_CTX, w),
        "decoder.positional_embedding": (N_TEXT_CTX, w),
        "decoder.token_embedding.weight": (n_vocab, w),
    }
    if name in whole:
        return whole[name]
    if ".mlp.0." in name:
        return (4 * w, w) if name.endswith("weight") else (4 * w,)
    if ".mlp.2.weight" in name:
        return (w, 4 * w)
    return (w, w) if "attn." in name and name.endswith("weight") else (w,)


def random_tensors(
    dtype: str = "F16", *, n_vocab: int = N_VOCAB, layers: tuple[int, int] = (2, 1), prefix: str = "model."
) -> dict[str, Stored]:
    rng = np.random.default_rng(11)
    return {
        prefix + theirs: stored(rng.standard_normal(shape_of(ours, n_vocab)), dtype)
        for ours, theirs in names_of(*layers).items()
    }


def safetensors_bytes(tensors: Mapping[str, Stored], metadata: Mapping[str, str] | None = None) -> bytes:
    """The file: u64 length of the header, JSON header, values."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    at = 0
    for name, (dtype, array) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    return with_header(header) + b"".join(array.tobytes() for _, array in tensors.values())


def with_header(header: object) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw


def config(n_vocab: int = N_VOCAB, layers: tuple[int, int] = (2, 1)) -> dict[str, Any]:
    return {
        "model_type": "whisper",
        "activation_function": "gelu",
        "d_model": WIDTH,
        "encoder_layers": layers[0],
        "encoder_attention_heads": HEADS,
        "encoder_ffn_dim": 4 * WIDTH,
        "decoder_layers": layers[1],
        "decoder_attention_heads": HEADS,
        "decoder_ffn_dim": 4 * WIDTH,
        "max_source_positions": N_AUDIO_CTX,
        "max_target_positions": N_TEXT_CTX,
        "num_mel_bins": N_MELS,
        "vocab_size": n_vocab,
        "scale_embedding": False,
    }


def tokenizer() -> dict[str, Any]:
    """A fast tokenizer's file: 256 tokens of one byte each, then the special ones."""
    added = [{"id": 256 + i, "content": text, "special": True} for i, text in enumerate(special_tokens())]
    vocab = {letter: byte for byte, letter in enumerate(byte_letters())}
    return {"added_tokens": added, "model": {"type": "BPE", "vocab": vocab, "merges": []}}


def files(tensors: Mapping[str, Stored] | None = None) -> dict[str, Any]:
    """A whole folder: content by name; bytes and texts as they are, all else as JSON."""
    return {
        "config.json": config(),
        "model.safetensors": safetensors_bytes(random_tensors() if tensors is None else tensors, {"format": "pt"}),
        "tokenizer.json": tokenizer(),
    }


def write(folder: Path, contents: Mapping[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        raw = content if isinstance(content, (bytes, str)) else json.dumps(content)
        (folder / name).write_bytes(raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogatepass"))
    return folder


def values(manifest: Manifest, name: str) -> Array:
    """What a tensor means, float32 in its shape: the bytes that the manifest points to, decoded here."""
    tensor = manifest.tensors[name]
    blob = manifest.blobs[tensor.blob]
    raw = blob.read(tensor.offset, tensor.n_bytes, name)
    dtypes = {"f32": "<f4", "f16": "<f2", "bf16": "<u2", "i8": "i1", "i16": "<i2"}
    kinds = {number: kind for kind, number in GGML_TYPES.items()}
    array: Array = np.frombuffer(raw, dtypes[kinds[tensor.type]])
    assert array.size == math.prod(tensor.shape), name
    if kinds[tensor.type] == "bf16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    found = array.astype(np.float32).reshape(tensor.shape)
    if tensor.factors is not None:
        kind = np.dtype(dtypes[kinds[tensor.factors.type]])
        factors = np.frombuffer(
            manifest.blobs[tensor.factors.blob].read(tensor.factors.offset, tensor.factors.n * kind.itemsize, name),
            kind,
        ).astype(np.float32)
        found = found / factors.reshape(-1, *[1] * (found.ndim - 1))
    return found


def conv_bias_apart(name: str, array: Array) -> Array:
    """whisper.cpp has the biases of convolutions as columns."""
    return array[:, None] if name in ("encoder.conv1.bias", "encoder.conv2.bias") else array
