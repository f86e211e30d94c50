from whispyx._core.hparams cimport HParams


cdef class Vocab:
    cdef readonly int n_vocab, n_stored, n_languages
    cdef readonly bint is_multilingual
    # Special tokens. `not_` is whisper.h's "not" (no timestamps); every id below `eot` is text, every id from `beg`
    # on is a timestamp.
    cdef readonly int eot, sot, translate, transcribe, solm, prev, nosp, not_, beg
    cdef list _text
    cdef dict _id_by_text
    cdef object trie            # of the text tokens, made by _core.trie at first use
    cdef int _name_specials(self, dict special) except -1
    cdef bytes text(self, int token)
    cdef int find(self, bytes text) except -2
