"""Going through a file field by field, and what is done to lists of things that have names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.oracle.damage import Verdict

from .damage import Damage, Field, Original

Place = tuple[str, int, int]
"""Something with a name, and where it begins and ends."""


class Walk:
    """A place in a file that moves on, and the fields before it."""

    def __init__(self, whole: Original, at: int = 0) -> None:
        self.whole, self.at = whole, at
        self.fields: list[Field] = []

    def take(self, what: str, size: int) -> int:
        """A number; its field is kept."""
        field = Field(what, self.at, size)
        self.fields.append(field)
        self.at += size
        return self.whole.number(field)

    def text(self, what: str, size: int) -> bytes:
        """A text behind its length, which has `size` bytes."""
        length = self.take(f"length of {what}", size)
        self.at += length
        return self.whole.data[self.at - length : self.at]


def listed(
    whole: Original, count: Field, places: Iterable[Place], name_at: int, verdict: Verdict, twice: Verdict
) -> Iterator[Damage]:
    """Entries of a list that are missing, there twice, under another name, or with one that is no text.

    `count` says how many there are, and the first comes right behind it or further on; a name lies `name_at` bytes
    behind the beginning of its entry.
    """
    n, first = whole.number(count), count.offset + count.size
    less, more = ((n + change).to_bytes(count.size, "little") for change in (-1, 1))
    for name, start, end in places:
        before, behind = (0, count.offset), (end, whole.size)
        yield whole.made(f"without {name}", [before, less, (first, start), behind], verdict)
        yield whole.made(f"{name} twice", [before, more, (first, end), (start, end), behind], twice)
        yield whole.put(f"{name} under another name", {start + name_at: b"X"}, verdict)
        yield whole.put(f"{name}: a name that is not text", {start + name_at: b"\xff"}, verdict)
