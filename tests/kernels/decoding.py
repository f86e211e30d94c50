"""A decoder of random weights: packed for a kernel library, and in float64 with NumPy."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

from tests.kernels import sets
from tests.kernels.sets import BF16, F32, N4, Library, ffi


def rounded(x: np.ndarray, kind: int) -> np.ndarray:
    """`x` as a packed matrix of that type can hold it exactly, so that only what is computed from it is inexact."""
    if kind != BF16:
        return np.ascontiguousarray(x, np.float32)
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return bits.view(np.float32)


def aligned(n_bytes: int) -> np.ndarray:
    """Memory as `sets.aligned`, filled with what a careless kernel should not read (NaN as floats)."""
    memory = sets.aligned(n_bytes)
    memory[:] = 0xFF
    return memory


def on_threads(n: int, call: Any) -> None:
    """Call `call(ith)` on n threads at once."""
    if n == 1:
        call(0)
        return
    threads = [threading.Thread(target=call, args=(ith,)) for ith in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


class Decoder:
    """Weights and sizes; `packed` gives them to a library, `run` computes with them in float64."""

    def __init__(
        self,
        n_state: int,
        n_head: int,
        n_layer: int,
        *,
        n_vocab: int = 300,
        n_audio_ctx: int = 1500,
        n_text_ctx: int = 448,
        weights: int = F32,
        cross: int = F32,
        logits: list[tuple[int, int]] | None = None,
        seed: int = 0,
    ) -> None:
        self.n_state, self.n_head, self.n_layer, self.n_vocab = n_state, n_head, n_layer, n_vocab
        self.n_audio_ctx, self.n_text_ctx, self.weights, self.cross = n_audio_ctx, n_text_ctx, weights, cross
        self.logits = logits or [(weights, n_vocab)]  # types of ranges of tokens, and how many they are
        self.times = (0, 0)  # first timestamp, and the token behind the last
        rng = np.random.default_rng(seed)

        def matrix(n_out: int, n_in: int, size: float = 1.0) -> np.ndarray:
            return rounded(size * rng.standard_normal((n_out, n_in)) / math.sqrt(n_in), weights)

        def vector(n: int, size: float = 0.1) -> np.ndarray:
            return (size * rng.standard_normal(n)).astype(np.float32)

        def norm() -> tuple[np.ndarray, np.ndarray]:
            return 1 + vector(n_state), vector(n_state)

        def linear(n_out: int, n_in: int, size: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
            return matrix(n_out, n_in, size), vector(n_out)

        # Queries carry the scale of the softmax; doubled, so that attention prefers some positions to others.
        scale = 2 * (n_state // n_head) ** -0.5
        self.layers = []
        for _ in range(n_layer):
            w, b = linear(3 * n_state, n_state)
            w[:n_state] = rounded(w[:n_state] * scale, weights)
            b[:n_state] *= scale
            b[n_state : 2 * n_state] = 0
            self.layers.append(
                {
                    "attn_ln": norm(),
                    "qkv": (w, b),
                    "out": linear(n_state, n_state, 0.5),
                    "cross_ln": norm(),
                    "cross_q": linear(n_state, n_state, scale),
                    "cross_out": linear(n_state, n_state, 0.5),
                    "mlp_ln": norm(),
                    "up": linear(4 * n_state, n_state),
                    "down": linear(n_state, 4 * n_state, 0.5),
                }
            )
        self.cross_kv = linear(n_layer * 2 * n_state, n_state)
        self.d_te = (0.5 * rng.standard_normal((n_vocab, n_state))).astype(np.float32)
        self.d_te = rounded(self.d_te, BF16)  # exact in every type that packs it
        self.d_pe = vector(n_text_ctx * n_state).reshape(n_text_ctx, n_state)
        self.d_ln = norm()

    # ---- float64 ----------------------------------------------------------------------------------------------------

    def window(self, hidden: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Cross keys and values of every layer, (n_ctx, n_head, d) each."""
        w, b = (x.astype(np.float64) for x in self.cross_kv)
        kv = (hidden.astype(np.float64) @ w.T + b).reshape(len(hidden), self.n_layer, 2, self.n_head, -1)
        return [(kv[:, layer, 0], kv[:, layer, 1]) for layer in range(self.n_layer)]

    def run(
        self, rows: list[dict[str, Any]], cache: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]], look_to: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Logits of every row and, over the first `look_to` positions, what heads look at (layer, head, row, position).

        `cache` maps (layer, cell) to the key and the value there and takes those of the rows.
        """
        from math import erf

        def norm(x: np.ndarray, wb: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
            centred = x - x.mean(axis=-1, keepdims=True)
            return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5) * wb[0] + wb[1]

        def linear(x: np.ndarray, wb: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
            return x @ wb[0].astype(np.float64).T + wb[1]

        n, heads = len(rows), self.n_head
        x = np.stack([self.d_te[r["token"]].astype(np.float64) + self.d_pe[r["pos"]] for r in rows])
        looks = np.zeros((self.n_layer, heads, n, look_to))
        for layer, lw in enumerate(self.layers):
            q, k, v = np.split(linear(norm(x, lw["attn_ln"]), lw["qkv"]), 3, axis=1)
            for i, r in enumerate(rows):
                cache[layer, r["slot"]] = k[i].reshape(heads, -1), v[i].reshape(heads, -1)
            out = np.empty_like(x)
            for i, r in enumerate(rows):
                keys = np.stack([cache[layer, cell][0] for cell in r["cells"]])
                values = np.stack([cache[layer, cell][1] for cell in r["cells"]])
                p = softmax(np.einsum("hd,chd->hc", q[i].reshape(heads, -1), keys))
                out[i] = np.einsum("hc,chd->hd", p, values).ravel()
            x = x + linear(out, lw["out"])
            q = linear(norm(x, lw["cross_ln"]), lw["cross_q"]).reshape(n, heads, -1)
            for i, r in enumerate(rows):
                keys, values = r["window"][layer]
                scores = np.einsum("hd,chd->hc", q[i], keys)
                out[i] = np.einsum("hc,chd->hd", softmax(scores), values).ravel()
                if look_to:
                    seen = min(look_to, len(keys))
                    looks[layer, :, i, :seen] = softmax(scores[:, :seen])
            x = x + linear(out, lw["cross_out"])
            up = linear(norm(x, lw["mlp_ln"]), lw["up"])
            up = 0.5 * up * (1 + np.vectorize(erf)(up / math.sqrt(2)))
            x = x + linear(up, lw["down"])
        return norm(x, self.d_ln) @ self.d_te.astype(np.float64).T, looks

    # ---- a kernel library --------------------------------------------------------------------------------------------

    def packed(self, library: Library) -> Packed:
        return Packed(self, library)


class Packed:
    """A decoder's weights in the form of one kernel library."""

    def __init__(self, decoder: Decoder, library: Library) -> None:
        self.decoder, self.lib = decoder, library
        self.table = library.table
        self.kept: list[Any] = []  # everything that the C structures point to
        d = decoder
        self.model = m = ffi.new("wx_model *")
        m.n_mels, m.n_audio_ctx, m.n_state, m.n_audio_head, m.n_audio_layer = 80, d.n_audio_ctx, d.n_state, d.n_head, 1
        m.n_text_ctx, m.n_text_head, m.n_text_layer, m.n_vocab = d.n_text_ctx, d.n_head, d.n_layer, d.n_vocab
        m.cross_type = d.cross
        m.beg, m.end = d.times
        layers = ffi.new("wx_decoder_layer[]", d.n_layer)
        self.kept.append(layers)
        for to, layer in zip(layers, d.layers, strict=True):
            for name, value in layer.items():
                (self._norm if name.endswith("_ln") else self._linear)(getattr(to, name), value)
        m.decoder = layers
        self._linear(m.cross_kv, d.cross_kv)
        te = np.ascontiguousarray((d.d_te.view(np.uint32) >> 16).astype(np.uint16))  # exact: it was rounded so
        m.d_te, m.d_te_type = self._pointer("void *", te), BF16
        m.d_pe = self._pointer("float *", d.d_pe)
        self._norm(m.d_ln, d.d_ln)
        first = 0
        for part, (kind, n) in zip(m.logits, d.logits, strict=False):
            part.first = first
            rows = d.d_te[first : first + n]
            if kind == N4:
                part.w.around = self._pointer("float *", rows.mean(axis=0))
            self._matrix(part.w, rows, kind)
            first += n

    def _pointer(self, kind: str, array: np.ndarray) -> Any:
        self.kept.append(array)
        return ffi.cast(kind, array.ctypes.data)

    def _norm(self, to: Any, value: tuple[np.ndarray, np.ndarray]) -> None:
        to.w, to.b = (self._pointer("float *", x) for x in value)

    def _matrix(self, to: Any, w: np.ndarray, kind: int | None = None) -> None:
        to.type, (to.n_out, to.n_in) = self.decoder.weights if kind is None else kind, w.shape
        to.data = self._pointer("void *", aligned(self.table.matrix_bytes(to.type, *w.shape)))
        source = np.ascontiguousarray(w, np.float32)
        self.table.pack(ffi.addressof(to), 0, len(w), ffi.cast("void *", source.ctypes.data), F32, 1.0)

    def _linear(self, to: Any, value: tuple[np.ndarray, np.ndarray]) -> None:
        self._matrix(to.w, value[0])
        to.bias = self._pointer("float *", value[1])

    def window(self, hidden: np.ndarray, nth: int = 1) -> np.ndarray:
        """Cross keys and values of hidden states (n_ctx, n_state)."""
        hidden = np.ascontiguousarray(hidden, np.float32)
        cross = aligned(self.table.cross_bytes(self.model, len(hidden)))
        scratch = aligned(self.table.encode_bytes(self.model, len(hidden), nth))
        sync = ffi.new("wx_sync *")
        job = ffi.new("wx_encode *")
        job.model, job.n_ctx, job.sync = self.model, len(hidden), sync
        job.out = ffi.cast("float *", hidden.ctypes.data)
        job.cross = ffi.cast("void *", cross.ctypes.data)
        job.scratch = ffi.cast("void *", scratch.ctypes.data)
        on_threads(nth, lambda ith: self.table.encode(job, self.model.n_audio_layer + 2, ith, nth))
        return cross

    def cache(self, n_cells: int) -> tuple[np.ndarray, np.ndarray]:
        shape = self.decoder.n_layer, n_cells, self.decoder.n_state
        return np.full(shape, np.nan, np.float16), np.full(shape, np.nan, np.float16)

    def run(
        self,
        rows: list[dict[str, Any]],
        cache: tuple[np.ndarray, np.ndarray],
        *,
        nth: int = 1,
        watched: list[tuple[int, int]] | None = None,
        look_to: int = 0,
        n_early: int = 0,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Logits (n_outputs, n_vocab) and what the watched heads look at (n_watched, n_rows, look_to).

        A row is a dict of token, pos, slot, cells, cross, n_ctx and, if it has one, output; the first n_early are
        of earlier text.
        """
        d, watched = self.decoder, watched or []
        c_rows = ffi.new("wx_row[]", len(rows))
        kept = []
        for to, row in zip(c_rows, rows, strict=True):
            cells = ffi.new("int32_t[]", list(row["cells"]))
            kept.append(cells)
            to.token, to.pos, to.slot, to.n_cells, to.cells = row["token"], row["pos"], row["slot"], len(cells), cells
            to.cross, to.n_ctx = ffi.cast("void *", row["cross"].ctypes.data), row["n_ctx"]
            to.output = row.get("output", -1)
        n_outputs = max(row.get("output", -1) for row in rows) + 1
        logits = np.full((n_outputs, d.n_vocab), np.nan, np.float32)
        look = np.full((len(watched), len(rows), look_to), np.nan, np.float32)
        scratch = aligned(self.table.decode_bytes(self.model, len(rows), n_outputs, nth))
        heads = ffi.new("wx_head[]", watched)
        sync = ffi.new("wx_sync *")
        job = ffi.new("wx_decode *")
        job.model, job.rows, job.n_rows, job.n_outputs = self.model, c_rows, len(rows), n_outputs
        job.n_early = n_early
        job.self_k, job.self_v = (ffi.cast("uint16_t *", x.ctypes.data) for x in cache)
        job.n_cells, job.logits = cache[0].shape[1], ffi.cast("float *", logits.ctypes.data)
        job.watched, job.n_watched, job.n_positions = heads, len(watched), look_to
        job.look, job.scratch = ffi.cast("float *", look.ctypes.data), ffi.cast("void *", scratch.ctypes.data)
        job.sync = sync

        def thread(ith: int) -> None:
            for stage in range(d.n_layer + 1):
                self.table.decode(job, stage, ith, nth)
                barrier.wait()  # ggml's, between two stages

        barrier = threading.Barrier(nth)
        on_threads(nth, thread)
        return logits, look
