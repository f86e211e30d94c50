/* Log mel energies: 400 windowed samples, every 160, to power spectrum, to bands, to log10.
 *
 * Frame i covers padded[160 i] .. padded[160 i + 399]; whoever calls has put the reflected edge and the silence there.
 * `window` has 400 numbers, `filters` is (n_mels, 201), `out` is (n_mels, last - first).
 *
 * WX_LANES frames are computed side by side, one per lane. The real transform of 400 points is a complex one of 200
 * (even samples real, odd ones imaginary), in Stockham order through factors 5, 5, 4 and 2, and a step that takes the
 * two interleaved halves apart. Energies below 1e-10 count as 1e-10.
 */
#include <math.h>

#include "vector.h"

#define FFT 400
#define HOP 160
#define HALF 200
#define BINS 201
#define MAX_MELS 256            /* bands whose ends are remembered; further ones search for theirs every time */
#define TURN 6.283185307179586

typedef struct complex_v {
    wx_v re, im;
} complex_v;

typedef struct turns {
    float re[HALF + 1], im[HALF + 1];
} turns;

typedef struct band {
    int32_t first, last;        /* bins with a weight */
} band;

static inline complex_v plus(complex_v a, complex_v b) { return (complex_v){a.re + b.re, a.im + b.im}; }
static inline complex_v minus(complex_v a, complex_v b) { return (complex_v){a.re - b.re, a.im - b.im}; }

/* a + f b, the same for both parts. */
static inline complex_v add_scaled(complex_v a, float f, complex_v b) {
    return (complex_v){wx_fma(wx_set1(f), b.re, a.re), wx_fma(wx_set1(f), b.im, a.im)};
}

/* a - i b and a + i b. */
static inline complex_v minus_i(complex_v a, complex_v b) { return (complex_v){a.re + b.im, a.im - b.re}; }
static inline complex_v plus_i(complex_v a, complex_v b) { return (complex_v){a.re - b.im, a.im + b.re}; }

static inline complex_v turned(complex_v a, const turns * w, int at) {
    wx_v re = wx_set1(w->re[at]), im = wx_set1(w->im[at]);
    return (complex_v){a.re * re - a.im * im, wx_fma(a.re, im, a.im * re)};
}

/* One pass over sub-transforms of n points at stride s, n * s = 200; w holds exp(-2 pi i k / 200). */
static void pass5(int n, int s, const complex_v * x, complex_v * y, const turns * w) {
    const float c1 = 0.309016994374947f, c2 = -0.809016994374947f, s1 = 0.951056516295154f, s2 = 0.587785252292473f;
    int m = n / 5, step = HALF / n;
    for (int p = 0; p < m; p++) {
        for (int q = 0; q < s; q++) {
            const complex_v * in = x + q + s * p;
            complex_v * out = y + q + s * 5 * p;
            complex_v x0 = in[0], x1 = in[s * m], x2 = in[2 * s * m], x3 = in[3 * s * m], x4 = in[4 * s * m];
            complex_v near = plus(x1, x4), far = plus(x2, x3), d1 = minus(x1, x4), d2 = minus(x2, x3);
            complex_v zero = {wx_zero(), wx_zero()};
            complex_v a1 = add_scaled(add_scaled(x0, c1, near), c2, far);
            complex_v a2 = add_scaled(add_scaled(x0, c2, near), c1, far);
            complex_v b1 = add_scaled(add_scaled(zero, s1, d1), s2, d2);
            complex_v b2 = add_scaled(add_scaled(zero, s2, d1), -s1, d2);
            out[0] = plus(x0, plus(near, far));
            out[s] = turned(minus_i(a1, b1), w, p * step);
            out[2 * s] = turned(minus_i(a2, b2), w, 2 * p * step);
            out[3 * s] = turned(plus_i(a2, b2), w, 3 * p * step);
            out[4 * s] = turned(plus_i(a1, b1), w, 4 * p * step);
        }
    }
}

/* The factors 4 (of 8 points at stride 25) and 2 at once. */
static void pass8(const complex_v * x, complex_v * y, const turns * w) {
    for (int q = 0; q < 25; q++) {
        complex_v part[2][4];
        for (int p = 0; p < 2; p++) {
            const complex_v * in = x + q + 25 * p;
            complex_v sum = plus(in[0], in[100]), difference = minus(in[0], in[100]);
            complex_v odd = plus(in[50], in[150]), twist = minus(in[50], in[150]);
            part[p][0] = plus(sum, odd);
            part[p][1] = minus_i(difference, twist);
            part[p][2] = minus(sum, odd);
            part[p][3] = plus_i(difference, twist);
        }
        for (int j = 0; j < 4; j++) {
            complex_v second = turned(part[1][j], w, 25 * j);
            y[q + 25 * j] = plus(part[0][j], second);
            y[q + 25 * j + 100] = minus(part[0][j], second);
        }
    }
}

/* Powers of bins 0 .. 200 from the transform z of 200 points: bins k and 200 - k come from z[k] and z[200 - k].
   w holds exp(-2 pi i k / 400). */
static void powers(const complex_v * z, wx_v * power, const turns * w) {
    const wx_v half = wx_set1(0.5f);
    for (int k = 0; k <= HALF / 2; k++) {
        complex_v a = z[k], b = z[(HALF - k) % HALF];
        complex_v even = {half * (a.re + b.re), half * (a.im - b.im)};
        complex_v odd = {half * (a.im + b.im), half * (b.re - a.re)};
        odd = turned(odd, w, k);
        complex_v low = plus(even, odd), high = minus(even, odd);
        power[k] = wx_fma(low.re, low.re, low.im * low.im);
        power[HALF - k] = wx_fma(high.re, high.re, high.im * high.im);
    }
}

/* Four samples of every frame as four vectors of frames: 128-bit pieces of frames 0, 4, 8, 12 and so on side by side,
   then a transposition inside each piece. */
static inline void four_samples(const float * const * frame, int at, wx_v out[4]) {
    wx_v v[4];
#if WX_LANES == 8
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_castps128_ps256(_mm_loadu_ps(frame[i] + at));
        v[i] = _mm256_insertf128_ps(v[i], _mm_loadu_ps(frame[4 + i] + at), 1);
    }
    __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(v[0], v[1])), b = _mm256_castps_pd(_mm256_unpacklo_ps(v[2], v[3]));
    __m256d c = _mm256_castps_pd(_mm256_unpackhi_ps(v[0], v[1])), d = _mm256_castps_pd(_mm256_unpackhi_ps(v[2], v[3]));
    out[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
    out[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
    out[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(c, d));
    out[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(c, d));
#else
    for (int i = 0; i < 4; i++) {
        v[i] = _mm512_castps128_ps512(_mm_loadu_ps(frame[i] + at));
        v[i] = _mm512_insertf32x4(v[i], _mm_loadu_ps(frame[4 + i] + at), 1);
        v[i] = _mm512_insertf32x4(v[i], _mm_loadu_ps(frame[8 + i] + at), 2);
        v[i] = _mm512_insertf32x4(v[i], _mm_loadu_ps(frame[12 + i] + at), 3);
    }
    __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(v[0], v[1])), b = _mm512_castps_pd(_mm512_unpacklo_ps(v[2], v[3]));
    __m512d c = _mm512_castps_pd(_mm512_unpackhi_ps(v[0], v[1])), d = _mm512_castps_pd(_mm512_unpackhi_ps(v[2], v[3]));
    out[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
    out[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    out[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(c, d));
    out[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(c, d));
#endif
}

/* Decimal logarithm of a normal positive number, error below 1e-7 of 1 and rounding; infinity and NaN stay. The number
   is 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), and the minimax polynomial is that of log10(1 + f) / f. */
static inline wx_v log10_v(wx_v x) {
    const int32_t root = 0x3f3504f3;        /* bits of sqrt(1/2) */
    wx_vi shifted = wx_add_i32(wx_bits(x), wx_set1i(0x3f800000 - root));
    wx_v e = wx_from_i32(wx_add_i32(wx_right(shifted, 23), wx_set1i(-127)));
    wx_vi mantissa = wx_add_i32(wx_and(shifted, wx_set1i(0x007fffff)), wx_set1i(root));
    wx_v f = wx_floats(mantissa) - wx_set1(1.0f);
    wx_v p = wx_set1(-3.40088308e-02f);
    p = wx_fma(p, f, wx_set1(5.65414689e-02f));
    p = wx_fma(p, f, wx_set1(-5.73801212e-02f));
    p = wx_fma(p, f, wx_set1(6.14992306e-02f));
    p = wx_fma(p, f, wx_set1(-7.21378028e-02f));
    p = wx_fma(p, f, wx_set1(8.68728235e-02f));
    p = wx_fma(p, f, wx_set1(-1.08580440e-01f));
    p = wx_fma(p, f, wx_set1(1.44764692e-01f));
    p = wx_fma(p, f, wx_set1(-2.17147186e-01f));
    p = wx_fma(p, f, wx_set1(4.34294492e-01f));
    wx_v found = wx_fma(e, wx_set1(0.30103000f), f * p);
    return wx_if_less(x, wx_set1(INFINITY), found, x);
}

static band ends(const float * filter) {
    band b = {0, BINS};
    while (b.first < BINS && filter[b.first] == 0.0f) b.first++;
    while (b.last > b.first && filter[b.last - 1] == 0.0f) b.last--;
    return b;
}

void wx_mel_frames(const float * padded, int64_t first, int64_t last, const float * window, const float * filters,
                   int32_t n_mels, float * out) {
    complex_v x[HALF], y[HALF];
    wx_v power[BINS];
    turns by200, by400;
    band known[MAX_MELS];
    for (int k = 0; k <= HALF; k++) {
        by200.re[k] = (float) cos(TURN * k / HALF), by200.im[k] = (float) -sin(TURN * k / HALF);
        by400.re[k] = (float) cos(TURN * k / FFT), by400.im[k] = (float) -sin(TURN * k / FFT);
    }
    for (int32_t m = 0; m < n_mels && m < MAX_MELS; m++) known[m] = ends(filters + (int64_t) m * BINS);
    for (int64_t i = first; i < last; i += WX_LANES) {
        int lanes = last - i < WX_LANES ? (int) (last - i) : WX_LANES;
        const float * frame[WX_LANES];      /* lanes without a frame repeat the last one */
        for (int lane = 0; lane < WX_LANES; lane++)
            frame[lane] = padded + HOP * (i + (lane < lanes ? lane : lanes - 1));
        for (int at = 0; at < FFT; at += 4) {
            wx_v v[4];
            four_samples(frame, at, v);
            x[at / 2] = (complex_v){v[0] * wx_set1(window[at]), v[1] * wx_set1(window[at + 1])};
            x[at / 2 + 1] = (complex_v){v[2] * wx_set1(window[at + 2]), v[3] * wx_set1(window[at + 3])};
        }
        pass5(200, 1, x, y, &by200);
        pass5(40, 5, y, x, &by200);
        pass8(x, y, &by200);
        powers(y, power, &by400);
        for (int32_t m = 0; m < n_mels; m++) {
            const float * filter = filters + (int64_t) m * BINS;
            band b = m < MAX_MELS ? known[m] : ends(filter);
            wx_v total = wx_zero();
            for (int32_t k = b.first; k < b.last; k++) total = wx_fma(wx_set1(filter[k]), power[k], total);
            wx_store_n(out + m * (last - first) + (i - first), log10_v(wx_max(wx_set1(1e-10f), total)), lanes);
        }
    }
}
