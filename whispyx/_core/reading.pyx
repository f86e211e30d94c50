"""Rows of a tensor from its file, in the type that they shall have.

What a file stores in that type goes straight to its place. Other floats become f32 and then f16 or bf16; integers are
divided by their factors first (CTranslate2: value = integer / factor).
"""

from libc.stdint cimport int8_t, int16_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from whispyx._core.description cimport Record
from whispyx._ggml.ggml cimport (
    GGML_TYPE_BF16,
    GGML_TYPE_F16,
    GGML_TYPE_F32,
    GGML_TYPE_I8,
    GGML_TYPE_I16,
    ggml_bf16_t,
    ggml_fp16_t,
    ggml_fp32_to_bf16_row,
    ggml_fp32_to_fp16_row,
    ggml_get_type_traits,
    ggml_row_size,
    ggml_to_float_t,
    ggml_type,
)

from whispyx.errors import ModelFormatError

cdef enum:
    PIECE_NUMBERS = 1 << 18     # of what is converted at a time


cdef long long rows_of(Record record) noexcept:
    """Rows of a tensor: all but its fastest dimension."""
    cdef long long n = 1
    cdef int i
    for i in range(1, len(record.shape)):
        n *= <long long>record.shape[i]
    return n


cdef size_t placed_bytes(Record record) except? 0:
    """Bytes of a tensor in the type that it becomes."""
    return ggml_row_size(<ggml_type>record.type, record.shape[0]) * rows_of(record)


cdef int widen(Record record, long long first, long long n, const char * raw, float * to) except -1:
    """Rows [first, first + n), which are at `raw` as they are stored, as f32."""
    cdef int64_t width = record.shape[0], i
    cdef long long row
    cdef float factor
    cdef const float[::1] factors
    cdef ggml_to_float_t to_float
    if record.stored == GGML_TYPE_F32:
        memcpy(to, raw, <size_t>(n * width) * sizeof(float))
    elif record.stored == GGML_TYPE_I8 or record.stored == GGML_TYPE_I16:
        factors = record.factors
        for row in range(n):
            factor = factors[0] if factors.shape[0] == 1 else factors[first + row]
            for i in range(row * width, (row + 1) * width):
                if record.stored == GGML_TYPE_I8:
                    to[i] = (<const int8_t *>raw)[i] / factor
                else:
                    to[i] = (<const int16_t *>raw)[i] / factor
    else:
        to_float = ggml_get_type_traits(<ggml_type>record.stored).to_float
        if to_float == NULL:
            raise ModelFormatError(f"{record.source.name}: {record.name} has type number {record.stored}, no floats")
        with nogil:
            to_float(raw, to, n * width)
    return 0


cdef class Rows:
    """Reads rows, with memory for those that are converted."""

    def __dealloc__(self):
        free(self.raw)
        free(self.wide)

    cdef int read(self, Record record, long long first, long long n, char * to) except -1:
        """Read rows [first, first + n) to `to`."""
        cdef long long width = record.shape[0], at, part, most
        cdef size_t stored = ggml_row_size(<ggml_type>record.stored, width)
        cdef size_t placed = ggml_row_size(<ggml_type>record.type, width)
        record.source.seek(record.offset + first * <long long>stored)
        if record.stored == record.type:
            record.source.read(to, n * stored, record.name)
            return 0
        if self.raw == NULL:
            # Blocks of no type are longer than their numbers as f32.
            self.raw = <char *>malloc(PIECE_NUMBERS * sizeof(float))
            self.wide = <float *>malloc(PIECE_NUMBERS * sizeof(float))
            if self.raw == NULL or self.wide == NULL:
                raise MemoryError
        if width > PIECE_NUMBERS:
            raise ModelFormatError(f"{record.source.name}: a row of {record.name} has {width} numbers")
        most = PIECE_NUMBERS // width
        for at in range(0, n, most):
            part = min(most, n - at)
            record.source.read(self.raw, part * stored, record.name)
            widen(record, first + at, part, self.raw, self.wide)
            if record.type == GGML_TYPE_F32:
                memcpy(to + at * placed, self.wide, part * placed)
            elif record.type == GGML_TYPE_F16:
                ggml_fp32_to_fp16_row(self.wide, <ggml_fp16_t *>(to + at * placed), part * width)
            elif record.type == GGML_TYPE_BF16:
                ggml_fp32_to_bf16_row(self.wide, <ggml_bf16_t *>(to + at * placed), part * width)
            else:
                raise ModelFormatError(f"{record.source.name}: {record.name} cannot become type {record.type}")
        return 0


cdef object read_floats(Record record):
    """Return a tensor as float32, the slowest dimension first: a matrix is (n_out, n_in)."""
    cdef float[::1] values
    cdef char * raw = NULL
    import numpy as np

    out = np.empty(record.shape[::-1], dtype=np.float32)
    values = out.reshape(-1)
    record.source.seek(record.offset)
    if record.stored == GGML_TYPE_F32:
        record.source.read(&values[0], record.n_bytes, record.name)
        return out
    raw = <char *>malloc(record.n_bytes)
    if raw == NULL:
        raise MemoryError
    try:
        record.source.read(raw, record.n_bytes, record.name)
        widen(record, 0, rows_of(record), raw, &values[0])
    finally:
        free(raw)
    return out
