/* Self-attention of the encoder with an online softmax: a tile of queries passes over the keys in blocks, keeps the
 * weights of one block in the first-level cache, and carries a reference, a total and a context per query.
 *
 * Every query is computed alone: its sums run through units, keys and blocks in one order, and its reference moves by
 * its own scores, so that its result does not depend on the tile or the thread it falls to.
 */
#include <math.h>
#include <string.h>

#include "attention.h"
#include "vector.h"

#define ROWS WX_HEADS_ROWS
#define VECTORS (WX_PANEL / WX_LANES)
#define HALF (WX_PANEL / 2)     /* half a panel: the last keys need no more, often */
#define BLOCK 512               /* keys of a block, whole panels */
#define SCORE_STRIDE (BLOCK + 16)       /* rows of scores do not fall on the same cache sets */
/* The reference of a row moves only when scores rise by more than this above it: weights up to e^5 are as exact as
   those below 1, and most blocks then need no rescaling. */
#define SLACK 5.0f
#define MOST_I8 256             /* numbers of a head whose scores may be int8: what a buffer on the stack holds */

static int64_t query_rows(const wx_heads * h) { return wx_round_up(h->n_ctx, ROWS); }
static int64_t value_steps(const wx_heads * h) { return h->form == WX_BF16 ? h->n_keys / 2 : h->n_keys; }

/* `n` numbers of 32 bits from the memory behind h->q, which begins at a whole line. */
static void * take(const wx_heads * h, int64_t * taken, int64_t n) {
    void * at = h->q ? h->q + *taken : NULL;
    *taken += wx_round_up(n, WX_ALIGN / 4);
    return at;
}

static wx_heads lay_out(int32_t matrix_type, int32_t score_type, int32_t n_head, int32_t d, int32_t n_ctx,
                        void * memory, int64_t * taken) {
    wx_heads h = {.form = WX_F32, .scores = WX_F32, .n_head = n_head, .d = d, .n_ctx = n_ctx, .q = memory};
#if defined(WX_ISA_AVX512_BF16)
    if (matrix_type != WX_F32) h.form = h.scores = WX_BF16;
#endif
#if !defined(WX_ISA_AVX2)
    if (matrix_type != WX_F32 && score_type == WX_I8 && d <= MOST_I8) h.scores = WX_I8;
#endif
    (void) matrix_type, (void) score_type;
    h.units = h.scores == WX_I8 ? (d + 3) / 4 : h.scores == WX_BF16 ? (d + 1) / 2 : d;
    h.n_keys = wx_round_up(n_ctx, WX_PANEL);
    h.width = wx_round_up(d, WX_PANEL);
    *taken = 0;
    take(&h, taken, n_head * query_rows(&h) * h.units);
    h.k = take(&h, taken, (int64_t) n_head * h.n_keys * h.units);
    h.v = take(&h, taken, n_head * value_steps(&h) * h.width);
    if (h.scores == WX_I8) {
        h.q_scale = take(&h, taken, n_head * query_rows(&h));
        h.k_scale = take(&h, taken, (int64_t) n_head * h.n_keys);
        h.k_start = take(&h, taken, (int64_t) n_head * h.n_keys);
    }
    return h;
}

wx_heads wx_heads_at(int32_t matrix_type, int32_t score_type, int32_t n_head, int32_t d, int32_t n_ctx, void * memory) {
    int64_t taken;
    return lay_out(matrix_type, score_type, n_head, d, n_ctx, memory, &taken);
}

size_t wx_heads_bytes(int32_t matrix_type, int32_t score_type, int32_t n_head, int32_t d, int32_t n_ctx) {
    int64_t taken;
    lay_out(matrix_type, score_type, n_head, d, n_ctx, NULL, &taken);
    return (size_t) taken * 4;
}

/* ---- packing ---------------------------------------------------------------------------------------------------- */

/* Unit u of a row; a bf16 row of an odd length has 0 beside its last number. */
static uint32_t unit_of(const wx_heads * h, const char * row, int32_t u) {
    uint32_t x = 0;
    if (h->scores == WX_BF16) memcpy(&x, row + 4 * u, 2 * u + 1 < h->d ? 4 : 2);
    else memcpy(&x, row + 4 * u, 4);
    return x;
}

#if !defined(WX_ISA_AVX2)
/* A row of d numbers in whole steps of its largest / 127, which is returned; MOST_I8 codes, zeros behind the row. */
static float to_codes(const wx_heads * h, const char * row, int8_t * codes) {
    __m512 x[MOST_I8 / 16], largest = wx_zero();
    const int32_t n = (h->d + 15) / 16;
    for (int32_t i = 0; i < n; i++) {
        const int32_t left = h->d - 16 * i;
        const __mmask16 there = left >= 16 ? 0xffff : (__mmask16) ((1u << left) - 1);
        if (h->form == WX_BF16)
            x[i] = _mm512_castsi512_ps(_mm512_slli_epi32(
                _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, row + 32 * i)), 16));
        else x[i] = _mm512_maskz_loadu_ps(there, row + 64 * i);
        largest = wx_max(largest, wx_abs(x[i]));
    }
    float top = wx_largest(largest);
    const wx_v steps = wx_set1(top > 0.0f ? 127.0f / top : 0.0f);
    wx_v nothing = wx_zero();       /* unless a number is not finite: then all scores of the row are NaN */
    for (int32_t i = 0; i < n; i++) {
        nothing += x[i] * wx_zero();
        _mm_storeu_si128((__m128i *) (codes + 16 * i), _mm512_cvtsepi32_epi8(wx_round_i32(x[i] * steps)));
    }
    return (top > 0.0f ? top * (1.0f / 127.0f) : 1.0f) + wx_sum(nothing);
}

/* 16 keys of 16 units: from rows `stride` bytes apart to rows WX_PANEL units apart, turned. */
static void turn_16(const char * from, int64_t stride, uint32_t * to) {
    __m512i r[16], t[16];
    for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_si512(from + i * stride);
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        __m512i a = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88), b = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        __m512i c = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        __m512i e = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
        _mm512_storeu_si512(to + i * WX_PANEL, _mm512_shuffle_i32x4(a, c, 0x88));
        _mm512_storeu_si512(to + (i + 4) * WX_PANEL, _mm512_shuffle_i32x4(b, e, 0x88));
        _mm512_storeu_si512(to + (i + 8) * WX_PANEL, _mm512_shuffle_i32x4(a, c, 0xdd));
        _mm512_storeu_si512(to + (i + 12) * WX_PANEL, _mm512_shuffle_i32x4(b, e, 0xdd));
    }
}
#endif

/* Keys [first, last) of a head, row `first` at rows. */
static void put_keys(const wx_heads * h, uint32_t * k, const char * rows, int64_t stride, int32_t first, int32_t last) {
    int32_t j = first;
#if !defined(WX_ISA_AVX2)
    if (h->units % 16 == 0 && (h->scores == WX_F32 || h->d % 2 == 0)) {
        for (; j + 16 <= last && j % 16 == 0; j += 16) {
            uint32_t * to = k + (int64_t) (j / WX_PANEL) * h->units * WX_PANEL + j % WX_PANEL;
            for (int32_t u = 0; u < h->units; u += 16)
                turn_16(rows + (j - first) * stride + 4 * u, stride, to + u * WX_PANEL);
        }
    }
#endif
    for (; j < last; j++) {
        uint32_t * to = k + (int64_t) (j / WX_PANEL) * h->units * WX_PANEL + j % WX_PANEL;
        for (int32_t u = 0; u < h->units; u++) to[u * WX_PANEL] = unit_of(h, rows + (j - first) * stride, u);
    }
    if (last != h->n_ctx) return;
    for (; j < h->n_keys; j++) {
        uint32_t * to = k + (int64_t) (j / WX_PANEL) * h->units * WX_PANEL + j % WX_PANEL;
        for (int32_t u = 0; u < h->units; u++) to[u * WX_PANEL] = 0;
    }
}

/* Two keys' values of one head side by side, channel by channel; the second is NULL behind the last key. */
static void put_pair(const wx_heads * h, uint32_t * to, int64_t panel, const uint16_t * a, const uint16_t * b) {
    int32_t i = 0;
#if defined(WX_ISA_AVX512_BF16)
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    for (; i + 32 <= h->d; i += 32) {
        __m512i x = _mm512_loadu_si512(a + i), y = b ? _mm512_loadu_si512(b + i) : _mm512_setzero_si512();
        uint32_t * p = to + i / WX_PANEL * panel + i % WX_PANEL;
        _mm512_storeu_si512(p, _mm512_permutex2var_epi16(x, low, y));
        _mm512_storeu_si512(p + 16, _mm512_permutex2var_epi16(x, high, y));
    }
#endif
    for (; i < h->width; i++) {
        uint32_t x = i < h->d ? a[i] : 0, y = i < h->d && b ? b[i] : 0;
        to[i / WX_PANEL * panel + i % WX_PANEL] = x | y << 16;
    }
}

static void put_values(const wx_heads * h, uint32_t * v, const char * rows, int64_t stride, int32_t first,
                       int32_t last) {
    const int32_t keys = h->form == WX_BF16 ? 2 : 1;
    const int64_t panel = value_steps(h) * WX_PANEL;
    int32_t j = first;
    for (; j < last; j += keys, rows += keys * stride) {
        uint32_t * to = v + (int64_t) (j / keys) * WX_PANEL;
        if (keys == 2) {
            put_pair(h, to, panel, (const uint16_t *) rows, j + 1 < last ? (const uint16_t *) (rows + stride) : NULL);
            continue;
        }
        for (int32_t i = 0; i < h->width; i += WX_PANEL) {
            int32_t n = h->d - i < WX_PANEL ? h->d - i : WX_PANEL;
            memcpy(to + i / WX_PANEL * panel, rows + 4 * i, (size_t) n * 4);
            memset(to + i / WX_PANEL * panel + n, 0, (size_t) (WX_PANEL - n) * 4);
        }
    }
    if (last != h->n_ctx) return;
    for (; j < h->n_keys; j += keys)
        for (int32_t i = 0; i < h->width; i += WX_PANEL)
            memset(v + i / WX_PANEL * panel + (int64_t) (j / keys) * WX_PANEL, 0, WX_PANEL * 4);
}

#if !defined(WX_ISA_AVX2)
/* Queries and keys of one head, where scores are int8. */
static void put_i8(const wx_heads * h, int32_t head, const char * queries, const char * keys, int64_t stride,
                   int32_t first, int32_t last) {
    uint32_t * q = h->q + head * query_rows(h) * h->units;
    uint32_t * k = h->k + (int64_t) head * h->n_keys * h->units;
    float * q_scale = h->q_scale + head * query_rows(h), * k_scale = h->k_scale + (int64_t) head * h->n_keys;
    int32_t * k_start = h->k_start + (int64_t) head * h->n_keys;
    int8_t codes[16 * MOST_I8];
    for (int32_t r = first; r < last; r++, queries += stride) {
        q_scale[r] = to_codes(h, queries, codes);
        for (int32_t u = 0; u < h->units; u++) {
            uint32_t four;
            memcpy(&four, codes + 4 * u, 4);
            q[(int64_t) r * h->units + u] = four ^ 0x80808080u;
        }
    }
    for (int32_t j = first; j < last; j += 16) {
        uint32_t * to = k + (int64_t) (j / WX_PANEL) * h->units * WX_PANEL + j % WX_PANEL;
        const int32_t n = last - j < 16 ? last - j : 16;
        for (int32_t i = 0; i < n; i++, keys += stride) {
            int8_t * row = codes + i * MOST_I8;
            k_scale[j + i] = to_codes(h, keys, row);
            int32_t sum = 0;
            for (int32_t c = 0; c < h->d; c++) sum += row[c];
            k_start[j + i] = -128 * sum;
        }
        int32_t u = 0;
        if (n == 16)
            for (; u + 16 <= h->units; u += 16) turn_16((const char *) codes + 4 * u, MOST_I8, to + u * WX_PANEL);
        for (; u < h->units; u++)
            for (int32_t i = 0; i < n; i++) memcpy(to + u * WX_PANEL + i, codes + i * MOST_I8 + 4 * u, 4);
    }
    if (last != h->n_ctx) return;
    for (int64_t r = last; r < query_rows(h); r++) {
        q_scale[r] = 1.0f;
        memset(q + r * h->units, 0, (size_t) h->units * 4);
    }
    for (int32_t j = last; j < h->n_keys; j++) {
        k_scale[j] = 0.0f, k_start[j] = 0;
        uint32_t * to = k + (int64_t) (j / WX_PANEL) * h->units * WX_PANEL + j % WX_PANEL;
        for (int32_t u = 0; u < h->units; u++) to[u * WX_PANEL] = 0;
    }
}
#endif

void wx_heads_put(const wx_heads * h, const void * qkv, int64_t stride, int32_t first, int32_t last) {
    const int64_t size = h->form == WX_BF16 ? 2 : 4, part = h->n_head * h->d * size;
    for (int32_t i = 0; i < h->n_head; i++) {
        const char * rows = (const char *) qkv + i * h->d * size;
        put_values(h, h->v + i * value_steps(h) * h->width, rows + 2 * part, stride * size, first, last);
#if !defined(WX_ISA_AVX2)
        if (h->scores == WX_I8) {
            put_i8(h, i, rows, rows + part, stride * size, first, last);
            continue;
        }
#endif
        uint32_t * q = h->q + i * query_rows(h) * h->units;
        for (int32_t r = first; r < last; r++) {
            const char * from = rows + (r - first) * stride * size;
            uint32_t * to = q + (int64_t) r * h->units;
            to[h->units - 1] = unit_of(h, from, h->units - 1);
            memcpy(to, from, (size_t) (h->units - 1) * 4);
        }
        if (last == h->n_ctx)
            memset(q + (int64_t) last * h->units, 0, (size_t) ((query_rows(h) - last) * h->units) * 4);
        put_keys(h, h->k + (int64_t) i * h->n_keys * h->units, rows + part, stride * size, first, last);
    }
}

/* ---- tiles: ROWS rows times one panel of lanes, `steps` units deep ---------------------------------------------- */

/* out (+)= x w, the first nv vectors. `x` has x_stride units between rows, `w` WX_PANEL units between steps. */
WX_INLINE void tile_f32(const int nv, const float * w, int32_t steps, const float * x, int64_t x_stride, float * out,
                        int64_t out_stride, const int add) {
    wx_v acc[ROWS][VECTORS];
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < nv; c++) acc[r][c] = add ? wx_load(out + r * out_stride + c * WX_LANES) : wx_zero();
    for (int32_t s = 0; s < steps; s++, w += WX_PANEL) {
        wx_v y[VECTORS];
        for (int c = 0; c < nv; c++) y[c] = wx_load(w + c * WX_LANES);
        for (int r = 0; r < ROWS; r++) {
            wx_v b = wx_set1(x[r * x_stride + s]);
            for (int c = 0; c < nv; c++) acc[r][c] = wx_fma(b, y[c], acc[r][c]);
        }
    }
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < nv; c++) wx_store(out + r * out_stride + c * WX_LANES, acc[r][c]);
}

#if defined(WX_ISA_AVX512_BF16)
WX_INLINE void tile_bf16(const int nv, const uint32_t * w, int32_t steps, const uint32_t * x, int64_t x_stride,
                         float * out, int64_t out_stride, const int add) {
    wx_v acc[ROWS][VECTORS];
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < nv; c++) acc[r][c] = add ? wx_load(out + r * out_stride + c * WX_LANES) : wx_zero();
    for (int32_t s = 0; s < steps; s++, w += WX_PANEL) {
        __m512bh y[VECTORS];
        for (int c = 0; c < nv; c++) y[c] = (__m512bh) wx_loadi(w + c * WX_LANES);
        for (int r = 0; r < ROWS; r++) {
            __m512bh b = (__m512bh) wx_set1i((int32_t) x[r * x_stride + s]);
            for (int c = 0; c < nv; c++) acc[r][c] = _mm512_dpbf16_ps(acc[r][c], b, y[c]);
        }
    }
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < nv; c++) wx_store(out + r * out_stride + c * WX_LANES, acc[r][c]);
}
#endif

#if !defined(WX_ISA_AVX2)
/* gcc 12 keeps sums of this type in registers, those of the general type it stores at every step. */
typedef int32_t sums __attribute__((vector_size(64)));

/* Scores of int8, without the scale of the query. */
WX_INLINE void tile_i8(const int nv, const uint32_t * w, int32_t steps, const uint32_t * x, int64_t x_stride,
                       const int32_t * start, const float * scale, float * out, int64_t out_stride) {
    sums acc[ROWS][VECTORS];
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < nv; c++) acc[r][c] = (sums) wx_loadi(start + c * WX_LANES);
    for (int32_t s = 0; s < steps; s++, w += WX_PANEL) {
        __m512i y[VECTORS];
        for (int c = 0; c < nv; c++) y[c] = wx_loadi(w + c * WX_LANES);
        for (int r = 0; r < ROWS; r++) {
            __m512i b = wx_set1i((int32_t) x[r * x_stride + s]);
            for (int c = 0; c < nv; c++) acc[r][c] = (sums) _mm512_dpbusd_epi32((__m512i) acc[r][c], b, y[c]);
        }
    }
    for (int c = 0; c < nv; c++) {
        wx_v by = wx_load(scale + c * WX_LANES);
        for (int r = 0; r < ROWS; r++)
            wx_store(out + r * out_stride + c * WX_LANES, wx_from_i32((__m512i) acc[r][c]) * by);
    }
}
#endif

WX_INLINE void tile(const int form, const int nv, const uint32_t * w, int32_t steps, const void * x, int64_t x_stride,
                    float * out, int64_t out_stride, const int add) {
#if defined(WX_ISA_AVX512_BF16)
    if (form == WX_BF16) {
        tile_bf16(nv, w, steps, x, x_stride, out, out_stride, add);
        return;
    }
#endif
    (void) form;
    tile_f32(nv, (const float *) w, steps, x, x_stride, out, out_stride, add);
}

/* ---- softmax of one row of a block ------------------------------------------------------------------------------ */

/* e^(scale score - top) of n scores (whole half panels); returns their total. */
static float weigh_f32(float * row, int32_t n, float scale, float top) {
    wx_v total = wx_zero();
    for (int32_t i = 0; i < n; i += WX_LANES) {
        wx_v e = wx_exp_weight(wx_fma(wx_load(row + i), wx_set1(scale), wx_set1(-top)));
        wx_store(row + i, e);
        total += e;
    }
    return wx_sum(total);
}

#if defined(WX_ISA_AVX512_BF16)
/* 2^x with an error of 1e-4, a twentieth of what rounding to bf16 adds. Adding 1.5 * 2^23 rounds to a whole number and
   leaves it in the low bits, from where it moves into the exponent. NaN has no low bits here: scores come from bf16. */
WX_INLINE __m512 exp2_cheap(__m512 x) {
    const __m512 magic = wx_set1(12582912.0f);
    x = wx_max(wx_set1(-126.0f), x);
    __m512 z = x + magic;
    __m512 f = x - (z - magic);
    __m512 p = wx_fma(wx_fma(wx_fma(wx_set1(0.0558282f), f, wx_set1(0.2402265f)), f, wx_set1(0.6931353f)), f,
                      wx_set1(0.9999928f));
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(z), 23)));
}

/* The same as bf16 into `weights`; the total is that of the rounded weights, so that their sum over it is 1. */
WX_INLINE float weigh_bf16(const float * row, int32_t n, float scale, float top, uint16_t * weights) {
    const __m512 factor = wx_set1(scale * 1.44269504f), minus_top = wx_set1(top * -1.44269504f);
    const __m512bh ones = (__m512bh) wx_set1i(0x3f803f80);
    __m512 total = wx_zero();
    for (int32_t i = 0; i < n; i += 32) {
        __m512 a = exp2_cheap(wx_fma(wx_load(row + i), factor, minus_top));
        __m512 b = exp2_cheap(wx_fma(wx_load(row + i + 16), factor, minus_top));
        __m512bh e = _mm512_cvtne2ps_pbh(b, a);
        _mm512_storeu_si512(weights + i, (__m512i) e);
        total = _mm512_dpbf16_ps(total, e, ones);
    }
    return wx_sum(total);
}
#endif

static float top_of(const float * row, int32_t n) {
    wx_v top = wx_load(row);
    for (int32_t i = WX_LANES; i < n; i += WX_LANES) top = wx_max(top, wx_load(row + i));
    return wx_largest(top);
}

/* ---- a tile of queries over all keys ---------------------------------------------------------------------------- */

typedef struct work {
    float scores[ROWS * SCORE_STRIDE];
    uint16_t weights[ROWS * SCORE_STRIDE];
    float context[];            /* (ROWS, width) */
} work;

size_t wx_heads_work(int32_t d) {
    return (size_t) wx_round_up((int64_t) sizeof(work) + (int64_t) ROWS * wx_round_up(d, WX_PANEL) * 4, WX_ALIGN);
}

/* Scores of a tile against nv vectors of keys from `key` on. */
WX_INLINE void score(const int form, const int nv, const wx_heads * h, int32_t units, int32_t head, const uint32_t * q,
                     int32_t key, float * out) {
    const uint32_t * k = h->k + ((int64_t) head * h->n_keys + key) * units;
#if !defined(WX_ISA_AVX2)
    if (form == WX_I8) {
        const int64_t at = (int64_t) head * h->n_keys + key;
        tile_i8(nv, k, units, q, units, h->k_start + at, h->k_scale + at, out, SCORE_STRIDE);
        return;
    }
#endif
    tile(form, nv, k, units, q, units, out, SCORE_STRIDE, 0);
}

WX_INLINE void attend(const int form, const int scores, const wx_heads * h, int32_t units, int32_t width, int32_t head,
                      int32_t first, float total[ROWS], work * w) {
    const uint32_t * q = h->q + (head * query_rows(h) + first) * units;
    const uint32_t * v = h->v + head * value_steps(h) * width;
    const int64_t panel = value_steps(h) * WX_PANEL;
    const int32_t pair = form == WX_BF16 ? 2 : 1;
    float top[ROWS];
    for (int r = 0; r < ROWS; r++) top[r] = -INFINITY, total[r] = 0.0f;
    memset(w->context, 0, (size_t) ROWS * width * 4);
    for (int32_t key = 0; key < h->n_keys; key += BLOCK) {
        const int32_t n_true = h->n_ctx - key < BLOCK ? h->n_ctx - key : BLOCK, n = wx_round_up(n_true, HALF);
        int32_t i = 0;
        for (; i + WX_PANEL <= n; i += WX_PANEL)
            score(scores, VECTORS, h, units, head, q, key + i, w->scores + i);
        if (i < n) score(scores, VECTORS / 2, h, units, head, q, key + i, w->scores + i);
        for (int r = 0; r < ROWS; r++) {
            float * row = w->scores + r * SCORE_STRIDE;
            for (i = n_true; i < n; i++) row[i] = -INFINITY;            /* what pads the last panel */
            const float scale = scores == WX_I8 ? h->q_scale[head * query_rows(h) + first + r] : 1.0f;
            float highest = top_of(row, n) * scale;
            if (!(highest <= top[r] + SLACK)) {
                float factor = expf(top[r] - highest);
                if (key == 0) factor = 0.0f;
                top[r] = highest;
                total[r] *= factor;
                for (i = 0; i < width; i++) w->context[r * width + i] *= factor;
            }
#if defined(WX_ISA_AVX512_BF16)
            if (form == WX_BF16) {
                total[r] += weigh_bf16(row, n, scale, top[r], w->weights + r * SCORE_STRIDE);
                continue;
            }
#endif
            total[r] += weigh_f32(row, n, scale, top[r]);
        }
        const void * x = form == WX_BF16 ? (const void *) w->weights : w->scores;
        const uint32_t * values = v + (int64_t) (key / pair) * WX_PANEL;
        for (i = 0; i < width; i += WX_PANEL)
            tile(form, VECTORS, values + i / WX_PANEL * panel, (n_true + pair - 1) / pair, x, SCORE_STRIDE / pair,
                 w->context + i, width, 1);
    }
}

/* The usual head has 64 numbers: its loops have constant bounds. */
#define ATTEND(form, scores, units_of_64)                                                                       \
    do {                                                                                                        \
        if (h->d == 64) attend(form, scores, h, units_of_64, wx_round_up(64, WX_PANEL), head, first, total, w); \
        else attend(form, scores, h, h->units, h->width, head, first, total, w);                                \
        return;                                                                                                 \
    } while (0)

static void attend_any(const wx_heads * h, int32_t head, int32_t first, float total[ROWS], work * w) {
#if defined(WX_ISA_AVX512_BF16)
    if (h->form == WX_BF16 && h->scores == WX_I8) ATTEND(WX_BF16, WX_I8, 16);
    if (h->form == WX_BF16) ATTEND(WX_BF16, WX_BF16, 32);
#endif
#if defined(WX_ISA_AVX512)
    if (h->scores == WX_I8) ATTEND(WX_F32, WX_I8, 16);
#endif
    ATTEND(WX_F32, WX_F32, 64);
}

void wx_heads_attend(const wx_heads * h, int32_t head, int32_t first, int32_t last, void * out, int64_t stride,
                     int out_bf16, void * memory) {
    work * w = memory;
    for (int32_t row = first; row < last; row += ROWS) {
        float total[ROWS];
        attend_any(h, head, row, total, w);
        for (int32_t r = 0; r < ROWS && row + r < last; r++) {
            float * context = w->context + r * h->width;
            int64_t at = (row + r) * stride + head * h->d;
            for (int32_t i = 0; i < h->d; i++) context[i] /= total[r];
            if (out_bf16) wx_to_bf16(context, h->d, (uint16_t *) out + at);
            else memcpy((float *) out + at, context, (size_t) h->d * 4);
        }
    }
}
