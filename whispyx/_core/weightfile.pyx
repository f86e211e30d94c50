"""The tensors of a model file as float32 arrays, one at a time: for those who make something else of them."""

from whispyx._core.describe cimport describe
from whispyx._core.description cimport Description, Record
from whispyx._core.loader cimport fingerprint_of
from whispyx._core.reading cimport Rows, placed_bytes, read_floats, rows_of
from whispyx._ggml.ggml cimport GGML_TYPE_F32

from whispyx.errors import ModelFormatError, ParamsError, StateError


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

    @property
    def manifest(self):
        """What the model was described by, None for a file of whisper.cpp."""
        return self.model.manifest

    @property
    def vocab(self):
        """The vocabulary."""
        return self.model.vocab

    @property
    def tokens(self) -> list[bytes]:
        """Texts of the tokens that are stored."""
        cdef int i
        return [self.model.vocab.text(i) for i in range(self.model.vocab.n_stored)]

    @property
    def filters(self):
        """Mel filters, float32 (n_mels, 201)."""
        import numpy as np

        return np.frombuffer(self.model.filters, "<f4").reshape(self.model.hparams.n_mels, -1)

    def names(self) -> list[str]:
        """Return the names of the tensors, in the order of the file."""
        return list(self.records)

    def type_of(self, str name) -> int:
        """Return ggml's number of a tensor's type, or of the one that it gets where ggml cannot compute with it."""
        return (<Record>self.records[name]).type

    def stored_type_of(self, str name) -> int:
        """Return ggml's number of the type that a tensor has in its file."""
        return (<Record>self.records[name]).stored

    def shape_of(self, str name) -> tuple[int, ...]:
        """Return a tensor's shape, the slowest dimension first."""
        return (<Record>self.records[name]).shape[::-1]

    def rows(self, str name, long long first, long long n) -> bytearray:
        """Return rows [first, first + n) of a tensor, all dimensions but the last counted as rows, in its `type_of`."""
        cdef Record record = self.records[name]
        cdef Rows reader = Rows()
        cdef long long total = rows_of(record)
        if self.model is None:
            raise StateError(f"{self.name} was closed")
        if first < 0 or n < 0 or first + n > total:
            raise ParamsError(f"{name} has {total} rows; {n} from {first} on were asked for")
        out = bytearray(n * (placed_bytes(record) // total))
        if out:
            reader.read(record, first, n, <char *>out)
        return out

    def floats(self, str name, long long first, long long n):
        """Return rows [first, first + n) of a tensor as float32 (n, width)."""
        cdef Record record = self.records[name]
        cdef Record wide = Record.__new__(Record)
        cdef Rows reader = Rows()
        cdef float[:, ::1] values
        import numpy as np

        if self.model is None:
            raise StateError(f"{self.name} was closed")
        if first < 0 or n < 0 or first + n > rows_of(record):
            raise ParamsError(f"{name} has {rows_of(record)} rows; {n} from {first} on were asked for")
        wide.name, wide.shape, wide.stored, wide.type = record.name, record.shape, record.stored, GGML_TYPE_F32
        wide.source, wide.offset, wide.n_bytes = record.source, record.offset, record.n_bytes
        wide.factors = record.factors
        out = np.empty((n, record.shape[0]), dtype=np.float32)
        if n:
            values = out
            reader.read(wide, first, n, <char *>&values[0, 0])
        return out

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
