"""Writes files as `torch.save` does, and wrong ones: an archive and a pickle, byte by byte, without PyTorch."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

WIDTH, HEADS, N_AUDIO_CTX, N_TEXT_CTX = 4, 2, 12, 6
PROTO, STOP, MARK = b"\x80\x02", b".", b"("


@dataclass
class Item:
    """One record of a zip file. `local` replaces what its own header says: name, flags, method, crc, packed, size."""

    name: str
    data: bytes = b""
    method: int = 0
    flags: int = 0x0808
    """Texts are UTF-8; sizes follow the data, as PyTorch has it."""
    size: int | None = None
    packed: int | None = None
    crc: int | None = None
    header: int | None = None
    extra: bytes = b""
    local: dict[str, Any] = field(default_factory=dict)


def deflated(name: str, data: bytes) -> Item:
    squeezed = zlib.compress(data, 9)[2:-4]
    return Item(name, squeezed, method=8, size=len(data), crc=zlib.crc32(data))


def zip_of(
    items: Iterable[Item],
    *,
    wide: bool = True,
    comment: bytes = b"",
    end: dict[str, int] | None = None,
    align: int = 64,
) -> bytes:
    """A zip file, with (`wide`) or without 64-bit end records; `end` replaces n_here, n, size or offset there."""
    out, directory = bytearray(), bytearray()
    count = 0
    for item in items:
        count += 1
        at = len(out)
        size = len(item.data) if item.size is None else item.size
        packed = len(item.data) if item.packed is None else item.packed
        crc = zlib.crc32(item.data) if item.crc is None else item.crc
        late = bool(item.flags & 8)
        says = {"name": item.name, "flags": item.flags, "method": item.method}
        says |= {"crc": 0, "packed": 0, "size": 0} if late else {"crc": crc, "packed": packed, "size": size}
        says |= item.local
        own, name = says["name"].encode(), item.name.encode()
        padding = says.get("extra", b"")
        if not padding:
            room = -(at + 30 + len(own) + 4) % align
            padding = struct.pack("<2sH", b"FB", room) + b"Z" * room
        head = (
            20,
            says["flags"],
            says["method"],
            0,
            0,
            says["crc"],
            says["packed"],
            says["size"],
            len(own),
            len(padding),
        )
        out += struct.pack("<4s5H3I2H", b"PK\3\4", *head) + own + padding + item.data
        if late:
            out += struct.pack("<4s3I", b"PK\7\x08", crc, packed & 0xFFFFFFFF, size & 0xFFFFFFFF)
        header = at if item.header is None else item.header
        lengths = (len(name), len(item.extra), 0, 0, 0, 0)
        entry = (20, 20, item.flags, item.method, 0, 0, crc, packed, size, *lengths, header)
        directory += struct.pack("<4s6H3I5H2I", b"PK\1\2", *entry) + name + item.extra
    says = {"n_here": count, "n": count, "size": len(directory), "offset": len(out)} | (end or {})
    four = (says["n_here"], says["n"], says["size"], says["offset"])
    out += directory
    if wide:
        at = len(out)
        out += struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 798, 45, 0, 0, *four)
        out += struct.pack("<4sIQI", b"PK\6\7", 0, at, 1)
    out += struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, *four, len(comment)) + comment
    return bytes(out)


# A pickle, in the instructions of protocol 2 that PyTorch's are made of.


@dataclass(frozen=True)
class Name:
    """A name of Python."""

    module: str
    name: str


@dataclass(frozen=True)
class Call:
    function: Any
    arguments: tuple[Any, ...]
    state: Any = None


@dataclass(frozen=True)
class Persistent:
    value: Any


class Ordered(dict[Any, Any]):
    """Written as an OrderedDict, with the note that a state_dict has."""

    note: bool = True


ORDERED = Name("collections", "OrderedDict")
REBUILD = Name("torch._utils", "_rebuild_tensor_v2")
PARAMETER = Name("torch._utils", "_rebuild_parameter")


def global_(module: str, name: str) -> bytes:
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


class _Writer:
    def __init__(self) -> None:
        self.out = bytearray()
        self.places: dict[Any, int] = {}
        self.next = 0

    def keep(self, key: Any = None) -> None:
        index, self.next = self.next, self.next + 1
        self.out += b"q" + bytes([index]) if index < 256 else b"r" + struct.pack("<I", index)
        if key is not None:
            self.places[key] = index

    def known(self, key: Any) -> bool:
        index = self.places.get(key)
        if index is not None:
            self.out += b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<I", index)
        return index is not None

    def write(self, value: Any) -> None:
        if value is None or isinstance(value, bool):
            self.out += {None: b"N", True: b"\x88", False: b"\x89"}[value]
        elif isinstance(value, int):
            self.integer(value)
        elif isinstance(value, float):
            self.out += b"G" + struct.pack(">d", value)
        elif isinstance(value, str):
            if not self.known(value):
                self.out += text(value)
                self.keep(value)
        elif isinstance(value, Name):
            if not self.known(value):
                self.out += global_(value.module, value.name)
                self.keep(value)
        elif isinstance(value, Call):
            self.write(value.function)
            self.write(value.arguments)
            self.out += b"R"
            self.keep()
            if value.state is not None:
                self.write(value.state)
                self.out += b"b"
        elif isinstance(value, Persistent):
            self.write(value.value)
            self.out += b"Q"
        elif isinstance(value, tuple):
            self.tuple(value)
        elif isinstance(value, list):
            self.out += b"]"
            self.keep()
            self.batch(value, b"e")
        elif isinstance(value, Ordered):
            self.write(Call(ORDERED, ()))
            self.batch([part for pair in value.items() for part in pair], b"u")
            if value.note:
                self.write({"_metadata": Call(ORDERED, ())})
                self.out += b"b"
        elif isinstance(value, dict):
            self.out += b"}"
            self.keep()
            self.batch([part for pair in value.items() for part in pair], b"u")
        else:
            raise TypeError(value)

    def integer(self, value: int) -> None:
        if 0 <= value < 256:
            self.out += b"K" + bytes([value])
        elif 0 <= value < 65536:
            self.out += b"M" + struct.pack("<H", value)
        elif -(1 << 31) <= value < 1 << 31:
            self.out += b"J" + struct.pack("<i", value)
        else:
            raw = value.to_bytes(max(value, ~value).bit_length() // 8 + 1, "little", signed=True)
            self.out += b"\x8a" + bytes([len(raw)]) + raw

    def tuple(self, value: tuple[Any, ...]) -> None:
        if not value:
            self.out += b")"
            return
        if len(value) > 3:
            self.out += MARK
        for part in value:
            self.write(part)
        self.out += {1: b"\x85", 2: b"\x86", 3: b"\x87"}.get(len(value), b"t")
        self.keep()

    def batch(self, values: list[Any], ending: bytes) -> None:
        for at in range(0, len(values), 2000):
            self.out += MARK
            for value in values[at : at + 2000]:
                self.write(value)
            self.out += ending


def pickle_of(value: Any) -> bytes:
    writer = _Writer()
    writer.write(value)
    return PROTO + bytes(writer.out) + STOP


LEGACY_MAGIC = PROTO + b"\x8a\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little") + STOP

KINDS = {
    "float16": "Half",
    "float32": "Float",
    "float64": "Double",
    "uint16": "BFloat16",
    "bool": "Bool",
    "int64": "Long",
}


class Bag:
    """Storages of a file. `add` gives the pickled form of a tensor; uint16 arrays hold bfloat16. `legacy`: as PyTorch
    before 1.6 has it."""

    def __init__(self, legacy: bool = False) -> None:
        self.storages: dict[str, bytes] = {}
        self.sizes: dict[str, int] = {}
        self.more: tuple[None, ...] = (None,) if legacy else ()

    def storage(self, array: Array, n: int | None = None) -> Persistent:
        key = str(len(self.storages))
        self.storages[key] = array.tobytes()
        kind = Name("torch", f"{KINDS[array.dtype.name]}Storage")
        self.sizes[key] = array.size
        return Persistent(("storage", kind, key, "cpu", array.size if n is None else n, *self.more))

    def add(self, array: Array) -> Call:
        return self.view(self.storage(array), 0, array.shape)

    @staticmethod
    def view(storage: Any, start: Any, shape: Any, strides: Any = None) -> Call:
        if strides is None:
            strides = tuple(int(np.prod(shape[index + 1 :])) for index in range(len(shape)))
        return Call(REBUILD, (storage, start, shape, strides, False, Call(ORDERED, ())))


def settings_of(*, n_vocab: int = 51864, n_mels: int = 80, layers: tuple[int, int] = (2, 1)) -> dict[str, Any]:
    return {
        "n_mels": n_mels, "n_audio_ctx": N_AUDIO_CTX, "n_audio_state": WIDTH, "n_audio_head": HEADS,
        "n_audio_layer": layers[0], "n_vocab": n_vocab, "n_text_ctx": N_TEXT_CTX, "n_text_state": WIDTH,
        "n_text_head": HEADS, "n_text_layer": layers[1],
    }  # fmt: skip


def shapes_of(dims: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a checkpoint's tensors, from the table of whisper.cpp's files (there fastest axis first)."""
    width = dims["n_audio_state"]
    shapes: dict[str, tuple[int, ...]] = {
        "encoder.positional_embedding": (dims["n_audio_ctx"], width),
        "encoder.conv1.weight": (width, dims["n_mels"], 3),
        "encoder.conv1.bias": (width,),
        "encoder.conv2.weight": (width, width, 3),
        "encoder.conv2.bias": (width,),
        "decoder.positional_embedding": (dims["n_text_ctx"], width),
        "decoder.token_embedding.weight": (dims["n_vocab"], width),
    }
    blocks = [(f"encoder.blocks.{i}", ["attn"]) for i in range(dims["n_audio_layer"])]
    blocks += [(f"decoder.blocks.{i}", ["attn", "cross_attn"]) for i in range(dims["n_text_layer"])]
    norms = ["encoder.ln_post", "decoder.ln"]
    for block, attentions in blocks:
        norms += [f"{block}.mlp_ln", *(f"{block}.{attention}_ln" for attention in attentions)]
        for attention in attentions:
            for part in ("query", "key", "value", "out"):
                shapes[f"{block}.{attention}.{part}.weight"] = (width, width)
                shapes[f"{block}.{attention}.{part}.bias"] = (width,)
            del shapes[f"{block}.{attention}.key.bias"]
        shapes |= {f"{block}.mlp.0.weight": (4 * width, width), f"{block}.mlp.0.bias": (4 * width,)}
        shapes |= {f"{block}.mlp.2.weight": (width, 4 * width), f"{block}.mlp.2.bias": (width,)}
    for norm in norms:
        shapes |= {f"{norm}.weight": (width,), f"{norm}.bias": (width,)}
    return shapes


class Checkpoint:
    """An OpenAI checkpoint with random weights; change `dims`, `state`, `bag` or `items` before `encoded`."""

    def __init__(self, dtype: str = "float16", legacy: bool = False, **sizes: Any) -> None:
        rng = np.random.default_rng(5)
        self.dims = settings_of(**sizes)
        self.bag = Bag(legacy)
        self.arrays = {
            name: rng.standard_normal(shape, np.float32).astype(dtype) for name, shape in shapes_of(self.dims).items()
        }
        self.state: dict[str, Any] = Ordered({name: self.bag.add(array) for name, array in self.arrays.items()})
        self.others: dict[str, Any] = {}

    def pickle(self) -> bytes:
        return pickle_of({"dims": self.dims, "model_state_dict": self.state, **self.others})

    def items(self, root: str = "archive") -> list[Item]:
        return [
            Item(f"{root}/data.pkl", self.pickle()),
            Item(f"{root}/.format_version", b"1"),
            Item(f"{root}/byteorder", b"little"),
            *(Item(f"{root}/data/{key}", data) for key, data in self.bag.storages.items()),
            Item(f"{root}/version", b"3\n"),
        ]

    def encoded(self) -> bytes:
        return zip_of(self.items())

    def legacy(self, **changes: Any) -> bytes:
        """The file as PyTorch before 1.6 wrote it; `changes` replace version, system, keys or sizes."""
        system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
        keys = changes.get("keys", sorted(self.bag.storages))
        sizes = {**self.bag.sizes, **changes.get("sizes", {})}
        parts = [LEGACY_MAGIC, pickle_of(changes.get("version", 1001)), pickle_of(changes.get("system", system))]
        parts += [self.pickle(), pickle_of(keys)]
        parts += [struct.pack("<q", sizes[key]) + self.bag.storages[key] for key in keys if key in sizes]
        return b"".join(parts)
