/* Vectors of WX_LANES floats: the few operations that all files need, in the words of either instruction set.
 * Sums and products are written with the compiler's own operators; those of whole numbers are not, since wx_vi is the
 * general type, which the compiler takes for 64-bit numbers.
 */
#ifndef WX_VECTOR_H
#define WX_VECTOR_H

#include <immintrin.h>
#include <string.h>

#include "internal.h"

#define WX_INLINE static inline __attribute__((always_inline))
#define WX_UNROLL _Pragma("GCC unroll 8")
#define WX_UNROLL16 _Pragma("GCC unroll 16")

#if WX_LANES == 8
typedef __m256 wx_v;
typedef __m256i wx_vi;

static inline wx_v wx_zero(void) { return _mm256_setzero_ps(); }
static inline wx_v wx_set1(float x) { return _mm256_set1_ps(x); }
static inline wx_vi wx_zeroi(void) { return _mm256_setzero_si256(); }
static inline wx_vi wx_set1i(int32_t x) { return _mm256_set1_epi32(x); }
static inline wx_v wx_load(const float * p) { return _mm256_loadu_ps(p); }
static inline wx_vi wx_loadi(const void * p) { return _mm256_loadu_si256(p); }
static inline void wx_store(float * p, wx_v v) { _mm256_storeu_ps(p, v); }
static inline wx_v wx_fma(wx_v a, wx_v b, wx_v c) { return _mm256_fmadd_ps(a, b, c); }
static inline wx_v wx_max(wx_v a, wx_v b) { return _mm256_max_ps(a, b); }     /* b where one is NaN */
static inline wx_v wx_min(wx_v a, wx_v b) { return _mm256_min_ps(a, b); }
static inline wx_v wx_sqrt(wx_v a) { return _mm256_sqrt_ps(a); }
static inline wx_vi wx_bits(wx_v a) { return _mm256_castps_si256(a); }
static inline wx_v wx_floats(wx_vi a) { return _mm256_castsi256_ps(a); }
static inline wx_vi wx_and(wx_vi a, wx_vi b) { return _mm256_and_si256(a, b); }
static inline wx_vi wx_add_i32(wx_vi a, wx_vi b) { return _mm256_add_epi32(a, b); }
static inline wx_vi wx_sub_i32(wx_vi a, wx_vi b) { return _mm256_sub_epi32(a, b); }
static inline wx_vi wx_max_i32(wx_vi a, wx_vi b) { return _mm256_max_epi32(a, b); }
static inline wx_vi wx_min_i32(wx_vi a, wx_vi b) { return _mm256_min_epi32(a, b); }
#define wx_left(a, n) _mm256_slli_epi32(a, n)
#define wx_right(a, n) _mm256_srli_epi32(a, n)                      /* zeros come in */
static inline wx_vi wx_round_i32(wx_v a) { return _mm256_cvtps_epi32(a); }      /* to nearest even */
static inline wx_v wx_from_i32(wx_vi a) { return _mm256_cvtepi32_ps(a); }
static inline wx_v wx_if_less(wx_v a, wx_v b, wx_v yes, wx_v no) {          /* a < b ? yes : no */
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
static inline wx_v wx_if_nan(wx_v a, wx_v yes, wx_v no) {
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
static inline __m256i wx_first(int n) {         /* ones in the first n lanes */
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline wx_v wx_load_n(const float * p, int n) { return _mm256_maskload_ps(p, wx_first(n)); }
static inline void wx_store_n(float * p, wx_v v, int n) { _mm256_maskstore_ps(p, wx_first(n), v); }
static inline wx_v wx_load_f16(const void * p) { return _mm256_cvtph_ps(_mm_loadu_si128(p)); }
static inline wx_v wx_load_bf16(const void * p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}
static inline void wx_store_f16(uint16_t * p, wx_v v) {
    _mm_storeu_si128((__m128i *) p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline float wx_sum(wx_v v) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}
static inline float wx_largest(wx_v v) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
}
static inline int32_t wx_largest_i32(wx_vi v) {
    __m128i x = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}
static inline int32_t wx_sum_i32(wx_vi v) {
    __m128i x = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}
static inline void wx_store_u16(uint16_t * p, wx_vi v) {         /* the lower half of every lane */
    __m256i packed = _mm256_packus_epi32(_mm256_and_si256(v, _mm256_set1_epi32(0xffff)), _mm256_setzero_si256());
    packed = _mm256_permute4x64_epi64(packed, 0xd8);
    _mm_storeu_si128((__m128i *) p, _mm256_castsi256_si128(packed));
}
static inline void wx_store_i8(int8_t * p, wx_vi v) {            /* the lanes, which are within -128 .. 127 */
    __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    _mm_storel_epi64((__m128i *) p, _mm_packs_epi16(halves, halves));
}
static inline void wx_transpose(wx_vi * v) {                     /* 8 vectors: rows become columns */
    wx_vi pairs[8], fours[8];
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            fours[i + 2 * j] = _mm256_unpacklo_epi64(pairs[i + j], pairs[i + j + 2]);
            fours[i + 2 * j + 1] = _mm256_unpackhi_epi64(pairs[i + j], pairs[i + j + 2]);
        }
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x20);
        v[i + 4] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x31);
    }
}

#else
typedef __m512 wx_v;
typedef __m512i wx_vi;

static inline wx_v wx_zero(void) { return _mm512_setzero_ps(); }
static inline wx_v wx_set1(float x) { return _mm512_set1_ps(x); }
static inline wx_vi wx_zeroi(void) { return _mm512_setzero_si512(); }
static inline wx_vi wx_set1i(int32_t x) { return _mm512_set1_epi32(x); }
static inline wx_v wx_load(const float * p) { return _mm512_loadu_ps(p); }
static inline wx_vi wx_loadi(const void * p) { return _mm512_loadu_si512(p); }
static inline void wx_store(float * p, wx_v v) { _mm512_storeu_ps(p, v); }
static inline wx_v wx_fma(wx_v a, wx_v b, wx_v c) { return _mm512_fmadd_ps(a, b, c); }
static inline wx_v wx_max(wx_v a, wx_v b) { return _mm512_max_ps(a, b); }     /* b where one is NaN */
static inline wx_v wx_min(wx_v a, wx_v b) { return _mm512_min_ps(a, b); }
static inline wx_v wx_sqrt(wx_v a) { return _mm512_sqrt_ps(a); }
static inline wx_vi wx_bits(wx_v a) { return _mm512_castps_si512(a); }
static inline wx_v wx_floats(wx_vi a) { return _mm512_castsi512_ps(a); }
static inline wx_vi wx_and(wx_vi a, wx_vi b) { return _mm512_and_si512(a, b); }
static inline wx_vi wx_add_i32(wx_vi a, wx_vi b) { return _mm512_add_epi32(a, b); }
static inline wx_vi wx_sub_i32(wx_vi a, wx_vi b) { return _mm512_sub_epi32(a, b); }
static inline wx_vi wx_max_i32(wx_vi a, wx_vi b) { return _mm512_max_epi32(a, b); }
static inline wx_vi wx_min_i32(wx_vi a, wx_vi b) { return _mm512_min_epi32(a, b); }
#define wx_left(a, n) _mm512_slli_epi32(a, n)
#define wx_right(a, n) _mm512_srli_epi32(a, n)                      /* zeros come in */
static inline wx_vi wx_round_i32(wx_v a) { return _mm512_cvtps_epi32(a); }      /* to nearest even */
static inline wx_v wx_from_i32(wx_vi a) { return _mm512_cvtepi32_ps(a); }
static inline wx_v wx_if_less(wx_v a, wx_v b, wx_v yes, wx_v no) {          /* a < b ? yes : no */
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
static inline wx_v wx_if_nan(wx_v a, wx_v yes, wx_v no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), no, yes);
}
static inline __mmask16 wx_first(int n) {       /* ones in the first n lanes */
    return n >= 16 ? 0xffff : n <= 0 ? 0 : (__mmask16) ((1u << n) - 1);
}
static inline wx_v wx_load_n(const float * p, int n) { return _mm512_maskz_loadu_ps(wx_first(n), p); }
static inline void wx_store_n(float * p, wx_v v, int n) { _mm512_mask_storeu_ps(p, wx_first(n), v); }
static inline wx_v wx_load_f16(const void * p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }
static inline wx_v wx_load_bf16(const void * p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}
static inline void wx_store_f16(uint16_t * p, wx_v v) {
    _mm256_storeu_si256((__m256i *) p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline float wx_sum(wx_v v) { return _mm512_reduce_add_ps(v); }
static inline float wx_largest(wx_v v) { return _mm512_reduce_max_ps(v); }
static inline int32_t wx_largest_i32(wx_vi v) { return _mm512_reduce_max_epi32(v); }
static inline int32_t wx_sum_i32(wx_vi v) { return _mm512_reduce_add_epi32(v); }
static inline void wx_store_u16(uint16_t * p, wx_vi v) {         /* the lower half of every lane */
    _mm256_storeu_si256((__m256i *) p, _mm512_cvtepi32_epi16(v));
}
static inline void wx_store_i8(int8_t * p, wx_vi v) {            /* the lanes, which are within -128 .. 127 */
    _mm_storeu_si128((__m128i *) p, _mm512_cvtepi32_epi8(v));
}
static inline void wx_transpose(wx_vi * v) {                     /* 16 vectors: rows become columns */
    wx_vi pairs[16], fours[16];
    for (int i = 0; i < 16; i += 2) {
        pairs[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            fours[i + 2 * j] = _mm512_unpacklo_epi64(pairs[i + j], pairs[i + j + 2]);
            fours[i + 2 * j + 1] = _mm512_unpackhi_epi64(pairs[i + j], pairs[i + j + 2]);
        }
    for (int i = 0; i < 4; i++) {                                /* now 4 x 4 blocks of 128 bits */
        wx_vi low = _mm512_shuffle_i32x4(fours[i], fours[i + 4], 0x44);
        wx_vi high = _mm512_shuffle_i32x4(fours[i], fours[i + 4], 0xee);
        wx_vi low2 = _mm512_shuffle_i32x4(fours[i + 8], fours[i + 12], 0x44);
        wx_vi high2 = _mm512_shuffle_i32x4(fours[i + 8], fours[i + 12], 0xee);
        v[i] = _mm512_shuffle_i32x4(low, low2, 0x88);
        v[i + 4] = _mm512_shuffle_i32x4(low, low2, 0xdd);
        v[i + 8] = _mm512_shuffle_i32x4(high, high2, 0x88);
        v[i + 12] = _mm512_shuffle_i32x4(high, high2, 0xdd);
    }
}
#endif

static inline wx_v wx_abs(wx_v v) { return wx_floats(wx_and(wx_bits(v), wx_set1i(0x7fffffff))); }

/* The first and the second of the two bf16 numbers of each lane, as floats. */
static inline wx_v wx_bf16_even(wx_vi v) { return wx_floats(wx_left(v, 16)); }
static inline wx_v wx_bf16_odd(wx_vi v) { return wx_floats(wx_and(v, wx_set1i((int32_t) 0xffff0000u))); }

/* Lanes as bf16, to nearest even, in the lower halves. */
static inline wx_vi wx_bf16_bits(wx_v v) {
    wx_vi bits = wx_bits(v);
    wx_vi half = wx_add_i32(wx_set1i(0x7fff), wx_and(wx_right(bits, 16), wx_set1i(1)));
    wx_v rounded = wx_floats(wx_add_i32(bits, half));
    return wx_right(wx_bits(wx_if_nan(v, wx_floats(wx_set1i(0x7fc00000)), rounded)), 16);
}

static inline void wx_store_bf16(uint16_t * p, wx_v v) {
#if defined(WX_ISA_AVX512_BF16)
    _mm256_storeu_si256((__m256i *) p, (__m256i) _mm512_cvtneps_pbh(v));
#else
    wx_store_u16(p, wx_bf16_bits(v));
#endif
}

static inline void wx_store_bf16_n(uint16_t * p, wx_v v, int n) {
    if (n >= WX_LANES) {
        wx_store_bf16(p, v);
    } else {
        uint16_t lanes[WX_LANES];
        wx_store_bf16(lanes, v);
        memcpy(p, lanes, (size_t) n * 2);
    }
}

/* 2^x, relative error 2e-7; below -126 it is 2^-126, above 127 2^127, NaN stays. Minimax polynomial of 2^f. */
static inline wx_v wx_exp2(wx_v x) {
    wx_v limited = wx_min(wx_set1(127.0f), wx_max(wx_set1(-126.0f), x));
    wx_vi whole = wx_round_i32(limited);
    wx_v f = limited - wx_from_i32(whole);
    wx_v p = wx_set1(1.3276472e-3f);
    p = wx_fma(p, f, wx_set1(9.6755410e-3f));
    p = wx_fma(p, f, wx_set1(5.5507131e-2f));
    p = wx_fma(p, f, wx_set1(2.4022120e-1f));
    p = wx_fma(p, f, wx_set1(6.9314694e-1f));
    p = wx_fma(p, f, wx_set1(1.0000001f));
    return wx_if_nan(x, x, wx_floats(wx_add_i32(wx_bits(p), wx_left(whole, 23))));
}

static inline wx_v wx_exp(wx_v x) { return wx_exp2(x * wx_set1(1.44269504088896341f)); }

/* e^x for x <= 0, the weights of a softmax: 3e-7 relative near 0, 1.4e-6 far down; 0 below -87; NaN stays NaN.
   It is not wx_exp, since attention asks for more: padding of -INFINITY weighs exactly nothing (wx_exp ends at
   2^-126), the largest score weighs exactly 1, and far down the error is a third of wx_exp's, because the product with
   log2(e) is not rounded by itself. */
static inline wx_v wx_exp_weight(wx_v x) {
    const wx_v low = wx_set1(-87.0f), log2e = wx_set1(1.44269504f);
    wx_v y = wx_max(low, x);
#if WX_LANES == 8
    wx_v n = _mm256_round_ps(y * log2e, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    wx_v f = _mm256_fmsub_ps(y, log2e, n);
#else
    wx_v n = _mm512_roundscale_ps(y * log2e, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    wx_v f = _mm512_fmsub_ps(y, log2e, n);
#endif
    wx_v p = wx_fma(f, wx_set1(1.5403530e-4f), wx_set1(1.3333558e-3f));     /* 2^f on [-1/2, 1/2] */
    p = wx_fma(p, f, wx_set1(9.6181291e-3f));
    p = wx_fma(p, f, wx_set1(5.5504109e-2f));
    p = wx_fma(p, f, wx_set1(2.4022651e-1f));
    p = wx_fma(p, f, wx_set1(6.9314718e-1f));
    p = wx_fma(p, f, wx_set1(1.0f));
#if WX_LANES == 8
    p = wx_floats(wx_add_i32(wx_bits(p), wx_left(wx_round_i32(n), 23)));
    return _mm256_andnot_ps(_mm256_cmp_ps(x, low, _CMP_LT_OQ), p);
#else
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, low, _CMP_NLT_UQ), p, n);
#endif
}

/* x times the normal distribution's integral up to x (the erf form of GELU). For a = min(|x|, 6) the lower tail is
   2^P(a), P the minimax polynomial of its logarithm, and the result max(x, 0) - a 2^P(a): no cancellation for x < 0.
   Error below 1.3e-7 max(1, |x|), and 1e-6 relative where |result| > 0.01. NaN stays NaN. */
static inline wx_v wx_gelu_v(wx_v x) {
    wx_v a = wx_min(wx_set1(6.0f), wx_abs(x));
    wx_v e = wx_set1(1.6837629e-7f);
    e = wx_fma(e, a, wx_set1(-4.0601490e-6f));
    e = wx_fma(e, a, wx_set1(3.8767976e-5f));
    e = wx_fma(e, a, wx_set1(-1.5680771e-4f));
    e = wx_fma(e, a, wx_set1(-2.4598795e-4f));
    e = wx_fma(e, a, wx_set1(7.2460207e-3f));
    e = wx_fma(e, a, wx_set1(-5.2651841e-2f));
    e = wx_fma(e, a, wx_set1(-4.5914298e-1f));
    e = wx_fma(e, a, wx_set1(-1.1511167f));
    e = wx_fma(e, a, wx_set1(-9.9999940e-1f));
    wx_vi whole = wx_round_i32(e);
    wx_v f = e - wx_from_i32(whole);
    wx_v p = wx_set1(1.3276472e-3f);
    p = wx_fma(p, f, wx_set1(9.6755410e-3f));
    p = wx_fma(p, f, wx_set1(5.5507131e-2f));
    p = wx_fma(p, f, wx_set1(2.4022120e-1f));
    p = wx_fma(p, f, wx_set1(6.9314694e-1f));
    p = wx_fma(p, f, wx_set1(1.0000001f));
    wx_v tail = wx_floats(wx_add_i32(wx_bits(p), wx_left(whole, 23)));
    return wx_fma(wx_zero() - a, tail, wx_max(wx_zero(), x));
}

#endif
