"""Loads one model per weight type that ggml multiplies by and compares its logits with the oracle.

A process of its own: a type that ggml cannot compute would end it. Prints one line of JSON per type.
"""

from __future__ import annotations

import ctypes as c
import json
import struct
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

import whispyx.plugins  # noqa: E402
from tests.oracle.compare import nmse  # noqa: E402
from tests.oracle.mel import log_mel  # noqa: E402
from tests.oracle.network import SelfCache, Whisper  # noqa: E402
from tests.oracle.reader import read_model  # noqa: E402
from tests.oracle.tiny_model import TinyModel  # noqa: E402
from whispyx._core.base import base_library  # noqa: E402
from whispyx._core.context import Context  # noqa: E402
from whispyx._core.description import WEIGHT_TYPES  # noqa: E402
from whispyx._core.state import State  # noqa: E402

N_STATE = 256  # a whole block of every type


class Traits(c.Structure):
    _fields_ = [  # noqa: RUF012 - what ctypes wants
        ("name", c.c_char_p), ("block", c.c_int64), ("interleave", c.c_int64), ("size", c.c_size_t),
        ("quantised", c.c_bool), ("to_float", c.CFUNCTYPE(None, c.c_void_p, c.c_void_p, c.c_int64)),
    ]  # fmt: skip


class Quantiser:
    """ggml's own conversions, called in the library that the core is linked to."""

    def __init__(self) -> None:
        self.lib = c.CDLL(base_library())
        self.lib.ggml_get_type_traits.restype = c.POINTER(Traits)
        self.lib.ggml_quantize_chunk.restype = c.c_size_t
        self.lib.ggml_quantize_chunk.argtypes = [
            c.c_int, c.c_void_p, c.c_void_p, c.c_int64, c.c_int64, c.c_int64, c.c_void_p
        ]  # fmt: skip

    def __call__(self, kind: int, weights: np.ndarray) -> tuple[bytes, np.ndarray]:
        """Return the bytes of the weights in a type, and the numbers that those bytes stand for."""
        if kind == 0:  # f32 stays as it is
            return weights.astype("<f4").tobytes(), weights
        traits = self.lib.ggml_get_type_traits(kind).contents
        rows, columns = weights.shape
        flat = np.ascontiguousarray(weights, dtype=np.float32)
        packed = np.zeros(rows * columns // traits.block * traits.size, dtype=np.uint8)
        importance = np.ones(columns, dtype=np.float32)
        n = self.lib.ggml_quantize_chunk(
            kind, flat.ctypes.data, packed.ctypes.data, 0, rows, columns, importance.ctypes.data
        )
        assert n == packed.nbytes
        back = np.zeros_like(flat)
        traits.to_float(packed.ctypes.data, back.ctypes.data, flat.size)
        return packed.tobytes(), back


def retyped(data: bytes, kind: int, quantise: Quantiser) -> tuple[bytes, dict[str, np.ndarray]]:
    """Give every attention and MLP matrix of an f32 file another type; also return what they became."""
    n_mel, n_fft = struct.unpack_from("<2i", data, 48)
    at = 56 + 4 * n_mel * n_fft
    (n_tokens,) = struct.unpack_from("<i", data, at)
    at += 4
    for _ in range(n_tokens):
        at += 4 + struct.unpack_from("<I", data, at)[0]
    out, changed = [data[:at]], {}
    while at < len(data):
        n_dims, n_name, old = struct.unpack_from("<3i", data, at)
        dims = struct.unpack_from(f"<{n_dims}i", data, at + 12)
        head = 12 + 4 * n_dims
        name = data[at + head : at + head + n_name].decode()
        size = 4 * int(np.prod(dims))
        body = data[at + head + n_name : at + head + n_name + size]
        assert old == 0
        if ".blocks." in name and n_dims == 2:
            body, changed[name] = quantise(kind, np.frombuffer(body, "<f4").reshape(dims[::-1]))
            out.append(struct.pack("<3i", n_dims, n_name, kind) + data[at + 12 : at + head + n_name] + body)
        else:
            out.append(data[at : at + head + n_name] + body)
        at += head + n_name + size
    return b"".join(out), changed


def main() -> None:
    recipe = TinyModel(n_state=N_STATE, n_head=4, n_audio_layer=1, n_text_layer=1, weight_type="f32")
    path = Path(sys.argv[1]) / "f32.bin"
    recipe.write(path)
    data, model, quantise = path.read_bytes(), read_model(path), Quantiser()
    sound = np.random.default_rng(0).normal(0, 0.1, 16000).astype(np.float32)
    window = log_mel(sound, model.filters)[:, : 2 * recipe.n_audio_ctx]
    tokens = [50257, 100, 200, 300]
    whispyx.plugins.load()
    for kind in sorted(WEIGHT_TYPES):
        name = quantise.lib.ggml_get_type_traits(kind).contents.name.decode()
        print(json.dumps({"starting": name}), flush=True)
        packed, changed = retyped(data, kind, quantise)
        net = Whisper(replace(model, tensors={**model.tensors, **changed}))
        truth = net.decode(tokens, net.encode(window), SelfCache([], []))
        errors = []
        for flash in (True, False):
            with Context.load(packed, flash_attn=flash) as ctx, State(ctx) as state:
                state.pcm_to_mel(sound)
                state.encode(0, 2)
                state.decode(tokens, 0, 2, all_logits=True)
                errors.append(nmse(state.logits(), truth))
        print(json.dumps({"type": name, "nmse": errors}), flush=True)


if __name__ == "__main__":
    main()
