"""Characters of token texts. A token may hold part of a UTF-8 character; the rest is in the tokens next to it."""


cdef inline bint is_continuation(unsigned char byte) noexcept nogil:
    return (byte & 0xC0) == 0x80


cdef inline int n_after(unsigned char byte) noexcept nogil:
    """Bytes that follow a first byte; 0 also for bytes that UTF-8 does not have."""
    if byte < 0xC2 or byte > 0xF4:
        return 0
    return 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3


cdef int n_code_points(const unsigned char * text, Py_ssize_t n) noexcept nogil:
    """Characters that begin in these bytes."""
    cdef Py_ssize_t i
    cdef int found = 0
    for i in range(n):
        found += not is_continuation(text[i])
    return found


cdef int expected_after(const unsigned char * text, Py_ssize_t n, int expected) noexcept nogil:
    """Bytes that the character at the end of these bytes still lacks, when it lacked `expected` before them."""
    cdef Py_ssize_t i
    for i in range(n):
        if is_continuation(text[i]):
            expected = max(0, expected - 1)
        else:
            expected = n_after(text[i])
    return expected


cdef bint continues(const unsigned char * text, Py_ssize_t n) noexcept nogil:
    """Whether these bytes begin inside a character."""
    return n > 0 and is_continuation(text[0])


cdef double weight_of(unsigned int ch) noexcept nogil:
    if ch == 0x20 or ch == 0x3000:
        return 0.01
    if ch == 0x2C or ch == 0xFF0C or ch == 0x3001 or ch == 0xFF1B or ch == 0xFF1A:
        return 2
    if 0x30 <= ch <= 0x39 or 0xFF10 <= ch <= 0xFF19:
        return 3
    if ch == 0x2E or ch == 0x21 or ch == 0x3F or ch == 0x3002 or ch == 0xFF0E or ch == 0xFF01 or ch == 0xFF1F \
            or ch == 0x2026:
        return 3
    return 1


cdef double voice_length(const unsigned char * text, Py_ssize_t n) noexcept nogil:
    """How long a text takes to say, in letters: the table of whisper.cpp 1.9.2, by characters.

    A character counts in the token in which it begins.
    """
    cdef Py_ssize_t i = 0
    cdef int k, after
    cdef unsigned int ch
    cdef double total = 0
    while i < n:
        after = n_after(text[i])
        ch = text[i] if after == 0 else text[i] & (0x3F >> after)
        if is_continuation(text[i]):
            i += 1
            continue
        i += 1
        for k in range(after):
            if i >= n or not is_continuation(text[i]):
                ch = 0      # cut short: a character like any other
                break
            ch = (ch << 6) | (text[i] & 0x3F)
            i += 1
        total += weight_of(ch)
    return total
