/* The innermost products: up to WX_TILE rows of activations times one panel, into a small array of f32.
 *
 * Every output has one accumulator (Q8: one of a block, and one of all blocks) that takes the inputs in order, in every
 * tile: a row's result does not depend on the rows beside it. `rows` is a constant wherever these are used, so that the
 * accumulators are registers.
 */
#ifndef WX_TILES_H
#define WX_TILES_H

#include "panel.h"
#include "vector.h"

#define WX_TILE 6                               /* rows; with WX_COLUMNS vectors of outputs it fills the registers */
#define WX_TILE_Q8 3                            /* the same of Q8, which has two sums for an output */
#define WX_S8_BLOCKS (WX_G8_INPUTS / 32)        /* blocks of a matrix that one scale of WX_S8 or WX_N4 rows is for */
#if defined(WX_ISA_AVX2)
#define WX_TILE_N4 3                            /* rows of N4: both halves of a unit are at hand */
#else
#define WX_TILE_N4 6
#endif
#define WX_COLUMNS (WX_PANEL / WX_LANES)

#if defined(WX_ISA_AVX2)
#define WX_I8_BYTES 2                           /* of an activation of int8 products: s16 here, u8 otherwise */
#else
#define WX_I8_BYTES 1
#endif

/* sum += a * w. With sixteen registers every one is taken: left to itself, the compiler moves loads ahead, adds up in
   another order and copies, and sends sums to the stack. */
#if defined(WX_ISA_AVX2)
#define WX_ADD_PRODUCT(sum, a, w) __asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(w))
#define WX_MASK(v, mask) __asm__ volatile("vandps %1, %0, %0" : "+x"(v) : "m"(*(mask)))
#else
#define WX_ADD_PRODUCT(sum, a, w) ((sum) = wx_fma(a, w, sum))
#define WX_MASK(v, mask) ((v) = wx_floats(wx_and(wx_bits(v), *(mask))))
#endif

/* Rows of a convolution begin wherever the stride puts them: at an odd byte, with an odd number of bands in 8 bits. */
typedef int32_t wx_word __attribute__((may_alias, aligned(1)));
typedef float wx_float __attribute__((may_alias));

static inline __attribute__((always_inline)) void wx_tile_f32(const int rows, const char * x,
                                                              int64_t stride, const uint32_t * panel, int64_t units,
                                                              float * out) {
    wx_v sum[WX_TILE][WX_COLUMNS], w[WX_COLUMNS];
    WX_UNROLL for (int r = 0; r < rows; r++)
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) sum[r][c] = wx_zero();
    for (int64_t u = 0; u < units; u++, panel += WX_PANEL, x += 4) {
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) w[c] = wx_load((const float *) panel + c * WX_LANES);
        WX_UNROLL for (int r = 0; r < rows; r++) {
            wx_v a = wx_set1(*(const wx_float *) (x + r * stride));
            WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) WX_ADD_PRODUCT(sum[r][c], a, w[c]);
        }
    }
    WX_UNROLL for (int r = 0; r < rows; r++)
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) wx_store(out + r * WX_PANEL + c * WX_LANES, sum[r][c]);
}

#if defined(WX_ISA_AVX512_BF16)
#define WX_BF16_BYTES 2                         /* of an activation of bf16 products */

static inline __attribute__((always_inline)) void wx_tile_bf16(const int rows, const char * x,
                                                               int64_t stride, const uint32_t * panel, int64_t units,
                                                               float * out) {
    wx_v sum[WX_TILE][WX_COLUMNS];
    __m512i w[WX_COLUMNS];
    WX_UNROLL for (int r = 0; r < rows; r++)
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) sum[r][c] = wx_zero();
    for (int64_t u = 0; u < units; u++, panel += WX_PANEL, x += 4) {
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) w[c] = _mm512_loadu_si512(panel + c * WX_LANES);
        WX_UNROLL for (int r = 0; r < rows; r++) {
            __m512i a = _mm512_set1_epi32(*(const wx_word *) (x + r * stride));
            WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++)
                sum[r][c] = _mm512_dpbf16_ps(sum[r][c], (__m512bh) a, (__m512bh) w[c]);
        }
    }
    WX_UNROLL for (int r = 0; r < rows; r++)
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) wx_store(out + r * WX_PANEL + c * WX_LANES, sum[r][c]);
}

#else
#define WX_BF16_BYTES 4

/* Weights of a unit become f32 in two steps, the earlier input (the lower half) first. */
static inline __attribute__((always_inline)) void wx_tile_bf16(const int rows, const char * x,
                                                               int64_t stride, const uint32_t * panel, int64_t units,
                                                               float * out) {
    wx_v sum[WX_TILE][WX_COLUMNS], w[WX_COLUMNS];
#if defined(WX_ISA_AVX2)
    static const uint32_t upper[8] __attribute__((aligned(32))) = {
        0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000};
#else
    wx_vi upper = wx_set1i((int32_t) 0xffff0000);
#endif
    WX_UNROLL for (int r = 0; r < rows; r++)
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) sum[r][c] = wx_zero();
    for (int64_t u = 0; u < units; u++, panel += WX_PANEL, x += 8) {
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++)
            w[c] = wx_floats(wx_left(wx_bits(wx_load((const float *) panel + c * WX_LANES)), 16));
        WX_UNROLL for (int r = 0; r < rows; r++) {
            wx_v a = wx_set1(*(const wx_float *) (x + r * stride));
            WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) WX_ADD_PRODUCT(sum[r][c], a, w[c]);
        }
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) {
            w[c] = wx_load((const float *) panel + c * WX_LANES);
            WX_MASK(w[c], &upper);
        }
        WX_UNROLL for (int r = 0; r < rows; r++) {
            wx_v a = wx_set1(*(const wx_float *) (x + r * stride + 4));
            WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) WX_ADD_PRODUCT(sum[r][c], a, w[c]);
        }
    }
    WX_UNROLL for (int r = 0; r < rows; r++)
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) wx_store(out + r * WX_PANEL + c * WX_LANES, sum[r][c]);
}
#endif

#if defined(WX_ISA_AVX2)
/* Activations of a group of four inputs are s16 in the order 0, 2, 1, 3: the even and the odd bytes of a vector of
   weights are what shifts of 16-bit lanes yield. */
static inline __attribute__((always_inline)) void wx_tile_i8(const int rows, const char * x, int64_t stride,
                                                             const int32_t * start, const uint32_t * panel,
                                                             int64_t units, float * out) {
    (void) start;
    __m256i sum[WX_TILE][WX_COLUMNS], w[WX_COLUMNS];
    WX_UNROLL for (int r = 0; r < rows; r++)
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) sum[r][c] = _mm256_setzero_si256();
    for (int64_t u = 0; u < units; u++, panel += WX_PANEL, x += 8) {
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) {
            w[c] = _mm256_loadu_si256((const __m256i *) (panel + c * WX_LANES));
            w[c] = _mm256_srai_epi16(_mm256_slli_epi16(w[c], 8), 8);
        }
        WX_UNROLL for (int r = 0; r < rows; r++) {
            __m256i a = _mm256_set1_epi32(*(const wx_word *) (x + r * stride));
            WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) {
                __m256i product = _mm256_madd_epi16(a, w[c]);
                __asm__ volatile("vpaddd %1, %0, %0" : "+x"(sum[r][c]) : "x"(product));
            }
        }
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++)
            w[c] = _mm256_srai_epi16(_mm256_loadu_si256((const __m256i *) (panel + c * WX_LANES)), 8);
        WX_UNROLL for (int r = 0; r < rows; r++) {
            __m256i a = _mm256_set1_epi32(*(const wx_word *) (x + r * stride + 4));
            WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) {
                __m256i product = _mm256_madd_epi16(a, w[c]);
                __asm__ volatile("vpaddd %1, %0, %0" : "+x"(sum[r][c]) : "x"(product));
            }
        }
    }
    WX_UNROLL for (int r = 0; r < rows; r++)
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++)
            wx_store(out + r * WX_PANEL + c * WX_LANES, _mm256_cvtepi32_ps(sum[r][c]));
}

/* The same with a scale per group of every output and row (`by` holds two numbers of each group, `groups` in a row); a
   group's sum is added to those of the groups before it as f32. */
static inline __attribute__((always_inline)) void wx_tile_g8(const int rows, const char * x, int64_t stride,
                                                             const float * by, int64_t groups, const uint32_t * panel,
                                                             int64_t units, float * out) {
    for (int i = 0; i < rows * WX_PANEL; i += WX_LANES) wx_store(out + i, wx_zero());
    for (int64_t first = 0; first < units; first += WX_G8_UNITS, panel += 2 * WX_PANEL, by += 2) {
        __m256i sum[WX_TILE][WX_COLUMNS], w[WX_COLUMNS];
        int64_t n = units - first < WX_G8_UNITS ? units - first : WX_G8_UNITS;
        WX_UNROLL for (int r = 0; r < rows; r++)
            WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) sum[r][c] = _mm256_setzero_si256();
        for (int64_t u = 0; u < n; u++, panel += WX_PANEL, x += 8) {
            WX_UNROLL for (int half = 0; half < 2; half++) {
                WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) {
                    w[c] = _mm256_loadu_si256((const __m256i *) (panel + c * WX_LANES));
                    if (half == 0) w[c] = _mm256_slli_epi16(w[c], 8);
                    w[c] = _mm256_srai_epi16(w[c], 8);
                }
                WX_UNROLL for (int r = 0; r < rows; r++) {
                    __m256i a = _mm256_set1_epi32(*(const wx_word *) (x + r * stride + 4 * half));
                    WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) {
                        __m256i product = _mm256_madd_epi16(a, w[c]);
                        __asm__ volatile("vpaddd %1, %0, %0" : "+x"(sum[r][c]) : "x"(product));
                    }
                }
            }
        }
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) {
            wx_v scale = wx_load((const float *) panel + c * WX_LANES);
            WX_UNROLL for (int r = 0; r < rows; r++) {
                float * to = out + r * WX_PANEL + c * WX_LANES;
                wx_store(to, wx_fma(_mm256_cvtepi32_ps(sum[r][c]) * wx_set1(by[2 * r * groups]), scale, wx_load(to)));
            }
        }
    }
}

/* Weights of a block times activations of 16 bits; `x` as above, 8 bytes for a group. Sums stay below 2^27. */
static inline __attribute__((always_inline)) void wx_tile_q8(const int rows, const char * x, int64_t stride,
                                                             const int32_t * start, int64_t blocks,
                                                             const uint32_t * panel, float * out) {
    (void) start;
    for (int i = 0; i < rows * WX_PANEL; i += WX_LANES) wx_store(out + i, wx_zero());
    for (int64_t b = 0; b < blocks; b++, panel += WX_PANEL / 2) {
        __m256i sum[WX_TILE_Q8][WX_COLUMNS], w[WX_COLUMNS];
        WX_UNROLL for (int r = 0; r < rows; r++)
            WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) sum[r][c] = _mm256_setzero_si256();
        for (int u = 0; u < WX_Q8_UNITS; u++, panel += WX_PANEL, x += 8) {
            WX_UNROLL for (int half = 0; half < 2; half++) {
                WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) {
                    w[c] = _mm256_loadu_si256((const __m256i *) (panel + c * WX_LANES));
                    if (half == 0) w[c] = _mm256_slli_epi16(w[c], 8);
                    w[c] = _mm256_srai_epi16(w[c], 8);
                }
                WX_UNROLL for (int r = 0; r < rows; r++) {
                    __m256i a = _mm256_set1_epi32(*(const wx_word *) (x + r * stride + 4 * half));
                    WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) {
                        __m256i product = _mm256_madd_epi16(a, w[c]);
                        __asm__ volatile("vpaddd %1, %0, %0" : "+x"(sum[r][c]) : "x"(product));
                    }
                }
            }
        }
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) {
            wx_v scale = wx_load_f16((const uint16_t *) panel + c * WX_LANES);
            WX_UNROLL for (int r = 0; r < rows; r++) {
                float * to = out + r * WX_PANEL + c * WX_LANES;
                wx_store(to, wx_fma(_mm256_cvtepi32_ps(sum[r][c]), scale, wx_load(to)));
            }
        }
    }
}

/* 4-bit weights, 8 added to each, times activations of 8 bits with a scale per WX_G8_INPUTS: `by`, `groups` in a row. A
   block's products fit into 16 bits: 16 of 15 x 127 at most. */
static inline __attribute__((always_inline)) void wx_tile_n4(const int rows, const char * x, int64_t stride,
                                                             const int32_t * start, const float * by, int64_t groups,
                                                             int64_t blocks, const uint32_t * panel, float * out) {
    const wx_vi nibble = wx_set1i(0x0f0f0f0f), ones = _mm256_set1_epi16(1);
    for (int i = 0; i < rows * WX_PANEL; i += WX_LANES) wx_store(out + i, wx_zero());
    for (int64_t b = 0; b < blocks; b++, panel += WX_PANEL / 2) {
        __m256i sum[WX_TILE_N4][WX_COLUMNS];
        WX_UNROLL for (int r = 0; r < rows; r++)
            WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) sum[r][c] = _mm256_setzero_si256();
        WX_UNROLL for (int u = 0; u < WX_N4_UNITS; u++, panel += WX_PANEL, x += 8) {
            __m256i lower[WX_COLUMNS], upper[WX_COLUMNS];
            WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) {
                wx_vi w = wx_loadi(panel + c * WX_LANES);
                lower[c] = wx_and(w, nibble);
                upper[c] = wx_and(wx_right(w, 4), nibble);
            }
            WX_UNROLL for (int r = 0; r < rows; r++) {
                __m256i a = _mm256_set1_epi32(*(const wx_word *) (x + r * stride));
                __m256i next = _mm256_set1_epi32(*(const wx_word *) (x + r * stride + 4));
                WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) {
                    sum[r][c] = _mm256_add_epi16(sum[r][c], _mm256_maddubs_epi16(lower[c], a));
                    sum[r][c] = _mm256_add_epi16(sum[r][c], _mm256_maddubs_epi16(upper[c], next));
                }
            }
        }
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) {
            wx_v scale = wx_load_f16((const uint16_t *) panel + c * WX_LANES);
            WX_UNROLL for (int r = 0; r < rows; r++) {
                float * to = out + r * WX_PANEL + c * WX_LANES;
                __m256i all = wx_add_i32(_mm256_madd_epi16(sum[r][c], ones), wx_set1i(start[r * blocks + b]));
                wx_v v = wx_from_i32(all) * wx_set1(by[r * groups + b / WX_S8_BLOCKS]);
                wx_store(to, wx_fma(v, scale, wx_load(to)));
            }
        }
    }
}

#else
/* Accumulators are declared as sixteen int32: as __m512i, gcc 12 writes every one to the stack at each step. */
typedef int32_t wx_sums __attribute__((vector_size(64)));

/* Activations of a row have -start[r] added to them. */
static inline __attribute__((always_inline)) void wx_tile_i8(const int rows, const char * x, int64_t stride,
                                                             const int32_t * start, const uint32_t * panel,
                                                             int64_t units, float * out) {
    wx_sums sum[WX_TILE][WX_COLUMNS], w[WX_COLUMNS];
    const uint32_t * total = panel + (units + 1) * WX_PANEL;
    WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) w[c] = (wx_sums) _mm512_loadu_si512(total + c * WX_LANES);
    WX_UNROLL for (int r = 0; r < rows; r++)
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) sum[r][c] = w[c] * start[r];
    for (int64_t u = 0; u < units; u++, panel += WX_PANEL, x += 4) {
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) w[c] = (wx_sums) _mm512_loadu_si512(panel + c * WX_LANES);
        WX_UNROLL for (int r = 0; r < rows; r++) {
            __m512i a = _mm512_set1_epi32(*(const wx_word *) (x + r * stride));
            WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++)
                sum[r][c] = (wx_sums) _mm512_dpbusd_epi32((__m512i) sum[r][c], a, (__m512i) w[c]);
        }
    }
    WX_UNROLL for (int r = 0; r < rows; r++)
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++)
            wx_store(out + r * WX_PANEL + c * WX_LANES, _mm512_cvtepi32_ps((__m512i) sum[r][c]));
}

/* The same with a scale per group of every output and row; a group's sum is added to those of the groups before it as
   f32. `by` holds two numbers of each group, `groups` in a row: the scale, and minus the scale times what was added to
   the activations. */
static inline __attribute__((always_inline)) void wx_tile_g8(const int rows, const char * x, int64_t stride,
                                                             const float * by, int64_t groups, const uint32_t * panel,
                                                             int64_t units, float * out) {
    for (int i = 0; i < rows * WX_PANEL; i += WX_LANES) wx_store(out + i, wx_zero());
    for (int64_t first = 0; first < units; first += WX_G8_UNITS, panel += 2 * WX_PANEL, by += 2) {
        wx_sums sum[WX_TILE][WX_COLUMNS], w[WX_COLUMNS];
        int64_t n = units - first < WX_G8_UNITS ? units - first : WX_G8_UNITS;
        WX_UNROLL for (int r = 0; r < rows; r++)
            WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) sum[r][c] = (wx_sums) _mm512_setzero_si512();
        for (int64_t u = 0; u < n; u++, panel += WX_PANEL, x += 4) {
            WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) w[c] = (wx_sums) _mm512_loadu_si512(panel + c * WX_LANES);
            WX_UNROLL for (int r = 0; r < rows; r++) {
                __m512i a = _mm512_set1_epi32(*(const wx_word *) (x + r * stride));
                WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++)
                    sum[r][c] = (wx_sums) _mm512_dpbusd_epi32((__m512i) sum[r][c], a, (__m512i) w[c]);
            }
        }
        const float * f = (const float *) panel;
        WX_UNROLL for (int r = 0; r < rows; r++) {
            const wx_v scale = wx_set1(by[2 * r * groups]), zero = wx_set1(by[2 * r * groups + 1]);
            WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) {
                float * to = out + r * WX_PANEL + c * WX_LANES;
                wx_v v = _mm512_cvtepi32_ps((__m512i) sum[r][c]) * scale;
                wx_v sofar = wx_fma(zero, wx_load(f + WX_PANEL + c * WX_LANES), wx_load(to));
                wx_store(to, wx_fma(v, wx_load(f + c * WX_LANES), sofar));
            }
        }
    }
}

/* Weights of a block times activations of 16 bits: four upper bytes of a group, then four lower ones, both signed. Sums
   of a block stay below 2^29. */
static inline __attribute__((always_inline)) void wx_tile_q8(const int rows, const char * x, int64_t stride,
                                                             const int32_t * start, int64_t blocks,
                                                             const uint32_t * panel, float * out) {
    for (int i = 0; i < rows * WX_PANEL; i += WX_LANES) wx_store(out + i, wx_zero());
    for (int64_t b = 0; b < blocks; b++, panel += WX_PANEL / 2) {
        wx_sums upper[WX_TILE_Q8][WX_COLUMNS], lower[WX_TILE_Q8][WX_COLUMNS], w[WX_COLUMNS];
        WX_UNROLL for (int r = 0; r < rows; r++)
            WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) {
                upper[r][c] = (wx_sums) _mm512_setzero_si512();
                lower[r][c] = (wx_sums) _mm512_set1_epi32(start[r * blocks + b]);
            }
        for (int u = 0; u < WX_Q8_UNITS; u++, panel += WX_PANEL, x += 8) {
            WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) w[c] = (wx_sums) _mm512_loadu_si512(panel + c * WX_LANES);
            WX_UNROLL for (int r = 0; r < rows; r++) {
                __m512i high = _mm512_set1_epi32(*(const wx_word *) (x + r * stride));
                __m512i low = _mm512_set1_epi32(*(const wx_word *) (x + r * stride + 4));
                WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) {
                    upper[r][c] = (wx_sums) _mm512_dpbusd_epi32((__m512i) upper[r][c], (__m512i) w[c], high);
                    lower[r][c] = (wx_sums) _mm512_dpbusd_epi32((__m512i) lower[r][c], (__m512i) w[c], low);
                }
            }
        }
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) {
            wx_v scale = wx_load_f16((const uint16_t *) panel + c * WX_LANES);
            WX_UNROLL for (int r = 0; r < rows; r++) {
                float * to = out + r * WX_PANEL + c * WX_LANES;
                __m512i sum = _mm512_add_epi32((__m512i) lower[r][c], _mm512_slli_epi32((__m512i) upper[r][c], 8));
                wx_store(to, wx_fma(_mm512_cvtepi32_ps(sum), scale, wx_load(to)));
            }
        }
    }
}

/* The same times activations of 8 bits, signed, with a scale per WX_G8_INPUTS of them: `by`, `groups` in a row. */
static inline __attribute__((always_inline)) void wx_tile_s8(const int rows, const char * x, int64_t stride,
                                                             const int32_t * start, const float * by, int64_t groups,
                                                             int64_t blocks, const uint32_t * panel, float * out) {
    for (int i = 0; i < rows * WX_PANEL; i += WX_LANES) wx_store(out + i, wx_zero());
    for (int64_t b = 0; b < blocks; b++, panel += WX_PANEL / 2) {
        wx_sums sum[WX_TILE][WX_COLUMNS], w[WX_COLUMNS];
        WX_UNROLL for (int r = 0; r < rows; r++)
            WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++)
                sum[r][c] = (wx_sums) _mm512_set1_epi32(start[r * blocks + b]);
        for (int u = 0; u < WX_Q8_UNITS; u++, panel += WX_PANEL, x += 4) {
            WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) w[c] = (wx_sums) _mm512_loadu_si512(panel + c * WX_LANES);
            WX_UNROLL for (int r = 0; r < rows; r++) {
                __m512i a = _mm512_set1_epi32(*(const wx_word *) (x + r * stride));
                WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++)
                    sum[r][c] = (wx_sums) _mm512_dpbusd_epi32((__m512i) sum[r][c], (__m512i) w[c], a);
            }
        }
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) {
            wx_v scale = wx_load_f16((const uint16_t *) panel + c * WX_LANES);
            WX_UNROLL for (int r = 0; r < rows; r++) {
                float * to = out + r * WX_PANEL + c * WX_LANES;
                wx_v v = wx_from_i32((__m512i) sum[r][c]) * wx_set1(by[r * groups + b / WX_S8_BLOCKS]);
                wx_store(to, wx_fma(v, scale, wx_load(to)));
            }
        }
    }
}

/* 4-bit weights, 8 added to each, times the same activations. */
static inline __attribute__((always_inline)) void wx_tile_n4(const int rows, const char * x, int64_t stride,
                                                             const int32_t * start, const float * by, int64_t groups,
                                                             int64_t blocks, const uint32_t * panel, float * out) {
    const wx_vi nibble = wx_set1i(0x0f0f0f0f);
    for (int i = 0; i < rows * WX_PANEL; i += WX_LANES) wx_store(out + i, wx_zero());
    for (int64_t b = 0; b < blocks; b++, panel += WX_PANEL / 2) {
        wx_sums sum[WX_TILE_N4][WX_COLUMNS], w[WX_COLUMNS];
        WX_UNROLL for (int r = 0; r < rows; r++)
            WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++)
                sum[r][c] = (wx_sums) _mm512_set1_epi32(start[r * blocks + b]);
        WX_UNROLL for (int u = 0; u < WX_N4_UNITS; u++, panel += WX_PANEL, x += 8) {
            WX_UNROLL for (int half = 0; half < 2; half++) {
                WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) {
                    wx_vi v = wx_loadi(panel + c * WX_LANES);
                    w[c] = (wx_sums) wx_and(half ? wx_right(v, 4) : v, nibble);
                }
                WX_UNROLL for (int r = 0; r < rows; r++) {
                    __m512i a = _mm512_set1_epi32(*(const wx_word *) (x + r * stride + 4 * half));
                    WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++)
                        sum[r][c] = (wx_sums) _mm512_dpbusd_epi32((__m512i) sum[r][c], (__m512i) w[c], a);
                }
            }
        }
        WX_UNROLL for (int c = 0; c < WX_COLUMNS; c++) {
            wx_v scale = wx_load_f16((const uint16_t *) panel + c * WX_LANES);
            WX_UNROLL for (int r = 0; r < rows; r++) {
                float * to = out + r * WX_PANEL + c * WX_LANES;
                wx_v v = wx_from_i32((__m512i) sum[r][c]) * wx_set1(by[r * groups + b / WX_S8_BLOCKS]);
                wx_store(to, wx_fma(v, scale, wx_load(to)));
            }
        }
    }
}
#endif

#endif
