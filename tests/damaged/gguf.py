"""Damaged GGUF files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .damage import Damage, Field, Original
from .walk import Place, Walk, listed

SIZES: Final = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9


class Header(Walk):
    """Where keys, tensors and their fields lie, read after the specification."""

    def __init__(self, whole: Original) -> None:
        super().__init__(whole, 4)
        self.keys: list[Place] = []
        self.tensors: list[Place] = []
        self.take("version", 4)
        n_tensors, n_keys = self.take("number of tensors", 8), self.take("number of keys", 8)
        for _ in range(n_keys):
            start = self.at
            name = self.text("the name of a key", 8).decode()
            self.value(name, self.take(f"type of {name}", 4))
            self.keys.append((name, start, self.at))
        for i in range(n_tensors):
            start, first = self.at, len(self.fields)
            name = self.text("the name of a tensor", 8).decode()
            for axis in range(self.take(f"dimensions of {name}", 4)):
                self.take(f"dimension {axis} of {name}", 8)
            self.take(f"type of {name}", 4)
            self.take(f"offset of {name}", 8)
            self.tensors.append((name, start, self.at))
            if i % max(1, n_tensors // 4):
                del self.fields[first:]  # there are enough others
        self.end = self.at

    def value(self, name: str, kind: int) -> None:
        if kind == STRING:
            self.text(name, 8)
        elif kind == ARRAY:
            item = self.take(f"type of the items of {name}", 4)
            count = self.take(f"number of items of {name}", 8)
            if item == STRING:
                for i in range(count):
                    field = Field(f"length of item {i} of {name}", self.at, 8)
                    if i in (0, count - 1):
                        self.fields.append(field)
                    self.at += 8 + self.whole.number(field)
            else:
                self.at += SIZES[item] * count
        else:
            self.take(f"value of {name}", SIZES[kind])


def cases(path: Path) -> Iterator[Damage]:
    whole = Original(path)
    walk = Header(whole)
    yield from whole.swapped()
    at = {0, 1, 3, 4, 8, 16, 23, 24, walk.end - 1, walk.end, walk.end + 1, whole.size // 2, whole.size - 1}
    at |= {start + 4 for _, start, _ in (*walk.keys, *walk.tensors[:: max(1, len(walk.tensors) // 4)])}
    for length in sorted(at - {0}):
        yield whole.cut(length)
    yield from whole.numbers(walk.fields)
    yield from listed(whole, Field("keys", 16, 8), walk.keys, 8, "either", "either")
    some = [*walk.tensors[:: max(1, len(walk.tensors) // 6)], walk.tensors[-1]]
    yield from listed(whole, Field("tensors", 8, 8), some, 8, "refused", "refused")
    yield whole.made("100 bytes too many", [(0, whole.size), bytes(100)])
    yield from whole.flipped([(4, walk.end), *((start, end) for _, start, end in walk.tensors)], 120)
