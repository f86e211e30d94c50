/* Cross attention: rows of the decoder over the keys and values of their window, a tile of queries at a time. All
 * scores of a query are kept (1500 are 6 KB), so the softmax is exact and in order.
 */
#include <math.h>
#include <string.h>

#include "cross.h"

#define BLOCK WX_BLOCK
enum { EARLY = 100 };           /* int8 keys and values, queries and weights of 8 bits; no type of the others */

#if defined(WX_ISA_AVX2)
#define Q_MOST 32767.0f         /* largest whole number of a query */
#define P_MOST 32767.0f         /* and of a weight */
#else
#define Q_MOST 32639.0f         /* two signed bytes */
#define P_MOST 65535.0f         /* two bytes */
#endif

/* What one tile of queries works with; all in the scratch of a thread. */
typedef struct work {
    wx_cross_shape s;
    int32_t n_keys, padded;     /* whole blocks */
    const char * keys, * values;
    float * scores;             /* (WX_TILE_Q, padded) */
    float * sums;               /* (WX_TILE_Q, dp) */
    char * x;                   /* queries, then weights, in the form that the products want */
    float * factors;            /* EARLY: (WX_TILE_Q, blocks), what the weights of a block are multiplied by */
    float q_scale[WX_TILE_Q];
    int32_t q_zero[WX_TILE_Q];
    float total[WX_TILE_Q];
} work;

size_t wx_cross_scratch(const wx_model * model) {
    int64_t padded = wx_round_up(model->n_audio_ctx, BLOCK), dp = wx_round_up(model->n_state / model->n_text_head, 16);
    int64_t longest = padded > dp ? padded : dp;
    return (size_t) (WX_TILE_Q * (padded + dp + longest + padded / BLOCK) * 4 + BLOCK * 4);
}

/* Floats in the form that the products of bf16 take. */
WX_INLINE void put_bf16(const float * x, int32_t n, char * to) {
#if defined(WX_ISA_AVX512_BF16)
    for (int32_t i = 0; i < n; i += 16)
        _mm256_storeu_si256((__m256i *) ((uint16_t *) to + i), (__m256i) _mm512_cvtneps_pbh(wx_load(x + i)));
#else
    memcpy(to, x, (size_t) n * sizeof(float));
#endif
}

/* Whole numbers of 16 bits in the form that the products of int8 take: pairs of int16, or a plane of upper bytes and
   one of lower bytes `plane` bytes on. */
WX_INLINE void put_whole(wx_vi n, int32_t at, char * to, int64_t plane, const int is_signed) {
#if defined(WX_ISA_AVX2)
    (void) plane, (void) is_signed;
    __m128i half = _mm_packs_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1));
    _mm_storeu_si128((__m128i *) ((int16_t *) to + at), half);
#else
    wx_vi low = n;
    if (is_signed) {        /* the lower byte counts from -128 to 127 */
        low = _mm512_srai_epi32(_mm512_slli_epi32(n, 24), 24);
        n = wx_sub_i32(n, low);
    }
    _mm_storeu_si128((__m128i *) (to + at), _mm512_cvtepi32_epi8(_mm512_srai_epi32(n, 8)));
    _mm_storeu_si128((__m128i *) (to + plane + at), _mm512_cvtepi32_epi8(low));
#endif
}

/* Whole numbers of 8 bits, one after another. */
WX_INLINE void put_byte(wx_vi n, int32_t at, char * to) {
#if defined(WX_ISA_AVX2)
    (void) n, (void) at, (void) to;
#else
    _mm_storeu_si128((__m128i *) (to + at), _mm512_cvtepi32_epi8(n));
#endif
}

WX_INLINE int64_t form_bytes(const int type) {      /* of a query's or a weight's number in x */
    if (type == EARLY) return 1;
#if defined(WX_ISA_AVX512_BF16)
    return type == WX_BF16 ? 2 : type == WX_I8 ? 2 : 4;
#else
    return type == WX_I8 ? 2 : 4;
#endif
}

static void take_query(work * w, int32_t type, int32_t i, const float * q) {
    int32_t d = w->s.d, dp = w->s.dp;
    float padded[WX_HEAD_MAX];
    memcpy(padded, q, (size_t) d * sizeof(float));
    for (int32_t c = d; c < dp; c++) padded[c] = 0.0f;
    const int early = type == EARLY;
    char * to = w->x + i * dp * form_bytes(type);
    if (type == WX_F32) memcpy(to, padded, (size_t) dp * sizeof(float));
    if (type == WX_BF16) put_bf16(padded, dp, to);
    if (type != WX_I8 && !early) return;
    const float whole = early ? 127.0f : Q_MOST;
    wx_v top = wx_zero(), bad = wx_zero();
    for (int32_t c = 0; c < dp; c += WX_LANES) {
        wx_v x = wx_load(padded + c);
        top = wx_max(top, wx_abs(x));
        bad = wx_fma(x, wx_zero(), bad);
    }
    float most = wx_largest(top);
    wx_v by = wx_set1(most > 0.0f ? whole / most : 0.0f);
    wx_vi sum = wx_zeroi();
    for (int32_t c = 0; c < dp; c += WX_LANES) {
        wx_vi n = wx_round_i32(wx_load(padded + c) * by);
        sum = wx_add_i32(sum, n);
        if (early) put_byte(n, c, to);
        else put_whole(n, c, to, dp, 1);
    }
    int32_t parts[WX_LANES];
    memcpy(parts, &sum, sizeof parts);
    uint32_t zero = 0;
    for (int32_t c = 0; c < WX_LANES; c++) zero += (uint32_t) parts[c];
    w->q_zero[i] = WX_UNIT_I8 == 4 ? (int32_t) (zero * 128u) : 0;
    w->q_scale[i] = most / whole + wx_sum(bad);
}

WX_INLINE void find_scores(const int type, const int nq, work * w) {
    const int32_t dp = w->s.dp;
    for (int32_t b = 0; b < w->s.n_blocks; b++) {
        const char * block = w->keys + b * w->s.k_block;
        float * out = w->scores + b * BLOCK;
        if (type == WX_F32) {
            for (int32_t at = 0; at < BLOCK; at += WX_TILE_V * WX_LANES)
                tile_f32(nq, WX_TILE_V, 0, block + at * dp * 4, dp, (const float *) w->x, dp, out + at, w->padded);
        } else if (type == WX_BF16) {
            for (int32_t at = 0; at < BLOCK; at += WX_TILE_V * WX_LANES)
                tile_bf16(nq, WX_TILE_V, 0, block + at * dp * 2, dp / 2, (const void *) w->x, dp / 2, out + at,
                          w->padded);
        } else {
            const float * scales = (const float *) (block + (int64_t) BLOCK * dp);
            for (int32_t at = 0; at < BLOCK; at += WX_TILE_I * WX_LANES) {
                wx_vi sum[WX_TILE_Q][WX_TILE_I];
#if defined(WX_ISA_AVX2)
                tile_i8(nq, WX_TILE_I, 1, block + at * dp, dp / 2, (const int32_t *) w->x, dp / 2, sum);
#else
                if (type == EARLY)
                    tile_byte(nq, WX_TILE_I, 1, block + at * dp, dp / 4, (const int32_t *) w->x, dp / 4, sum);
                else tile_i8(nq, WX_TILE_I, 1, block + at * dp, dp / 4, (const int32_t *) w->x, dp / 2, dp / 4, sum);
#endif
                WX_UNROLL for (int q = 0; q < nq; q++) {
                    wx_vi zero = wx_set1i(w->q_zero[q]);
                    wx_v by = wx_set1(w->q_scale[q]);
                    WX_UNROLL for (int v = 0; v < WX_TILE_I; v++) {
                        wx_v product = wx_from_i32(wx_sub_i32(sum[q][v], zero)) * by;
                        wx_store(out + q * w->padded + at + v * WX_LANES,
                                 product * wx_load(scales + at + v * WX_LANES));
                    }
                }
            }
        }
    }
    for (int q = 0; q < nq; q++)
        for (int32_t key = w->n_keys; key < w->padded; key++) w->scores[q * w->padded + key] = -INFINITY;
}

WX_INLINE float top_of(const float * x, int32_t n) {
    wx_v top = wx_load(x);
    for (int32_t i = WX_LANES; i < n; i += WX_LANES) top = wx_max(top, wx_load(x + i));
    return wx_largest(top);
}

/* The weights of query i before they are divided by their total; in place, then in the form of the products. */
static void find_weights(work * w, int32_t type, int32_t i) {
    float * x = w->scores + (int64_t) i * w->padded;
    char * to = w->x + (int64_t) i * w->padded * form_bytes(type);
    wx_v top = wx_set1(top_of(x, w->padded)), total = wx_zero();
    for (int32_t key = 0; key < w->padded; key += WX_LANES) {
        wx_v p = wx_exp_weight(wx_load(x + key) - top);
        total += p;
        if (type == WX_I8) put_whole(wx_round_i32(p * wx_set1(P_MOST)), key, to, w->padded, 0);
        else wx_store(x + key, p);
    }
    w->total[i] = wx_sum(total);
    if (type == WX_BF16) put_bf16(x, w->padded, to);
}

#if !defined(WX_ISA_AVX2)
/* Weights of query i in 255 steps of the largest of each block. */
static void find_early_weights(work * w, int32_t i) {
    const float * x = w->scores + (int64_t) i * w->padded;
    float * factors = w->factors + i * w->s.n_blocks;
    char * to = w->x + (int64_t) i * w->padded;
    const float most = top_of(x, w->padded);
    float total = 0.0f;
    for (int32_t b = 0; b < w->s.n_blocks; b++, x += BLOCK) {
        const float highest = top_of(x, BLOCK);
        const wx_v at = wx_set1(highest);
        wx_vi sum = wx_zeroi();
        wx_v bad = wx_zero();       /* a score that is no number has a whole number for a weight: the factor tells */
        for (int32_t key = 0; key < BLOCK; key += WX_LANES) {
            wx_v p = wx_exp_weight(wx_load(x + key) - at);
            wx_vi n = wx_round_i32(p * wx_set1(255.0f));
            bad = wx_fma(p, wx_zero(), bad);
            sum = wx_add_i32(sum, n);
            put_byte(n, b * BLOCK + key, to);
        }
        factors[b] = expf(highest - most) * (1.0f / 255.0f) + wx_sum(bad);
        total += factors[b] * (float) _mm512_reduce_add_epi32(sum);
    }
    w->total[i] = total;
}
#endif

WX_INLINE void values_of(const int type, const int nq, const int nv, work * w, int32_t b, int32_t at) {
    const int32_t dp = w->s.dp;
    const char * block = w->values + b * w->s.v_block + (int64_t) at * BLOCK * w->s.size;
    if (type == WX_F32)
        tile_f32(nq, nv, 1, block, BLOCK, w->scores + b * BLOCK, w->padded, w->sums + at, dp);
    else
        tile_bf16(nq, nv, 1, block, BLOCK / 2, (const void *) (w->x + b * BLOCK * form_bytes(type)),
                  w->padded / 2, w->sums + at, dp);
}

WX_INLINE void values_of_i8(const int early, const int nq, const int nv, work * w, int32_t b, int32_t at) {
    const int32_t dp = w->s.dp;
    const char * block = w->values + b * w->s.v_block;
    const float * scales = (const float *) (block + (int64_t) BLOCK * dp) + at;
    wx_vi sum[WX_TILE_Q][WX_TILE_I];
#if defined(WX_ISA_AVX2)
    tile_i8(nq, nv, 0, block + at * BLOCK, BLOCK / 2, (const int32_t *) w->x + b * (BLOCK / 2),
            w->padded / 2, sum);
#else
    if (early)
        tile_byte(nq, nv, 0, block + at * BLOCK, BLOCK / 4, (const int32_t *) w->x + b * (BLOCK / 4), w->padded / 4,
                  sum);
    else
        tile_i8(nq, nv, 0, block + at * BLOCK, BLOCK / 4, (const int32_t *) w->x + b * (BLOCK / 4),
                w->padded / 2, w->padded / 4, sum);
#endif
    WX_UNROLL for (int q = 0; q < nq; q++) {
        WX_UNROLL for (int v = 0; v < nv; v++) {
            float * out = w->sums + q * dp + at + v * WX_LANES;
            wx_v x = wx_from_i32(sum[q][v]);
            if (early) x *= wx_set1(w->factors[q * w->s.n_blocks + b]);
            wx_store(out, wx_fma(x, wx_load(scales + v * WX_LANES), wx_load(out)));
        }
    }
}

WX_INLINE void find_values(const int type, const int nq, work * w) {
    const int32_t dp = w->s.dp;
    memset(w->sums, 0, (size_t) nq * dp * sizeof(float));
    for (int32_t b = 0; b < w->s.n_blocks; b++) {
        int32_t at = 0;
        if (type == WX_I8 || type == EARLY) {
            for (; at + WX_TILE_I * WX_LANES <= dp; at += WX_TILE_I * WX_LANES)
                values_of_i8(type == EARLY, nq, WX_TILE_I, w, b, at);
            for (; at < dp; at += WX_LANES) values_of_i8(type == EARLY, nq, 1, w, b, at);
        } else {
            for (; at + WX_TILE_V * WX_LANES <= dp; at += WX_TILE_V * WX_LANES)
                values_of(type, nq, WX_TILE_V, w, b, at);
            for (; at < dp; at += WX_LANES) values_of(type, nq, 1, w, b, at);
        }
    }
}

typedef void (*step_fn)(work * w);
#define STEPS_OF(type, nq)                                                          \
    static void scores_##type##_##nq(work * w) { find_scores(type, nq, w); }        \
    static void values_##type##_##nq(work * w) { find_values(type, nq, w); }
#define STEPS_OF_TYPE(type) STEPS_OF(type, 1) STEPS_OF(type, 2) STEPS_OF(type, 3) STEPS_OF(type, 4) STEPS_MORE(type)
#define NAMES_OF_TYPE(what, type) \
    { what##_##type##_1, what##_##type##_2, what##_##type##_3, what##_##type##_4 NAMES_MORE(what, type) }
#if WX_TILE_Q == 6
#define STEPS_MORE(type) STEPS_OF(type, 5) STEPS_OF(type, 6)
#define NAMES_MORE(what, type) , what##_##type##_5, what##_##type##_6
#else
#define STEPS_MORE(type)
#define NAMES_MORE(what, type)
#endif
STEPS_OF_TYPE(WX_F32)
STEPS_OF_TYPE(WX_BF16)
STEPS_OF_TYPE(WX_I8)
#if defined(WX_ISA_AVX2)
#define KINDS(what) NAMES_OF_TYPE(what, WX_F32), NAMES_OF_TYPE(what, WX_BF16), NAMES_OF_TYPE(what, WX_I8)
#else
STEPS_OF_TYPE(EARLY)
#define KINDS(what) \
    NAMES_OF_TYPE(what, WX_F32), NAMES_OF_TYPE(what, WX_BF16), NAMES_OF_TYPE(what, WX_I8), NAMES_OF_TYPE(what, EARLY)
#endif
static const step_fn scores[][WX_TILE_Q] = {KINDS(scores)};
static const step_fn values[][WX_TILE_Q] = {KINDS(values)};

/* Softmax over the first n of a row of raw scores, for those who look where the head looks. */
static void look_at(const float * x, int32_t n, float * out) {
    float part[WX_LANES];
    wx_v top = wx_set1(-INFINITY), total = wx_zero();
    for (int32_t pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < n; i += WX_LANES) {
            int32_t count = n - i < WX_LANES ? n - i : WX_LANES;
            for (int32_t c = 0; c < WX_LANES; c++) part[c] = c < count ? x[i + c] : -INFINITY;
            if (pass == 0) {
                top = wx_max(top, wx_load(part));
                continue;
            }
            wx_v p = wx_exp_weight(wx_load(part) - top);
            total += p;
            wx_store(part, p);
            memcpy(out + i, part, (size_t) count * sizeof(float));
        }
        if (pass == 0) top = wx_set1(wx_largest(top));
    }
    float by = 1.0f / wx_sum(total);
    for (int32_t i = 0; i < n; i++) out[i] *= by;
}

void wx_cross_attend(const wx_model * model, const void * cross, int32_t n_ctx, int32_t layer, int32_t head,
                     int early, const float * q, int64_t q_stride, int32_t n_q, float * out, int64_t out_stride,
                     float * look, int32_t n_positions, void * scratch) {
    work w = {.s = wx_cross_shape_of(model, n_ctx), .n_keys = n_ctx};
    w.padded = w.s.n_blocks * BLOCK;
    w.keys = (const char *) cross + layer * w.s.layer + head * w.s.head;
    w.values = w.keys + w.s.n_blocks * w.s.k_block;
    w.scores = scratch;
    w.sums = w.scores + (int64_t) WX_TILE_Q * w.padded;
    w.factors = w.sums + (int64_t) WX_TILE_Q * w.s.dp;
    w.x = (char *) (w.factors + (int64_t) WX_TILE_Q * w.s.n_blocks);
    int32_t type = model->cross_type;
    (void) early;
#if !defined(WX_ISA_AVX2)
    if (early && type == WX_I8) type = EARLY;
#endif
    int32_t kind = type == WX_F32 ? 0 : type == WX_BF16 ? 1 : type == WX_I8 ? 2 : 3;
    int32_t most = type == WX_F32 ? WX_TILE_Q : WX_TILE_Q_PAIRS, n_tiles = (n_q + most - 1) / most;
    for (int32_t tile = 0; tile < n_tiles; tile++) {
        int32_t first = (int32_t) ((int64_t) n_q * tile / n_tiles);
        int32_t n = (int32_t) ((int64_t) n_q * (tile + 1) / n_tiles) - first;
        for (int32_t i = 0; i < n; i++) take_query(&w, type, i, q + (first + i) * q_stride);
        scores[kind][n - 1](&w);
        if (look != NULL) {
            int32_t seen = n_positions < n_ctx ? n_positions : n_ctx;
            for (int32_t i = 0; i < n; i++) {
                float * row = look + (int64_t) (first + i) * n_positions;
                look_at(w.scores + (int64_t) i * w.padded, seen, row);
                for (int32_t p = seen; p < n_positions; p++) row[p] = 0.0f;
            }
        }
        for (int32_t i = 0; i < n; i++) {
#if !defined(WX_ISA_AVX2)
            if (type == EARLY) {
                find_early_weights(&w, i);
                continue;
            }
#endif
            find_weights(&w, type, i);
        }
        values[kind][n - 1](&w);
        for (int32_t i = 0; i < n; i++) {
            float divisor = type == WX_I8 ? w.total[i] * P_MOST : w.total[i];
            float * row = out + (first + i) * out_stride, by = 1.0f / divisor;
            for (int32_t c = 0; c < w.s.d; c++) row[c] = w.sums[i * w.s.dp + c] * by;
        }
    }
}
