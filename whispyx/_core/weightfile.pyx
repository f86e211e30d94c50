"""The tensors of a model file as float32 arrays, one at a time: for those who make something else of them."""

from whispyx._core.loader cimport (
    Record,
    fingerprint_of,
    read_filters,
    read_floats,
    read_hparams,
    read_records,
    read_vocab,
)
from whispyx._core.source cimport Source

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
        if self.source is None:
            raise StateError(f"{self.name} was closed")
        return read_floats(self.source, self.records[name])

    def fingerprint(self) -> str:
        """Return a number that tells networks apart, whatever the types of their weights."""
        if self.source is None:
            raise StateError(f"{self.name} was closed")
        return fingerprint_of(self.source, list(self.records.values()))

    def close(self) -> None:
        """Close the file. Closing twice is fine."""
        if self.source is not None:
            self.source.close()
            self.source = None

    def __enter__(self):
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()
