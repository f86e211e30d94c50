"""Which tokens a GGUF file has: our keys, those of others, or none at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from whispyx.errors import ModelFormatError

from .folder import Folder
from .gguf_container import Container
from .gguf_names import SPECIAL
from .gguf_tokens import MAX_TOKENS, bytes_of
from .hf_tokenizer import Texts, is_multilingual, make_vocabulary, read_texts
from .known_tokens import known_tokens
from .manifest import Vocabulary

__all__ = ["HIDDEN", "LANGUAGES", "MULTILINGUAL", "TOKENS", "TOKEN_COUNT", "WORD_LISTS", "read_vocabulary"]

TOKENS: Final = "tokenizer.ggml.tokens"
LANGUAGES: Final = "whisper.languages"
TOKEN_COUNT: Final = "whisper.token_count"
"""Its presence says that `TOKENS` holds what whisper.cpp's files store, and nothing else."""
MULTILINGUAL: Final = "multilingual"
HIDDEN: Final = "control_tokens"
WORD_LISTS: Final = frozenset({TOKENS, LANGUAGES, "general.languages"})

_MAX_BYTES: Final = 4 << 20
"""Of all tokens together: ten times those of published models. What is made of them takes several times as much."""
_TYPES: Final = "tokenizer.ggml.token_type"
_AS_THEY_ARE: Final = (3, 4)
"""Types of tokens whose texts are no letters for bytes: control, and defined by users."""
_SIZES: Final = {51864: 50256, 51865: 50257, 51866: 50257}
"""Published sizes of vocabularies, and the id of the end of text in each."""
_SPELLINGS: Final = {
    "eot": "<|endoftext|>",
    "sot": "<|startoftranscript|>",
    "translate": "<|translate|>",
    "transcribe": "<|transcribe|>",
    "solm": "<|startoflm|>",
    "prev": "<|startofprev|>",
    "nosp": "<|nospeech|>",
    "not": "<|notimestamps|>",
    "beg": "<|0.00|>",
}


def read_vocabulary(file: Container, keys: Mapping[str, str], n_vocab: int) -> Vocabulary:
    """Return the vocabulary of a file.

    Parameters
    ----------
    file : Container
        `WORD_LISTS` are kept.
    keys : mapping
        Whisper's keys without the architecture -> as the file has them.
    n_vocab : int

    Raises
    ------
    ModelFormatError
        The keys contradict each other, tokens are missing or mean no bytes, or there is no vocabulary and this size has
        no known one.
    """
    strings = file.strings(TOKENS, MAX_TOKENS)
    special = {name: _first(file, keys, names) for name, names in SPECIAL.items()}
    ids = {name: number for name, number in special.items() if number is not None}
    for name, number in ids.items():
        if not 0 <= number < n_vocab:
            raise file.error(f"the id of special token {name!r} is {number}; the model has {n_vocab} tokens")
    if strings is None:
        return _from_elsewhere(file, n_vocab)
    n_bytes = sum(map(len, strings))
    if n_bytes > _MAX_BYTES:
        raise file.error(f"key {TOKENS!r} holds {n_bytes} bytes of text; {_MAX_BYTES} can be meant")
    if TOKEN_COUNT in file.values:
        return _ours(file, keys, strings, ids, n_vocab)
    return _of_others(file, strings, ids, n_vocab)


def _first(file: Container, keys: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    return next((file.integer(keys[name]) for name in names if name in keys), None)


def _ours(
    file: Container, keys: Mapping[str, str], strings: tuple[bytes, ...], ids: dict[str, int], n_vocab: int
) -> Vocabulary:
    count = file.integer(TOKEN_COUNT)
    if count != len(strings) or not 1 <= count <= n_vocab:
        raise file.error(f"{TOKEN_COUNT} is {count}; {TOKENS} holds {len(strings)}, and the model has {n_vocab} tokens")
    words = file.strings(LANGUAGES, 1000)
    languages = None if words is None else tuple(word[:16].decode("utf-8", "replace") for word in words)
    missing = [name for name in SPECIAL if name not in ids]
    if missing and (ids or n_vocab not in _SIZES):
        raise file.error(f"the key whisper.{SPECIAL[missing[0]][0]} is missing: {n_vocab} tokens need all special ids")
    places = sorted(ids.values())
    if ids and (len(set(places)) < len(ids) or (ids["eot"], ids["beg"]) != (places[0], places[-1])):
        raise file.error(f"the special tokens {ids} must be distinct, the end of text first and the timestamps last")
    if ids and languages and ids["sot"] + len(languages) >= ids["beg"]:
        raise file.error(f"{LANGUAGES} names {len(languages)} languages, which do not fit between the tokens {ids}")
    tokens = bytes_of(strings, f"{file.blob.name}: key {TOKENS!r}")
    if not ids:
        return Vocabulary(tokens, None, languages)
    told = file.integer(keys[MULTILINGUAL]) if MULTILINGUAL in keys else None
    listed = file.numbers(keys[HIDDEN], MAX_TOKENS) if HIDDEN in keys else None
    hidden = () if listed is None else tuple(int(number) for number in listed if ids["beg"] < number < n_vocab)
    return Vocabulary(tokens, ids, languages, is_multilingual(ids) if told is None else bool(told), hidden)


def _of_others(file: Container, strings: tuple[bytes, ...], ids: dict[str, int], n_vocab: int) -> Vocabulary:
    """All tokens by id, special ones among them; texts are letters for bytes, rarely the bytes themselves."""
    types = file.numbers(_TYPES, MAX_TOKENS)
    literal = {number for number, kind in enumerate(() if types is None else types.tolist()) if kind in _AS_THEY_ARE}
    if n_vocab in _SIZES and any(b" " in string for string in strings[: _SIZES[n_vocab]]):  # no letter of the alphabet
        tokens = strings[: _SIZES[n_vocab]]
        if len(tokens) < _SIZES[n_vocab] - 1:
            raise file.error(f"key {TOKENS!r} holds {len(tokens)} tokens; {_SIZES[n_vocab]} texts are needed")
        return Vocabulary(tokens)
    texts = Texts(f"{file.blob.name}, key {TOKENS!r}")
    for number, raw in enumerate(strings[:n_vocab]):
        try:
            texts.put(number, raw.decode("utf-8"), added=number in literal)
        except UnicodeDecodeError:
            raise ModelFormatError(f"{texts.name}: token {number} ({raw[:80]!r}) is not UTF-8") from None
    return make_vocabulary(texts, n_vocab, {_SPELLINGS[name]: number for name, number in ids.items()})


def _from_elsewhere(file: Container, n_vocab: int) -> Vocabulary:
    """The vocabulary that all models of a size share, or that of a tokenizer's files beside the model."""
    known = known_tokens(n_vocab)
    if known is not None:
        return Vocabulary(known)
    if file.blob.path is not None:
        texts = read_texts(Folder(os.path.dirname(file.blob.path) or "."))
        if texts is not None:
            return make_vocabulary(texts, n_vocab)
    raise file.error(
        f"there is no vocabulary: no key {TOKENS!r}, no tokenizer.json beside the file, and no published model has "
        f"{n_vocab} tokens"
    )
