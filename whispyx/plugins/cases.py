"""Every operation of Whisper's and the voice activity graphs, at their shapes and types, as data.

`whispyx/_core/graph` and `whispyx/_core/vad/graph` are what this table follows: an operation that is added there gets
its cases here. Sizes are those of the models from tiny to large; where a full window would take seconds on a plain
processor, fewer positions of the same width stand for it. Shapes are written slowest dimension first.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from whispyx._core.optest import encode, row_bytes

__all__ = ["SIZES", "WEIGHT_TYPES", "Case", "Input", "Size", "Tensor", "cases", "inputs_of"]

Array = npt.NDArray[Any]
Step = tuple[Any, ...]
Input = tuple[str, str, tuple[int, ...], Array, bool]

HEAD: Final = 64  # values per head, the same in every model
N_CTX: Final = 1500  # encoder positions of a window
N_PAD: Final = 1536
FEW: Final = 75  # positions that stand for a window in the larger models
MANY: Final = 40  # columns of a product: more than any kernel for a few takes
DISTINCT_ROWS: Final = 389  # primes, so that what repeats never lies at the edges of a device's blocks
DISTINCT_VALUES: Final = 524287


@dataclass(frozen=True)
class Size:
    """What differs between the models."""

    name: str
    n_state: int
    n_mels: int = 80

    @property
    def n_head(self) -> int:
        """Heads of attention."""
        return self.n_state // HEAD


SIZES: Final = (
    Size("tiny", 384),
    Size("base", 512),
    Size("small", 768),
    Size("medium", 1024),
    Size("large", 1280, 128),
)
TINY, BASE, _, _, LARGE = SIZES
WEIGHT_TYPES: Final = (
    *("f32", "f16", "bf16", "q8_0", "q5_0", "q5_1", "q4_0", "q4_1"),
    *("q2_K", "q3_K", "q4_K", "q5_K", "q6_K"),
)


@dataclass(frozen=True)
class Tensor:
    """A tensor that goes in.

    Attributes
    ----------
    fill : str
        "normal", "weight" (normal, divided by the root of the row's length), "gain" (near 1), "positive", "zeros",
        "causal" and "padded" (masks of 0 and minus infinity), "rows" (any numbers below `limit`), "slots" (different
        numbers below `limit`).
    """

    name: str
    type: str
    shape: tuple[int, ...]
    fill: str = "normal"
    limit: int = 0

    @property
    def is_weight(self) -> bool:
        """Whether it belongs to the model, so that it lies in memory for weights."""
        return self.fill in ("weight", "gain")

    def data(self, source: np.random.Generator) -> Array:
        """Return the tensor's contents in its type."""
        if self.fill == "rows":
            return source.integers(0, self.limit, self.shape, dtype=np.int32)
        if self.fill == "slots":
            return source.permutation(self.limit)[: prod(self.shape)].astype(np.int64)
        if self.fill in ("causal", "padded"):
            n, n_kv = self.shape[-2:]
            last = np.arange(n)[:, None] + n_kv - n - 3 if self.fill == "causal" else np.full((n, 1), self.limit - 1)
            hidden = np.arange(n_kv)[None, :] > last
            return np.where(hidden, -np.inf, 0.0).astype(np.float16).reshape(self.shape)
        # Quantising is slow, so the rows of a large matrix repeat; so do the values of a large cache.
        n_rows = prod(self.shape[:-1])
        distinct = min(n_rows, DISTINCT_ROWS) if self.is_weight else n_rows
        values = source.standard_normal(min(distinct * self.shape[-1], DISTINCT_VALUES), dtype=np.float32)
        values = np.resize(values, (distinct, self.shape[-1]))
        if self.fill == "weight":
            values /= np.float32(np.sqrt(self.shape[-1]))
        elif self.fill == "gain":
            values = (1 + values / 8).astype(np.float32)
        elif self.fill == "positive":
            values = np.abs(values)
        elif self.fill == "zeros":
            values[:] = 0
        return np.resize(
            encode(values, self.type).reshape(distinct, -1), (n_rows, row_bytes(self.type, self.shape[-1]))
        )


@dataclass(frozen=True)
class Case:
    """One job for a device: what goes in, what is computed, and how far the result may be off.

    Attributes
    ----------
    op : str
        The operation in ggml's words, or the part of the network ("mlp") when several run together.
    type : str
        Type that decides how exact a result can be: that of the weights, of the cache, or of the result.
    size : str
        Whose shapes: a model's size, or "vad".
    detail : str
        Tells cases of one operation apart.
    """

    op: str
    type: str
    size: str
    detail: str
    inputs: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", f"{self.op}/{self.type}/{self.size}/{self.detail}")


def inputs_of(case: Case) -> list[Input]:
    """Return what goes into a case, the same in every process: the seed is the case's name."""
    source = np.random.default_rng(zlib.crc32(case.name.encode()))
    return [(t.name, t.type, t.shape, t.data(source), t.is_weight) for t in case.inputs]


@cache
def cases() -> tuple[Case, ...]:
    """Return the whole table, in an order from simple to composed."""
    found: list[Case] = []
    for part in (_elementwise, _rows, _copies, _convolution, _products, _attention, _flash, _blocks, _voice_activity):
        found += part()
    names = [case.name for case in found]
    assert len(names) == len(set(names)), "two cases of one name"
    return tuple(found)


def _x(*shape: int, name: str = "x", type: str = "f32") -> Tensor:
    return Tensor(name, type, shape)


def _elementwise() -> Iterator[Case]:
    for size in SIZES:
        s = size.n_state
        for n in (1, 5, N_CTX) if size is TINY else (1, FEW):
            x, row = _x(n, s), Tensor("w", "f32", (s,), "gain")
            yield Case("NORM", "f32", size.name, f"n={n}", (x,), (("y", "norm", "x"),))
            yield Case("MUL", "f32", size.name, f"row,n={n}", (x, row), (("y", "mul", "x", "w"),))
            yield Case("ADD", "f32", size.name, f"row,n={n}", (x, row), (("y", "add", "x", "w"),))
            yield Case("ADD", "f32", size.name, f"same,n={n}", (x, _x(n, s, name="r")), (("y", "add", "x", "r"),))
            yield Case("SCALE", "f32", size.name, f"n={n}", (x,), (("y", "scale", "x", HEAD**-0.25),))
            yield Case("GELU", "f32", size.name, f"n={n}", (_x(n, 4 * s),), (("y", "gelu", "x"),))
        n = N_CTX if size is TINY else FEW
        bias = Tensor("b", "f32", (s, 1), "weight")
        yield Case("ADD", "f32", size.name, f"column,n={n}", (_x(s, n), bias), (("y", "add", "x", "b"),))
        table = Tensor("pe", "f32", (n + 3, s), "weight")
        head = ("v", "view", "pe", (n, s), (s, 1), 0)
        yield Case("ADD", "f32", size.name, f"positions,n={n}", (_x(n, s), table), (head, ("y", "add", "x", "v")))


def _rows() -> Iterator[Case]:
    for size in SIZES:
        s = size.n_state
        for type in WEIGHT_TYPES if size in (TINY, LARGE) else ("f32", "f16"):
            if not row_bytes(type, s):
                continue
            n_vocab = 51864 if size is TINY and type == "f16" else 2000
            ids = Tensor("ids", "i32", (7,), "rows", n_vocab)
            table = Tensor("te", type, (n_vocab, s), "weight")
            yield Case("GET_ROWS", type, size.name, f"vocab={n_vocab}", (table, ids), (("y", "get_rows", "te", "ids"),))
        ids = Tensor("ids", "i32", (2,), "rows", 5)
        yield Case("GET_ROWS", "f32", size.name, "outputs", (_x(5, s), ids), (("y", "get_rows", "x", "ids"),))
        for n in (1, 5, 224):
            cache = Tensor("kv", "f16", (2 * 448 * s,))
            slots = Tensor("slot", "i64", (n,), "slots", 448)
            layer = ("c", "view", "kv", (448, s), (s, 1), 448 * s)
            steps = (layer, ("y", "set_rows", "c", "x", "slot"))
            yield Case("SET_ROWS", "f16", size.name, f"n={n}", (cache, _x(n, s), slots), steps)


def _by_head(size: Size, n: int, x: str, to: str) -> tuple[Step, Step]:
    """(n, n_state) -> (n_head, n, d), a view"""
    return (f"{to}3", "reshape", x, (n, size.n_head, HEAD)), (to, "permute", f"{to}3", 0, 2, 1, 3)


def _copies() -> Iterator[Case]:
    for size in SIZES:
        s, h = size.n_state, size.n_head
        n = N_CTX if size is TINY else FEW
        x = _x(n, s)
        turn = ("t", "transpose", "y0")
        yield Case("CONT", "f32", size.name, f"transposed,n={n}", (_x(s, n, name="y0"),), (turn, ("y", "cont", "t")))
        heads = (("t", "permute", "y0", 0, 2, 1, 3), ("y", "cont", "t"))
        yield Case("CONT", "f32", size.name, f"heads,n={n}", (_x(h, n, HEAD, name="y0"),), heads)
        cache = Tensor("kv", "f16", (2 * 448 * s,))
        steps: tuple[Step, ...] = (
            ("v", "view", "kv", (h, 64, HEAD), (HEAD, s, 1), 448 * s),
            ("t", "permute", "v", 1, 0, 2, 3),
            ("y", "cont", "t"),
        )
        yield Case("CONT", "f16", size.name, "cached values", (cache,), steps)
        yield Case(
            "CPY",
            "f16",
            size.name,
            f"keys by head,n={n}",
            (x,),
            (*_by_head(size, n, "x", "k"), ("y", "cast", "k", "f16")),
        )
        steps = (
            ("v3", "reshape", "x", (n, h, HEAD)),
            ("v", "permute", "v3", 1, 2, 0, 3),
            ("y", "cast", "v", "f16"),
        )
        yield Case("CPY", "f16", size.name, f"values by head,n={n}", (x,), steps)
        cross = Tensor("kv", "f16", (2 * N_PAD * s,), "zeros")
        flat = ("c", "view", "kv", (n * s,), (1,), N_PAD * s)
        yield Case("CPY", "f16", size.name, f"cross cache,n={n}", (x, cross), (flat, ("y", "cpy", "x", "c")))
        steps = (
            ("c", "view", "kv", (s, n), (n, 1), N_PAD * s),
            ("t", "transpose", "x"),
            ("y", "cpy", "t", "c"),
        )
        yield Case("CPY", "f16", size.name, f"cross cache transposed,n={n}", (x, cross), steps)


def _convolution() -> Iterator[Case]:
    for size in SIZES:
        s = size.n_state
        n = N_CTX if size is TINY else FEW
        for type in ("f16", "f32"):
            for label, n_in, stride in (("first", size.n_mels, 1), ("second", s, 2)):
                kernel = Tensor("w", type, (s, n_in, 3), "weight")
                sound = _x(n_in, 2 * n)
                unfold = ("y", "im2col", "w", "x", stride, 1, "f16")
                yield Case("IM2COL", type, size.name, f"{label},n={n}", (kernel, sound), (unfold,))
                fold = ("y", "conv_1d", "w", "x", stride)
                few = FEW if size is TINY else FEW // 3
                sound = _x(n_in, 2 * few)
                yield Case("conv", type, size.name, f"{label},n={few}", (kernel, sound), (fold,))


def _linear(type: str, size: Size, label: str, n_in: int, n_out: int, n: int) -> Case:
    weight = Tensor("w", type, (n_out, n_in), "weight")
    detail = f"{label} {n_in}->{n_out},n={n}"
    return Case("MUL_MAT", type, size.name, detail, (weight, _x(n, n_in)), (("y", "mul_mat", "w", "x"),))


def _products() -> Iterator[Case]:
    for type in WEIGHT_TYPES:
        plain = type in ("f32", "f16")
        for size in SIZES if plain else (TINY, BASE, LARGE):
            s = size.n_state
            if not row_bytes(type, s):
                continue
            # One token, a beam's five, many; and one window of the smallest.
            for n in (1, 5, MANY):
                yield _linear(type, size, "attention", s, s, n)
                if plain or size is not LARGE or n < MANY:
                    yield _linear(type, size, "mlp", s, 4 * s, n)
                    yield _linear(type, size, "mlp", 4 * s, s, n)
        if row_bytes(type, TINY.n_state):
            yield _linear(type, TINY, "window", TINY.n_state, TINY.n_state, N_CTX if plain else 300)
        first = TINY if row_bytes(type, TINY.n_state) else BASE
        yield _linear(type, first, "logits", first.n_state, 51865 if type in ("f16", "q8_0", "q5_0") else 5186, 1)
        yield _linear(type, LARGE, "logits", LARGE.n_state, 5186, 2)


def _attention() -> Iterator[Case]:
    """Attention with its scores stored: keys and values f16, queries and scores f32."""
    for size in SIZES:
        s, h = size.n_state, size.n_head
        n, n_kv = (300, N_CTX) if size is TINY else (FEW, FEW)
        q, k = _x(n, s, name="q0"), Tensor("k", "f16", (h, n_kv, HEAD))
        steps: tuple[Step, ...] = (*_by_head(size, n, "q0", "q"), ("y", "mul_mat", "k", "q"))
        yield Case("MUL_MAT", "f16", size.name, f"scores,n={n}x{n_kv}", (q, k), steps)
        v = Tensor("v", "f16", (h, HEAD, n_kv))
        weights = Tensor("p", "f32", (h, n, n_kv), "positive")
        yield Case("MUL_MAT", "f16", size.name, f"values,n={n}x{n_kv}", (v, weights), (("y", "mul_mat", "v", "p"),))
        x = Tensor("x", "f32", (h, n, n_kv))
        yield Case("SOFT_MAX", "f32", size.name, f"n={n}x{n_kv}", (x,), (("y", "soft_max", "x", None, HEAD**-0.5),))
        for n in (1, 5, 24):
            x, mask = Tensor("x", "f32", (h, n, 448)), Tensor("m", "f16", (n, 448), "causal")
            soft = ("y", "soft_max", "x", "m", 1.0)
            yield Case("SOFT_MAX", "f32", size.name, f"masked,n={n}x448", (x, mask), (soft,))
            cache = Tensor("kv", "f16", (2 * N_PAD * s,))
            steps = (
                ("k", "view", "kv", (h, N_CTX, HEAD), (HEAD, s, 1), N_PAD * s),
                *_by_head(size, n, "q0", "q"),
                ("y", "mul_mat", "k", "q"),
            )
            yield Case("MUL_MAT", "f16", size.name, f"cached scores,n={n}", (_x(n, s, name="q0"), cache), steps)
            steps = (
                ("v", "view", "kv", (h, HEAD, N_CTX), (N_CTX * HEAD, N_CTX, 1), N_PAD * s),
                ("y", "mul_mat", "v", "p"),
            )
            p = Tensor("p", "f32", (h, n, N_CTX), "positive")
            yield Case("MUL_MAT", "f16", size.name, f"cached values,n={n}", (p, cache), steps)
        # One head alone, for times of words.
        cache = Tensor("kv", "f16", (N_PAD * s,))
        steps = (
            ("k", "view", "kv", (h, N_CTX, HEAD), (HEAD, s, 1), 0),
            ("k1", "view", "k", (700, HEAD), (s, 1), HEAD),
            *_by_head(size, 12, "q0", "q"),
            ("q1", "view", "q", (12, HEAD), (s, 1), HEAD),
            ("y", "mul_mat", "k1", "q1"),
        )
        yield Case("MUL_MAT", "f16", size.name, "one head", (_x(12, s, name="q0"), cache), steps)


def _flash() -> Iterator[Case]:
    op = "FLASH_ATTN_EXT"
    for size in SIZES:
        s, h = size.n_state, size.n_head
        n = 300 if size is TINY else FEW
        qkv = (_x(n, s, name="q0"), _x(n, s, name="k0"), _x(n, s, name="v0"))
        steps: tuple[Step, ...] = (
            *_by_head(size, n, "q0", "q"),
            *_by_head(size, n, "k0", "k"),
            *_by_head(size, n, "v0", "v"),
            ("y", "flash_attn", "q", "k", "v", None, HEAD**-0.5),
        )
        yield Case(op, "f32", size.name, f"encoder,n={n}", qkv, steps)
        n_pad = (n + 255) // 256 * 256
        rows = [(f"{x}", "view", f"{x}c", (h, n_pad, HEAD), (HEAD, s, 1), 0) for x in "kv"]
        caches = (Tensor("kc", "f16", (N_PAD * s,)), Tensor("vc", "f16", (N_PAD * s,)))
        mask = Tensor("m", "f16", (n, n_pad), "padded", n)
        steps = (*_by_head(size, n, "q0", "q"), *rows, ("y", "flash_attn", "q", "k", "v", "m", HEAD**-0.5))
        yield Case(op, "f16", size.name, f"encoder padded,n={n}", (_x(n, s, name="q0"), *caches, mask), steps)
        for n_tokens, n_kv in ((1, 32), (1, 256), (5, 256), (5, 448), (24, 256)):
            caches = (Tensor("kc", "f16", (2 * 448 * s,)), Tensor("vc", "f16", (2 * 448 * s,)))
            rows = [(f"{x}", "view", f"{x}c", (h, n_kv, HEAD), (HEAD, s, 1), 448 * s) for x in "kv"]
            mask = Tensor("m", "f16", (n_tokens, n_kv), "causal")
            steps = (*_by_head(size, n_tokens, "q0", "q"), *rows, ("y", "flash_attn", "q", "k", "v", "m", 0.25))
            q = _x(n_tokens, s, name="q0")
            yield Case(op, "f16", size.name, f"self,n={n_tokens}x{n_kv}", (q, *caches, mask), steps)
            caches = (Tensor("kc", "f16", (N_PAD * s,)), Tensor("vc", "f16", (N_PAD * s,)))
            rows = [(f"{x}", "view", f"{x}c", (h, N_CTX, HEAD), (HEAD, s, 1), 0) for x in "kv"]
            steps = (*_by_head(size, n_tokens, "q0", "q"), *rows, ("y", "flash_attn", "q", "k", "v", None, 0.25))
            if n_kv == 256:
                yield Case(op, "f16", size.name, f"cross,n={n_tokens}", (q, *caches), steps)


def _blocks() -> Iterator[Case]:
    """Neighbours that devices like to compute as one kernel, together."""
    for size in SIZES:
        s = size.n_state
        gain, bias = Tensor("g", "f32", (s,), "gain"), Tensor("b", "f32", (s,), "weight")
        normal: tuple[Step, ...] = (("n", "norm", "x"), ("m", "mul", "n", "g"), ("l", "add", "m", "b"))
        for n in (1, 5, FEW):
            yield Case("layer norm", "f32", size.name, f"n={n}", (_x(n, s), gain, bias), normal)
        for type in ("f16", "q8_0", "q5_0", "q4_K"):
            if size not in (TINY, BASE) or not row_bytes(type, s):
                continue
            for n in (1, 5, FEW):
                inner = (Tensor("w0", type, (4 * s, s), "weight"), Tensor("b0", "f32", (4 * s,), "weight"))
                outer = (Tensor("w2", type, (s, 4 * s), "weight"), Tensor("b2", "f32", (s,), "weight"))
                steps = (
                    *normal,
                    ("h", "mul_mat", "w0", "l"),
                    ("hb", "add", "h", "b0"),
                    ("a", "gelu", "hb"),
                    ("o", "mul_mat", "w2", "a"),
                    ("ob", "add", "o", "b2"),
                    ("y", "add", "ob", "x"),
                )
                yield Case("mlp", type, size.name, f"n={n}", (_x(n, s), gain, bias, *inner, *outer), steps)
        n = 5
        caches = (Tensor("kc", "f16", (448 * s,)), Tensor("vc", "f16", (448 * s,)))
        rows = [(f"{x}", "view", f"{x}c", (size.n_head, 64, HEAD), (HEAD, s, 1), 0) for x in "kv"]
        mask = Tensor("mask", "f16", (n, 64), "causal")
        steps = (
            *_by_head(size, n, "q0", "q"),
            *rows,
            ("s", "mul_mat", "k", "q"),
            ("p", "soft_max", "s", "mask", 0.25),
            ("vp", "permute", "v", 1, 0, 2, 3),
            ("vt", "cont", "vp"),
            ("o", "mul_mat", "vt", "p"),
            ("op", "permute", "o", 0, 2, 1, 3),
            ("y", "cont", "op"),
        )
        yield Case("attention", "f16", size.name, f"self,n={n}", (_x(n, s, name="q0"), *caches, mask), steps)


def _voice_activity() -> Iterator[Case]:
    n = 128  # windows
    for type in ("f32", "f16"):
        for label, n_in, n_out, columns in (
            ("spectrum", 256, 144, 4 * n),
            ("first", 144, 128, n),
            ("second", 128, 64, n),
            ("fourth", 64, 128, n),
        ):
            weight = Tensor("w", type, (n_out, n_in), "weight")
            steps: tuple[Step, ...] = (("y", "mul_mat", "w", "x"),)
            yield Case("MUL_MAT", type, "vad", label, (weight, _x(columns, n_in)), steps)
    gates = (Tensor("w", "f32", (512, 128), "weight"), _x(n, 128))
    yield Case("MUL_MAT", "f32", "vad", "gates", gates, (("y", "mul_mat", "w", "x"),))
    yield Case("SQRT", "f32", "vad", f"n={n}", (Tensor("x", "f32", (4 * n, 144), "positive"),), (("y", "sqrt", "x"),))
    yield Case("RELU", "f32", "vad", f"n={n}", (_x(n, 128),), (("y", "relu", "x"),))
    steps = (
        ("re2", "mul", "re", "re"),
        ("im2", "mul", "im", "im"),
        ("sum", "add", "re2", "im2"),
        ("root", "sqrt", "sum"),
        ("part", "view", "root", (n, 144), (144, 1), 144 * n),
        ("y", "relu", "part"),
    )
    both = (_x(4 * n, 144, name="re"), _x(4 * n, 144, name="im"))
    yield Case("magnitudes", "f32", "vad", f"n={n}", both, steps)
