"""What is known of a model before its weights are read: settings, vocabulary, filters, where each tensor lies.

Readers of file formats make one; loading, conversion and `whispyx info` start from it.
"""

import math
from collections.abc import Sequence

from whispyx._ggml.ggml cimport ggml_blck_size, ggml_row_size, ggml_type, ggml_type_name

from whispyx._core.weights import CONV, F32_ONLY
from whispyx.errors import ModelFormatError

# ggml's tensor type numbers that a weight may have; the gaps are types that ggml dropped or uses only inside graphs.
WEIGHT_TYPES = frozenset({0, 1, 2, 3, 6, 7, 8, *range(10, 15), *range(16, 24), 29, 30, 34, 35, 39, 40, 41, 42})
CONV_TYPES = frozenset({0, 1})


cdef class Record:
    """One tensor: what it is, and where it lies."""


cdef class Description:
    """A model but for its weights. `close` lets go of the files."""

    cdef long long size(self) noexcept:
        """Bytes of all files."""
        cdef Source source
        cdef long long total = 0
        for source in self.sources:
            total += source.size
        return total

    cdef int check_unchanged(self) except -1:
        cdef Source source
        for source in self.sources:
            source.check_unchanged()
        return 0

    cdef void close(self) noexcept:
        cdef Source source
        for source in self.sources:
            source.close()


cdef int check_record(Record record, str rule, str where) except -1:
    """Refuse a type that a tensor cannot have, or whose blocks its rows do not fill."""
    cdef int block
    allowed = {0} if rule == F32_ONLY else CONV_TYPES if rule == CONV else WEIGHT_TYPES
    if record.type not in allowed:
        raise ModelFormatError(f"{where}: {record.name} has type number {record.type}, which is not possible for it")
    block = ggml_blck_size(<ggml_type>record.type)
    if record.shape[0] % block:
        raise ModelFormatError(
            f"{where}: rows of {record.name} have {record.shape[0]} values, not a multiple of the"
            f" {block} that type {ggml_type_name(<ggml_type>record.type).decode()} packs together"
        )
    return 0


def tensor_bytes(int type, shape: Sequence[int]) -> int | None:
    """Return the bytes that a tensor takes in a file; None where type and shape are not possible.

    Parameters
    ----------
    type
        ggml's type number.
    shape
        Up to four dimensions, the fastest one first; none is a single value.
    """
    cdef int block
    if type not in WEIGHT_TYPES or any([n < 0 for n in shape]):
        return None
    block = ggml_blck_size(<ggml_type>type)
    if shape and shape[0] % block:
        return None
    return math.prod(shape) // block * <size_t>ggml_row_size(<ggml_type>type, block) if shape or block == 1 else None
