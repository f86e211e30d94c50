/* Vectors of WX_LANES floats, written once for the attention code of every instruction set. */
#ifndef WX_LANES_H
#define WX_LANES_H

#include <immintrin.h>

#include "internal.h"

#define WX_INLINE static inline __attribute__((always_inline))

#if defined(WX_ISA_AVX2)

typedef __m256 vf;
typedef __m256i vi;

WX_INLINE vf vf_zero(void) { return _mm256_setzero_ps(); }
WX_INLINE vf vf_all(float x) { return _mm256_set1_ps(x); }
WX_INLINE vf vf_load(const float * p) { return _mm256_loadu_ps(p); }
WX_INLINE void vf_store(float * p, vf x) { _mm256_storeu_ps(p, x); }
WX_INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
WX_INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
WX_INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
WX_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
WX_INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }      /* b where one of them is NaN */
WX_INLINE vf vf_abs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
WX_INLINE vi vi_zero(void) { return _mm256_setzero_si256(); }
WX_INLINE vi vi_load(const void * p) { return _mm256_loadu_si256((const __m256i *) p); }
WX_INLINE vi vi_all(int32_t x) { return _mm256_set1_epi32(x); }
WX_INLINE vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
WX_INLINE vi vi_sub(vi a, vi b) { return _mm256_sub_epi32(a, b); }
WX_INLINE vf vi_to_f32(vi a) { return _mm256_cvtepi32_ps(a); }
WX_INLINE vi vf_round(vf a) { return _mm256_cvtps_epi32(a); }
/* The two bf16 numbers of each 32 bits, as floats. */
WX_INLINE vf vf_even(vi a) { return _mm256_castsi256_ps(_mm256_slli_epi32(a, 16)); }
WX_INLINE vf vf_odd(vi a) { return _mm256_castsi256_ps(_mm256_and_si256(a, _mm256_set1_epi32((int32_t) 0xffff0000u))); }
WX_INLINE vf vf_from_f16(const uint16_t * p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) p)); }
WX_INLINE void vf_to_f16(uint16_t * p, vf x) {
    _mm_storeu_si128((__m128i *) p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

WX_INLINE float vf_sum(vf x) {
    __m128 a = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    a = _mm_add_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
}

WX_INLINE float vf_top(vf x) {
    __m128 a = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    a = _mm_max_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)));
}

#else

typedef __m512 vf;
typedef __m512i vi;

WX_INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
WX_INLINE vf vf_all(float x) { return _mm512_set1_ps(x); }
WX_INLINE vf vf_load(const float * p) { return _mm512_loadu_ps(p); }
WX_INLINE void vf_store(float * p, vf x) { _mm512_storeu_ps(p, x); }
WX_INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
WX_INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
WX_INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
WX_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
WX_INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }      /* b where one of them is NaN */
WX_INLINE vf vf_abs(vf a) { return _mm512_abs_ps(a); }
WX_INLINE vi vi_zero(void) { return _mm512_setzero_si512(); }
WX_INLINE vi vi_load(const void * p) { return _mm512_loadu_si512(p); }
WX_INLINE vi vi_all(int32_t x) { return _mm512_set1_epi32(x); }
WX_INLINE vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
WX_INLINE vi vi_sub(vi a, vi b) { return _mm512_sub_epi32(a, b); }
WX_INLINE vf vi_to_f32(vi a) { return _mm512_cvtepi32_ps(a); }
WX_INLINE vi vf_round(vf a) { return _mm512_cvtps_epi32(a); }
WX_INLINE vf vf_even(vi a) { return _mm512_castsi512_ps(_mm512_slli_epi32(a, 16)); }
WX_INLINE vf vf_odd(vi a) {
    return _mm512_castsi512_ps(_mm512_and_si512(a, _mm512_set1_epi32((int32_t) 0xffff0000u)));
}
WX_INLINE vf vf_from_f16(const uint16_t * p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) p)); }
WX_INLINE void vf_to_f16(uint16_t * p, vf x) {
    _mm256_storeu_si256((__m256i *) p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
WX_INLINE float vf_sum(vf x) { return _mm512_reduce_add_ps(x); }
WX_INLINE float vf_top(vf x) { return _mm512_reduce_max_ps(x); }

#endif

/* e^x for x <= 0, 3e-7 relative; 0 far down (-INFINITY marks what takes no part); NaN stays NaN. */
WX_INLINE vf vf_exp(vf x) {
    const vf low = vf_all(-87.0f), log2e = vf_all(1.44269504f);
    vf y = vf_max(low, x);
#if defined(WX_ISA_AVX2)
    vf n = _mm256_round_ps(vf_mul(y, log2e), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vf f = _mm256_fmsub_ps(y, log2e, n);
#else
    vf n = _mm512_roundscale_ps(vf_mul(y, log2e), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vf f = _mm512_fmsub_ps(y, log2e, n);
#endif
    /* 2^f on [-1/2, 1/2] */
    vf p = vf_fma(f, vf_all(1.5403530e-4f), vf_all(1.3333558e-3f));
    p = vf_fma(p, f, vf_all(9.6181291e-3f));
    p = vf_fma(p, f, vf_all(5.5504109e-2f));
    p = vf_fma(p, f, vf_all(2.4022651e-1f));
    p = vf_fma(p, f, vf_all(6.9314718e-1f));
    p = vf_fma(p, f, vf_all(1.0f));
#if defined(WX_ISA_AVX2)
    p = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
    return _mm256_andnot_ps(_mm256_cmp_ps(x, low, _CMP_LT_OQ), p);
#else
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, low, _CMP_NLT_UQ), p, n);
#endif
}

#endif
