"""Cuts a long segment into pieces of so many characters, by whole tokens. Rules of whisper.cpp 1.8.5
(`whisper_wrap_segment`), but never inside a character, and with all of the segment's fields in every piece."""

from whispyx._core.align.chars cimport continues, expected_after, n_code_points
from whispyx._core.results cimport SegmentData, TokenData
from whispyx._core.vocab cimport Vocab


cdef SegmentData piece(SegmentData whole, list tokens, bytes text, long long t0, long long t1, bint last):
    cdef SegmentData out = SegmentData.__new__(SegmentData)
    out.t0, out.t1 = t0, t1
    out.text = text
    out.tokens = tuple(tokens)
    out.no_speech_prob = whole.no_speech_prob
    out.speaker_turn_next = last and whole.speaker_turn_next
    out.avg_logprob, out.temperature = whole.avg_logprob, whole.temperature
    return out


cdef long long start_of(TokenData token, SegmentData segment, long long earliest, int done, int n) noexcept:
    """When a piece that begins with `token` begins. Without token times, the characters before it say how far."""
    cdef long long t = token.t0 if token.t0 >= 0 else segment.t0 + (segment.t1 - segment.t0) * done // max(1, n)
    return max(earliest, min(segment.t1, t))


cdef int shown_chars(TokenData token) noexcept:
    return n_code_points(token.shown, len(token.shown))


cdef int chars_together(tuple tokens, int first, Vocab vocab) noexcept:
    """Characters of a text token and of those behind it that share a character with it."""
    cdef TokenData token
    cdef int i, expected = 0, total = 0
    for i in range(first, len(tokens)):
        token = tokens[i]
        if not vocab.is_text(token.id):
            continue
        if i > first and not (expected > 0 and continues(token.text, len(token.text))):
            break
        total += shown_chars(token)
        expected = expected_after(token.text, len(token.text), expected)
    return total


cpdef list wrap(SegmentData segment, int max_len, bint split_on_word, Vocab vocab):
    """Return the pieces of a segment: the segment itself where nothing has to be cut.

    Parameters
    ----------
    segment
        Its tokens should have times (`energy.TokenClock`).
    max_len
        Most characters of a piece; a token, or tokens that share a character, may be longer than that. 0 or less: no
        limit.
    split_on_word
        Cut only before tokens that begin with a space.
    vocab
        The model's vocabulary.
    """
    cdef TokenData token
    cdef list pieces = [], tokens = [], text = []
    cdef int length = 0, n_chars = 0, expected = 0, done = 0, i, n
    cdef bint within, begun = False     # begun: the piece has text tokens, though perhaps nothing to show
    cdef long long t0 = segment.t0, cut_at
    cdef bytes every = b"".join([(<TokenData>t).shown for t in segment.tokens])
    # With print_special the text has special tokens too, and in front those of timestamps that belong to no segment.
    cdef bint special = segment.text.endswith(every)
    if max_len <= 0:
        return [segment]
    if special:
        text.append(segment.text[:len(segment.text) - len(every)])
    for token in segment.tokens:
        n_chars += shown_chars(token) if vocab.is_text(token.id) else 0
    for i in range(len(segment.tokens)):
        token = segment.tokens[i]
        if not vocab.is_text(token.id):
            tokens.append(token)
            if special:
                text.append(token.text)
            continue
        within = expected > 0 and continues(token.text, len(token.text))
        n = chars_together(segment.tokens, i, vocab)
        if (n > 0 and length + n > max_len and tokens and not within and (length > 0 or not begun)
                and (not split_on_word or token.text.startswith(b" "))):
            cut_at = start_of(token, segment, t0, done, n_chars)
            pieces.append(piece(segment, tokens, b"".join(text), t0, cut_at, False))
            tokens, text, length, t0 = [], [], 0, cut_at
        begun = True
        tokens.append(token)
        text.append(token.shown)
        length += shown_chars(token)
        done += shown_chars(token)
        expected = expected_after(token.text, len(token.text), expected)
    if not pieces:
        return [segment]
    pieces.append(piece(segment, tokens, b"".join(text), t0, segment.t1, True))
    return pieces
