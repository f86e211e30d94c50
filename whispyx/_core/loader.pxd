from whispyx._core.hparams cimport HParams
from whispyx._core.mel cimport Filters
from whispyx._core.source cimport Source
from whispyx._core.vocab cimport Vocab
from whispyx._core.weights cimport Weights


cdef class Loaded:
    cdef HParams hparams
    cdef Filters filters
    cdef Vocab vocab
    cdef Weights weights        # None for a file that holds no tensors
    cdef str fingerprint        # None for a file that holds no tensors
    cdef list fallbacks         # of Fallback: weights that the first device cannot multiply by


cdef class Record:
    cdef str name
    cdef tuple shape
    cdef int type
    cdef long long offset
    cdef size_t n_bytes

cdef HParams read_hparams(Source source)
cdef Filters read_filters(Source source, HParams hp)
cdef Vocab read_vocab(Source source, HParams hp)
cdef list read_records(Source source, HParams hp)
cdef object read_floats(Source source, Record record)
cdef str fingerprint_of(Source source, list records)
cdef Loaded load(Source source, list devices, object progress, object encoder, str compute)
cdef int read_magic(Source source, str what) except -1
