"""The tensors of a model file as float32 arrays, one at a time: for those who make something else of them."""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

import numpy as np

from whispyx._core.loader cimport Record, read_filters, read_hparams, read_records, read_vocab
from whispyx._core.source cimport Source
from whispyx._ggml.ggml cimport GGML_TYPE_F32, ggml_get_type_traits, ggml_to_float_t, ggml_type

from whispyx._core.source import open_source
from whispyx.errors import ModelFormatError, StateError


cdef class WeightFile:
    """A model file whose headers have been read and checked as for loading. See the stub."""

    cdef Source source
    cdef dict records
    cdef readonly object hparams
    cdef readonly str name

    def __init__(self, source) -> None:
        cdef Record record
        self.source = open_source(source)
        try:
            self.name = self.source.name
            self.hparams = read_hparams(self.source)
            read_filters(self.source, self.hparams)
            read_vocab(self.source, self.hparams)
            self.records = {record.name: record for record in read_records(self.source, self.hparams)}
        except BaseException:
            self.close()
            raise
        if not self.records:
            self.close()
            raise ModelFormatError(f"{self.name} holds no tensors")

    def bytes_of(self, str name) -> int:
        """Return how many bytes a tensor takes in the file."""
        return (<Record>self.records[name]).n_bytes

    def read(self, str name):
        """Return a tensor as float32, the slowest dimension first: a matrix is (n_out, n_in)."""
        cdef Record record = self.records[name]
        cdef float[::1] values
        cdef char * raw = NULL
        cdef ggml_to_float_t to_float
        cdef int64_t n
        if self.source is None:
            raise StateError(f"{self.name} was closed")
        out = np.empty(record.shape[::-1], dtype=np.float32)
        values = out.reshape(-1)
        n = values.shape[0]
        self.source.seek(record.offset)
        if record.type == GGML_TYPE_F32:
            self.source.read(&values[0], record.n_bytes, name)
            return out
        to_float = ggml_get_type_traits(<ggml_type>record.type).to_float
        if to_float == NULL:
            raise ModelFormatError(f"{self.name}: {name} has type number {record.type}, which is no kind of floats")
        raw = <char *>malloc(record.n_bytes)
        if raw == NULL:
            raise MemoryError
        try:
            self.source.read(raw, record.n_bytes, name)
            with nogil:
                to_float(raw, &values[0], n)
        finally:
            free(raw)
        return out

    def close(self) -> None:
        """Close the file. Closing twice is fine."""
        if self.source is not None:
            self.source.close()
            self.source = None

    def __enter__(self):
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()
