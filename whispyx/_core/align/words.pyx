"""Words of a text: which tokens make one, how long it takes to say, and when it was said."""

import unicodedata

from libc.stdlib cimport free, malloc

from whispyx._core.align.chars cimport continues, expected_after
from whispyx._core.align.fit cimport Loudness, fit
from whispyx._core.results cimport SegmentData, TokenData, WordData
from whispyx._core.vocab cimport Vocab

# Scripts written without spaces, first and last character of each block.
_SPACELESS = (
    (0x0E00, 0x0EFF), (0x0F00, 0x0FFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3005, 0x3007), (0x3040, 0x30FF),
    (0x31F0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA9E0, 0xA9FF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F),
    (0x20000, 0x3FFFF),
)
_OPENERS = frozenset("\"'“‘„«‹¿¡([{「『（《〈【〔")
_DASHES = frozenset("-‐‑–—/")

cdef enum:
    WINDOW = 3000               # frames of 10 ms

cdef double HEAD = 0.6          # letters: what every word takes besides its own


cdef bint is_spaceless(str ch):
    cdef unsigned int code = ord(ch)
    for first, last in _SPACELESS:
        if first <= code <= last:
            return True
    return False


cdef bint is_mark(str ch):
    """Whether a character belongs to the one before: vowel signs, tone marks, the long-vowel sign."""
    return unicodedata.category(ch) in ("Mn", "Mc", "Lm")


cdef bint is_said(str text):
    """Whether there is anything to say in a text."""
    for ch in text:
        if ch.isalnum():
            return True
    return False


cdef bint begins_word(str text, str before):
    """Whether a piece of text begins a word when `before` is the text of the word so far."""
    cdef str first = text[0], last = before[len(before) - 1]
    if first.isspace():
        return True
    if is_mark(first):
        return False
    if first in _DASHES:
        return is_said(before)
    if is_spaceless(first):
        return True
    # In scripts without spaces, an opening mark or a letter of another script behind a character.
    return is_spaceless(last) and (first in _OPENERS or first.isalnum())


def group(list pieces) -> list[list[int]]:
    """Group the texts of tokens to words.

    A word begins with a space or with a hyphen, and with every character of scripts that use no spaces. Marks without
    a letter or digit go with the word before, or the word behind if they open something.

    Parameters
    ----------
    pieces
        bytes of each token. Tokens that share a character share a word.

    Returns
    -------
    list of lists
        Places of each word's tokens, in order; together all of them.
    """
    cdef list places = [], texts = []       # of each word
    cdef list held = []                     # tokens of a character that is not complete yet
    cdef bytes raw = b"", piece, after
    cdef int i, n = len(pieces), expected = 0
    for i in range(n):
        piece = pieces[i]
        held.append(i)
        raw += piece
        expected = expected_after(piece, len(piece), expected)
        after = pieces[i + 1] if i + 1 < n else b""
        if expected > 0 and continues(after, len(after)):
            continue
        text = raw.decode("utf-8", "ignore")
        if not places or (text and begins_word(text, texts[len(texts) - 1] or " ")):
            places.append(held)
            texts.append(text)
        else:
            places[len(places) - 1] = places[len(places) - 1] + held
            texts[len(texts) - 1] += text
        held, raw, expected = [], b"", 0
    return merged(places, texts)


cdef list merged(list places, list texts):
    """Give words with nothing to say to their neighbours."""
    cdef list out = [], waiting = []
    cdef str mark
    cdef int i
    for i in range(len(places)):
        mark = texts[i].strip()
        if is_said(texts[i]):
            out.append(waiting + places[i])
            waiting = []
        elif not out or waiting or all([ch in _OPENERS for ch in mark]) or (
                texts[i][:1].isspace() and all([ch in _DASHES for ch in mark])):
            waiting = waiting + places[i]
        else:
            out[len(out) - 1] = out[len(out) - 1] + places[i]
    if waiting and out:
        out[len(out) - 1] = out[len(out) - 1] + waiting
    elif waiting:
        out.append(waiting)
    return out


def letters(str text) -> float:
    """Return how long a text takes to say, counted in letters of an alphabet."""
    cdef double total = 0
    cdef unsigned int code
    for ch in text:
        code = ord(ch)
        if ch.isdigit():
            total += 3
        elif 0x3040 <= code <= 0x30FF:      # a syllable each
            total += 2
        elif 0xAC00 <= code <= 0xD7A3:
            total += 2.5
        elif code >= 0x3400 and is_spaceless(ch):
            total += 3
        elif ch in "%$&€£@+=":
            total += 4
        elif ch.isalnum():
            total += 1
    return max(1.0, total)


cdef double look_of(const double * cost, list rows, int n_rows, int n_positions, int frame, int lag) noexcept:
    """How much attention looks for a word at a frame of 10 ms: as much as for the token it looks for most."""
    cdef double at = min(max((frame + lag) / 2.0 - 0.25, 0.0), <double>(n_positions - 1)), part, value, best = -1e300
    cdef int left = <int>at, right = min(<int>at + 1, n_positions - 1), row
    part = at - left
    for row in rows:
        if row < n_rows:
            value = (1 - part) * cost[<size_t>row * n_positions + left] + part * cost[<size_t>row * n_positions + right]
            best = max(best, -value)
    return best if best > -1e300 else 0.0


cdef WordData word_of(SegmentData segment, list places, double t0, double t1):
    cdef WordData out = WordData.__new__(WordData)
    cdef TokenData token
    cdef list text = []
    cdef double p = 0
    cdef int i
    for i in places:
        token = segment.tokens[i]
        text.append(token.shown)
        p += token.p
    out.text = b"".join(text)
    out.t0, out.t1 = t0, t1
    out.probability = <float>(p / len(places))
    out.tokens = tuple(places)
    return out


cdef list texts_of(SegmentData segment, list places):
    """The texts of tokens, where a character that the segment before has begun is whole."""
    cdef list texts = []
    cdef TokenData token
    cdef bint head = True
    cdef int i
    for i in places:
        token = segment.tokens[i]
        head = head and continues(token.text, len(token.text))
        texts.append(token.shown if head else token.text)
    return texts


cdef int time_words(list segments, Vocab vocab, const double * cost, int n_rows, int n_positions, int seek,
                    Loudness loudness, int lag) except -1:
    """Fill the words of a window's segments. Each lies inside its segment and after the word before.

    Parameters
    ----------
    segments
        The window's segments in order.
    eot
        Tokens below this are text.
    cost
        (n_rows, n_positions): what it costs to hear the window's i-th text token at an encoder position. Tokens past
        n_rows are placed by their length alone.
    seek
        The window's first frame of 10 ms.
    loudness
        Of the sound that frames count in.
    lag
        Frames by which attention follows the sound.
    """
    cdef SegmentData segment
    cdef TokenData token
    cdef list words, plans = []
    cdef int i, row = 0
    cdef long long frame, n_voiced = 0
    cdef double n_letters = 0, pace
    for segment in segments:
        places = [i for i, token in enumerate(segment.tokens) if vocab.is_text(token.id)]
        texts = texts_of(segment, places)
        words = group(texts)
        lengths = [letters(b"".join([texts[i] for i in word]).decode("utf-8", "ignore")) + HEAD for word in words]
        # Marks are written in pauses: they say nothing about where a word is.
        said = [[i for i in word if is_said(texts[i].decode("utf-8", "ignore"))] or word for word in words]
        plans.append((segment, [[places[i] for i in word] for word in words], lengths,
                      [[row + i for i in word] for word in said]))
        row += len(places)
        n_letters += sum(lengths)
        for frame in range(max(segment.t0, seek), min(segment.t1, seek + WINDOW)):
            n_voiced += loudness.voiced(frame) > 0
    if n_letters == 0:
        return 0
    pace = max(1.0, min(40.0, n_voiced / n_letters))     # frames per letter
    for segment, words, lengths, rows in plans:
        if words:
            place(segment, words, [pace * length for length in lengths], rows, cost, n_rows, n_positions, seek,
                  loudness, lag)
        else:
            segment.words = ()
    return 0


cdef int place(SegmentData segment, list words, list lengths, list rows, const double * cost, int n_rows,
               int n_positions, int seek, Loudness loudness, int lag) except -1:
    cdef long long begin = max(segment.t0, <long long>seek), finish = min(segment.t1, <long long>seek + WINDOW)
    cdef int n = len(words), n_frames = <int>max(<long long>0, finish - begin), k, frame, status = 1
    cdef int offset = <int>(begin - seek)
    cdef double * look = <double *>malloc(<size_t>max(1, n * n_frames) * sizeof(double))
    cdef double * voiced = <double *>malloc((n_frames + 1) * sizeof(double))
    cdef double * length = <double *>malloc(n * sizeof(double))
    cdef int * start = <int *>malloc(n * sizeof(int))
    cdef int * end = <int *>malloc(n * sizeof(int))
    try:
        if look == NULL or voiced == NULL or length == NULL or start == NULL or end == NULL:
            raise MemoryError
        for k in range(n):
            length[k] = lengths[k]
            for frame in range(n_frames):
                look[<size_t>k * n_frames + frame] = look_of(cost, rows[k], n_rows, n_positions, offset + frame, lag)
        with nogil:
            for frame in range(n_frames):
                voiced[frame] = loudness.voiced(begin + frame)
            status = fit(look, voiced, length, n, n_frames, start, end)
        if status < 0:
            raise MemoryError
        if status > 0:      # not even 10 ms for each
            share = max(<long long>0, segment.t1 - segment.t0) / 100.0 / n
            segment.words = tuple([word_of(segment, words[k], segment.t0 / 100.0 + share * k,
                                           segment.t0 / 100.0 + share * (k + 1)) for k in range(n)])
        else:
            segment.words = tuple([word_of(segment, words[k], (begin + start[k]) / 100.0, (begin + end[k]) / 100.0)
                                   for k in range(n)])
    finally:
        free(look)
        free(voiced)
        free(length)
        free(start)
        free(end)
    return 0
