"""Reading weights from a file into the places where kernels want them, by several threads.

What is to be read is noted first, cut into pieces of some hundred rows. Each thread then takes the next piece, reads
it into a buffer that stays in its cache, and packs it from there: both cost about the same, and one core alone keeps
memory waiting.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport isfinite
from libc.stdint cimport int64_t, uint16_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from whispyx._core.kernels cimport WX_BF16, WX_F16, WX_F32, Memory, wx_kernels, wx_matrix
from whispyx._core.source cimport Source
from whispyx._ggml.ggml cimport (
    GGML_TYPE_BF16,
    GGML_TYPE_F16,
    GGML_TYPE_F32,
    GGML_TYPE_I8,
    GGML_TYPE_I16,
    ggml_fp32_to_fp16_row,
    ggml_get_type_traits,
    ggml_row_size,
    ggml_type,
)

from whispyx._core.cores import usable_cores
from whispyx.errors import ComputeMemoryError, ModelFormatError

cdef enum:
    MOST_THREADS = 4            # more than memory can feed
    PIECE_BYTES = 256 << 10     # of a file: with what is made of it, it fits into a core's second cache
    MEAN_ROWS = 512             # their mean is that of all but for a twentieth of what rows differ by
    ROWS_PER_STEP = 64          # pieces begin at multiples of this many rows: panels of their own
    PIECES_PER_TURN = 16        # between two reports of progress, and two looks for Ctrl-C

cdef extern from *:
    """
    #include <errno.h>
    #include <pthread.h>
    #include <string.h>
    #include <unistd.h>
    #include "whispyx_kernels.h"

    typedef struct wx_intake {
        const wx_kernels * table;
        const wx_piece * pieces;
        size_t n, next, done;           /* pieces, the next one, bytes */
        int failed;                     /* errno; -1: the file ended */
        size_t failed_at;               /* the piece */
        size_t most_bytes, most_numbers;
    } wx_intake;

    typedef struct wx_reader {
        wx_intake * intake;
        char * room;                    /* most_bytes, then 2 x most_numbers floats */
        pthread_t thread;
        int started;
    } wx_reader;

    static int wx_read_piece(const wx_piece * p, char * to) {
        if (p->fd < 0) {
            memcpy(to, p->memory + p->offset, p->n_bytes);
            return 0;
        }
        for (size_t at = 0; at < p->n_bytes;) {
            ssize_t got = pread(p->fd, to + at, p->n_bytes - at, (off_t) (p->offset + (long long) at));
            if (got > 0) at += (size_t) got;
            else if (got == 0) return -1;
            else if (errno != EINTR) return errno;
        }
        return 0;
    }

    /* value = integer / divisor, of all or of each row */
    static void wx_divide(const wx_piece * p, const char * raw, float * to) {
        int64_t rows = p->per_row ? p->n_rows : 1, width = p->n / (rows > 0 ? rows : 1);
        for (int64_t row = 0; row < rows; row++)
            for (int64_t i = row * width; i < (row + 1) * width; i++) {
                int16_t two;
                if (p->integer == 2) memcpy(&two, raw + 2 * i, 2);
                to[i] = (p->integer == 2 ? (float) two : (float) (int8_t) raw[i]) / p->divisors[p->per_row ? row : 0];
            }
    }

    static int wx_take_piece(const wx_intake * in, const wx_piece * p, char * room) {
        char * raw = p->keep ? p->keep : room;
        float * spare = (float *) (room + in->most_bytes);
        const void * from = raw;
        int type = p->src_type;
        int failed = wx_read_piece(p, raw);
        if (failed) return failed;
        if (p->widen) {
            float * wide = p->wide ? p->wide : spare;
            if (p->divisors) wx_divide(p, raw, wide);
            else if (p->to_float) p->to_float(raw, wide, p->n);
            else memcpy(wide, raw, (size_t) p->n * sizeof(float));
            if (p->half) p->to_half(wide, p->half, p->n);
            if (!p->m && p->factor != 1.0f)
                for (int64_t i = 0; i < p->n; i++) wide[i] *= p->factor;
            from = wide;
            type = WX_F32;
        }
        if (p->turn) {
            const float * x = (const float *) from;
            float * turned = spare + in->most_numbers;
            for (int64_t row = 0; row < p->n_rows; row++, x += 3 * p->turn)
                for (int64_t c = 0; c < p->turn; c++)
                    for (int64_t k = 0; k < 3; k++) turned[(row * 3 + k) * p->turn + c] = x[c * 3 + k];
            from = turned;
        }
        if (p->m && p->m->n_out > 0) in->table->pack(p->m, p->first, p->n_rows, from, type, p->factor);
        return 0;
    }

    /* Takes pieces until `most` are done or none is left. */
    static void wx_take_pieces(wx_reader * reader, size_t most) {
        wx_intake * in = reader->intake;
        for (size_t i = 0; i < most && !__atomic_load_n(&in->failed, __ATOMIC_RELAXED); i++) {
            size_t mine = __atomic_fetch_add(&in->next, 1, __ATOMIC_RELAXED);
            if (mine >= in->n) return;
            int failed = wx_take_piece(in, &in->pieces[mine], reader->room);
            if (failed) {
                in->failed_at = mine;   /* of several threads one is enough to tell */
                __atomic_store_n(&in->failed, failed, __ATOMIC_RELEASE);
            } else __atomic_fetch_add(&in->done, in->pieces[mine].n_bytes, __ATOMIC_RELAXED);
        }
    }

    static void * wx_read_on(void * reader) {
        wx_take_pieces((wx_reader *) reader, (size_t) -1);
        return NULL;
    }

    /* Where the system starts no thread, the others do its work. */
    static void wx_start_readers(wx_reader * readers, int n) {
        for (int i = 1; i < n; i++)
            readers[i].started = !pthread_create(&readers[i].thread, NULL, wx_read_on, &readers[i]);
    }

    static void wx_join_readers(wx_reader * readers, int n) {
        for (int i = 1; i < n; i++) if (readers[i].started) pthread_join(readers[i].thread, NULL);
    }

    static void wx_stop_reading(wx_intake * in) { __atomic_store_n(&in->next, in->n, __ATOMIC_RELAXED); }
    static int wx_all_taken(wx_intake * in) {
        return in->failed || __atomic_load_n(&in->next, __ATOMIC_RELAXED) >= in->n;
    }
    static size_t wx_bytes_done(wx_intake * in) { return __atomic_load_n(&in->done, __ATOMIC_RELAXED); }
    """
    ctypedef struct wx_intake:
        const wx_kernels * table
        const wx_piece * pieces
        size_t n
        int failed
        size_t failed_at
        size_t most_bytes
        size_t most_numbers

    ctypedef struct wx_reader:
        wx_intake * intake
        char * room

    void wx_take_pieces(wx_reader * reader, size_t most) noexcept nogil
    void wx_start_readers(wx_reader * readers, int n) noexcept nogil
    void wx_join_readers(wx_reader * readers, int n) noexcept nogil
    void wx_stop_reading(wx_intake * intake) noexcept nogil
    bint wx_all_taken(wx_intake * intake) noexcept nogil
    size_t wx_bytes_done(wx_intake * intake) noexcept nogil


cdef int source_type(int type) noexcept:
    """The kernels' name of a type that they read as it is, -1 for others."""
    if type == GGML_TYPE_F32:
        return WX_F32
    if type == GGML_TYPE_F16:
        return WX_F16
    if type == GGML_TYPE_BF16:
        return WX_BF16
    return -1


cdef class Intake:
    """What is to be read, then read by `run`. Every place must stay where it is until then."""

    def __dealloc__(self):
        free(self.pieces)

    def __cinit__(self):
        self.sources, self.kept = [], []

    cdef int begin(self, Source source, object factors) except -1:
        """Say where the tensor that is noted next lies, and what its integers are divided by (float32), or None."""
        cdef const float[::1] divisors
        if not self.sources or self.sources[len(self.sources) - 1] is not source:
            self.sources.append(source)
        self.divisors, self.n_divisors = NULL, 0
        if factors is not None:
            divisors = factors
            self.kept.append(factors)
            self.divisors, self.n_divisors = &divisors[0], <int>divisors.shape[0]
        return 0

    cdef int vector(self, long long offset, int type, size_t n, float * to, float factor) except -1:
        """Note n numbers that become f32 at `to`, times a factor."""
        cdef wx_piece piece
        memset(&piece, 0, sizeof(piece))
        piece.offset, piece.n_bytes, piece.n = offset, ggml_row_size(<ggml_type>type, n), n
        piece.widen, piece.wide, piece.factor = True, to, factor
        return self._add(piece, type)

    cdef int rows(self, long long offset, int type, const wx_matrix * m, int first, int n_rows, float factor,
                  int turn=0, char * keep=NULL, float * wide=NULL, uint16_t * half=NULL, int skipped=0) except -1:
        """Note rows of a matrix: they are packed, and also kept as they are, as f32 or as f16, where that is asked.

        The tensor begins at `offset`; its first `skipped` rows are not meant.
        """
        cdef size_t row_bytes = ggml_row_size(<ggml_type>type, m.n_in)
        cdef int at = 0, step = ROWS_PER_STEP * max(<size_t>1, PIECE_BYTES // (ROWS_PER_STEP * row_bytes))
        cdef int n
        cdef wx_piece piece
        while at < n_rows:
            n = min(step - (first + at) % ROWS_PER_STEP, n_rows - at)
            memset(&piece, 0, sizeof(piece))
            piece.offset = offset + (skipped + at) * row_bytes
            piece.n_bytes, piece.n = n * row_bytes, <int64_t>n * m.n_in
            piece.m, piece.first, piece.n_rows, piece.factor, piece.turn = m, first + at, n, factor, turn
            if keep != NULL:
                piece.keep = keep + at * row_bytes
            if wide != NULL:
                piece.wide = wide + <size_t>at * m.n_in
            if half != NULL:
                piece.half, piece.to_half = half + <size_t>at * m.n_in, ggml_fp32_to_fp16_row
            piece.src_type = source_type(type)
            piece.widen = turn or wide != NULL or half != NULL or piece.src_type < 0
            if self.n_divisors > 1:
                piece.per_row, piece.divisors = True, self.divisors + skipped + at
            self._add(piece, type)
            at += n
        return 0

    cdef int mean(self, long long offset, int type, const wx_matrix * m, int first, float * to) except -1:
        """Read now, from the tensor noted next, the mean of about MEAN_ROWS of the m.n_out rows from `first` on."""
        cdef Intake sample = Intake()
        cdef wx_matrix row = m[0]
        cdef int step = max(1, m.n_out // MEAN_ROWS), n = (m.n_out + step - 1) // step
        cdef int i, column, count
        cdef double total
        cdef Memory rows = Memory.create(<size_t>n * m.n_in * sizeof(float), "the mean of an embedding")
        cdef const float * x = <const float *>rows.ptr
        sample.table, sample.divisors, sample.n_divisors = self.table, self.divisors, self.n_divisors
        sample.sources.append(self.source())
        row.n_out = 0
        for i in range(n):
            sample.rows(offset, type, &row, 0, 1, 1.0, 0, NULL, <float *>rows.ptr + <size_t>i * m.n_in, NULL,
                        first + i * step)
        sample.run(0, None)
        # Not NumPy, which is imported while a model is read. A row that is not finite must not spoil all others.
        for column in range(m.n_in):
            total, count = 0.0, 0
            for i in range(n):
                if isfinite(x[<size_t>i * m.n_in + column]):
                    total += x[<size_t>i * m.n_in + column]
                    count += 1
            to[column] = <float>(total / count) if count > 0 else 0.0
        return 0

    cdef Source source(self):
        """Where the tensor that is noted next lies."""
        return self.sources[len(self.sources) - 1]

    cdef int _add(self, wx_piece piece, int type) except -1:
        cdef void * grown
        cdef Source source = self.source()
        piece.fd, piece.memory, piece.source = source.descriptor(), source.memory(), <int>len(self.sources) - 1
        if type == GGML_TYPE_I8 or type == GGML_TYPE_I16:
            if self.divisors == NULL:
                raise ModelFormatError(f"{source.name}: integers come without the factors that they are divided by")
            piece.integer = 1 if type == GGML_TYPE_I8 else 2
            if not piece.per_row:
                piece.divisors = self.divisors
        elif piece.widen and type != GGML_TYPE_F32:
            piece.to_float = ggml_get_type_traits(<ggml_type>type).to_float
            if piece.to_float == NULL:
                raise ModelFormatError(f"type number {type} is no kind of floats")
        if self.n_pieces == self.room:
            grown = realloc(self.pieces, 2 * (self.room + 64) * sizeof(wx_piece))
            if grown == NULL:
                raise MemoryError
            self.pieces, self.room = <wx_piece *>grown, 2 * (self.room + 64)
        self.pieces[self.n_pieces] = piece
        self.n_pieces += 1
        self.n_bytes += piece.n_bytes
        if piece.keep == NULL:
            self.most_bytes = max(self.most_bytes, (piece.n_bytes + 63) // 64 * 64)
        if piece.widen and (piece.wide == NULL or piece.turn):
            self.most_numbers = max(self.most_numbers, <size_t>(piece.n + 15) // 16 * 16)
        return 0

    cdef int run(self, long long size, object progress) except -1:
        """Read everything; `progress` is told how many bytes of the files are done, and how many they have."""
        cdef Source source
        cdef int n_threads = min(MOST_THREADS, usable_cores(), max(<size_t>1, self.n_pieces)), i
        cdef size_t room = self.most_bytes + 2 * self.most_numbers * sizeof(float) + 64
        cdef wx_reader * readers = <wx_reader *>calloc(n_threads, sizeof(wx_reader))
        cdef char * rooms = <char *>calloc(n_threads, room)
        cdef wx_intake intake
        memset(&intake, 0, sizeof(intake))
        intake.table, intake.pieces, intake.n = self.table, self.pieces, self.n_pieces
        intake.most_bytes, intake.most_numbers = self.most_bytes, self.most_numbers
        try:
            if readers == NULL or rooms == NULL:
                raise ComputeMemoryError(
                    f"no memory to read the weights: {n_threads * room / 1e6:.1f} MB were asked for")
            for i in range(n_threads):
                readers[i].intake, readers[i].room = &intake, rooms + i * room
            wx_start_readers(readers, n_threads)
            try:
                while not wx_all_taken(&intake):
                    with nogil:
                        wx_take_pieces(&readers[0], PIECES_PER_TURN)
                    PyErr_CheckSignals()
                    if progress is not None:
                        progress(size - <long long>(self.n_bytes - wx_bytes_done(&intake)), size)
            finally:
                with nogil:
                    wx_stop_reading(&intake)
                    wx_join_readers(readers, n_threads)
            if intake.failed:
                source = self.sources[self.pieces[intake.failed_at].source]
                source.check_read(intake.failed, self.pieces[intake.failed_at].offset)
        finally:
            free(readers)
            free(rooms)
        return 0
