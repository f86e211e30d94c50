"""How far a text follows a grammar, by plain recursion over strings: slow, short and independent of the core.

A rule is a list of alternatives; an alternative is a list of items; an item is a rule's number or a class of
characters `(negated, ((low, high), …))`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

CharacterClass = tuple[bool, tuple[tuple[int, int], ...]]
Item = int | CharacterClass
Rules = Sequence[Sequence[Sequence[Item]]]

END, ALT, RULE_REF, CHAR, CHAR_NOT, CHAR_RNG_UPPER, CHAR_ALT = range(7)


class TooDeep(Exception):
    """A rule called itself again and again without reading a character."""


def holds(item: CharacterClass, character: str) -> bool:
    negated, ranges = item
    return negated != any(low <= ord(character) <= high for low, high in ranges)


def readings(rules: Rules, items: Sequence[Item], text: str, depth: int = 0) -> Iterator[tuple[str, bool]]:
    """Each way in which items read the beginning of a text.

    Gives what is left of the text and whether all items were read; if not, the text ended where a character was due.
    """
    if depth > 60:
        raise TooDeep
    if not items:
        yield text, True
        return
    item, rest = items[0], items[1:]
    if isinstance(item, int):
        for alternative in rules[item]:
            for left, whole in readings(rules, alternative, text, depth + 1):
                if whole:
                    yield from readings(rules, rest, left, depth + 1)
                else:
                    yield left, False
    elif not text:
        yield text, False
    elif holds(item, text[0]):
        yield from readings(rules, rest, text[1:], depth + 1)


def follows(rules: Rules, text: str) -> bool:
    """Whether a text is whole, or the beginning of one, by rule 0."""
    return any(not left for left, _ in readings(rules, [0], text))


def completes(rules: Rules, text: str) -> bool:
    """Whether a text is whole."""
    return any(whole and not left for left, whole in readings(rules, [0], text))


@functools.lru_cache(maxsize=64)
def completions(part: bytes) -> tuple[str, ...]:
    """Every character whose UTF-8 begins with some bytes, by trying all."""
    every = (chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF)
    return tuple(c for c in every if c.encode().startswith(part))


def split(raw: bytes) -> tuple[str, bytes] | None:
    """Whole characters and the bytes of a last one that is only begun; None where this is no UTF-8."""
    for cut in range(len(raw), max(-1, len(raw) - 4), -1):
        try:
            text = raw[:cut].decode()
        except UnicodeDecodeError:
            continue
        tail = raw[cut:]
        return (text, tail) if not tail or completions(tail) else None
    return None


def may_follow(rules: Rules, before: bytes, token: bytes) -> bool:
    """Whether a token may come after some bytes: some way to go on from there stays in the grammar."""
    found = split(before + token)
    if found is None:
        return False
    text, tail = found
    if not tail:
        return follows(rules, text)
    edges = {edge for rule in rules for alternative in rule for item in alternative if not isinstance(item, int)
             for low, high in item[1] for edge in (low - 1, low, high, high + 1)}  # fmt: skip
    possible = completions(tail)
    worth_trying = {c for c in possible if ord(c) in edges} | {possible[0], possible[-1]}
    return any(follows(rules, text + c) for c in worth_trying)


def elements(rules: Rules) -> list[list[tuple[int, int]]]:
    """The rules as arrays of (type, value), as whisper.h takes them."""
    out = []
    for rule in rules:
        row: list[tuple[int, int]] = []
        for i, alternative in enumerate(rule):
            if i:
                row.append((ALT, 0))
            for item in alternative:
                if isinstance(item, int):
                    row.append((RULE_REF, item))
                    continue
                for j, (low, high) in enumerate(item[1]):
                    row.append(((CHAR_NOT if item[0] else CHAR) if j == 0 else CHAR_ALT, low))
                    if high != low:
                        row.append((CHAR_RNG_UPPER, high))
        out.append([*row, (END, 0)])
    return out
