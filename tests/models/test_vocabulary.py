"""Tokens are raw bytes, taken from whichever vocabulary file is there."""

from __future__ import annotations

import json
from pathlib import Path

from whispyx.models.convert import read_vocabulary
from whispyx.models.convert.vocabulary import byte_of_character


def test_the_byte_alphabet_is_gpt2s() -> None:
    table = byte_of_character()
    assert sorted(table.values()) == list(range(256))
    # Well-known letters of that alphabet: space, line feed, tab, NUL, 0x7f, 0xa0, 0xad.
    known = {"Ġ": 0x20, "Ċ": 0x0A, "ĉ": 0x09, "Ā": 0x00, "ġ": 0x7F, "ł": 0xA0, "Ń": 0xAD, "!": 0x21, "ÿ": 0xFF}
    assert {character: table[character] for character in known} == known


def test_a_token_may_be_a_part_of_a_character(tmp_path: Path) -> None:
    # "日" is e6 97 a5 in UTF-8.
    (tmp_path / "vocabulary.json").write_text(json.dumps(["æ", "Ĺ", "¥", "æĹ¥"]))
    tokens = read_vocabulary(tmp_path, 4)
    assert tokens == [b"\xe6", b"\x97", b"\xa5", "日".encode()]


def test_the_empty_token_of_multilingual_models_is_kept(tmp_path: Path) -> None:
    (tmp_path / "vocabulary.txt").write_text("a\n\n<|endoftext|>\n", "utf-8")
    assert read_vocabulary(tmp_path, 2) == [b"a", b""]


def test_lines_end_at_line_feeds_only(tmp_path: Path) -> None:
    # U+0085, which str.splitlines() would cut at, cannot be a token, but "Ć" (byte 0x06) and "ħ" (0x85) can.
    (tmp_path / "vocabulary.txt").write_bytes("Ć\r\nħ\r\nb\r\n".encode())
    assert read_vocabulary(tmp_path, 3) == [b"\x06", b"\x85", b"b"]


def test_the_tokenizer_comes_first_and_its_order_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"b": 1, "<|endoftext|>": 2, "a": 0}}}))
    (tmp_path / "vocabulary.txt").write_text("x\ny\n")
    assert read_vocabulary(tmp_path, 2) == [b"a", b"b"]
