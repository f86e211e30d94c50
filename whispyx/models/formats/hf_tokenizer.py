"""Vocabularies of byte-level BPE tokenizers: from Hugging Face's files, and from CTranslate2's lists.

Merges are not read: whisper.cpp's way to cut a prompt into tokens needs the texts alone.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

from whispyx.errors import ModelFormatError
from whispyx.models.convert.vocabulary import byte_of_character

from .documents import Document, shown
from .folder import Folder, parse_document
from .known_tokens import known_tokens
from .manifest import Vocabulary

__all__ = ["Texts", "is_multilingual", "make_vocabulary", "published_vocabulary", "read_list", "read_texts"]

log = logging.getLogger("whispyx.models.formats")

MAX_TOKEN_BYTES: Final = 4096
"""The recogniser takes no longer token; the longest of the published vocabularies has 66 bytes."""
MAX_TOKENS: Final = 1_000_000
N_TIMESTAMPS: Final = 1501
"""0.00 s to 30.00 s in steps of 20 ms."""

# The recogniser's names of the special tokens, and what tokenizers call them.
_SPECIAL: Final = {
    "eot": ("<|endoftext|>",),
    "sot": ("<|startoftranscript|>",),
    "translate": ("<|translate|>",),
    "transcribe": ("<|transcribe|>",),
    "solm": ("<|startoflm|>",),
    "prev": ("<|startofprev|>",),
    "nosp": ("<|nospeech|>", "<|nocaptions|>"),
    "not": ("<|notimestamps|>",),
    "beg": ("<|0.00|>",),
}
_LANGUAGE: Final = re.compile(r"<\|([a-z]{2,3})\|>")
_RENAMED: Final = {"iw": "he", "jv": "jw"}
"""Codes of the same languages, older or newer than those of Whisper's list."""
_TIMESTAMP: Final = re.compile(r"<\|[0-9]+\.[0-9]{2}\|>")
_STANDARD_SIZES: Final = (51864, 51865, 51866)


class Texts:
    """What files call each token.

    Attributes
    ----------
    plain : dict
        Texts in the alphabet of byte-level BPE, by id.
    added : dict
        Texts as they are, by id: special tokens, and words that were added later.
    special : set
        Ids of added tokens that are marked as no text.
    name : str
        The file, for messages.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.plain: dict[int, str] = {}
        self.added: dict[int, str] = {}
        self.special: set[int] = set()

    def put(self, number: int, text: str, added: bool) -> None:
        """Note a token. A special token may be among the plain ones, and named again among the added."""
        known = self.added.get(number, self.plain.get(number))
        if known is not None and known != text:
            raise ModelFormatError(f"{self.name}: token {number} is {shown(known)} and also {shown(text)}")
        if added:
            self.plain.pop(number, None)
            self.added[number] = text
        elif known is None:
            self.plain[number] = text


def read_texts(folder: Folder) -> Texts | None:
    """Read tokenizer.json, or else vocab.json with added_tokens.json and tokenizer_config.json.

    Returns
    -------
    Texts or None
        None: the folder has neither.

    Raises
    ------
    ModelFormatError
        A file is malformed or of another kind of tokenizer, or two texts have the same id.
    """
    document = folder.document("tokenizer.json")
    if document is not None:
        return _from_tokenizer(document)
    document = folder.document("vocab.json")
    if document is None:
        return None
    texts = Texts(document.name)
    _put_all(texts, _checked_ids(document, document.content), added=False)
    more = folder.document("added_tokens.json")
    if more is not None:
        _put_all(texts, _checked_ids(more, more.content), added=True)
    settings = folder.document("tokenizer_config.json")
    decoder = settings.document("added_tokens_decoder") if settings is not None else None
    if decoder is not None:
        for key, value in decoder.content.items():
            text = value.get("content") if isinstance(value, dict) else None
            if not re.fullmatch("[0-9]{1,9}", key) or not isinstance(text, str):
                raise decoder.error(key, "ids with the content of a token are expected")
            texts.put(int(key), text, added=True)
            if value.get("special") is True:
                texts.special.add(int(key))
    return texts


def _checked_ids(document: Document, content: Mapping[str, Any]) -> dict[str, int]:
    for text, number in content.items():
        if type(number) is not int or number < 0:
            raise ModelFormatError(f"{document.name}: the token {shown(text)} has the id {shown(number)}")
    return dict(content)


def _put_all(texts: Texts, ids: Mapping[str, int], *, added: bool) -> None:
    for text, number in ids.items():
        texts.put(number, text, added)


def _from_tokenizer(document: Document) -> Texts:
    texts = Texts(document.name)
    model = document.document("model")
    vocab = model.ids("vocab") if model is not None else None
    if model is None or vocab is None:
        raise ModelFormatError(f"{document.name}: model.vocab should map every token to its id")
    if model.text("type") not in (None, "BPE"):
        raise model.error("type", "Whisper's tokenizers are byte-level BPE")
    _put_all(texts, vocab, added=False)
    added = document.content.get("added_tokens")
    if added is not None and not isinstance(added, list):
        raise document.error("added_tokens", "a list is expected")
    for token in added or ():
        entry = Document(token, f"{document.name}, an added token")
        text = entry.text("content")
        if text is None:
            raise ModelFormatError(f"{entry.name}: content is missing")
        number = entry.needed("id", 0, 1 << 30)
        texts.put(number, text, added=True)
        if entry.flag("special", False):
            texts.special.add(number)
    return texts


def read_list(folder: Folder, name: str) -> Texts:
    """Read `vocabulary.json` or `vocabulary.txt` of CTranslate2: a text per token, the special ones among them."""
    data = folder.read(name)
    texts = Texts(f"{folder.path}, {name}")
    lines: Any
    if name.endswith(".json"):
        lines = parse_document(data, texts.name)
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise ModelFormatError(f"{texts.name}: should be a list of texts, one per token")
    else:
        if data.count(b"\n") > 1_000_000:
            raise ModelFormatError(f"{texts.name}: holds more lines than any model has tokens")
        try:  # splitlines() would also cut at characters that are tokens
            lines = [line.removesuffix("\r") for line in data.decode("utf-8").split("\n")]
        except UnicodeDecodeError as error:
            raise ModelFormatError(f"{texts.name}: not UTF-8: {error}") from None
        if lines[-1] == "":
            lines.pop()
    texts.plain = dict(enumerate(lines))
    return texts


def published_vocabulary(n_vocab: int, name: str) -> Vocabulary | None:
    """Return the vocabulary of the published models of `n_vocab` tokens, with a warning; None: there are none."""
    tokens = known_tokens(n_vocab)
    if tokens is None:
        return None
    log.warning("%s: no vocabulary is there; the one of the published models of %d tokens is taken", name, n_vocab)
    return Vocabulary(tokens)


def make_vocabulary(
    texts: Texts, n_vocab: int, hints: Mapping[str, int] | None = None, multilingual: bool | None = None
) -> Vocabulary:
    """Make the vocabulary of a model of `n_vocab` tokens.

    Parameters
    ----------
    texts : Texts
        Tokens of higher ids are left out: the model can say none of them.
    n_vocab : int
    hints : mapping, optional
        Ids of special and language tokens that other files name; what `texts` says comes first.
    multilingual : bool, optional
        Whether the model is told the language; None: unless its texts end where those of English-only models do.

    Returns
    -------
    Vocabulary
        `tokens` are the texts before the end-of-text token. Where tokens were added behind the timestamps, it goes on
        to the last of them, with the special tokens' own texts in between. `special` and `languages` are None for
        vocabularies that name no special token; their number of tokens must be one of Whisper's then.

    Raises
    ------
    ModelFormatError
        A token is missing or means no bytes; special tokens are missing or not where a Whisper model can have them.
    """
    if n_vocab > MAX_TOKENS:
        raise ModelFormatError(f"{texts.name}: a vocabulary of {n_vocab} tokens; at most {MAX_TOKENS} can be meant")
    named = {number: text for number, text in (texts.plain | texts.added).items() if number < n_vocab}
    ids = {named[number]: number for number in sorted(named, reverse=True)}  # of two ids the lower one
    for text, number in (hints or {}).items():
        if _is_special(text) and text not in ids and 0 <= number < n_vocab and number not in named:
            ids[text] = number
            named[number] = text
    special = _special_ids(texts, ids, n_vocab)
    if special is None:
        n_text = _standard(n_vocab)["eot"]
        return Vocabulary(_text_tokens(texts, named, n_text, n_vocab))
    languages: list[str] = []
    while match := _LANGUAGE.fullmatch(named.get(special["sot"] + 1 + len(languages), "")):
        languages.append(_RENAMED.get(match[1], match[1]))
    far = [text for text, number in ids.items() if number > special["beg"] and _LANGUAGE.fullmatch(text)]
    if far:
        log.warning("%s: %s cannot be used: languages must follow <|startoftranscript|>", texts.name, shown(far))
    tokens = _text_tokens(texts, named, special["eot"], n_vocab)
    if multilingual is None:
        multilingual = is_multilingual(special)
    behind = _behind(texts, named, special)
    hidden = tuple(sorted(number for number in texts.special if special["beg"] + N_TIMESTAMPS <= number < n_vocab))
    return Vocabulary(tokens + behind, special, tuple(languages), multilingual, hidden)


def is_multilingual(special: Mapping[str, int]) -> bool:
    """Whether the special tokens are those of a multilingual model: the texts of others are GPT-2's, one token less."""
    return special["eot"] != _standard(51864)["eot"]


def _standard(n_vocab: int) -> dict[str, int]:
    """The ids in whisper.cpp's files (its loader's rule): most are shifted by the number of languages above 98."""
    base = {"eot": 50256, "sot": 50257, "translate": 50357, "transcribe": 50358, "solm": 50359, "prev": 50360}
    base |= {"nosp": 50361, "not": 50362, "beg": 50363}
    shift = n_vocab - 51864
    return {name: number + min(shift, 1) if name in ("eot", "sot") else number + shift for name, number in base.items()}


def _special_ids(texts: Texts, ids: Mapping[str, int], n_vocab: int) -> dict[str, int] | None:
    """Ids by the recogniser's names; None where no special token is named and the standard ones apply."""
    found = {}
    for name, spellings in _SPECIAL.items():
        numbers = [ids[spelling] for spelling in spellings if spelling in ids]
        if numbers:
            found[name] = numbers[0]
    if "not" in found:
        found.setdefault("beg", found["not"] + 1)  # older files end before the timestamps
    missing = [spellings[0] for name, spellings in _SPECIAL.items() if name not in found]
    if missing and n_vocab in _STANDARD_SIZES:
        standard = _standard(n_vocab)
        if all(number == standard[name] for name, number in found.items()):
            if found.keys() <= {"eot"}:
                return None
            found = standard
            missing = []
    if missing:
        raise ModelFormatError(f"{texts.name}: there is no token {' nor '.join(missing)} in this vocabulary")
    _check_special(texts, found, ids, n_vocab)
    return {name: found[name] for name in _SPECIAL}


def _check_special(texts: Texts, special: Mapping[str, int], ids: Mapping[str, int], n_vocab: int) -> None:
    """What the recogniser relies on: end of text first, timestamps last, in order, and nothing twice."""
    if len(set(special.values())) != len(special):
        raise ModelFormatError(f"{texts.name}: two special tokens share an id: {dict(special)}")
    for name, number in sorted(special.items(), key=lambda item: item[0] == "eot"):  # that is the bound: it comes last
        if not special["eot"] <= number <= special["beg"]:
            raise ModelFormatError(
                f"{texts.name}: the token {_SPECIAL[name][0]} has the id {number}; special tokens lie between "
                f"<|endoftext|> ({special['eot']}) and the timestamps (from {special['beg']})"
            )
    if special["beg"] >= n_vocab:
        raise ModelFormatError(f"{texts.name}: the model's {n_vocab} tokens end before the first timestamp")
    last = ids.get("<|30.00|>", special["beg"] + N_TIMESTAMPS - 1)
    if last != special["beg"] + N_TIMESTAMPS - 1:
        raise ModelFormatError(
            f"{texts.name}: the timestamps 0.00 to 30.00 have the ids {special['beg']} to {last}; "
            f"Whisper has {N_TIMESTAMPS}"
        )


def _text_tokens(texts: Texts, named: Mapping[int, str], n_text: int, n_vocab: int) -> tuple[bytes, ...]:
    table = byte_of_character()
    tokens = []
    for number in range(n_text):
        text = named.get(number)
        if text is None:
            if number != n_text - 1:
                raise ModelFormatError(f"{texts.name}: token {number} is missing; a model of {n_vocab} tokens needs it")
            text = ""  # multilingual vocabularies have an empty token there, which some files leave out
        if number in texts.added:
            tokens.append(_encoded(texts, number, text))
            continue
        try:
            raw = bytes([table[character] for character in text])
        except KeyError as error:
            raise ModelFormatError(
                f"{texts.name}: token {number} ({shown(text)}) holds {error.args[0]!r}, which stands for no byte"
            ) from None
        tokens.append(_limited(texts, number, raw))
    return tuple(tokens)


def _behind(texts: Texts, named: Mapping[int, str], special: Mapping[str, int]) -> tuple[bytes, ...]:
    """Texts from the end-of-text token to the last one that was added behind the timestamps; mostly none."""
    end = special["beg"] + N_TIMESTAMPS
    for number in sorted(number for number in named if special["eot"] < number < end):
        if number not in texts.special and not _is_special(named[number]):
            raise ModelFormatError(
                f"{texts.name}: token {number} ({shown(named[number])}) is text and lies among the special tokens"
            )
    # CTranslate2's converter calls rows that only fill the embedding up by the names of further timestamps.
    behind = {number: text for number, text in named.items() if number < end or not _TIMESTAMP.fullmatch(text)}
    last = max(behind, default=0)
    if last < end:
        return ()
    return tuple(_encoded(texts, number, behind.get(number, "")) for number in range(special["eot"], last + 1))


def _encoded(texts: Texts, number: int, text: str) -> bytes:
    """Bytes of an added token, which is no text of the byte alphabet."""
    return _limited(texts, number, text.encode("utf-8", "replace"))


def _limited(texts: Texts, number: int, raw: bytes) -> bytes:
    if len(raw) > MAX_TOKEN_BYTES:
        raise ModelFormatError(f"{texts.name}: token {number} has {len(raw)} bytes; {MAX_TOKEN_BYTES} are plausible")
    return raw


def _is_special(text: str) -> bool:
    return text.startswith("<|") and text.endswith("|>")
