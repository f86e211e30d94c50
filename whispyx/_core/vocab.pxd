from whispyx._core.hparams cimport HParams


cdef enum Surplus:      # what an id behind the timestamps is
    UNUSED = 0          # it fills the embedding up, and nothing is ever meant by it
    WORD = 1
    CONTROL = 2         # the model may write it, and it is no text


cdef class Vocab:
    cdef readonly int n_vocab, n_stored, n_languages
    cdef readonly bint is_multilingual
    # Special tokens. `not_` is whisper.h's "not" (no timestamps); every id below `eot` is text, ids from `beg` up to
    # `end` are the timestamps. Those from `end` on, which only fine-tuned models have, are what `surplus` says.
    cdef readonly int eot, sot, translate, transcribe, solm, prev, nosp, not_, beg, end
    cdef readonly frozenset words       # ids of words behind the timestamps
    cdef bytes _surplus
    cdef const unsigned char * surplus  # of ids end … n_vocab - 1
    cdef bint is_text(self, int token) noexcept nogil
    cdef bint is_time(self, int token) noexcept nogil
    cdef list _text
    cdef dict _id_by_text
    cdef object trie            # of the text tokens, made by _core.trie at first use
    cdef int _check_specials(self, dict special) except -1
    cdef bytes text(self, int token)
    cdef int find(self, bytes text) except -2
