"""Damaged folders: Hugging Face's with safetensors, and CTranslate2's."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from .damage import Damage, Field, Original
from .walk import Place, Walk, listed

VALUES: Final = (
    *(None, True, -1, 0, 1, 7, 2**31 - 1, 2**31, 2**63, 10**30, 1.5, 1e300),
    *("", "x" * 5000, [], {}, [[1, -1]]),
)
BROKEN: Final = {
    "not closed": b'{"a": [1, 2',
    "not UTF-8": b'{"a": "\xff\xfe"}',
    "deep": b"[" * 100_000,
    "a list": b"[]",
    "a number": b"7",
    "a huge number": b'{"vocab_size": 1' + b"0" * 5000 + b"}",
    "many keys": b"{" + b",".join(b'"k%d":{"a":[]}' % i for i in range(100_000)) + b"}",
    "twice the same key": b'{"model_type": "whisper", "model_type": 7}',
}


def document(folder: Path, file: str, values: bool = True) -> Iterator[Damage]:
    """A JSON document that is missing, another, cut, or has odd values."""
    whole = Original(folder / file, file)
    yield whole.gone()
    yield from (damage for damage in whole.swapped() if damage.name != f"{file}: foreign: an answer in JSON")
    yield whole.made("an object without what is wanted", [b'{"error": "Repository not found"}'])
    for length in (1, whole.size // 3, whole.size - 1):
        yield whole.cut(length, "either")
    for name, content in BROKEN.items():
        yield whole.made(name, [content])
    content: Any = json.loads(bytes(whole.data))
    if not values or not isinstance(content, dict):
        return
    for key in content:
        rest = {name: value for name, value in content.items() if name != key}
        yield whole.made(f"without {key}", [json.dumps(rest).encode()])
        for value in VALUES:
            changed = json.dumps(content | {key: value}).encode()
            yield whole.made(f"{key} = {str(value)[:40]}", [changed])


def huggingface(folder: Path) -> Iterator[Damage]:
    for file in ("config.json", "generation_config.json"):
        yield from document(folder, file)
    yield from document(folder, "tokenizer.json", values=False)
    yield from safetensors(folder, "model.safetensors")


def safetensors(folder: Path, file: str) -> Iterator[Damage]:
    whole = Original(folder / file, file)
    length = whole.number(Field("", 0, 8))
    end = 8 + length
    header: dict[str, Any] = json.loads(whole.data[8:end])

    def headed(name: str, changed: object, verdict: Any = "either") -> Damage:
        raw = changed if isinstance(changed, bytes) else json.dumps(changed).encode()
        return whole.instead(name, 0, end, struct.pack("<Q", len(raw)) + raw, verdict)

    yield whole.gone()
    yield from whole.swapped()
    for at in (1, 7, 8, 9, end - 1, end, end + 1, whole.size // 2, whole.size - 1):
        yield whole.cut(at)
    yield from whole.numbers([Field("length of the header", 0, 8)])
    yield whole.made("100 bytes too many", [(0, whole.size), bytes(100)], "refused")
    yield from whole.flipped([(0, 8), (8, end)], 60)
    for name, content in BROKEN.items():
        yield headed(f"header: {name}", content, "refused")
    names = [name for name in header if name != "__metadata__"]
    for name in [*names[:: max(1, len(names) // 5)], "model.decoder.embed_tokens.weight"]:
        entry = header[name]
        rest = {other: value for other, value in header.items() if other != name}
        yield headed(f"without {name}", rest, "refused")
        yield headed(f"{name} under another name", rest | {f"{name}x": entry}, "refused")
        twice = json.dumps(header)[:-1] + f', "{name}": {json.dumps(entry)}}}'
        yield headed(f"{name} twice", twice.encode(), "refused")
        for value in (*VALUES, {"dtype": "F16"}):
            yield headed(f"{name} = {str(value)[:40]}", header | {name: value}, "refused")
        for key, odd in (("dtype", DTYPES), ("shape", shapes(entry["shape"])), ("data_offsets", OFFSETS)):
            for value in odd:
                yield headed(f"{name}: {key} = {str(value)[:60]}", header | {name: entry | {key: value}})
    first, last = names[0], names[-1]
    yield headed(f"{first} and {last} exchanged", header | {first: header[last], last: header[first]}, "refused")
    yield headed("metadata that is no texts", header | {"__metadata__": {"a": [1]}})


DTYPES: Final = ("F32", "F64", "I8", "BOOL", "F8_E4M3", "", "f16", None, 1)
OFFSETS: Final[tuple[Any, ...]] = (
    [0, 0], [0, 2**31], [0, 2**63], [2**63, 2**63 + 2], [-2, 0], [2, 0], [1.0, 3.0], [0], [0, 1, 2], None, "0",
    [True, 2],
)  # fmt: skip


def shapes(shape: list[int]) -> list[Any]:
    """Other shapes, some of the same size, some of one that overflows 64 bits."""
    odd: list[Any] = [[], [0], [1, *shape], shape[::-1], [*shape, 1, 1, 1, 1, 1], [-1 * n for n in shape], None, "8"]
    odd += [[2**32, 2**32], [2**63], [2**62, 4, *shape], [1.0], [True], [shape[0] + 1, *shape[1:]]]
    return [value for value in odd if value != shape]


class Variables(Walk):
    """Where the fields of a model.bin lie."""

    def __init__(self, whole: Original) -> None:
        super().__init__(whole)
        self.variables: list[Place] = []
        self.take("version", 4)
        self.text("the kind", 2)
        self.take("revision", 4)
        n = self.take("number of variables", 4)
        self.count = self.fields[-1]
        for i in range(n):
            start, first = self.at, len(self.fields)
            name = self.text("a variable", 2)[:-1].decode()
            for axis in range(self.take(f"dimensions of {name}", 1)):
                self.take(f"dimension {axis} of {name}", 4)
            self.take(f"type of {name}", 1)
            size = self.take(f"size of {name}", 4)
            self.at += size
            self.variables.append((name, start, self.at))
            if i % max(1, n // 12):
                del self.fields[first:]
        self.aliases = self.at
        for _ in range(self.take("number of aliases", 4)):
            self.text("an alias", 2)
            self.text("what an alias stands for", 2)
        assert self.at == whole.size


def ctranslate2(folder: Path) -> Iterator[Damage]:
    for path in sorted(folder.glob("*.json")):
        yield from document(folder, path.name, values=path.name == "config.json")
    whole = Original(folder / "model.bin", "model.bin")
    walk = Variables(whole)
    yield whole.gone()
    yield from whole.swapped()
    some = [*walk.variables[:: max(1, len(walk.variables) // 8)], walk.variables[-1]]
    at = {1, 3, 4, 5, 6, 10, 17, 18, 22, walk.aliases, walk.aliases + 3, whole.size // 2, whole.size - 1}
    for length in sorted(at | {start + 7 for _, start, _ in some} | {end - 1 for _, _, end in some}):
        yield whole.cut(length)
    yield from whole.numbers(walk.fields)
    yield from listed(whole, walk.count, some, 2, "either", "refused")
    yield whole.made("100 bytes too many", [(0, whole.size), bytes(100)])
    heads = [(start, start + len(name) + 20) for name, start, _ in walk.variables]
    yield from whole.flipped([(0, 22), (walk.aliases, whole.size), *heads], 90)
