"""Text to token ids: byte-level byte-pair encoding (Sennrich et al. 2016; GPT-2's byte-level form).

The text is cut into words by GPT-2's pattern over Unicode classes; the bytes of each word are then merged pair by
pair, always the pair whose merged token has the lowest id. That is exact without a merge table, because in both
published vocabularies the id of a stored token is its merge rank. whisper.cpp takes the longest vocabulary prefix
of each word instead, and cuts words by bytes; ids differ where that is not what the model was trained on.
"""

import unicodedata

from whispyx._core.vocab cimport Vocab

from whispyx.errors import ParamsError

_CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")

cdef enum:
    LETTER
    NUMBER
    SPACE
    OTHER


cdef int kind(str ch):
    if ch.isspace():
        return SPACE
    first = unicodedata.category(ch)[0]
    return LETTER if first == "L" else NUMBER if first == "N" else OTHER


def split_words(str text) -> list[str]:
    """Cut a text as GPT-2's pattern does: contractions, then runs of letters, numbers or other signs with at most
    one space in front, then white space (the last space of a run belongs to the word that follows)."""
    cdef list words = []
    cdef Py_ssize_t i = 0, j, n = len(text)
    cdef int k
    while i < n:
        for short in _CONTRACTIONS:
            if text.startswith(short, i):
                words.append(short)
                i += len(short)
                break
        else:
            j = i + 1 if text[i] == " " and i + 1 < n and kind(text[i + 1]) != SPACE else i
            k = kind(text[j])
            if k != SPACE:
                while j < n and kind(text[j]) == k:
                    j += 1
            else:
                while j < n and kind(text[j]) == SPACE:
                    j += 1
                if j < n and j - i > 1:
                    j -= 1
            words.append(text[i:j])
            i = j
    return words


cdef list merge(Vocab vocab, bytes word):
    cdef list parts = [word[i:i + 1] for i in range(len(word))]
    cdef int rank, best, i, at = 0
    while len(parts) > 1:
        best = -1
        for i in range(len(parts) - 1):
            rank = vocab.find(parts[i] + parts[i + 1])
            if rank >= 0 and (best < 0 or rank < best):
                best, at = rank, i
        if best < 0:
            break
        parts[at:at + 2] = [parts[at] + parts[at + 1]]
    return parts


def tokenize(Vocab vocab, text: str) -> list[int]:
    """Return the token ids of a text.

    Parameters
    ----------
    vocab
        The model's vocabulary.
    text
        Any text; lone surrogates are refused.

    Raises
    ------
    ParamsError
        The text cannot be written as UTF-8, or the vocabulary lacks a byte of it.
    """
    cdef list ids = []
    cdef int token
    for word in split_words(text):
        try:
            raw = word.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ParamsError(f"the text holds a lone surrogate: {error}") from None
        for part in merge(vocab, raw):
            token = vocab.find(part)
            if token < 0:
                raise ParamsError(f"the model's vocabulary has no token for the bytes {part!r} of {word!r}")
            ids.append(token)
    return ids
