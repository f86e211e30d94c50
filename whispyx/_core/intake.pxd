from libc.stdint cimport int64_t, uint16_t

from whispyx._core.kernels cimport wx_kernels, wx_matrix
from whispyx._core.source cimport Source
from whispyx._ggml.ggml cimport ggml_to_float_t


cdef extern from *:
    """
    #include "whispyx_kernels.h"

    typedef void (*wx_to_float)(const void *, float *, int64_t);
    typedef void (*wx_to_half)(const float *, uint16_t *, int64_t);

    typedef struct wx_piece {
        long long offset;
        size_t n_bytes;
        int64_t n;
        int src_type;
        wx_to_float to_float;
        int widen;
        char * keep;
        float * wide;
        uint16_t * half;
        wx_to_half to_half;
        int turn;
        const wx_matrix * m;
        int first, n_rows;
        float factor;
        int fd;
        const char * memory;
        int source;
        const float * divisors;
        int per_row, integer;
    } wx_piece;
    """
    ctypedef struct wx_piece:
        long long offset            # in the file
        size_t n_bytes
        int64_t n                   # numbers
        int src_type                # as kernels call it, where they read it as it is
        ggml_to_float_t to_float    # else, or NULL: they are f32 already
        bint widen                  # numbers become f32 before anything else
        char * keep                 # where its bytes stay, or NULL
        float * wide                # where its numbers stay as f32, or NULL
        uint16_t * half             # where its numbers stay as f16, or NULL
        void (*to_half)(const float *, uint16_t *, int64_t) noexcept nogil
        int turn                    # channels of a convolution's row (channels, 3), which becomes (3, channels)
        const wx_matrix * m         # what it is packed into, or NULL
        int first, n_rows
        float factor
        int fd                      # of its file, or -1: all of it lies in memory
        const char * memory
        int source                  # number of its file
        const float * divisors      # of integers: one, or one for each row that is read; NULL: they are no integers
        bint per_row
        int integer                 # bytes of one: 1 or 2


cdef int source_type(int type) noexcept


cdef class Intake:
    cdef const wx_kernels * table
    cdef wx_piece * pieces
    cdef size_t n_pieces, room
    cdef size_t n_bytes             # of all pieces
    cdef size_t most_bytes, most_numbers
    cdef list sources, kept         # files; arrays of divisors
    cdef const float * divisors     # of the tensor that is noted
    cdef int n_divisors
    cdef int begin(self, Source source, object factors) except -1
    cdef int vector(self, long long offset, int type, size_t n, float * to, float factor) except -1
    cdef int rows(self, long long offset, int type, const wx_matrix * m, int first, int n_rows, float factor,
                  int turn=*, char * keep=*, float * wide=*, uint16_t * half=*, int skipped=*) except -1
    cdef int mean(self, long long offset, int type, const wx_matrix * m, int first, float * to) except -1
    cdef Source source(self)
    cdef int _add(self, wx_piece piece, int type) except -1
    cdef int run(self, long long size, object progress) except -1
