"""Log-mel spectrogram as whisper.cpp computes it (Radford et al. 2022, section 2.2).

400-sample Hann windows every 160 samples, power spectrum, mel bands, log10, clipped to 8 below the maximum of the
whole recording, mapped to about -1..1. The recording is followed by 30 s of silence, which is never stored: all its
frames have one value. Differs from whisper.cpp in the first frames of recordings shorter than 201 samples, where the
reflection at the left edge uses the samples there are.

The transform is a real FFT of 400 points through a complex one of 200 (mixed radix 5, 5, 4, 2, Stockham order), for
eight frames side by side so that the compiler can use vector instructions.
"""

cimport cython
from libc.math cimport cos, log10f, sin
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from whispyx._core.check cimport as_samples
from whispyx._core.kernels cimport table

from whispyx.errors import ModelFormatError, ParamsError, StateError

cdef enum:
    N_FFT = 400
    HOP = 160
    N_BINS = 201
    HALF = 200            # points of the complex transform
    LANES = 8
    PAD = N_FFT // 2      # samples reflected at the left edge
    CHUNK = 30 * 16000    # samples of silence appended
    FRAMES_PER_TASK = 4096
    PIECE = 256           # frames that the kernels compute at a time

cdef double PI = 3.14159265358979323846

cdef float hann[N_FFT]
cdef float tw_re[HALF]         # exp(-2 pi i k / 200)
cdef float tw_im[HALF]
cdef float un_re[N_BINS]       # exp(-2 pi i k / 400)
cdef float un_im[N_BINS]
cdef float root5_re[5]
cdef float root5_im[5]


cdef void init_tables() noexcept:
    cdef int i
    for i in range(N_FFT):
        hann[i] = <float>(0.5 * (1.0 - cos(2.0 * PI * i / N_FFT)))
    for i in range(HALF):
        tw_re[i] = <float>cos(2.0 * PI * i / HALF)
        tw_im[i] = <float>-sin(2.0 * PI * i / HALF)
    for i in range(N_BINS):
        un_re[i] = <float>cos(2.0 * PI * i / N_FFT)
        un_im[i] = <float>-sin(2.0 * PI * i / N_FFT)
    for i in range(5):
        root5_re[i] = <float>cos(2.0 * PI * i / 5)
        root5_im[i] = <float>-sin(2.0 * PI * i / 5)

init_tables()


cdef struct Work:
    float re[HALF * LANES]
    float im[HALF * LANES]
    float re2[HALF * LANES]
    float im2[HALF * LANES]
    float power[N_BINS * LANES]


cdef inline void twist(const float * re, const float * im, float w_re, float w_im, float * out_re,
                       float * out_im) noexcept nogil:
    """out = (re, im) times w, eight lanes."""
    cdef int lane
    for lane in range(LANES):
        out_re[lane] = re[lane] * w_re - im[lane] * w_im
        out_im[lane] = re[lane] * w_im + im[lane] * w_re


cdef void pass2(int n, int s, const float * xr, const float * xi, float * yr, float * yi) noexcept nogil:
    cdef int m = n // 2, p, q, lane, a, b, o
    cdef float wr, wi
    cdef float dr[LANES]
    cdef float di[LANES]
    for p in range(m):
        wr, wi = tw_re[p * (HALF // n)], tw_im[p * (HALF // n)]
        for q in range(s):
            a, b = (q + s * p) * LANES, (q + s * (p + m)) * LANES
            o = (q + s * 2 * p) * LANES
            for lane in range(LANES):
                dr[lane] = xr[a + lane] - xr[b + lane]
                di[lane] = xi[a + lane] - xi[b + lane]
                yr[o + lane] = xr[a + lane] + xr[b + lane]
                yi[o + lane] = xi[a + lane] + xi[b + lane]
            o += s * LANES
            twist(dr, di, wr, wi, yr + o, yi + o)


cdef void pass4(int n, int s, const float * xr, const float * xi, float * yr, float * yi) noexcept nogil:
    cdef int m = n // 4, p, q, j, lane, i0, i1, i2, i3, o, t
    cdef float br[4][LANES]
    cdef float bi[4][LANES]
    cdef float sr, si, dr, di, ur, ui, vr, vi
    for p in range(m):
        for q in range(s):
            i0 = (q + s * p) * LANES
            i1 = i0 + s * m * LANES
            i2 = i1 + s * m * LANES
            i3 = i2 + s * m * LANES
            for lane in range(LANES):
                sr, si = xr[i0 + lane] + xr[i2 + lane], xi[i0 + lane] + xi[i2 + lane]
                dr, di = xr[i0 + lane] - xr[i2 + lane], xi[i0 + lane] - xi[i2 + lane]
                ur, ui = xr[i1 + lane] + xr[i3 + lane], xi[i1 + lane] + xi[i3 + lane]
                vr, vi = xr[i1 + lane] - xr[i3 + lane], xi[i1 + lane] - xi[i3 + lane]
                br[0][lane], bi[0][lane] = sr + ur, si + ui
                br[1][lane], bi[1][lane] = dr + vi, di - vr
                br[2][lane], bi[2][lane] = sr - ur, si - ui
                br[3][lane], bi[3][lane] = dr - vi, di + vr
            for j in range(4):
                o = (q + s * (4 * p + j)) * LANES
                t = (p * j * (HALF // n)) % HALF
                twist(br[j], bi[j], tw_re[t], tw_im[t], yr + o, yi + o)


cdef void pass5(int n, int s, const float * xr, const float * xi, float * yr, float * yi) noexcept nogil:
    cdef int m = n // 5, p, q, j, k, lane, a, o, t
    cdef float br[LANES]
    cdef float bi[LANES]
    cdef float wr, wi
    for p in range(m):
        for q in range(s):
            for j in range(5):
                a = (q + s * p) * LANES
                for lane in range(LANES):
                    br[lane] = xr[a + lane]
                    bi[lane] = xi[a + lane]
                for k in range(1, 5):
                    a += s * m * LANES
                    wr, wi = root5_re[(j * k) % 5], root5_im[(j * k) % 5]
                    for lane in range(LANES):
                        br[lane] += xr[a + lane] * wr - xi[a + lane] * wi
                        bi[lane] += xr[a + lane] * wi + xi[a + lane] * wr
                o = (q + s * (5 * p + j)) * LANES
                t = (p * j * (HALF // n)) % HALF
                twist(br, bi, tw_re[t], tw_im[t], yr + o, yi + o)


cdef void power_spectrum(Work * w) noexcept nogil:
    """Turn 400 windowed samples per lane (even in re, odd in im) into the power of bins 0..200."""
    cdef int k, a, b, lane
    cdef float er, ei, dr, di, fr, fi, wr, wi
    pass5(200, 1, w.re, w.im, w.re2, w.im2)
    pass5(40, 5, w.re2, w.im2, w.re, w.im)
    pass4(8, 25, w.re, w.im, w.re2, w.im2)
    pass2(2, 100, w.re2, w.im2, w.re, w.im)
    for k in range(N_BINS):
        a = (k % HALF) * LANES
        b = ((HALF - k) % HALF) * LANES
        wr, wi = un_re[k], un_im[k]
        for lane in range(LANES):
            # Even samples' spectrum plus the odd samples' one turned by half a step.
            er = 0.5 * (w.re[a + lane] + w.re[b + lane])
            ei = 0.5 * (w.im[a + lane] - w.im[b + lane])
            dr = 0.5 * (w.im[a + lane] + w.im[b + lane])
            di = 0.5 * (w.re[b + lane] - w.re[a + lane])
            fr = er + dr * wr - di * wi
            fi = ei + dr * wi + di * wr
            w.power[k * LANES + lane] = fr * fr + fi * fi


cdef inline float padded(const float * x, long long n, long long at) noexcept nogil:
    """Sample `at` of the recording with its reflected left edge and silence after its end."""
    if at < 0:
        at = -at if -at < n else n
    return x[at] if at < n else 0.0


cdef bint kernel_frames(const float * x, long long n, Filters filters, float[:, ::1] out, int i_from,
                        int i_to) noexcept nogil:
    """The same by our own kernels, a piece of the recording after the other. False, and nothing done, without them."""
    cdef int i, j, band, count
    cdef long long start, at, inside
    cdef float * piece
    cdef float * bands
    if filters.table == NULL:
        return False
    piece = <float *>malloc(((PIECE - 1) * HOP + N_FFT + PIECE * filters.n_mels) * sizeof(float))
    if piece == NULL:
        return False
    bands = piece + (PIECE - 1) * HOP + N_FFT
    i = i_from
    while i < i_to:
        count = min(PIECE, i_to - i)
        start = <long long>i * HOP - PAD
        inside = (count - 1) * HOP + N_FFT
        if start >= 0 and start + inside <= n:
            memcpy(piece, x + start, inside * sizeof(float))
        else:
            for at in range(inside):
                piece[at] = padded(x, n, start + at)
        filters.table.mel(piece, 0, count, hann, &filters.weights[0, 0], filters.n_mels, bands)
        for band in range(filters.n_mels):
            memcpy(&out[band, i], bands + band * count, count * sizeof(float))
        i += count
    free(piece)
    return True


cdef void compute_frames(const float * x, long long n, Filters filters, float[:, ::1] out, int i_from,
                         int i_to) noexcept nogil:
    """Write log10 band energies of frames i_from..i_to-1."""
    cdef Work w
    cdef int i, j, lane, band, k
    cdef long long start
    cdef float total[LANES]
    if kernel_frames(x, n, filters, out, i_from, i_to):
        return
    i = i_from
    while i < i_to:
        for lane in range(LANES):
            start = <long long>(i + lane) * HOP - PAD
            if i + lane < i_to and start >= 0 and start + N_FFT <= n:
                for j in range(HALF):
                    w.re[j * LANES + lane] = hann[2 * j] * x[start + 2 * j]
                    w.im[j * LANES + lane] = hann[2 * j + 1] * x[start + 2 * j + 1]
            elif i + lane < i_to:
                for j in range(HALF):
                    w.re[j * LANES + lane] = hann[2 * j] * padded(x, n, start + 2 * j)
                    w.im[j * LANES + lane] = hann[2 * j + 1] * padded(x, n, start + 2 * j + 1)
            else:
                for j in range(HALF):
                    w.re[j * LANES + lane] = 0.0
                    w.im[j * LANES + lane] = 0.0
        power_spectrum(&w)
        for band in range(filters.n_mels):
            memset(total, 0, sizeof(total))
            for k in range(filters.first[band], filters.last[band]):
                for lane in range(LANES):
                    total[lane] += filters.weights[band, k] * w.power[k * LANES + lane]
            for lane in range(min(LANES, i_to - i)):
                out[band, i + lane] = log10f(total[lane] if total[lane] > <float>1e-10 else <float>1e-10)
        i += LANES


@cython.auto_pickle(False)
cdef class Filters:
    """Mel filter bank of a model.

    Parameters
    ----------
    weights
        float32 (n_mels, 201), one row per band.
    """

    def __init__(self, weights) -> None:
        cdef int band, k
        if self.n_mels:
            raise StateError("the filters are made already")
        self.table = table()    # a model's spectrograms must not change while it is open
        import numpy as np      # here and below, not at the top: a model is read meanwhile

        array = np.array(weights, dtype=np.float32, order="C", copy=True)
        if array.ndim != 2 or array.shape[0] == 0 or array.shape[1] != N_BINS:
            raise ModelFormatError(f"mel filters have shape {array.shape}, expected (n_mels, {N_BINS})")
        if not np.isfinite(array).all():
            raise ModelFormatError("mel filters hold NaN or infinity")
        self.weights = array
        self.n_mels, self.n_fft = array.shape
        self.first = np.zeros(self.n_mels, dtype=np.intc)
        self.last = np.zeros(self.n_mels, dtype=np.intc)
        for band in range(self.n_mels):
            used = np.flatnonzero(array[band])
            if used.size:
                self.first[band], self.last[band] = used[0], used[used.size - 1] + 1

    def array(self):
        """Return the weights, float32 (n_mels, 201), as a copy."""
        if self.n_mels == 0:
            raise StateError("the filters were never made")
        import numpy as np

        return np.array(self.weights)


@cython.auto_pickle(False)
cdef class MelSpectrogram:
    """Normalised log-mel frames of one recording."""

    @staticmethod
    def of_samples(samples, Filters filters not None, int n_threads=1) -> MelSpectrogram:
        """Compute the spectrogram of samples, float32 (n_samples,) at 16 kHz; see the module's text."""
        cdef const float[::1] x = as_samples(samples)
        cdef MelSpectrogram self = MelSpectrogram.__new__(MelSpectrogram)
        cdef long long n = x.shape[0]
        cdef const float * first = &x[0] if n else NULL
        cdef float[:, ::1] data
        cdef int i, band, n_frames
        cdef float top = -10.0, floor_value
        import numpy as np

        if n_threads < 1:
            raise ParamsError(f"n_threads is {n_threads}; at least 1 is needed")
        if filters.n_mels == 0:
            raise StateError("the filters were never made")
        self.n_mels = filters.n_mels
        self.n_len = <int>((n + CHUNK) // HOP)
        # C truncation: a recording shorter than half a window has one frame less than a floor would give.
        self.n_len_org = 1 + <int>((n - PAD) / HOP)
        self.n_end = <int>((n + HOP - 1) // HOP)
        n_frames = <int>min((n + PAD) // HOP + 1, <long long>self.n_len) if n else 0
        self.n_stored = n_frames
        data = self.data = np.empty((self.n_mels, n_frames), dtype=np.float32)

        if n_threads == 1 or n_frames <= FRAMES_PER_TASK or not _compute_on_threads(x, filters, data, n_threads):
            with nogil:
                compute_frames(first, n, filters, data, 0, n_frames)

        with nogil:
            for band in range(self.n_mels):
                for i in range(n_frames):
                    if data[band, i] > top:
                        top = data[band, i]
            floor_value = top - 8.0
            for band in range(self.n_mels):
                for i in range(n_frames):
                    data[band, i] = ((data[band, i] if data[band, i] > floor_value else floor_value) + 4.0) / 4.0
            self.pad_value = ((-10.0 if -10.0 > floor_value else floor_value) + 4.0) / 4.0
        return self

    @staticmethod
    def of_mel(mel, int n_mels) -> MelSpectrogram:
        """Take ready frames, float32 (n_mels, n_len); no padding is added (as whisper_set_mel)."""
        cdef MelSpectrogram self = MelSpectrogram.__new__(MelSpectrogram)
        import numpy as np

        try:
            array = np.array(mel, dtype=np.float32, order="C", copy=True)
        except (TypeError, ValueError) as error:
            raise ParamsError(f"mel is no array of numbers: {error}") from None
        if array.ndim != 2 or array.shape[0] != n_mels:
            raise ParamsError(f"mel has shape {array.shape}, the model needs ({n_mels}, n_frames)")
        if not np.isfinite(array).all():
            raise ParamsError("mel holds NaN or infinity")
        self.data = array
        self.n_mels = n_mels
        self.n_stored = self.n_len = self.n_len_org = self.n_end = array.shape[1]
        return self

    cdef void window(self, int seek, int n_frames, float * out) noexcept nogil:
        """Write frames seek..seek+n_frames-1 as (n_mels, n_frames); frames past n_len are 0.0."""
        cdef int band, i
        cdef long long at       # a window may start at the last frame an int can name
        cdef float * row
        for band in range(self.n_mels):
            row = out + <size_t>band * n_frames
            for i in range(n_frames):
                at = <long long>seek + i
                if at < self.n_stored:
                    row[i] = self.data[band, at]
                else:
                    row[i] = self.pad_value if at < self.n_len else <float>0.0

    def array(self):
        """Return all frames with their padding, float32 (n_mels, n_len), as a copy."""
        if self.n_mels == 0:
            raise StateError("the spectrogram was never made")
        import numpy as np

        full = np.full((self.n_mels, self.n_len), self.pad_value, dtype=np.float32)
        full[:, :self.n_stored] = self.data
        return full


cdef bint _compute_on_threads(const float[::1] x, Filters filters, float[:, ::1] data, int n_threads) except -1:
    """Compute all frames on several threads. False when the system starts none; nothing is lost then."""
    cdef int i, n_frames = data.shape[1]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(n_threads) as pool:
        try:
            tasks = [pool.submit(_compute, x, filters, data, i, min(i + FRAMES_PER_TASK, n_frames))
                     for i in range(0, n_frames, FRAMES_PER_TASK)]
        except RuntimeError:
            return False
        for task in tasks:
            task.result()
    return True


def _compute(const float[::1] x, Filters filters, float[:, ::1] data, int i_from, int i_to) -> None:
    with nogil:
        compute_frames(&x[0], x.shape[0], filters, data, i_from, i_to)


def log_mel(samples, filters, int n_threads=1):
    """Return the log-mel spectrogram of a recording.

    Parameters
    ----------
    samples
        float32 (n_samples,), 16 kHz mono.
    filters
        float32 (n_mels, 201).
    n_threads
        Threads to use for long recordings.

    Returns
    -------
    numpy.ndarray
        float32 (n_mels, n_samples // 160 + 3000); frames are 10 ms apart.

    Raises
    ------
    AudioError
        Wrong dtype or shape, or a sample that is not finite.
    ModelFormatError
        Filters of another shape.
    """
    return MelSpectrogram.of_samples(samples, Filters(filters), n_threads).array()
