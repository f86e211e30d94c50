# distutils: language = c++
"""The text tokens of a vocabulary as a prefix tree of bytes, so that a question about all of them is asked once per
common beginning, and UTF-8 read byte by byte, because tokens may end within a character."""

from whispyx._core.vocab cimport Vocab


cdef Fed feed(Utf8 * at, unsigned char byte) noexcept nogil:
    """Read one more byte. Overlong forms, surrogates and values above 0x10FFFF are broken as soon as they show."""
    cdef unsigned int low, high
    if at.remain == 0:
        if byte < 0x80:
            at.value = byte
            return COMPLETE
        if byte < 0xC2 or byte > 0xF4:
            return BROKEN
        if byte < 0xE0:
            at.value, at.low, at.remain = byte & 0x1F, 0x80, 1
        elif byte < 0xF0:
            at.value, at.low, at.remain = byte & 0x0F, 0x800, 2
        else:
            at.value, at.low, at.remain = byte & 0x07, 0x10000, 3
        return MORE
    if byte & 0xC0 != 0x80:
        at.remain = 0
        return BROKEN
    at.value = (at.value << 6) | (byte & 0x3F)
    at.remain -= 1
    reach(at, &low, &high)
    if low > high or (low >= 0xD800 and high <= 0xDFFF):
        at.remain = 0
        return BROKEN
    return MORE if at.remain > 0 else COMPLETE


cdef void reach(const Utf8 * at, unsigned int * low, unsigned int * high) noexcept nogil:
    """First and last character that the bytes read so far can become."""
    cdef int bits = 6 * at.remain
    low[0] = max(at.value << bits, at.low)
    high[0] = min((at.value << bits) | ((1u << bits) - 1), <unsigned int>0x10FFFF)


cdef class VocabTrie:
    """Made from the bytes of the tokens; tokens without bytes are left out.

    Parameters
    ----------
    texts
        Bytes of token 0, 1, …
    """

    def __init__(self, list texts not None) -> None:
        cdef list ids
        cdef bytes text, before = b""
        cdef vector[int] path               # nodes from the root to the token before
        cdef int token, i, k, shared
        if self.n_tokens:
            raise TypeError("the tree is made already")
        ids = sorted([i for i in range(len(texts)) if texts[i]], key=texts.__getitem__)
        for k, token in enumerate(ids):
            text = texts[token]
            self.order.push_back(token)
            shared = 0
            while shared < len(text) and shared < len(before) and text[shared] == before[shared]:
                shared += 1
            while <int>path.size() > shared:
                self.after[path.back()] = <int>self.byte.size()
                path.pop_back()
            for i in range(shared, len(text)):
                path.push_back(<int>self.byte.size())
                self.byte.push_back(text[i])
                self.depth.push_back(i + 1)
                self.first.push_back(k)
                self.ends.push_back(k)
                self.after.push_back(0)
            self.ends[path.back()] = k + 1
            self.max_depth = max(self.max_depth, <int>path.size())
            before = text
        while path.size() > 0:
            self.after[path.back()] = <int>self.byte.size()
            path.pop_back()
        self.n_nodes, self.n_tokens = <int>self.byte.size(), len(ids)
        self.first.push_back(self.n_tokens)


cdef VocabTrie trie_of(Vocab vocab):
    """Return the tree of a vocabulary's text tokens, made at the first call."""
    if vocab.trie is None:
        texts = [vocab.text(i) for i in range(vocab.eot)]
        if vocab.words:
            texts += [vocab.text(i) if i in vocab.words else b"" for i in range(vocab.eot, vocab.n_stored)]
        vocab.trie = VocabTrie(texts)
    return vocab.trie
