"""Texts of the tokens of OpenAI's models, for files that have no vocabulary of their own.

Each token after the 256 bytes is two earlier ones joined, so that a vocabulary is a list of pairs of numbers, which
packs smaller than its texts do. `tools/make_tokens.py` makes the files; the vocabularies are OpenAI's (MIT licence).
"""

from __future__ import annotations

import base64
import zlib
from importlib import resources
from typing import Final

import numpy as np
import numpy.typing as npt

from whispyx.models.convert.vocabulary import byte_of_character

__all__ = ["N_PAIRS", "known_tokens", "packed_pairs", "pairs_of", "tokens_of"]

N_PAIRS: Final = 50_000
"""Of the vocabulary of GPT-2, which English-only models have, and of that of multilingual models."""

_LINE: Final = 120
_FILES: Final = {51864: "tokens_english.txt", 51865: "tokens_multilingual.txt", 51866: "tokens_multilingual.txt"}


def tokens_of(pairs: npt.NDArray[np.uint16]) -> list[bytes]:
    """Return the 256 single bytes, in GPT-2's order, and then for each pair the two tokens that it numbers, joined."""
    tokens = [bytes([byte]) for byte in byte_of_character().values()]
    for left, right in pairs.tolist():
        tokens.append(tokens[left] + tokens[right])
    return tokens


def pairs_of(tokens: list[bytes]) -> npt.NDArray[np.uint16]:
    """Undo `tokens_of`: uint16, shape (len(tokens) - 256, 2). Of several pairs, the one whose first part is longest."""
    numbers = {token: number for number, token in enumerate(tokens)}
    pairs = []
    for number, token in enumerate(tokens[256:], 256):
        halves = ((numbers.get(token[:cut]), numbers.get(token[cut:])) for cut in range(len(token) - 1, 0, -1))
        pairs.append(next((a, b) for a, b in halves if a is not None and b is not None and max(a, b) < number))
    return np.array(pairs, np.uint16)


def packed_pairs(pairs: npt.NDArray[np.uint16]) -> str:
    """Write pairs as lines of text: first numbers, then second ones, low bytes before high ones, by zlib and base64."""
    planes = np.ascontiguousarray(pairs.T).astype("<u2").view(np.uint8).reshape(2, len(pairs), 2).transpose(0, 2, 1)
    text = base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode("ascii")
    return "".join(f"{text[at : at + _LINE]}\n" for at in range(0, len(text), _LINE))


def _unpacked_pairs(text: str) -> npt.NDArray[np.uint16]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    planes = np.frombuffer(zlib.decompress(base64.b64decode("".join(lines))), np.uint8).reshape(2, 2, -1)
    low, high = planes[:, 0].astype(np.uint16), planes[:, 1].astype(np.uint16)
    pairs: npt.NDArray[np.uint16] = low.T + high.T * np.uint16(256)
    return pairs


def known_tokens(n_vocab: int) -> tuple[bytes, ...] | None:
    """Return the texts of the tokens before the end-of-text token, or None if no published model has this `n_vocab`.

    English-only models (51864) have 50256, multilingual ones (51865, 51866) 50257, of which the last is empty.
    """
    if n_vocab not in _FILES:
        return None
    text = (resources.files("whispyx") / "data" / _FILES[n_vocab]).read_text("ascii")
    tokens = tokens_of(_unpacked_pairs(text))
    return (*tokens, b"") if n_vocab > 51864 else tuple(tokens)
