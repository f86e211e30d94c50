/* Queries, keys and values of the encoder's attention, packed as the tiles of attention.c read them. */
#include <math.h>
#include <string.h>

#include "attention.h"
#include "vector.h"

#define MOST_I8 256             /* numbers of a head whose scores may be int8: what a buffer on the stack holds */

/* `n` numbers of 32 bits from the memory behind h->q, which begins at a whole line. */
static void * take(const wx_heads * h, int64_t * taken, int64_t n) {
    void * at = h->q ? h->q + *taken : NULL;
    *taken += wx_round_up(n, WX_ALIGN / 4);
    return at;
}

static wx_heads lay_out(int32_t matrix_type, int32_t score_type, int32_t n_head, int32_t d, int32_t n_ctx,
                        void * memory, int64_t * taken) {
    wx_heads h = {
        .form = WX_F32, .products = WX_F32, .n_head = n_head, .d = d, .n_ctx = n_ctx, .q = memory};
#if defined(WX_ISA_AVX512_BF16)
    if (matrix_type != WX_F32) h.form = h.products = WX_BF16;
#endif
#if !defined(WX_ISA_AVX2)
    if (matrix_type != WX_F32 && score_type == WX_I8 && d <= MOST_I8) h.products = WX_I8;
#endif
    (void) matrix_type, (void) score_type;
    h.units = h.products == WX_I8 ? (d + 3) / 4 : h.products == WX_BF16 ? (d + 1) / 2 : d;
    h.n_keys = wx_round_up(n_ctx, WX_PANEL);
    h.width = wx_round_up(d, WX_PANEL);
    *taken = 0;
    take(&h, taken, n_head * wx_heads_queries(&h) * h.units);
    h.k = take(&h, taken, (int64_t) n_head * h.n_keys * h.units);
    h.v = take(&h, taken, n_head * wx_heads_steps(&h) * h.width);
    if (h.products == WX_I8) {
        h.q_scale = take(&h, taken, n_head * wx_heads_queries(&h));
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
    if (h->products == WX_BF16) memcpy(&x, row + 4 * u, 2 * u + 1 < h->d ? 4 : 2);
    else memcpy(&x, row + 4 * u, 4);
    return x;
}

#if !defined(WX_ISA_AVX2)
/* 16 numbers of a row from c on, zeros behind the head. */
static wx_v channels(const wx_heads * h, const char * row, int32_t c) {
    const int32_t left = h->d - c;
    const __mmask16 there = left >= 16 ? 0xffff : left <= 0 ? 0 : (__mmask16) ((1u << left) - 1);
    if (h->form != WX_BF16) return _mm512_maskz_loadu_ps(there, row + 4 * c);
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, row + 2 * c)), 16));
}

/* A row of d numbers in whole steps of its largest / 127, which is returned; MOST_I8 codes, zeros behind the row. */
static float to_codes(const wx_heads * h, const char * row, int8_t * codes) {
    __m512 x[MOST_I8 / 16], largest = wx_zero();
    const int32_t n = (h->d + 15) / 16;
    for (int32_t i = 0; i < n; i++) {
        x[i] = channels(h, row, 16 * i);
        largest = wx_max(largest, wx_abs(x[i]));
    }
    const float top = wx_largest(largest);
    const int some = top > 1e-35f;      /* below, a step would be 0, and 0 times the -INFINITY of padding is NaN */
    const wx_v steps = wx_set1(some ? 127.0f / top : 0.0f);
    wx_v nothing = wx_zero();       /* unless a number is not finite: then all scores of the row are NaN */
    for (int32_t i = 0; i < n; i++) {
        nothing += x[i] * wx_zero();
        _mm_storeu_si128((__m128i *) (codes + 16 * i), _mm512_cvtsepi32_epi8(wx_round_i32(x[i] * steps)));
    }
    if (!(wx_sum(nothing) == 0.0f)) return NAN;     /* this one, whatever bits that of the row has: see exp2_cheap */
    return some ? top * (1.0f / 127.0f) : 1.0f;
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
    if (h->units % 16 == 0 && (h->products == WX_F32 || h->d % 2 == 0)) {
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
    const int64_t panel = wx_heads_steps(h) * WX_PANEL;
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
    uint32_t * q = h->q + head * wx_heads_queries(h) * h->units;
    uint32_t * k = h->k + (int64_t) head * h->n_keys * h->units;
    float * q_scale = h->q_scale + head * wx_heads_queries(h), * k_scale = h->k_scale + (int64_t) head * h->n_keys;
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
    for (int64_t r = last; r < wx_heads_queries(h); r++) {
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

#if !defined(WX_ISA_AVX2)
/* Values of one head as int8: a scale per number of the head and WX_HEADS_STEP keys, behind the keys it belongs to. A
   key whose scores are no numbers (its scale tells) makes the values beside it none: its weight, of 8 bits, cannot. */
static void put_values_i8(const wx_heads * h, uint32_t * v, const char * rows, int64_t stride, int32_t first,
                          int32_t last, const float * k_scale) {
    const int64_t panel = wx_heads_steps(h) * WX_PANEL;
    for (int32_t j = first; j < last; j += WX_HEADS_STEP, rows += WX_HEADS_STEP * stride) {
        const int32_t n = last - j < WX_HEADS_STEP ? last - j : WX_HEADS_STEP;
        wx_v bad = wx_zero();
        for (int32_t i = 0; i < n; i++) bad += wx_set1(k_scale[j + i] * 0.0f);
        for (int32_t c = 0; c < h->width; c += 16) {
            uint32_t * to = v + c / WX_PANEL * panel + c % WX_PANEL;
            to += (int64_t) (j / WX_HEADS_STEP) * WX_GROUP_STEPS * WX_PANEL;
            wx_v top = wx_zero(), nothing = bad;
            for (int32_t i = 0; i < n; i++) {
                wx_v x = channels(h, rows + i * stride, c);
                top = wx_max(top, wx_abs(x));
                nothing = wx_fma(x, wx_zero(), nothing);
            }
            const __mmask16 some = _mm512_cmp_ps_mask(top, wx_zero(), _CMP_GT_OQ);
            const wx_v steps = _mm512_maskz_div_ps(some, wx_set1(127.0f), top);
            for (int32_t i = 0; i < WX_HEADS_STEP; i += 4, to += WX_PANEL) {
                wx_vi four = wx_zeroi();
                for (int32_t k = 3; k >= 0; k--) {
                    four = wx_left(four, 8);
                    if (i + k >= n) continue;
                    wx_vi code = wx_round_i32(channels(h, rows + (i + k) * stride, c) * steps);
                    four = _mm512_or_si512(four, _mm512_and_si512(code, wx_set1i(255)));
                }
                _mm512_storeu_si512(to, four);
            }
            wx_store((float *) to, wx_fma(top, wx_set1(1.0f / 127.0f), nothing));
        }
    }
}
#endif

void wx_heads_put(const wx_heads * h, const void * qkv, int64_t stride, int32_t first, int32_t last) {
    const int64_t size = h->form == WX_BF16 ? 2 : 4, part = h->n_head * h->d * size;
    for (int32_t i = 0; i < h->n_head; i++) {
        const char * rows = (const char *) qkv + i * h->d * size;
        uint32_t * values = h->v + i * wx_heads_steps(h) * h->width;
#if !defined(WX_ISA_AVX2)
        if (h->products == WX_I8) {
            put_i8(h, i, rows, rows + part, stride * size, first, last);
            put_values_i8(h, values, rows + 2 * part, stride * size, first, last,
                          h->k_scale + (int64_t) i * h->n_keys);
            continue;
        }
#endif
        put_values(h, values, rows + 2 * part, stride * size, first, last);
        uint32_t * q = h->q + i * wx_heads_queries(h) * h->units;
        for (int32_t r = first; r < last; r++) {
            const char * from = rows + (r - first) * stride * size;
            uint32_t * to = q + (int64_t) r * h->units;
            to[h->units - 1] = unit_of(h, from, h->units - 1);
            memcpy(to, from, (size_t) (h->units - 1) * 4);
        }
        if (last == h->n_ctx)
            memset(q + (int64_t) last * h->units, 0, (size_t) ((wx_heads_queries(h) - last) * h->units) * 4);
        put_keys(h, h->k + (int64_t) i * h->n_keys * h->units, rows + part, stride * size, first, last);
    }
}
