"""Vocabularies of Hugging Face and CTranslate2 folders: texts as bytes, special tokens and languages by id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from whispyx.errors import ModelFormatError
from whispyx.languages import CODES
from whispyx.models.formats.folder import Folder
from whispyx.models.formats.hf_tokenizer import make_vocabulary, read_list, read_texts
from whispyx.models.formats.manifest import Vocabulary

from .folder_maker import LANGUAGES, N_VOCAB, byte_letters, special_tokens, tokenizer, write

BYTES = tuple(bytes([byte]) for byte in range(256))
SPECIAL = {
    "eot": 256,
    "sot": 257,
    "translate": 261,
    "transcribe": 262,
    "solm": 263,
    "prev": 264,
    "nosp": 265,
    "not": 266,
    "beg": 267,
}


def read(folder: Path, contents: dict[str, Any], n_vocab: int = N_VOCAB, **hints: int) -> Vocabulary:
    texts = read_texts(Folder(write(folder, contents)))
    assert texts is not None
    return make_vocabulary(texts, n_vocab, {f"<|{name}|>": number for name, number in hints.items()})


def slow(texts: list[str] | None = None) -> dict[str, Any]:
    """The files of a tokenizer without tokenizer.json."""
    return {
        "vocab.json": {letter: byte for byte, letter in enumerate(byte_letters())},
        "merges.txt": "#version: 0.2\n",
        "added_tokens.json": {text: 256 + i for i, text in enumerate(texts or special_tokens())},
    }


def big(n_text: int, tokens: list[str]) -> dict[str, Any]:
    """A vocabulary of Whisper's size: numbers as texts."""
    added = [{"id": n_text + i, "content": text, "special": True} for i, text in enumerate(tokens)]
    return {"tokenizer.json": {"added_tokens": added, "model": {"vocab": {str(i): i for i in range(n_text)}}}}


def test_each_byte_has_its_token(tmp_path: Path) -> None:
    found = read(tmp_path, {"tokenizer.json": tokenizer()})
    assert found == Vocabulary(BYTES, SPECIAL, LANGUAGES)


def test_vocab_and_added_tokens_say_the_same_as_a_tokenizer(tmp_path: Path) -> None:
    assert read(tmp_path / "a", slow()) == Vocabulary(BYTES, SPECIAL, LANGUAGES)
    contents = slow()
    contents["tokenizer_config.json"] = {
        "added_tokens_decoder": {
            str(i): {"content": text, "special": True} for text, i in contents.pop("added_tokens.json").items()
        }
    }
    assert read(tmp_path / "b", contents) == Vocabulary(BYTES, SPECIAL, LANGUAGES)
    contents["vocab.json"]["<|endoftext|>"] = 256  # named twice, as in the published files
    assert read(tmp_path / "c", contents) == Vocabulary(BYTES, SPECIAL, LANGUAGES)


@pytest.mark.parametrize(
    ("n_vocab", "n_text", "n_languages"), [(51864, 50256, 99), (51865, 50257, 99), (51866, 50257, 100)]
)
def test_ids_of_the_published_sizes_are_those_of_the_fact_sheet(
    tmp_path: Path, n_vocab: int, n_text: int, n_languages: int
) -> None:
    table = {
        51864: (50256, 50257, 50357, 50358, 50359, 50360, 50361, 50362, 50363),
        51865: (50257, 50258, 50358, 50359, 50360, 50361, 50362, 50363, 50364),
        51866: (50257, 50258, 50359, 50360, 50361, 50362, 50363, 50364, 50365),
    }
    expected = dict(zip(SPECIAL, table[n_vocab], strict=True))
    tokens = special_tokens(CODES[:n_languages])
    found = read(tmp_path / "a", big(n_text, tokens), n_vocab)
    assert (found.special, found.languages) == (expected, CODES[:n_languages])
    assert len(found.tokens) == n_text
    # Files without most special tokens: those of a model of this size apply.
    part = [text for text in tokens if text in ("<|endoftext|>", "<|startoftranscript|>")]
    assert read(tmp_path / "b", big(n_text, part), n_vocab).special == expected
    assert read(tmp_path / "c", big(n_text, []), n_vocab) == Vocabulary(found.tokens, None, None)


def test_older_files_end_before_the_timestamps_and_call_silence_captions(tmp_path: Path) -> None:
    old = [text.replace("nospeech", "nocaptions") for text in special_tokens()[:11]]
    assert old[-1] == "<|notimestamps|>"
    assert read(tmp_path, slow(old)) == Vocabulary(BYTES, SPECIAL, LANGUAGES)


def test_renamed_languages_have_whispers_codes(tmp_path: Path) -> None:
    found = read(tmp_path, slow(special_tokens(("en", "iw", "jv"))))
    assert found.languages == ("en", "he", "jw")


def test_a_model_may_have_one_language_of_its_own(tmp_path: Path) -> None:
    found = read(tmp_path, slow(special_tokens(("gsw",))), N_VOCAB - 2)
    assert found.languages == ("gsw",)
    assert found.special is not None and found.special["beg"] == 265


def test_rows_that_no_token_uses_are_no_tokens(tmp_path: Path) -> None:
    assert read(tmp_path, slow(), N_VOCAB + 61) == Vocabulary(BYTES, SPECIAL, LANGUAGES)


def test_tokens_that_have_no_row_are_left_out(tmp_path: Path) -> None:
    assert read(tmp_path, slow([*special_tokens(), "word"])) == Vocabulary(BYTES, SPECIAL, LANGUAGES)


def test_words_behind_the_timestamps_are_kept_with_all_before_them(tmp_path: Path) -> None:
    found = read(tmp_path, slow([*special_tokens(), "Grüezi", "<|pad|>", "Znüni"]), N_VOCAB + 3)
    assert found.special == SPECIAL
    assert len(found.tokens) == N_VOCAB + 3
    assert found.tokens[:256] == BYTES
    assert found.tokens[256] == b"<|endoftext|>"
    assert found.tokens[N_VOCAB:] == ("Grüezi".encode(), b"<|pad|>", "Znüni".encode())


def test_what_is_marked_special_behind_the_timestamps_is_no_word(tmp_path: Path) -> None:
    content = tokenizer()
    content["added_tokens"].append({"id": N_VOCAB, "content": "[PAD]", "special": True})
    found = read(tmp_path, {"tokenizer.json": content}, N_VOCAB + 1)
    assert found.hidden == (N_VOCAB,) and found.tokens[N_VOCAB:] == (b"[PAD]",)
    assert (found.tokens[:256], found.special, found.languages) == (BYTES, SPECIAL, LANGUAGES)


def test_names_of_further_timestamps_are_padding(tmp_path: Path) -> None:
    """CTranslate2's converter calls every row without a token so."""
    contents = {"vocabulary.json": [*byte_letters(), *special_tokens(), "<|0.00|>", "<|30.02|>"]}
    texts = read_list(Folder(write(tmp_path, contents)), "vocabulary.json")
    assert make_vocabulary(texts, N_VOCAB + 2) == Vocabulary(BYTES, SPECIAL, LANGUAGES)


def test_whether_a_model_is_multilingual_is_told_or_follows_from_where_its_texts_end(tmp_path: Path) -> None:
    texts = read_texts(Folder(write(tmp_path, slow())))
    assert texts is not None and make_vocabulary(texts, N_VOCAB).multilingual
    assert not make_vocabulary(texts, N_VOCAB, multilingual=False).multilingual


def test_the_empty_token_before_the_end_of_text_may_be_missing(tmp_path: Path) -> None:
    contents = slow(["", *special_tokens()])
    expected = Vocabulary((*BYTES, b""), {name: i + 1 for name, i in SPECIAL.items()}, LANGUAGES)
    assert read(tmp_path / "a", contents, N_VOCAB + 1) == expected
    del contents["added_tokens.json"][""]
    assert read(tmp_path / "b", contents, N_VOCAB + 1) == expected


def test_an_added_word_among_the_texts_is_taken_as_it_is(tmp_path: Path) -> None:
    contents = slow()
    contents["vocab.json"] = {text: i for text, i in contents["vocab.json"].items() if i != 200}
    contents["added_tokens.json"]["ein Wort"] = 200
    assert read(tmp_path, contents).tokens[200] == b"ein Wort"


def test_ids_that_other_files_name_fill_gaps(tmp_path: Path) -> None:
    some = {
        "endoftext": 256,
        "startoftranscript": 257,
        "en": 258,
        "zh": 259,
        "de": 260,
        "translate": 261,
        "transcribe": 262,
        "startofprev": 264,
        "notimestamps": 266,
    }
    contents = slow()
    named = {"<|startoflm|>": 263, "<|nospeech|>": 265}
    contents["added_tokens.json"] = named
    assert read(tmp_path / "a", contents, **some) == Vocabulary(BYTES, SPECIAL, LANGUAGES)
    # What the tokenizer says comes first.
    contents["added_tokens.json"] = {text: 256 + i for i, text in enumerate(special_tokens())}
    assert read(tmp_path / "b", contents, endoftext=300, en=5).special == SPECIAL


def test_a_list_of_ctranslate2_names_all_tokens(tmp_path: Path) -> None:
    lines = [*byte_letters(), *special_tokens()]
    folder = Folder(write(tmp_path, {"vocabulary.json": lines, "vocabulary.txt": "\n".join(lines) + "\n"}))
    for name in ("vocabulary.json", "vocabulary.txt"):
        assert make_vocabulary(read_list(folder, name), N_VOCAB) == Vocabulary(BYTES, SPECIAL, LANGUAGES)


def test_no_tokenizer_is_none(tmp_path: Path) -> None:
    assert read_texts(Folder(tmp_path)) is None


def edited(**changes: Any) -> dict[str, Any]:
    return {"tokenizer.json": tokenizer() | changes}


def moved(text: str, number: int) -> dict[str, Any]:
    contents = slow()
    contents["added_tokens.json"][text] = number
    return contents


def dropped(*texts: str) -> dict[str, Any]:
    contents = slow()
    for text in texts:
        del contents["added_tokens.json"][text]
    return contents


LETTERS = {letter: byte for byte, letter in enumerate(byte_letters())}
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "no model": ({"tokenizer.json": {}}, "model.vocab should map every token"),
    "a list": (edited(model={"vocab": ["a"]}), "vocab is .* maps texts to ids"),
    "texts as ids": (edited(model={"vocab": {"a": "0"}}), "maps texts to ids"),
    "a negative id": (edited(model={"vocab": {"a": -1}}), "maps texts to ids"),
    "another kind": (edited(model={"type": "Unigram", "vocab": LETTERS}), "type is 'Unigram'"),
    "added texts": (edited(added_tokens=["a"]), "should be a JSON object, not 'a'"),
    "added as an object": (edited(added_tokens={}), "a list is expected"),
    "an added token without id": (edited(added_tokens=[{"content": "a"}]), "id is missing"),
    "an added token without text": (edited(added_tokens=[{"id": 1}]), "content is missing"),
    "a truth as id": (edited(added_tokens=[{"id": True, "content": "a"}]), "id is True"),
    "one id twice": (edited(model={"vocab": {"a": 0, "b": 0}}), "token 0 is 'a' and also 'b'"),
    "another text for an id": (edited(added_tokens=[{"id": 65, "content": "b"}]), "token 65 is 'A' and also 'b'"),
    "vocab.json of a list": (slow() | {"vocab.json": ["a"]}, "should be a JSON object"),
    "vocab.json of texts": (slow() | {"vocab.json": {"a": "b"}}, "the token 'a' has the id 'b'"),
    "added ids of texts": (slow() | {"added_tokens.json": {"a": None}}, "the token 'a' has the id None"),
    "a decoder of texts": (
        slow() | {"tokenizer_config.json": {"added_tokens_decoder": {"x": {"content": "a"}}}},
        "ids with the content of a token",
    ),
    "a missing text": (
        slow() | {"vocab.json": {text: i for text, i in LETTERS.items() if i != 7}},
        f"token 7 is missing; a model of {N_VOCAB + 10} tokens",
    ),
    "no byte": (
        slow() | {"vocab.json": LETTERS | {"日": 255, "ÿ": 99999}},
        "'日'\\) holds '日', which stands for no byte",
    ),
    "a long token": (slow() | {"vocab.json": LETTERS | {"a" * 5000: 255, "ÿ": 99999}}, "token 255 has 5000 bytes"),
    "no end": (dropped("<|endoftext|>"), r"there is no token <\|endoftext\|>"),
    "no start, no tasks": (
        dropped("<|startoftranscript|>", "<|translate|>"),
        r"no token <\|startoftranscript\|> nor <\|translate\|>",
    ),
    "no timestamps": (dropped("<|notimestamps|>", "<|0.00|>"), r"no token <\|notimestamps\|> nor <\|0.00\|>"),
    "two texts for an id": (moved("<|endoftext|>", 300), "token 300 is .* and also"),
    "a word in between": (slow([*special_tokens()[:2], "word", *special_tokens()[2:]]), "is text and lies among"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_vocabulary_is_refused(tmp_path: Path, case: str) -> None:
    contents, reason = CASES[case]
    with pytest.raises(ModelFormatError, match=reason):
        read(tmp_path, contents, N_VOCAB + 10)


def test_special_tokens_in_another_order_are_refused(tmp_path: Path) -> None:
    tokens = special_tokens()
    turned = [tokens[-1], *tokens[:-1]]  # the last timestamp before the end of the text
    with pytest.raises(ModelFormatError, match=r"timestamps 0\.00 to 30\.00 have the ids 268 to 256"):
        read(tmp_path / "a", slow(turned))
    behind = [*tokens[1:], tokens[0]]
    with pytest.raises(ModelFormatError, match=r"<\|startoftranscript\|> has the id 256; special tokens lie between"):
        read(tmp_path / "b", slow(behind))
    with pytest.raises(ModelFormatError, match="tokens end before the first timestamp"):
        read(tmp_path / "c", slow(tokens[:11]), 267)
    with pytest.raises(ModelFormatError, match="at most 1000000"):
        read(tmp_path / "d", slow(), 1_000_001)


LISTS: dict[str, tuple[str, Any, str]] = {
    "numbers": ("vocabulary.json", [1, 2], "list of texts"),
    "an object": ("vocabulary.json", {"a": 1}, "list of texts"),
    "not UTF-8": ("vocabulary.txt", b"\xff\n", "not UTF-8"),
    "many lines": ("vocabulary.txt", b"\n" * 1_000_001, "more lines"),
}


@pytest.mark.parametrize("case", LISTS)
def test_a_wrong_list_is_refused(tmp_path: Path, case: str) -> None:
    name, content, reason = LISTS[case]
    with pytest.raises(ModelFormatError, match=reason):
        read_list(Folder(write(tmp_path, {name: content})), name)
