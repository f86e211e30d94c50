from whispyx._core.hparams cimport HParams
from whispyx._core.source cimport Source
from whispyx._core.vocab cimport Vocab


cdef class Record:
    cdef str name
    cdef tuple shape                # fastest dimension first
    cdef int type                   # what it becomes where ggml computes
    cdef int stored                 # what it is in its file
    cdef Source source
    cdef long long offset
    cdef size_t n_bytes             # in its file
    cdef object factors             # float32 array of 1 or of rows: what stored integers are divided by; else None


cdef class Description:
    cdef readonly str name
    cdef HParams hparams
    cdef Vocab vocab
    cdef bytes filters              # float32 (n_mels, 201)
    cdef list records
    cdef list sources
    cdef readonly object alignment_heads    # ((layer, head), ...) where a file names them, else None
    cdef readonly object manifest           # what it was made from, None for a file of whisper.cpp

    cdef long long size(self) noexcept
    cdef int check_unchanged(self) except -1
    cdef void close(self) noexcept

cdef int check_record(Record record, str rule, str where) except -1
