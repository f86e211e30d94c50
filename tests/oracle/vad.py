"""Voice activity in plain NumPy: reader of Silero's ggml file, the network, regions of speech.

Written from the network's description and the rules of `whisper_vad_segments_from_probs`, one window and one region at
a time; nothing is shared with whispyx. All is float64, but for the inputs of convolutions, which have 16 bits.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

MAGIC = 0x67676D6C
WINDOW, CONTEXT = 512, 64
STRIDES = (1, 2, 2, 1)

Floats = npt.NDArray[np.float64]
Region = tuple[int, int]


@dataclass(frozen=True)
class SileroFile:
    """A model in memory. Tensors are float64 in the usual order, slowest axis first."""

    version: tuple[int, int, int]
    window: int
    context: int
    layers: list[tuple[int, int, int]]
    tensors: dict[str, Floats]

    @staticmethod
    def read(path: str | Path) -> SileroFile:
        data = Path(path).read_bytes()
        magic, length = struct.unpack_from("<2i", data, 0)
        assert magic == MAGIC, hex(magic)
        at = 8 + length
        assert data[8:at] == b"silero-16k"
        *version, window, context, n_layers = struct.unpack_from("<6i", data, at)
        at += 24
        layers = []
        for _ in range(n_layers):
            layers.append(struct.unpack_from("<3i", data, at))
            at += 12
        at += 16
        tensors = {}
        while at < len(data):
            n_dims, n_name, kind = struct.unpack_from("<3i", data, at)
            dims = struct.unpack_from(f"<{n_dims}i", data, at + 12)
            at += 12 + 4 * n_dims
            name = data[at : at + n_name].decode()
            at += n_name
            values = np.frombuffer(data, {0: "<f4", 1: "<f2"}[kind], int(np.prod(dims)), at)
            at += values.nbytes
            tensors[name] = values.reshape(dims[::-1]).astype(np.float64)
        return SileroFile((version[0], version[1], version[2]), window, context, layers, tensors)


def sigmoid(x: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def correlate(x: Floats, kernel: Floats, stride: int) -> Floats:
    """x (n_in, n), kernel (n_out, n_in, n_taps) -> (n_out, n_steps), without padding.

    x is rounded to 16 bits first: kernels are stored so, and ggml multiplies equal types only.
    """
    x = x.astype(np.float16).astype(np.float64)
    patches = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[2], axis=1)[:, ::stride]
    return np.asarray(np.einsum("itk,oik->ot", patches, kernel))


class Silero:
    """The network, with its memory."""

    def __init__(self, model: SileroFile, carry_context: bool = False) -> None:
        self.model, self.carry = model, carry_context
        self.reset()

    def reset(self) -> None:
        n_hidden = self.model.tensors["_model.decoder.rnn.weight_hh"].shape[1]
        self.h = np.zeros(n_hidden)
        self.c = np.zeros(n_hidden)
        self.before = np.zeros(CONTEXT)

    def window(self, x: Floats) -> float:
        """Probability that a window of 512 samples is speech."""
        t = self.model.tensors
        if self.carry:
            x, self.before = np.concatenate([self.before, x]), x[-CONTEXT:]
            x = np.pad(x, (0, CONTEXT), mode="reflect")
        else:
            x = np.pad(x, CONTEXT, mode="reflect")
        parts = correlate(x[None], t["_model.stft.forward_basis_buffer"], 128)
        y = np.hypot(parts[:129], parts[129:])
        for i, stride in enumerate(STRIDES):
            name = f"_model.encoder.{i}.reparam_conv"
            y = correlate(np.pad(y, ((0, 0), (1, 1))), t[f"{name}.weight"], stride)
            y = np.maximum(y + t[f"{name}.bias"].reshape(-1, 1), 0.0)
        rnn = "_model.decoder.rnn"
        gates = t[f"{rnn}.weight_ih"] @ y[:, 0] + t[f"{rnn}.bias_ih"] + t[f"{rnn}.weight_hh"] @ self.h
        i_gate, f_gate, g_gate, o_gate = np.split(gates + t[f"{rnn}.bias_hh"], 4)
        self.c = sigmoid(f_gate) * self.c + sigmoid(i_gate) * np.tanh(g_gate)
        self.h = sigmoid(o_gate) * np.tanh(self.c)
        last = t["_model.decoder.decoder.2.weight"].ravel() @ np.maximum(self.h, 0.0)
        return float(sigmoid(last + t["_model.decoder.decoder.2.bias"].ravel())[0])

    def __call__(self, samples: npt.NDArray[np.float32]) -> Floats:
        """Probabilities of all windows; the last one is filled up with zeros."""
        x = np.pad(samples.astype(np.float64), (0, -len(samples) % WINDOW))
        return np.array([self.window(part) for part in x.reshape(-1, WINDOW)])


@dataclass(frozen=True)
class Settings:
    threshold: float = 0.5
    min_speech_ms: int = 250
    min_silence_ms: int = 100
    max_speech_s: float = float("inf")
    pad_ms: int = 30


def speech(probs: npt.NDArray[np.float32], s: Settings) -> list[Region]:
    """Regions in samples before joining: a straight transcript of the scan's four rules."""
    longest = np.inf
    if 0 < s.max_speech_s <= 100000:
        longest = max(0, int(16000 * s.max_speech_s) - WINDOW - 32 * s.pad_ms)
    threshold = np.float32(s.threshold)
    low = max(threshold - np.float32(0.15), np.float32(0.01))
    found: list[Region] = []
    start: int | None = None
    silent = pause = again = 0  # where silence began, end of speech before a pause, start of speech after it
    for i, p in enumerate(probs):
        at = WINDOW * i
        if p >= threshold and silent:
            silent = 0
            if again < pause:
                again = at
        if p >= threshold and start is None:
            start = at
            continue
        if start is not None and at - start > longest:
            if not pause:
                found.append((start, at))
                start, silent, pause, again = None, 0, 0, 0
                continue
            found.append((start, pause))
            start = None if again < pause else again
            silent = pause = again = 0
        if p < low and start is not None:
            silent = silent or at
            if at - silent > 1568:
                pause = silent
            if at - silent < 16 * s.min_silence_ms:
                continue
            if silent - start > 16 * s.min_speech_ms:
                found.append((start, silent))
            start, silent, pause, again = None, 0, 0, 0
    end = WINDOW * len(probs)
    if start is not None and end - start > 16 * s.min_speech_ms:
        found.append((start, end))
    return found


def regions(probs: npt.NDArray[np.float32], s: Settings) -> list[Region]:
    """Regions in samples, joined, sifted and padded."""
    joined: list[list[int]] = []
    for a, b in speech(probs, s):
        if joined and a - joined[-1][1] < 3200:
            joined[-1][1] = b
        else:
            joined.append([a, b])
    kept = [r for r in joined if r[1] - r[0] >= 16 * s.min_speech_ms]
    if not kept:
        return []
    pad = 16 * s.pad_ms
    gaps = [b[0] - a[1] for a, b in pairwise(kept)]
    shares = [gap // 2 if gap < 2 * pad else pad for gap in gaps]
    before, after = [pad, *shares], [*shares, pad]
    total = WINDOW * len(probs)
    return [(max(0, a - left), min(b + right, total)) for (a, b), left, right in zip(kept, before, after, strict=True)]
