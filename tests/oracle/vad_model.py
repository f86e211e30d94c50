"""Small Silero networks with random weights as files, and damaged copies of them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .damage import FOREIGN, Case

N_BINS = 129
NASTY = (-(2**31), -1, 0, 1, 2, 3, 4, 5, 63, 65, 127, 1023, 1025, 2**16, 2**30, 2**31 - 1)
F16 = ("stft", "reparam_conv.weight", "decoder.2.weight")


@dataclass(frozen=True)
class SmallSilero:
    """Sizes of a network; those of the real one are 128, 64, 64, 128 and 128."""

    widths: tuple[int, int, int, int] = (16, 8, 8, 16)
    hidden: int = 16
    seed: int = 1
    changes: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)

    def tensors(self) -> dict[str, npt.NDArray[np.float32]]:
        """Random weights by name, slowest axis first, of sizes that let the output depend on the input."""
        rng = np.random.default_rng(self.seed)
        out = {}
        sizes = (N_BINS, *self.widths)
        for i in range(4):
            scale = 1.5 / np.sqrt(3 * sizes[i])
            out[f"_model.encoder.{i}.reparam_conv.weight"] = scale * rng.standard_normal((sizes[i + 1], sizes[i], 3))
            out[f"_model.encoder.{i}.reparam_conv.bias"] = 0.1 * rng.standard_normal(sizes[i + 1])
        for kind, width in (("ih", self.widths[3]), ("hh", self.hidden)):
            out[f"_model.decoder.rnn.weight_{kind}"] = rng.standard_normal((4 * self.hidden, width)) / np.sqrt(width)
            out[f"_model.decoder.rnn.bias_{kind}"] = 0.3 * rng.standard_normal(4 * self.hidden)
        out["_model.decoder.decoder.2.weight"] = 2 * rng.standard_normal(self.hidden)
        out["_model.decoder.decoder.2.bias"] = 0.2 * rng.standard_normal(())
        angle = 2 * np.pi * np.arange(N_BINS)[:, None] * np.arange(256) / 256
        window = np.hanning(257)[:256]
        out["_model.stft.forward_basis_buffer"] = np.concatenate(
            [window * np.cos(angle), -window * np.sin(angle)]
        ).reshape(2 * N_BINS, 1, 256)
        return {name: np.asarray(value, np.float32) for name, value in out.items()} | self.changes

    def header(self) -> bytes:
        a, b, c, d = self.widths
        layers = (N_BINS, a, 3, a, b, 3, b, c, 3, c, d, 3)
        return struct.pack("<2i10s22i", 0x67676D6C, 10, b"silero-16k", 6, 2, 0, 512, 64, 4, *layers, d, self.hidden,
                           self.hidden, 1)  # fmt: skip

    def records(self) -> dict[str, bytes]:
        return {name: record(name, value) for name, value in self.tensors().items()}

    def to_bytes(self) -> bytes:
        return self.header() + b"".join(self.records().values())


def record(name: str, value: npt.NDArray[np.float32]) -> bytes:
    kind = 1 if any(part in name for part in F16) else 0
    dims = value.shape[::-1]
    head = struct.pack(f"<3i{len(dims)}i", len(dims), len(name), kind, *dims)
    return head + name.encode() + value.astype("<f2" if kind else "<f4").tobytes()


def cases(model: SmallSilero) -> Iterator[Case]:
    """Damaged copies of a model, each with what must become of it ("refused", or "either")."""
    data, header, records = model.to_bytes(), model.header(), model.records()
    for name, content in FOREIGN.items():
        yield Case(f"foreign: {name}", content, "refused")
    starts, at = {}, len(header)
    for name, content in records.items():
        starts[name] = at
        at += len(content)
    yield from _cut(data, header, starts)
    yield from _numbers(data, header)
    yield from _records(data, header, records, starts)
    yield from _flipped(data, header, records, starts)


def _cut(data: bytes, header: bytes, starts: dict[str, int]) -> Iterator[Case]:
    at = {1, 3, 4, 7, 8, 12, 17, 18, *range(20, len(header), 7), len(header)}
    for start in starts.values():
        at |= {start + 1, start + 4, start + 11, start + 13, start + 30, start + 70}
    for length in sorted(n for n in at if n not in starts.values() or n == len(header)):
        yield Case(f"cut to {length}", data[:length], "refused")
    for name, start in starts.items():
        yield Case(f"cut before {name}", data[:start], "refused")
    yield Case("cut by one byte", data[:-1], "refused")


def _patched(data: bytes, offset: int, value: int) -> bytes:
    return data[:offset] + struct.pack("<I", value & 0xFFFFFFFF) + data[offset + 4 :]


def _numbers(data: bytes, header: bytes) -> Iterator[Case]:
    for offset in (0, 4, *range(18, len(header), 4)):
        (was,) = struct.unpack_from("<i", data, offset)
        for value in sorted({*NASTY, was - 1, was + 1, 2 * was} - {was}):
            # The version is not a size: any one is taken.
            verdict = "either" if 18 <= offset < 30 else "refused"
            yield Case(f"number at {offset} = {value}", _patched(data, offset, value), verdict)
    yield Case("another type", data.replace(b"silero-16k", b"silero-08k"), "refused")
    yield Case("a type that is not text", data.replace(b"silero-16k", b"\xff" * 10), "refused")


def _records(data: bytes, header: bytes, records: dict[str, bytes], starts: dict[str, int]) -> Iterator[Case]:
    for name, start in starts.items():
        (n_dims,) = struct.unpack_from("<i", data, start)
        for what, offset in (("n_dims", 0), ("name length", 4), ("type", 8)):
            (was,) = struct.unpack_from("<i", data, start + offset)
            for value in {*NASTY, 30, 39, 64, 1000} - {was}:
                yield Case(f"{name}: {what} = {value}", _patched(data, start + offset, value), "refused")
        for axis in range(n_dims):
            (was,) = struct.unpack_from("<i", data, start + 12 + 4 * axis)
            for value in {*NASTY} - {was}:
                changed = _patched(data, start + 12 + 4 * axis, value)
                yield Case(f"{name}: size of axis {axis} = {value}", changed, "refused")
        others = b"".join(content for other, content in records.items() if other != name)
        yield Case(f"{name} missing", header + others, "refused")
        yield Case(f"{name} twice", data + records[name], "refused")
        yield Case(f"{name} last", header + others + records[name], "either")
        nan = b"\xff" * 8
        body = start + 12 + 4 * n_dims + len(name)
        yield Case(f"{name} not a number", data[:body] + nan[:4] + data[body + 4 :], "refused")
    yield Case("no tensors", header, "refused")
    yield Case("an unknown tensor", data + record("_model.more", np.zeros(3, np.float32)), "refused")
    for n in (1, 4, 11, 12, 100):
        yield Case(f"{n} bytes too many", data + bytes(n), "refused")


def _flipped(data: bytes, header: bytes, records: dict[str, bytes], starts: dict[str, int]) -> Iterator[Case]:
    """Single bits flipped anywhere, weights included."""
    rng = np.random.default_rng(78)
    names = list(starts)
    for i in range(120):
        if i % 3 == 0:
            offset = int(rng.integers(0, len(header)))
        elif i % 3 == 1:
            offset = starts[names[int(rng.integers(len(names)))]] + int(rng.integers(0, 60))
        else:
            offset = int(rng.integers(len(header), len(data)))
        changed = bytearray(data)
        changed[offset % len(data)] ^= 1 << int(rng.integers(8))
        yield Case(f"bit flipped at {offset} ({i})", bytes(changed), "either")
