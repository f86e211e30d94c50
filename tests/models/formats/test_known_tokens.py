"""The shipped vocabularies are those of real models, and made again they are the same bytes."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from tests import data
from tools import make_tokens
from whispyx.models.formats import known_tokens as module
from whispyx.models.formats.known_tokens import N_PAIRS, known_tokens, packed_pairs, pairs_of, tokens_of

FOLDER = Path(module.__file__).parents[2] / "data"


def tokens_in(model: Path) -> tuple[bytes, ...]:
    """Read the vocabulary of a legacy ggml file."""
    with model.open("rb") as file:
        n_mels, n_bins = struct.unpack("<2i", file.read(56)[48:])
        file.seek(4 * n_mels * n_bins, 1)
        (count,) = struct.unpack("<i", file.read(4))
        return tuple(file.read(struct.unpack("<I", file.read(4))[0]) for _ in range(count))


@pytest.mark.parametrize(("model", "n_vocab"), [("tiny.en", 51864), ("base", 51865), ("base", 51866)])
def test_the_tokens_are_those_of_real_models(model: str, n_vocab: int) -> None:
    assert known_tokens(n_vocab) == tokens_in(data.or_skip(data.model_file, model))


@pytest.mark.parametrize("n_vocab", [0, 50257, 51863, 51867])
def test_other_vocabularies_are_not_known(n_vocab: int) -> None:
    assert known_tokens(n_vocab) is None


@pytest.mark.parametrize(("name", "n_vocab"), [("english", 51864), ("multilingual", 51865)])
def test_the_files_are_small_and_name_their_tokens(name: str, n_vocab: int) -> None:
    content = (FOLDER / f"tokens_{name}.txt").read_text("ascii")
    tokens = (known_tokens(n_vocab) or ())[: 256 + N_PAIRS]
    digest = hashlib.sha256(b"".join(struct.pack("<H", len(token)) + token for token in tokens)).hexdigest()
    assert digest in content and "MIT licence" in content
    assert len(content) < 250_000


def test_pairs_are_the_longest_first_part_and_the_rest() -> None:
    tokens = [*tokens_of(np.zeros((0, 2), np.uint16)), b"ab", b"bc", b"abc"]
    pairs = pairs_of(tokens)
    a, b, c = (tokens.index(letter) for letter in (b"a", b"b", b"c"))
    assert pairs.tolist() == [[a, b], [b, c], [256, c]]
    assert tokens_of(pairs) == tokens
    lines = packed_pairs(pairs).splitlines()
    assert all(len(line) <= 120 for line in lines)


def test_the_tool_knows_the_models_whose_vocabularies_are_shipped() -> None:
    assert {f"tokens_{name}.txt" for name in make_tokens.SOURCES} == {path.name for path in FOLDER.glob("tokens_*")}
