"""The texts of the tokens as raw bytes, from the files that lie beside a CTranslate2 model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from whispyx.errors import ModelError, ModelFormatError

__all__ = ["byte_of_character", "read_vocabulary"]


def byte_of_character() -> dict[str, int]:
    """Return the byte that each character of a byte-level BPE vocabulary stands for.

    Bytes that print in Latin-1 stand for themselves; the other 68 are numbered from U+0100 in order (GPT-2's table).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(0x100 + number): byte for number, byte in enumerate(others)})
    return table


def _load_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes().decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"{path}: not valid JSON: {error}") from error


def _from_tokenizer(path: Path) -> dict[int, str]:
    content = _load_json(path)
    model = content.get("model") if isinstance(content, dict) else None
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocab, dict) or not all(type(number) is int for number in vocab.values()):
        raise ModelFormatError(f"{path}: model.vocab should map every token to its id")
    texts = {number: text for text, number in vocab.items()}
    if len(texts) != len(vocab):
        raise ModelFormatError(f"{path}: two tokens have the same id")
    return texts


def _from_list(path: Path) -> dict[int, str]:
    if path.suffix == ".json":
        tokens = _load_json(path)
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise ModelFormatError(f"{path}: should be a list of texts, one per token")
    else:
        try:
            # Not splitlines(): it would also cut at characters that are tokens.
            tokens = path.read_bytes().decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise ModelFormatError(f"{path}: not UTF-8: {error}") from error
        if tokens[-1] == "":
            tokens.pop()
        tokens = [token.removesuffix("\r") for token in tokens]
    return dict(enumerate(tokens))


def read_vocabulary(folder: Path, n_tokens: int) -> list[bytes]:
    """Read the first `n_tokens` tokens of the model in `folder`.

    Parameters
    ----------
    folder : Path
        Has `tokenizer.json`, `vocabulary.json` or `vocabulary.txt`; the first of them that exists is read.
    n_tokens : int
        Number of text tokens, which is the id of the end-of-text token.

    Returns
    -------
    list of bytes
        The token with id i at index i. A token may hold a part of a UTF-8 character.

    Raises
    ------
    ModelFormatError
        No such file, or its tokens are not those of a Whisper model of this size.
    ModelError
        It cannot be read.
    """
    for name, read in (
        ("tokenizer.json", _from_tokenizer),
        ("vocabulary.json", _from_list),
        ("vocabulary.txt", _from_list),
    ):
        path = folder / name
        if path.is_file():
            try:
                texts = read(path)
            except OSError as error:
                raise ModelError(f"reading {path} failed: {error.strerror or error}") from error
            return _to_bytes(path, texts, n_tokens)
    raise ModelFormatError(f"{folder}: no vocabulary (tokenizer.json, vocabulary.json or vocabulary.txt)")


def _to_bytes(path: Path, texts: dict[int, str], n_tokens: int) -> list[bytes]:
    end = "<|endoftext|>"
    if texts.get(n_tokens, end) != end:
        raise ModelFormatError(
            f"{path}: token {n_tokens} should be {end!r} in a model of this size, not {texts[n_tokens]!r}"
        )
    table = byte_of_character()
    tokens = []
    for number in range(n_tokens):
        text = texts.get(number)
        if text is None:
            raise ModelFormatError(f"{path}: token {number} is missing; the model needs {n_tokens}")
        try:
            tokens.append(bytes(table[character] for character in text))
        except KeyError as error:
            raise ModelFormatError(
                f"{path}: token {number} ({text!r}) holds {error.args[0]!r}, which stands for no byte"
            ) from None
    return tokens
