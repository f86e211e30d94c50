from whispyx._core.description cimport Description
from whispyx._core.hparams cimport HParams
from whispyx._core.mel cimport Filters
from whispyx._core.vocab cimport Vocab
from whispyx._core.weights cimport Weights


cdef class Loaded:
    cdef HParams hparams
    cdef Filters filters
    cdef Vocab vocab
    cdef Weights weights        # None for a file that holds no tensors
    cdef str fingerprint        # None for a file that holds no tensors
    cdef list fallbacks         # of Fallback: weights that the first device cannot multiply by

cdef str fingerprint_of(list records)
cdef Loaded load(Description model, list devices, object progress, object encoder, str compute, bint mmap)
