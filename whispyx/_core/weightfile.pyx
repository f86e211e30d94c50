"""The tensors of a model file as float32 arrays, one at a time: for those who make something else of them."""

from whispyx._core.describe cimport describe
from whispyx._core.description cimport Description, Record
from whispyx._core.loader cimport fingerprint_of
from whispyx._core.reading cimport read_floats

from whispyx.errors import ModelFormatError, StateError


cdef class WeightFile:
    """A model file whose headers have been read and checked as for loading. See the stub."""

    cdef Description model
    cdef dict records
    cdef readonly object hparams
    cdef readonly str name

    def __init__(self, source) -> None:
        cdef Record record
        self.model = describe(source)
        self.name, self.hparams = self.model.name, self.model.hparams
        self.records = {record.name: record for record in self.model.records}
        if not self.records:
            self.close()
            raise ModelFormatError(f"{self.name} holds no tensors")

    def bytes_of(self, str name) -> int:
        """Return how many bytes a tensor takes in the file."""
        return (<Record>self.records[name]).n_bytes

    def read(self, str name):
        """Return a tensor as float32, the slowest dimension first: a matrix is (n_out, n_in)."""
        if self.model is None:
            raise StateError(f"{self.name} was closed")
        return read_floats(self.records[name])

    def fingerprint(self) -> str:
        """Return a number that tells networks apart, whatever the types of their weights."""
        if self.model is None:
            raise StateError(f"{self.name} was closed")
        return fingerprint_of(list(self.records.values()))

    def close(self) -> None:
        """Close the file. Closing twice is fine."""
        if self.model is not None:
            self.model.close()
            self.model = None

    def __enter__(self):
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()
