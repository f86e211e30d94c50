"""ggml's own rounding of weights: f32 to f16, bf16 or blocks of 2 to 8 bits."""

from libc.stdint cimport int64_t
from libc.string cimport memcpy

from whispyx._ggml.ggml cimport (
    GGML_TYPE_F32,
    ggml_blck_size,
    ggml_get_type_traits,
    ggml_quantize_chunk,
    ggml_quantize_requires_imatrix,
    ggml_row_size,
    ggml_type,
)

from whispyx._core.description import WEIGHT_TYPES
from whispyx.errors import ParamsError


def quantise(const float[:, ::1] rows, int type) -> bytearray:
    """Return rows as ggml stores them in a type.

    Parameters
    ----------
    rows
        float32 (n_rows, width); width is a multiple of the type's block.
    type
        ggml's number of a type that weights can have.

    Raises
    ------
    ParamsError
        Weights cannot have the type, or rows are no multiple of its block, or it needs an importance matrix.
    """
    cdef int64_t n_rows = rows.shape[0], width = rows.shape[1]
    cdef int block
    cdef bytearray out
    cdef char * to
    if type not in WEIGHT_TYPES:
        raise ParamsError(f"weights cannot have the type number {type}")
    block = ggml_blck_size(<ggml_type>type)
    if width % block:
        raise ParamsError(f"rows of {width} numbers are no multiple of {block}, the block of type number {type}")
    if ggml_quantize_requires_imatrix(<ggml_type>type):
        raise ParamsError(f"type number {type} needs an importance matrix")
    out = bytearray(n_rows * ggml_row_size(<ggml_type>type, width))
    if n_rows and width:
        to = out
        with nogil:
            ggml_quantize_chunk(<ggml_type>type, &rows[0, 0], to, 0, n_rows, width, NULL)
    return out


def dequantise(const unsigned char[::1] raw, int type, long long width):
    """Return the numbers that `quantise` made of rows, float32 (n_rows, width)."""
    cdef size_t row = ggml_row_size(<ggml_type>type, width) if type in WEIGHT_TYPES and width > 0 else 0
    cdef int64_t n
    cdef float[::1] values
    import numpy as np

    if row == 0 or raw.shape[0] % row:
        raise ParamsError(f"{raw.shape[0]} bytes are no rows of {width} numbers of type number {type}")
    out = np.empty(raw.shape[0] // row * width, dtype=np.float32)
    values, n = out, out.size
    if n == 0:
        return out.reshape(-1, width)
    if type == GGML_TYPE_F32:
        memcpy(&values[0], &raw[0], n * sizeof(float))
    else:
        with nogil:
            ggml_get_type_traits(<ggml_type>type).to_float(&raw[0], &values[0], n)
    return out.reshape(-1, width)
