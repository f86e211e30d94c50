"""Text to token ids: byte-level byte-pair encoding (Sennrich et al. 2016; GPT-2's byte-level form).

The text is cut into words by GPT-2's pattern over Unicode classes; the bytes of each word are then merged pair by
pair, always the pair whose merged token has the lowest id. That is exact without a merge table, because in both
published vocabularies the id of a stored token is its merge rank. whisper.cpp takes the longest vocabulary prefix
of each word instead, and cuts words by bytes; ids differ where that is not what the model was trained on.
"""

import re
import unicodedata
from heapq import heappop, heappush

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
    """Merge the bytes of a word. Candidates wait in a heap by (rank, place), so a long word takes no quadratic time."""
    cdef list parts = [word[i:i + 1] for i in range(len(word))]     # None: merged into a part further left
    cdef list after = list(range(1, len(word) + 1)), before = list(range(-1, len(word) - 1))
    cdef list waiting = []
    cdef int rank, left, right, n = len(word)

    def propose(int at) -> None:
        cdef int other = after[at], found
        if other < n:
            found = vocab.find(parts[at] + parts[other])
            if found >= 0:
                heappush(waiting, (found, at, other, len(parts[at]), len(parts[other])))

    for left in range(n):
        propose(left)
    while waiting:
        rank, left, right, n_left, n_right = heappop(waiting)
        if parts[left] is None or parts[right] is None or (len(parts[left]), len(parts[right])) != (n_left, n_right):
            continue    # one of the two has been merged since
        parts[left] += parts[right]
        parts[right] = None
        after[left] = after[right]
        if after[right] < n:
            before[after[right]] = left
        propose(left)
        if before[left] >= 0:
            propose(before[left])
    return [part for part in parts if part is not None]


def tokenize(Vocab vocab not None, text: str) -> list[int]:
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
    if not vocab.words:
        return pieces_of(vocab, text)
    # Words that were added to the vocabulary later stand for themselves wherever they occur, the longest first.
    added = {vocab.text(i).decode("utf-8", "replace"): i for i in sorted(vocab.words, reverse=True)}
    pattern = "|".join([re.escape(word) for word in sorted(added, key=len, reverse=True)])
    for part in re.split(f"({pattern})", text):
        if part in added:
            ids.append(added[part])
        else:
            ids += pieces_of(vocab, part)
    return ids


cdef list pieces_of(Vocab vocab, str text):
    """The tokens of a text without added words."""
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
