"""JSON from files that nobody vouches for: read strictly, in bounded memory, with every value's type checked."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from whispyx.errors import ModelFormatError

__all__ = ["Document", "parse_json", "shown"]

# What Python makes of a document takes up to some 100 bytes for each of these characters: a bound on their number is a
# bound on memory. A tokenizer of 52,000 tokens with its merges has 400,000.
_MAX_MARKS: Final = 1_000_000
_MAX_DIGITS: Final = 20  # of a whole number: 2**64 has so many

_printer = reprlib.Repr()
_printer.maxstring = _printer.maxother = 160
_printer.maxlist = _printer.maxtuple = _printer.maxdict = 8


def shown(value: object) -> str:
    """Return a representation for a message: short, whatever a file has put into `value`."""
    return _printer.repr(value)


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {shown(key)} is there twice in one object")
            seen.add(key)
    return found


def parse_json(data: bytes, name: str) -> Any:
    """Return what a JSON text means.

    Parameters
    ----------
    data : bytes
        UTF-8. Keys that are there twice, NaN and infinity are refused.
    name : str
        How messages call the text.

    Raises
    ------
    ModelFormatError
        It is no JSON, nested too deeply, or holds more values than any model's file.
    """
    marks = sum(data.count(mark) for mark in (b",", b":", b"[", b"{"))
    if marks > _MAX_MARKS:
        raise ModelFormatError(f"{name} holds some {marks} values; no file of a model has more than {_MAX_MARKS}")
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_object, parse_int=_integer, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"{name}: not valid JSON: {error}") from None


class Document:
    """A JSON object and how messages call it. Getters return None for keys that are null or missing.

    Raises
    ------
    ModelFormatError
        The value is no object; from getters: a value has another type, or is out of range.
    """

    def __init__(self, value: object, name: str) -> None:
        if not isinstance(value, dict):
            raise ModelFormatError(f"{name}: should be a JSON object, not {shown(value)}")
        self.content: Mapping[str, Any] = value
        self.name = name

    def error(self, key: str, reason: str) -> ModelFormatError:
        """Return the error that says what is wrong with the value of `key`."""
        return ModelFormatError(f"{self.name}: {key} is {shown(self.content.get(key))}; {reason}")

    def document(self, key: str) -> Document | None:
        value = self.content.get(key)
        return None if value is None else Document(value, f"{self.name}, {key}")

    def text(self, key: str) -> str | None:
        value = self.content.get(key)
        if value is not None and not isinstance(value, str):
            raise self.error(key, "a text is expected")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.content.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(key, "true or false is expected")
        return value

    def integer(self, key: str, low: int, high: int) -> int | None:
        value = self.content.get(key)
        if value is not None and (type(value) is not int or not low <= value <= high):
            raise self.error(key, f"a whole number from {low} to {high} is expected")
        return value

    def needed(self, key: str, low: int, high: int) -> int:
        """Return the whole number `key`, which has to be there."""
        value = self.integer(key, low, high)
        if value is None:
            raise ModelFormatError(f"{self.name}: {key} is missing")
        return value

    def integers(self, key: str) -> tuple[int, ...] | None:
        value = self.content.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(type(number) is int for number in value):
            raise self.error(key, "a list of whole numbers is expected")
        return tuple(value)

    def pairs(self, key: str) -> tuple[tuple[int, int], ...] | None:
        value = self.content.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(
            isinstance(pair, list) and len(pair) == 2 and all(type(number) is int for number in pair) for pair in value
        ):
            raise self.error(key, "a list of pairs of whole numbers is expected")
        return tuple((first, second) for first, second in value)

    def ids(self, key: str) -> dict[str, int] | None:
        """Return an object that gives each text a number that is no less than 0."""
        value = self.content.get(key)
        if value is None:
            return None
        if not isinstance(value, dict) or not all(type(number) is int and number >= 0 for number in value.values()):
            raise self.error(key, "an object that maps texts to ids is expected")
        return value
