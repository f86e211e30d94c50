"""A vocabulary of a test's own words, without a model file."""

from __future__ import annotations

from collections.abc import Sequence

from whispyx._core.hparams import HParams
from whispyx._core.vocab import Vocab

N_VOCAB = 51864  # an English-only model
EOT = 50256


def vocab_of(words: Sequence[bytes]) -> Vocab:
    """Words are tokens 0, 1, …; the rest of the text tokens is empty."""
    hparams = HParams(N_VOCAB, 1500, 384, 6, 4, 448, 384, 6, 4, 80, 1)
    return Vocab(hparams, [*words, *[b""] * (EOT - len(words))])
