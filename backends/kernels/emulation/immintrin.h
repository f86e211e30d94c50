/* The instructions of AVX-512, VNNI and BF16 that the kernels use, in terms of AVX2, FMA and F16C: found in place of
 * the compiler's header when WX_EMULATE is on, so that the code for these sets runs on machines that lack them. For
 * tests only: results are those of the instructions, speed is not.
 *
 * What the manual says is done: saturation, masks that keep memory from being touched, subnormal numbers that BF16
 * instructions take for zero, NaN and infinity. An instruction that is used in the kernels and missing here does not
 * compile ("target specific option mismatch"); a rounding mode that is missing ends the process.
 */
#ifndef WX_EMULATION_IMMINTRIN_H
#define WX_EMULATION_IMMINTRIN_H

#include_next <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#error "emulation is for compilers that are told of no AVX-512"
#endif
#if !defined(__OPTIMIZE__)
#error "without optimization, compilers define some of the names below as macros"
#endif

#define EMU static inline __attribute__((always_inline))

/* A vector of 64 bytes, its halves, and its numbers. The type itself exists without AVX-512, as two registers. */
typedef union emu_512 {
    __m512 ps;
    __m512i si;
    __m512bh bh;
    __m256 half_ps[2];
    __m256i half_si[2];
    __m128 part_ps[4];
    __m128i part_si[4];
    float f32[16];
    int32_t i32[16];
    uint32_t u32[16];
    uint16_t u16[32];
} emu_512;

EMU __m512 emu_floats(__m256 low, __m256 high) { return (emu_512){.half_ps = {low, high}}.ps; }
EMU __m512i emu_whole(__m256i low, __m256i high) { return (emu_512){.half_si = {low, high}}.si; }
EMU __m256 emu_half(__m512 a, int i) { return (emu_512){.ps = a}.half_ps[i]; }
EMU __m256i emu_halfi(__m512i a, int i) { return (emu_512){.si = a}.half_si[i]; }

/* Instructions that do to each half what the one of 256 bits does: macros, since some take a constant. */
#define EMU_PS(op, a, ...) __extension__({                                                  \
    const __m512 emu_a = (a);                                                               \
    emu_floats(op(emu_half(emu_a, 0), ##__VA_ARGS__), op(emu_half(emu_a, 1), ##__VA_ARGS__)); })
#define EMU_SI(op, a, ...) __extension__({                                                  \
    const __m512i emu_a = (a);                                                              \
    emu_whole(op(emu_halfi(emu_a, 0), ##__VA_ARGS__), op(emu_halfi(emu_a, 1), ##__VA_ARGS__)); })
#define EMU_PS2(op, a, b, ...) __extension__({                                              \
    const __m512 emu_a = (a), emu_b = (b);                                                  \
    emu_floats(op(emu_half(emu_a, 0), emu_half(emu_b, 0), ##__VA_ARGS__),                   \
               op(emu_half(emu_a, 1), emu_half(emu_b, 1), ##__VA_ARGS__)); })
#define EMU_SI2(op, a, b, ...) __extension__({                                              \
    const __m512i emu_a = (a), emu_b = (b);                                                 \
    emu_whole(op(emu_halfi(emu_a, 0), emu_halfi(emu_b, 0), ##__VA_ARGS__),                  \
              op(emu_halfi(emu_a, 1), emu_halfi(emu_b, 1), ##__VA_ARGS__)); })

/* ---- constants, memory, casts ------------------------------------------------------------------------------------ */

EMU __m512 emu_set1_ps(float x) { return emu_floats(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
EMU __m512i emu_set1_epi32(int x) { return emu_whole(_mm256_set1_epi32(x), _mm256_set1_epi32(x)); }
EMU __m512i emu_set1_epi16(short x) { return emu_whole(_mm256_set1_epi16(x), _mm256_set1_epi16(x)); }
EMU __m512 emu_setzero_ps(void) { return emu_set1_ps(0.0f); }
EMU __m512i emu_setzero_si512(void) { return emu_set1_epi32(0); }
/* The highest first, as the manual has them. */
#define emu_set_epi16(...) __extension__({                                                  \
    const uint16_t emu_n[32] = {__VA_ARGS__};                                               \
    emu_512 emu_r;                                                                          \
    for (int emu_i = 0; emu_i < 32; emu_i++) emu_r.u16[emu_i] = emu_n[31 - emu_i];          \
    emu_r.si; })

EMU __m512 emu_loadu_ps(const void * p) {
    return emu_floats(_mm256_loadu_ps(p), _mm256_loadu_ps((const float *) p + 8));
}
EMU __m512i emu_loadu_si512(const void * p) {
    return emu_whole(_mm256_loadu_si256(p), _mm256_loadu_si256((const __m256i *) p + 1));
}
EMU void emu_storeu_ps(void * p, __m512 a) { memcpy(p, &a, sizeof(a)); }
EMU void emu_storeu_si512(void * p, __m512i a) { memcpy(p, &a, sizeof(a)); }
EMU __m512 emu_maskz_loadu_ps(__mmask16 k, const void * p) {
    emu_512 r = {.f32 = {0}};
    for (int i = 0; i < 16; i++)
        if (k >> i & 1) memcpy(&r.f32[i], (const char *) p + 4 * i, 4);
    return r.ps;
}
EMU void emu_mask_storeu_ps(void * p, __mmask16 k, __m512 a) {
    const emu_512 x = {.ps = a};
    for (int i = 0; i < 16; i++)
        if (k >> i & 1) memcpy((char *) p + 4 * i, &x.f32[i], 4);
}
EMU __m256i emu_256_maskz_loadu_epi16(__mmask16 k, const void * p) {
    emu_512 r = {.u16 = {0}};
    for (int i = 0; i < 16; i++)
        if (k >> i & 1) memcpy(&r.u16[i], (const char *) p + 2 * i, 2);
    return r.half_si[0];
}

EMU __m512 emu_castps128_ps512(__m128 a) {
    emu_512 r = {.si = emu_set1_epi32(0x7fa5a5a5)};         /* undefined: a NaN, so that nobody relies on it */
    r.part_ps[0] = a;
    return r.ps;
}
EMU __m256 emu_castps512_ps256(__m512 a) { return emu_half(a, 0); }
EMU __m512 emu_insertf32x4(__m512 a, __m128 b, int i) {
    emu_512 r = {.ps = a};
    r.part_ps[i & 3] = b;
    return r.ps;
}
EMU __m256 emu_extractf32x8_ps(__m512 a, int i) { return emu_half(a, i & 1); }

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

#define emu_add_epi32(a, b) EMU_SI2(_mm256_add_epi32, a, b)
#define emu_add_epi16(a, b) EMU_SI2(_mm256_add_epi16, a, b)
#define emu_sub_epi32(a, b) EMU_SI2(_mm256_sub_epi32, a, b)
#define emu_max_epi32(a, b) EMU_SI2(_mm256_max_epi32, a, b)
#define emu_min_epi32(a, b) EMU_SI2(_mm256_min_epi32, a, b)
#define emu_and_si512(a, b) EMU_SI2(_mm256_and_si256, a, b)
#define emu_or_si512(a, b) EMU_SI2(_mm256_or_si256, a, b)
#define emu_slli_epi32(a, n) EMU_SI(_mm256_slli_epi32, a, n)
#define emu_srli_epi32(a, n) EMU_SI(_mm256_srli_epi32, a, n)
#define emu_srai_epi32(a, n) EMU_SI(_mm256_srai_epi32, a, n)
#define emu_sll_epi32(a, n) EMU_SI(_mm256_sll_epi32, a, n)
#define emu_max_ps(a, b) EMU_PS2(_mm256_max_ps, a, b)
#define emu_min_ps(a, b) EMU_PS2(_mm256_min_ps, a, b)
#define emu_sqrt_ps(a) EMU_PS(_mm256_sqrt_ps, a)

EMU __m512 emu_fmadd_ps(__m512 a, __m512 b, __m512 c) {
    return emu_floats(_mm256_fmadd_ps(emu_half(a, 0), emu_half(b, 0), emu_half(c, 0)),
                      _mm256_fmadd_ps(emu_half(a, 1), emu_half(b, 1), emu_half(c, 1)));
}
EMU __m512 emu_fmsub_ps(__m512 a, __m512 b, __m512 c) {
    return emu_floats(_mm256_fmsub_ps(emu_half(a, 0), emu_half(b, 0), emu_half(c, 0)),
                      _mm256_fmsub_ps(emu_half(a, 1), emu_half(b, 1), emu_half(c, 1)));
}

/* Bit i of the mask is lane i; the 32 comparisons are those of AVX. */
#define emu_cmp_ps_mask(a, b, how) __extension__({                                          \
    const __m512 emu_r = EMU_PS2(_mm256_cmp_ps, a, b, how);                                 \
    (__mmask16) (_mm256_movemask_ps(emu_half(emu_r, 0)) | _mm256_movemask_ps(emu_half(emu_r, 1)) << 8); })

EMU __m512 emu_mask_blend_ps(__mmask16 k, __m512 a, __m512 b) {
    emu_512 r = {.ps = a};
    const emu_512 other = {.ps = b};
    for (int i = 0; i < 16; i++) r.u32[i] = k >> i & 1 ? other.u32[i] : r.u32[i];
    return r.ps;
}
EMU __m512 emu_maskz_div_ps(__mmask16 k, __m512 a, __m512 b) {
    return emu_mask_blend_ps(k, emu_setzero_ps(), EMU_PS2(_mm256_div_ps, a, b));
}

/* To whole numbers only, in the modes that AVX has as well. */
#define emu_roundscale_ps(a, how) __extension__({                                           \
    if (((how) & 0xf0) != 0) __builtin_trap();                                              \
    EMU_PS(_mm256_round_ps, a, (how) & 0x0f); })

/* a times 2 to the whole number below b, rounded once. */
EMU float emu_scalef(float a, float b) {
    if (isnan(a)) return isinf(b) ? b > 0.0f ? INFINITY : 0.0f : a + a;
    if (isnan(b)) return b + b;
    if (isinf(b) && b > 0.0f) return a == 0.0f ? NAN : copysignf(INFINITY, a);
    if (isinf(b)) return isinf(a) ? NAN : copysignf(0.0f, a);
    return ldexpf(a, (int) fmaxf(-1000.0f, fminf(1000.0f, floorf(b))));
}
EMU __m512 emu_maskz_scalef_ps(__mmask16 k, __m512 a, __m512 b) {
    const emu_512 x = {.ps = a}, n = {.ps = b};
    emu_512 r;
    for (int i = 0; i < 16; i++) r.f32[i] = k >> i & 1 ? emu_scalef(x.f32[i], n.f32[i]) : 0.0f;
    return r.ps;
}

/* Halves first, then halves of those, as compilers write it out: another order gives other sums. */
EMU float emu_reduce_add_ps(__m512 a) {
    const emu_512 x = {.ps = a};
    float s[16];
    for (int i = 0; i < 16; i++) s[i] = x.f32[i];
    for (int n = 8; n >= 1; n /= 2)
        for (int i = 0; i < n; i++) s[i] = s[i] + s[i + n];
    return s[0];
}
EMU float emu_reduce_max_ps(__m512 a) {
    const emu_512 x = {.ps = a};
    float s[16];
    for (int i = 0; i < 16; i++) s[i] = x.f32[i];
    for (int n = 8; n >= 1; n /= 2)
        for (int i = 0; i < n; i++) s[i] = s[i + n] > s[i] ? s[i + n] : s[i];
    return s[0];
}
EMU int emu_reduce_add_epi32(__m512i a) {
    const emu_512 x = {.si = a};
    uint32_t sum = 0;
    for (int i = 0; i < 16; i++) sum += x.u32[i];
    return (int) sum;
}
EMU int emu_reduce_max_epi32(__m512i a) {
    const emu_512 x = {.si = a};
    int32_t most = x.i32[0];
    for (int i = 1; i < 16; i++) most = x.i32[i] > most ? x.i32[i] : most;
    return most;
}

/* ---- conversions ------------------------------------------------------------------------------------------------- */

EMU __m512 emu_cvtepi32_ps(__m512i a) {
    return emu_floats(_mm256_cvtepi32_ps(emu_halfi(a, 0)), _mm256_cvtepi32_ps(emu_halfi(a, 1)));
}
EMU __m512i emu_cvtps_epi32(__m512 a) {
    return emu_whole(_mm256_cvtps_epi32(emu_half(a, 0)), _mm256_cvtps_epi32(emu_half(a, 1)));
}
EMU __m512i emu_cvtepu16_epi32(__m256i a) {
    return emu_whole(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)),
                     _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1)));
}
EMU __m512 emu_cvtph_ps(__m256i a) {
    return emu_floats(_mm256_cvtph_ps(_mm256_castsi256_si128(a)), _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)));
}
#define emu_cvtps_ph(a, how) __extension__({                                                \
    const __m512 emu_a = (a);                                                               \
    _mm256_setr_m128i(_mm256_cvtps_ph(emu_half(emu_a, 0), how), _mm256_cvtps_ph(emu_half(emu_a, 1), how)); })

EMU __m256i emu_cvtepi32_epi16(__m512i a) {                     /* the lower half of each lane */
    const emu_512 x = {.si = a};
    emu_512 r;
    for (int i = 0; i < 16; i++) r.u16[i] = (uint16_t) x.u32[i];
    return r.half_si[0];
}
#define EMU_BYTES(value) __extension__({                                                    \
    uint8_t emu_r[16];                                                                      \
    for (int i = 0; i < 16; i++) emu_r[i] = (uint8_t) (value);                              \
    _mm_loadu_si128((const __m128i *) emu_r); })
EMU __m128i emu_cvtepi32_epi8(__m512i a) {                      /* the lowest byte of each lane */
    const emu_512 x = {.si = a};
    return EMU_BYTES(x.u32[i]);
}
EMU __m128i emu_cvtsepi32_epi8(__m512i a) {
    const emu_512 x = {.si = a};
    return EMU_BYTES(x.i32[i] > 127 ? 127 : x.i32[i] < -128 ? -128 : x.i32[i]);
}
EMU __m128i emu_cvtusepi32_epi8(__m512i a) {                    /* lanes without a sign: -1 becomes 255 */
    const emu_512 x = {.si = a};
    return EMU_BYTES(x.u32[i] > 255 ? 255 : x.u32[i]);
}

/* ---- order of lanes ---------------------------------------------------------------------------------------------- */

#define emu_unpacklo_epi32(a, b) EMU_SI2(_mm256_unpacklo_epi32, a, b)
#define emu_unpackhi_epi32(a, b) EMU_SI2(_mm256_unpackhi_epi32, a, b)
#define emu_unpacklo_epi64(a, b) EMU_SI2(_mm256_unpacklo_epi64, a, b)
#define emu_unpackhi_epi64(a, b) EMU_SI2(_mm256_unpackhi_epi64, a, b)
#define emu_unpacklo_ps(a, b) EMU_PS2(_mm256_unpacklo_ps, a, b)
#define emu_unpackhi_ps(a, b) EMU_PS2(_mm256_unpackhi_ps, a, b)
#define emu_unpacklo_pd(a, b) ((__m512d) emu_unpacklo_epi64((__m512i) (a), (__m512i) (b)))
#define emu_unpackhi_pd(a, b) ((__m512d) emu_unpackhi_epi64((__m512i) (a), (__m512i) (b)))
#define emu_shuffle_ps(a, b, how) EMU_PS2(_mm256_shuffle_ps, a, b, how)

EMU __m512i emu_shuffle_i32x4(__m512i a, __m512i b, int how) {
    const emu_512 x = {.si = a}, y = {.si = b};
    return (emu_512){.part_si = {x.part_si[how & 3], x.part_si[how >> 2 & 3],
                                 y.part_si[how >> 4 & 3], y.part_si[how >> 6 & 3]}}.si;
}
EMU __m512 emu_shuffle_f32x4(__m512 a, __m512 b, int how) {
    return (__m512) emu_shuffle_i32x4((__m512i) a, (__m512i) b, how);
}
EMU __m512i emu_permutex2var_epi16(__m512i a, __m512i at, __m512i b) {
    const emu_512 x = {.si = a}, y = {.si = b}, from = {.si = at};
    emu_512 r;
    for (int i = 0; i < 32; i++) r.u16[i] = (from.u16[i] & 32 ? y : x).u16[from.u16[i] & 31];
    return r.si;
}

/* ---- VNNI and BF16 ----------------------------------------------------------------------------------------------- */

/* Four products u8 x s8 per lane: none, and no sum of two, fits 16 bits for sure, so they are added as 32 bits. */
EMU __m256i emu_dot_half(__m256i sum, __m256i a, __m256i b) {
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(a, _mm256_set1_epi16(255)),
                                           _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}
EMU __m512i emu_dpbusd_epi32(__m512i sum, __m512i a, __m512i b) {
    return emu_whole(emu_dot_half(emu_halfi(sum, 0), emu_halfi(a, 0), emu_halfi(b, 0)),
                     emu_dot_half(emu_halfi(sum, 1), emu_halfi(a, 1), emu_halfi(b, 1)));
}

/* Subnormal numbers become zeros of their sign. */
EMU __m256 emu_flushed(__m256 a) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const __m256 tiny = _mm256_cmp_ps(_mm256_andnot_ps(sign, a), _mm256_set1_ps(0x1p-126f), _CMP_LT_OQ);
    return _mm256_blendv_ps(a, _mm256_and_ps(a, sign), tiny);
}
/* The product of the upper numbers is added first, then that of the lower ones: each sum is rounded once, to nearest
   even, and neither reads nor leaves subnormal numbers. (A sum that rounds up to 2^-126 is kept here.) */
EMU __m256 emu_dot_bf16_half(__m256 sum, __m256i a, __m256i b) {
    const __m256i upper = _mm256_set1_epi32((int) 0xffff0000u);
    sum = _mm256_fmadd_ps(emu_flushed(_mm256_castsi256_ps(_mm256_and_si256(a, upper))),
                          emu_flushed(_mm256_castsi256_ps(_mm256_and_si256(b, upper))), emu_flushed(sum));
    sum = _mm256_fmadd_ps(emu_flushed(_mm256_castsi256_ps(_mm256_slli_epi32(a, 16))),
                          emu_flushed(_mm256_castsi256_ps(_mm256_slli_epi32(b, 16))), emu_flushed(sum));
    return emu_flushed(sum);
}
EMU __m512 emu_dpbf16_ps(__m512 sum, __m512bh a, __m512bh b) {
    const emu_512 x = {.bh = a}, y = {.bh = b};
    return emu_floats(emu_dot_bf16_half(emu_half(sum, 0), x.half_si[0], y.half_si[0]),
                      emu_dot_bf16_half(emu_half(sum, 1), x.half_si[1], y.half_si[1]));
}

/* To nearest even; subnormal numbers become zero, NaN stays one and becomes quiet. */
EMU uint16_t emu_bf16(uint32_t bits) {
    const uint32_t size = bits & 0x7fffffffu;
    if (size < 0x00800000u) return (uint16_t) (bits >> 16 & 0x8000u);
    if (size > 0x7f800000u) return (uint16_t) (bits >> 16 | 0x40u);
    return (uint16_t) ((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
EMU __m256i emu_cvtneps_pbh(__m512 a) {                         /* __m256bh to the compiler: the kernels cast it */
    const emu_512 x = {.ps = a};
    emu_512 r;
    for (int i = 0; i < 16; i++) r.u16[i] = emu_bf16(x.u32[i]);
    return r.half_si[0];
}
EMU __m512bh emu_cvtne2ps_pbh(__m512 high, __m512 low) {        /* the second argument's numbers come first */
    const emu_512 x = {.ps = low}, y = {.ps = high};
    emu_512 r;
    for (int i = 0; i < 16; i++) r.u16[i] = emu_bf16(x.u32[i]), r.u16[16 + i] = emu_bf16(y.u32[i]);
    return r.bh;
}

/* ---- the names under which the kernels call them ----------------------------------------------------------------- */

#define _mm512_add_epi16 emu_add_epi16
#define _mm512_add_epi32 emu_add_epi32
#define _mm512_and_si512 emu_and_si512
#define _mm512_castpd_ps(a) ((__m512) (a))
#define _mm512_castps128_ps512 emu_castps128_ps512
#define _mm512_castps512_ps256 emu_castps512_ps256
#define _mm512_castps_pd(a) ((__m512d) (a))
#define _mm512_castps_si512(a) ((__m512i) (a))
#define _mm512_castsi512_ps(a) ((__m512) (a))
#define _mm512_cmp_ps_mask emu_cmp_ps_mask
#define _mm512_cvtepi32_epi16 emu_cvtepi32_epi16
#define _mm512_cvtepi32_epi8 emu_cvtepi32_epi8
#define _mm512_cvtepi32_ps emu_cvtepi32_ps
#define _mm512_cvtepu16_epi32 emu_cvtepu16_epi32
#define _mm512_cvtne2ps_pbh emu_cvtne2ps_pbh
#define _mm512_cvtneps_pbh emu_cvtneps_pbh
#define _mm512_cvtph_ps emu_cvtph_ps
#define _mm512_cvtps_epi32 emu_cvtps_epi32
#define _mm512_cvtps_ph emu_cvtps_ph
#define _mm512_cvtsepi32_epi8 emu_cvtsepi32_epi8
#define _mm512_cvtusepi32_epi8 emu_cvtusepi32_epi8
#define _mm512_dpbf16_ps emu_dpbf16_ps
#define _mm512_dpbusd_epi32 emu_dpbusd_epi32
#define _mm512_extractf32x8_ps emu_extractf32x8_ps
#define _mm512_fmadd_ps emu_fmadd_ps
#define _mm512_fmsub_ps emu_fmsub_ps
#define _mm512_insertf32x4 emu_insertf32x4
#define _mm512_loadu_ps emu_loadu_ps
#define _mm512_loadu_si512 emu_loadu_si512
#define _mm512_mask_blend_ps emu_mask_blend_ps
#define _mm512_mask_storeu_ps emu_mask_storeu_ps
#define _mm512_maskz_div_ps emu_maskz_div_ps
#define _mm512_maskz_loadu_ps emu_maskz_loadu_ps
#define _mm512_maskz_scalef_ps emu_maskz_scalef_ps
#define _mm512_max_epi32 emu_max_epi32
#define _mm512_max_ps emu_max_ps
#define _mm512_min_epi32 emu_min_epi32
#define _mm512_min_ps emu_min_ps
#define _mm512_or_si512 emu_or_si512
#define _mm512_permutex2var_epi16 emu_permutex2var_epi16
#define _mm512_reduce_add_epi32 emu_reduce_add_epi32
#define _mm512_reduce_add_ps emu_reduce_add_ps
#define _mm512_reduce_max_epi32 emu_reduce_max_epi32
#define _mm512_reduce_max_ps emu_reduce_max_ps
#define _mm512_roundscale_ps emu_roundscale_ps
#define _mm512_set1_epi16 emu_set1_epi16
#define _mm512_set1_epi32 emu_set1_epi32
#define _mm512_set1_ps emu_set1_ps
#define _mm512_set_epi16 emu_set_epi16
#define _mm512_setzero_ps emu_setzero_ps
#define _mm512_setzero_si512 emu_setzero_si512
#define _mm512_shuffle_f32x4 emu_shuffle_f32x4
#define _mm512_shuffle_i32x4 emu_shuffle_i32x4
#define _mm512_shuffle_ps emu_shuffle_ps
#define _mm512_sll_epi32 emu_sll_epi32
#define _mm512_slli_epi32 emu_slli_epi32
#define _mm512_sqrt_ps emu_sqrt_ps
#define _mm512_srai_epi32 emu_srai_epi32
#define _mm512_srli_epi32 emu_srli_epi32
#define _mm512_storeu_ps emu_storeu_ps
#define _mm512_storeu_si512 emu_storeu_si512
#define _mm512_sub_epi32 emu_sub_epi32
#define _mm512_unpackhi_epi32 emu_unpackhi_epi32
#define _mm512_unpackhi_epi64 emu_unpackhi_epi64
#define _mm512_unpackhi_pd emu_unpackhi_pd
#define _mm512_unpackhi_ps emu_unpackhi_ps
#define _mm512_unpacklo_epi32 emu_unpacklo_epi32
#define _mm512_unpacklo_epi64 emu_unpacklo_epi64
#define _mm512_unpacklo_pd emu_unpacklo_pd
#define _mm512_unpacklo_ps emu_unpacklo_ps
#define _mm256_maskz_loadu_epi16 emu_256_maskz_loadu_epi16

#endif
