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
#define BLOCK 576               /* keys of a block, whole panels and whole groups of int8 values */
#define SCORE_STRIDE (BLOCK + 16)       /* rows of scores do not fall on the same cache sets */
#define GROUPS 16               /* of int8 values in a block, at most: lanes of a vector */
#define CODE_STRIDE (BLOCK + 64)
/* The reference of a row moves only when scores rise by more than this above it: weights up to e^5 are as exact as
   those below 1, and most blocks then need no rescaling. */
#define SLACK 5.0f

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

#if !defined(WX_ISA_AVX2)
/* Half a panel of int8 values times weights of 8 bits, group after group; `factors` (apart from row to row by GROUPS)
   are what the weights of a row and group are multiplied by. The context stays in registers. */
WX_INLINE void tile_values(const uint32_t * v, const uint8_t * codes, const float * factors, int32_t n_groups,
                           float * out, int64_t out_stride) {
    wx_v context[ROWS][VECTORS / 2];
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < VECTORS / 2; c++) context[r][c] = wx_load(out + r * out_stride + c * WX_LANES);
    for (int32_t g = 0; g < n_groups; g++, v += WX_PANEL) {
        sums acc[ROWS][VECTORS / 2];
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < VECTORS / 2; c++) acc[r][c] = (sums) wx_zeroi();
        for (int32_t s = 0; s < WX_HEADS_STEP / 4; s++, v += WX_PANEL, codes += 4) {
            __m512i y[VECTORS / 2];
            for (int c = 0; c < VECTORS / 2; c++) y[c] = wx_loadi(v + c * WX_LANES);
            for (int r = 0; r < ROWS; r++) {
                int32_t four;
                memcpy(&four, codes + r * CODE_STRIDE, 4);
                __m512i b = wx_set1i(four);
                for (int c = 0; c < VECTORS / 2; c++)
                    acc[r][c] = (sums) _mm512_dpbusd_epi32((__m512i) acc[r][c], b, y[c]);
            }
        }
        for (int c = 0; c < VECTORS / 2; c++) {
            wx_v scale = wx_load((const float *) v + c * WX_LANES);
            for (int r = 0; r < ROWS; r++)
                context[r][c] = wx_fma(wx_from_i32((__m512i) acc[r][c]) * wx_set1(factors[r * GROUPS + g]), scale,
                                       context[r][c]);
        }
    }
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < VECTORS / 2; c++) wx_store(out + r * out_stride + c * WX_LANES, context[r][c]);
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

/* e^(score - top) of n scores (whole half panels); returns their total. */
static float weigh_f32(float * row, int32_t n, float top) {
    wx_v total = wx_zero();
    for (int32_t i = 0; i < n; i += WX_LANES) {
        wx_v e = wx_exp_weight(wx_load(row + i) - wx_set1(top));
        wx_store(row + i, e);
        total += e;
    }
    return wx_sum(total);
}

#if !defined(WX_ISA_AVX2)
/* 2^x with an error of 1e-4, a twentieth of what rounding to bf16 adds. Adding 1.5 * 2^23 rounds to a whole number and
   leaves it in the low bits, from where it moves into the exponent. NaN has no low bits here: scores come from bf16
   or have a scale that is NAN. */
WX_INLINE __m512 exp2_cheap(__m512 x) {
    const __m512 magic = wx_set1(12582912.0f);
    x = wx_max(wx_set1(-126.0f), x);
    __m512 z = x + magic;
    __m512 f = x - (z - magic);
    __m512 p = wx_fma(wx_fma(wx_fma(wx_set1(0.0558282f), f, wx_set1(0.2402265f)), f, wx_set1(0.6931353f)), f,
                      wx_set1(0.9999928f));
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(z), 23)));
}

/* The largest score of every group, in the order of the lanes. */
static wx_v tops_of(const float * row, int32_t n_groups) {
    wx_v a[GROUPS];
    for (int32_t g = 0; g < GROUPS; g++) {
        const float * x = row + g * WX_HEADS_STEP;
        a[g] = wx_set1(-INFINITY);
        for (int32_t i = 0; g < n_groups && i < WX_HEADS_STEP; i += WX_LANES) a[g] = wx_max(a[g], wx_load(x + i));
    }
    WX_UNROLL for (int i = 0; i < 8; i++)       /* lanes of a quarter: a, b, a, b, of groups side by side */
        a[i] = wx_max(_mm512_unpacklo_ps(a[2 * i], a[2 * i + 1]), _mm512_unpackhi_ps(a[2 * i], a[2 * i + 1]));
    WX_UNROLL for (int i = 0; i < 4; i++)       /* a, b, c, d */
        a[i] = wx_max(_mm512_shuffle_ps(a[2 * i], a[2 * i + 1], 0x44), _mm512_shuffle_ps(a[2 * i], a[2 * i + 1], 0xee));
    WX_UNROLL for (int i = 0; i < 2; i++)       /* two quarters of each four groups */
        a[i] = wx_max(_mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0x88),
                      _mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0xdd));
    return wx_max(_mm512_shuffle_f32x4(a[0], a[1], 0x88), _mm512_shuffle_f32x4(a[0], a[1], 0xdd));
}

/* e^(scale (score - largest of its group)) of n_groups groups in steps of 1/255; `factors` take what makes
   e^(scale score - top) of them. Returns the total of what they stand for. */
static float weigh_i8(const float * row, int32_t n_groups, float scale, float top, wx_v tops, uint8_t * codes,
                      float * factors) {
    const wx_v by = wx_set1(scale * 1.44269504f);
    float from[GROUPS];
    wx_v total = wx_zero();
    wx_store(from, wx_fma(-tops, by, wx_set1(7.99435344f)));            /* 2^this is 255 at the largest */
    wx_store(factors, exp2_cheap(wx_fma(tops, by, wx_set1(top * -1.44269504f - 7.99435344f))));
    for (int32_t g = 0; g < n_groups; g++, row += WX_HEADS_STEP, codes += WX_HEADS_STEP) {
        const wx_v minus_top = wx_set1(from[g]);
        wx_vi sum = wx_zeroi();
        WX_UNROLL for (int i = 0; i < WX_HEADS_STEP; i += WX_LANES) {
            wx_vi code = wx_round_i32(exp2_cheap(wx_fma(wx_load(row + i), by, minus_top)));
            sum = wx_add_i32(sum, code);
            _mm_storeu_si128((__m128i *) (codes + i), _mm512_cvtusepi32_epi8(code));
        }
        total = wx_fma(wx_from_i32(sum), wx_set1(factors[g]), total);
    }
    return wx_sum(total);
}
#endif

#if defined(WX_ISA_AVX512_BF16)
/* The same as bf16 into `weights`; the total is that of the rounded weights, so that their sum over it is 1. */
WX_INLINE float weigh_bf16(const float * row, int32_t n, float top, uint16_t * weights) {
    const __m512 factor = wx_set1(1.44269504f), minus_top = wx_set1(top * -1.44269504f);
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
    uint8_t codes[ROWS * CODE_STRIDE];
    float factors[ROWS * GROUPS];
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

WX_INLINE void attend(const int form, const wx_heads * h, int32_t units, int32_t width, int32_t head, int32_t first,
                      float total[ROWS], work * w) {
    const uint32_t * q = h->q + (head * wx_heads_queries(h) + first) * units;
    const uint32_t * v = h->v + head * wx_heads_steps(h) * width;
    const int64_t panel = wx_heads_steps(h) * WX_PANEL;
    const int32_t pair = form == WX_BF16 ? 2 : 1;
    float top[ROWS];
    for (int r = 0; r < ROWS; r++) top[r] = -INFINITY, total[r] = 0.0f;
    memset(w->context, 0, (size_t) ROWS * width * 4);
    for (int32_t key = 0; key < h->n_keys; key += BLOCK) {
        const int32_t n_true = h->n_ctx - key < BLOCK ? h->n_ctx - key : BLOCK, n = wx_round_up(n_true, HALF);
        int32_t i = 0;
        for (; i + WX_PANEL <= n; i += WX_PANEL)
            score(form, VECTORS, h, units, head, q, key + i, w->scores + i);
        if (i < n) score(form, VECTORS / 2, h, units, head, q, key + i, w->scores + i);
        const int32_t n_groups = (n_true + WX_HEADS_STEP - 1) / WX_HEADS_STEP;
        const int32_t last = form == WX_I8 ? n_groups * WX_HEADS_STEP : n;
        for (int r = 0; r < ROWS; r++) {
            float * row = w->scores + r * SCORE_STRIDE;
            for (i = n_true; i < last; i++) row[i] = -INFINITY;         /* what pads the last panel */
            const float scale = form == WX_I8 ? h->q_scale[head * wx_heads_queries(h) + first + r] : 1.0f;
#if !defined(WX_ISA_AVX2)
            const wx_v tops = form == WX_I8 ? tops_of(row, n_groups) : wx_zero();
            float highest = (form == WX_I8 ? wx_largest(tops) : top_of(row, n)) * scale;
#else
            float highest = top_of(row, n) * scale;
#endif
            if (!(highest <= top[r] + SLACK)) {
                const float factor = key == 0 ? 0.0f : expf(top[r] - highest);
                top[r] = highest;
                total[r] *= factor;
                for (i = 0; i < width; i++) w->context[r * width + i] *= factor;
            }
#if !defined(WX_ISA_AVX2)
            if (form == WX_I8) {
                total[r] += weigh_i8(row, n_groups, scale, top[r], tops, w->codes + r * CODE_STRIDE,
                                     w->factors + r * GROUPS);
                continue;
            }
#endif
#if defined(WX_ISA_AVX512_BF16)
            if (form == WX_BF16) {
                total[r] += weigh_bf16(row, n, top[r], w->weights + r * SCORE_STRIDE);
                continue;
            }
#endif
            total[r] += weigh_f32(row, n, top[r]);
        }
#if !defined(WX_ISA_AVX2)
        if (form == WX_I8) {
            const int64_t before = key / WX_HEADS_STEP * WX_GROUP_STEPS * WX_PANEL;
            for (i = 0; i < width; i += HALF)
                tile_values(v + i / WX_PANEL * panel + before + i % WX_PANEL, w->codes, w->factors, n_groups,
                            w->context + i, width);
            continue;
        }
#endif
        const void * x = form == WX_BF16 ? (const void *) w->weights : w->scores;
        const uint32_t * values = v + (int64_t) (key / pair) * WX_PANEL;
        for (i = 0; i < width; i += WX_PANEL)
            tile(form, VECTORS, values + i / WX_PANEL * panel, (n_true + pair - 1) / pair, x, SCORE_STRIDE / pair,
                 w->context + i, width, 1);
    }
}

/* The usual head has 64 numbers: its loops have constant bounds. */
#define ATTEND(form, units_of_64)                                                                       \
    do {                                                                                                \
        if (h->d == 64) attend(form, h, units_of_64, wx_round_up(64, WX_PANEL), head, first, total, w); \
        else attend(form, h, h->units, h->width, head, first, total, w);                                \
        return;                                                                                         \
    } while (0)

static void attend_any(const wx_heads * h, int32_t head, int32_t first, float total[ROWS], work * w) {
#if defined(WX_ISA_AVX512_BF16)
    if (h->products == WX_BF16) ATTEND(WX_BF16, 32);
#endif
#if !defined(WX_ISA_AVX2)
    if (h->products == WX_I8) ATTEND(WX_I8, 16);
#endif
    ATTEND(WX_F32, 64);
}

void wx_heads_attend(const wx_heads * h, int32_t head, int32_t first, int32_t last, void * out, int64_t stride,
                     int out_bf16, void * memory) {
    work * w = memory;
    for (int32_t row = first; row < last; row += ROWS) {
        float total[ROWS];
        attend_any(h, head, row, total, w);
        for (int32_t r = 0; r < ROWS && row + r < last; r++) {
            const float * context = w->context + r * h->width;
            const wx_v by = wx_set1(1.0f / total[r]);
            int64_t at = (row + r) * stride + head * h->d;
            for (int32_t i = 0; i < h->d; i += WX_LANES) {
                const int32_t lanes = h->d - i;
                if (out_bf16) wx_store_bf16_n((uint16_t *) out + at + i, wx_load(context + i) * by, lanes);
                else wx_store_n((float *) out + at + i, wx_load(context + i) * by, lanes);
            }
        }
    }
}
