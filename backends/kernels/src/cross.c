/* Cross keys and values of a window are brought into the layout of cross.h. */
#include "cross.h"

#include <string.h>

wx_cross_shape wx_cross_shape_of(const wx_model * m, int32_t n_ctx) {
    wx_cross_shape s;
    s.d = m->n_state / m->n_text_head;
    s.dp = wx_round_up(s.d, 16);
    s.size = m->cross_type == WX_F32 ? 4 : m->cross_type == WX_BF16 ? 2 : 1;
    s.panel = (m->cross_type == WX_I8 ? WX_TILE_I : WX_TILE_V) * WX_LANES;
    s.n_blocks = (n_ctx + WX_BLOCK - 1) / WX_BLOCK;
    s.k_block = (int64_t) WX_BLOCK * s.dp * s.size + (m->cross_type == WX_I8 ? WX_BLOCK * 4 : 0);
    s.v_block = (int64_t) WX_BLOCK * s.dp * s.size + (m->cross_type == WX_I8 ? s.dp * 4 : 0);
    s.head = s.n_blocks * (s.k_block + s.v_block);
    s.layer = s.head * m->n_text_head;
    return s;
}

size_t wx_cross_bytes(const wx_model * model, int32_t n_ctx) {
    return (size_t) (wx_cross_shape_of(model, n_ctx).layer * model->n_text_layer);
}

/* Numbers of a row from c on, zeros after its d numbers. */
WX_INLINE wx_v numbers(const float * x, int32_t c, int32_t d) {
    if (c + WX_LANES <= d) return wx_load(x + c);
    float part[WX_LANES] = {0};
    if (c < d) memcpy(part, x + c, (size_t) (d - c) * sizeof(float));
    return wx_load(part);
}

/* 16 rows of `units` units each become 16 columns, `panel` units from row to row. */
static void spread_words(const uint32_t * from, int32_t units, uint32_t * to, int32_t panel) {
    int32_t u = 0;
#if !defined(WX_ISA_AVX2)
    for (; u + 16 <= units; u += 16) {
        wx_vi a[16], b[16];
        WX_UNROLL16 for (int i = 0; i < 16; i++) a[i] = wx_loadi(from + i * units + u);
        WX_UNROLL16 for (int i = 0; i < 16; i += 2) {
            b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
            b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
        }
        WX_UNROLL16 for (int i = 0; i < 16; i += 4) {
            a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
            a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
            a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
            a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
        }
        /* a[4 g + c]: rows 4 g to 4 g + 3 of column c, then of c + 4, c + 8, c + 12 */
        WX_UNROLL16 for (int c = 0; c < 4; c++) {
            wx_vi even = _mm512_shuffle_i32x4(a[c], a[c + 4], 0x88), odd = _mm512_shuffle_i32x4(a[c], a[c + 4], 0xdd);
            wx_vi even2 = _mm512_shuffle_i32x4(a[c + 8], a[c + 12], 0x88);
            wx_vi odd2 = _mm512_shuffle_i32x4(a[c + 8], a[c + 12], 0xdd);
            _mm512_storeu_si512(to + (u + c) * panel, _mm512_shuffle_i32x4(even, even2, 0x88));
            _mm512_storeu_si512(to + (u + c + 4) * panel, _mm512_shuffle_i32x4(odd, odd2, 0x88));
            _mm512_storeu_si512(to + (u + c + 8) * panel, _mm512_shuffle_i32x4(even, even2, 0xdd));
            _mm512_storeu_si512(to + (u + c + 12) * panel, _mm512_shuffle_i32x4(odd, odd2, 0xdd));
        }
    }
#endif
    for (; u < units; u++)
        for (int32_t i = 0; i < 16; i++) to[u * panel + i] = from[i * units + u];
}

static void spread_halves(const uint16_t * from, int32_t units, uint16_t * to, int32_t panel) {
    for (int32_t u = 0; u < units; u++)
        for (int32_t i = 0; i < 16; i++) to[u * panel + i] = from[i * units + u];
}

/* One key as int8 (kept as u8 with zero point 128 where the dot product wants it so). NaN and infinity show in the
   scale, which makes every score NaN. */
static float quantise_key(const float * x, int32_t d, int32_t dp, int8_t * to) {
    wx_v top = wx_zero(), bad = wx_zero();
    for (int32_t c = 0; c < dp; c += WX_LANES) {
        wx_v y = numbers(x, c, d);
        top = wx_max(top, wx_abs(y));
        bad = wx_fma(y, wx_zero(), bad);
    }
    float most = wx_largest(top);
    wx_v by = wx_set1(most > 0.0f ? 127.0f / most : 0.0f);
    wx_vi zero = wx_set1i(WX_UNIT_I8 == 4 ? 128 : 0);
    for (int32_t c = 0; c < dp; c += WX_LANES)
        wx_store_i8(to + c, wx_add_i32(wx_round_i32(numbers(x, c, d) * by), zero));
    return most / 127.0f + wx_sum(bad);
}

static void store_keys(const wx_model * m, const wx_cross_shape * s, const float * k, int64_t stride, int32_t n,
                       char * dst) {
    union {
        float f32[16 * WX_HEAD_MAX];
        uint32_t words[16 * WX_HEAD_MAX];
        uint16_t bf16[16 * WX_HEAD_MAX];
        int8_t i8[16 * WX_HEAD_MAX];
    } rows;
    float * scales = (float *) (dst + (int64_t) WX_BLOCK * s->dp * s->size);
    for (int32_t key = 0; key < WX_BLOCK; key += 16) {
        int32_t count = n - key < 0 ? 0 : n - key > 16 ? 16 : n - key;
        if (count < 16 || s->d < s->dp) memset(&rows, 0, (size_t) 16 * s->dp * s->size);
        for (int32_t i = 0; i < count; i++) {
            const float * x = k + (key + i) * stride;
            if (m->cross_type == WX_F32) memcpy(rows.f32 + i * s->dp, x, (size_t) s->d * sizeof(float));
            else if (m->cross_type == WX_BF16) wx_to_bf16(x, s->d, rows.bf16 + i * s->dp);
            else scales[key + i] = quantise_key(x, s->d, s->dp, rows.i8 + i * s->dp);
        }
        if (m->cross_type == WX_I8)
            for (int32_t i = count; i < 16; i++) scales[key + i] = 0.0f;
        int32_t row = s->dp * s->size, lane = key % s->panel;
        char * panel = dst + (int64_t) (key - lane) * row;
        if (m->cross_type == WX_I8 && WX_UNIT_I8 == 2)
            spread_halves(rows.bf16, row / 2, (uint16_t *) panel + lane, s->panel);
        else spread_words(rows.words, row / 4, (uint32_t *) panel + lane, s->panel);
    }
}

static void store_values_i8(const wx_cross_shape * s, const float * v, int64_t stride, int32_t n, char * dst) {
    float * scales = (float *) (dst + (int64_t) WX_BLOCK * s->dp);
    for (int32_t c = 0; c < s->dp; c += WX_LANES) {
        int32_t at = c / s->panel * s->panel, width = wx_cross_width(s, at);
        if (width < s->panel) at = c;
        wx_v top = wx_zero(), bad = wx_zero();
        for (int32_t key = 0; key < n; key++) {
            wx_v x = numbers(v + key * stride, c, s->d);
            top = wx_max(top, wx_abs(x));
            bad = wx_fma(x, wx_zero(), bad);
        }
        wx_v scale = top * wx_set1(1.0f / 127.0f), by;
        wx_store(scales + c, scale + bad);
#if defined(WX_ISA_AVX2)
        by = _mm256_and_ps(_mm256_div_ps(wx_set1(127.0f), top), _mm256_cmp_ps(top, wx_zero(), _CMP_GT_OQ));
#else
        by = _mm512_maskz_div_ps(_mm512_cmp_ps_mask(top, wx_zero(), _CMP_GT_OQ), wx_set1(127.0f), top);
#endif
        for (int32_t key = 0; key < WX_BLOCK; key += WX_UNIT_I8) {
            wx_vi unit = wx_zeroi();
            for (int32_t i = 0; i < WX_UNIT_I8 && key + i < n; i++) {
                wx_vi whole = wx_round_i32(numbers(v + (key + i) * stride, c, s->d) * by);
#if defined(WX_ISA_AVX2)
                unit = _mm256_or_si256(unit, _mm256_slli_epi32(_mm256_and_si256(whole, wx_set1i(255)), 8 * i));
#else
                unit = _mm512_or_si512(unit, _mm512_sll_epi32(_mm512_and_si512(whole, wx_set1i(255)),
                                                              _mm_cvtsi32_si128(8 * i)));
#endif
            }
            char * to = dst + at * WX_BLOCK + key * width + (c - at) * WX_UNIT_I8;
#if defined(WX_ISA_AVX2)
            _mm_storeu_si128((__m128i *) to,
                             _mm_packus_epi32(_mm256_castsi256_si128(unit), _mm256_extracti128_si256(unit, 1)));
#else
            _mm512_storeu_si512(to, unit);
#endif
        }
    }
}

static void store_values(const wx_model * m, const wx_cross_shape * s, const float * v, int64_t stride, int32_t n,
                         char * dst) {
    if (m->cross_type == WX_I8) {
        store_values_i8(s, v, stride, n, dst);
        return;
    }
    union {
        float f32[WX_HEAD_MAX];
        uint16_t bf16[2][WX_HEAD_MAX];
    } rows;
    int32_t per_unit = m->cross_type == WX_F32 ? 1 : 2;
    for (int32_t key = 0; key < WX_BLOCK; key += per_unit) {
        if (key + per_unit > n || s->d < s->dp) memset(&rows, 0, sizeof rows);
        if (m->cross_type == WX_F32 && key < n) memcpy(rows.f32, v + key * stride, (size_t) s->d * sizeof(float));
        for (int32_t i = 0; i < 2 && m->cross_type == WX_BF16 && key + i < n; i++)
            wx_to_bf16(v + (key + i) * stride, s->d, rows.bf16[i]);
        for (int32_t at = 0, width; at < s->dp; at += width) {
            width = wx_cross_width(s, at);
            uint32_t * to = (uint32_t *) (dst + (int64_t) at * WX_BLOCK * s->size) + key / per_unit * width;
            if (m->cross_type == WX_F32) {
                memcpy(to, rows.f32 + at, (size_t) width * sizeof(float));
                continue;
            }
            for (int32_t c = 0; c < width; c++)
                to[c] = rows.bf16[0][at + c] | (uint32_t) rows.bf16[1][at + c] << 16;
        }
    }
}

void wx_cross_store(const wx_model * model, void * cross, int32_t n_ctx, int32_t layer, const float * kv,
                    int64_t stride, int32_t first, int32_t last) {
    wx_cross_shape s = wx_cross_shape_of(model, n_ctx);
    for (int32_t key = first; key < last; key += WX_BLOCK) {
        int32_t n = last - key < WX_BLOCK ? last - key : WX_BLOCK;
        const float * rows = kv + (key - first) * stride;
        for (int32_t head = 0; head < model->n_text_head; head++) {
            char * keys = (char *) cross + layer * s.layer + head * s.head;
            char * values = keys + s.n_blocks * s.k_block;
            store_keys(model, &s, rows + head * s.d, stride, n, keys + key / WX_BLOCK * s.k_block);
            store_values(model, &s, rows + model->n_state + head * s.d, stride, n, values + key / WX_BLOCK * s.v_block);
        }
    }
}

