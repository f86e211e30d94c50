"""Vocabularies in GGUF files: `tokenizer.ggml.tokens`, in the alphabet of byte-level BPE.

GGUF's strings are UTF-8, and a token of Whisper may be a part of a character. The alphabet, which GPT-2 brought up,
has a printable character for each of the 256 bytes, so every token is a string and comes back as it was.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from whispyx.errors import ModelFormatError
from whispyx.models.convert.vocabulary import byte_of_character

from .hf_tokenizer import MAX_TOKEN_BYTES

__all__ = ["MAX_TOKENS", "bytes_of", "strings_of"]

MAX_TOKENS: Final = 500_000


@functools.cache
def _table() -> npt.NDArray[np.int16]:
    """The byte that each UTF-16 unit stands for, -1 for those that stand for none."""
    table = np.full(1 << 16, -1, np.int16)
    for character, byte in byte_of_character().items():
        table[ord(character)] = byte
    return table


@functools.cache
def _characters() -> dict[int, str]:
    return {byte: character for character, byte in byte_of_character().items()}


def strings_of(tokens: Iterable[bytes]) -> list[bytes]:
    """Return tokens in the alphabet, as UTF-8."""
    characters = _characters()
    return [token.decode("latin-1").translate(characters).encode("utf-8") for token in tokens]


def bytes_of(strings: tuple[bytes, ...], what: str) -> tuple[bytes, ...]:
    """Return the tokens that strings in the alphabet stand for.

    Parameters
    ----------
    strings : tuple of bytes
        UTF-8.
    what : str
        How messages call the array.

    Raises
    ------
    ModelFormatError
        A string is too long, not UTF-8, or holds a character that stands for no byte; the message gives its number.
    """
    # One by one, 50,000 calls of decode and translate cost more than all the rest of a file's header. Line feeds part
    # the strings: they are no characters of the alphabet.
    try:
        text = b"\n".join(strings).decode("utf-8")
    except UnicodeDecodeError:
        raise _broken(strings, what) from None
    units: npt.NDArray[Any] = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2")
    parts = text.split("\n")
    numbers = _table()[units]
    if strings and (
        len(parts) != len(strings) or len(units) != len(text) or np.count_nonzero(numbers < 0) != len(strings) - 1
    ):
        raise _broken(strings, what)
    data, at, tokens = numbers.astype(np.uint8).tobytes(), 0, []
    for part in parts if strings else ():
        end = at + len(part)
        tokens.append(data[at:end])
        at = end + 1
    if tokens and max(map(len, tokens)) > MAX_TOKEN_BYTES:
        raise _broken(strings, what)
    return tuple(tokens)


def _broken(strings: tuple[bytes, ...], what: str) -> ModelFormatError:
    """Find the string that is wrong: slow, but only where one is."""
    table = byte_of_character()
    for number, raw in enumerate(strings):
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            return ModelFormatError(f"{what}: string {number} ({raw[:80]!r}) is not UTF-8")
        for character in text:
            if character not in table:
                return ModelFormatError(
                    f"{what}: string {number} ({text[:80]!r}) holds {character!r}, no byte's letter"
                )
        if len(text) > MAX_TOKEN_BYTES:
            return ModelFormatError(
                f"{what}: string {number} stands for {len(text)} bytes; {MAX_TOKEN_BYTES} can be meant"
            )
    return ModelFormatError(f"{what}: the strings cannot be read")
