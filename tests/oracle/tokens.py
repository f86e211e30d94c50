"""Special token ids, texts of ids that a file does not store, and the prompt tokenizer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .reader import ModelFile

# "Letter" and "digit" are ASCII only; every byte from 0x80 on counts as punctuation.
_PIECES = re.compile(rb"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\s\dA-Za-z]+|\s+(?!\S)|\s+", re.ASCII)


@dataclass(frozen=True)
class Special:
    """The ids that are not text. `lang` is the first language, ids go on from there."""

    eot: int
    sot: int
    translate: int
    transcribe: int
    solm: int
    prev: int
    nosp: int
    no_timestamps: int
    beg: int
    multilingual: bool
    n_languages: int
    n_times: int = 1501  # 0.00 to 30.00 s

    @property
    def end(self) -> int:
        """Behind the last timestamp. Only fine-tuned models have tokens from here on, words of their own."""
        return self.beg + self.n_times

    @property
    def lang(self) -> int:
        return self.sot + 1

    @staticmethod
    def of(n_vocab: int) -> Special:
        multilingual = n_vocab >= 51865
        n_languages = n_vocab - 51765 - int(multilingual)
        up, d = int(multilingual), n_languages - 98 if multilingual else 0
        task = (50357 + d, 50358 + d, 50359 + d, 50360 + d, 50361 + d, 50362 + d, 50363 + d)
        return Special(50256 + up, 50257 + up, *task, multilingual, n_languages)


def tokenize(model: ModelFile, text: str) -> list[int]:
    """Cut text into pieces, and each piece greedily into the longest strings that the vocabulary has."""
    ids = {token: i for i, token in enumerate(model.tokens)}  # the last of two equal strings stays
    out = []
    for piece in _PIECES.findall(text.encode()):
        at = 0
        while at < len(piece):
            end = next((e for e in range(len(piece), at, -1) if piece[at:e] in ids), None)
            if end is None:
                at += 1  # a byte that no token has is left out
                continue
            out.append(ids[piece[at:end]])
            at = end
    return out
