/* Small products of the cross attention: a few queries against vectors of keys (or of channels), a step of numbers at a
 * time, sums in registers. Every sum runs through its steps in order, whatever the size of the tile, so that a query
 * has the same result alone and among others.
 *
 * `w` holds, step after step, one unit per lane: a float, a pair of bf16, four int8 (AVX2: two). `x` holds the numbers
 * of a query in the same units, x_stride units from query to query. With `add` the sums go on from what `out` holds.
 * Counts are constants at every call, so that the loops over them are unrolled and the sums stay in registers.
 */
#ifndef WX_TILE_H
#define WX_TILE_H

#include "vector.h"

#if defined(WX_ISA_AVX2)
#define WX_TILE_Q 6             /* queries of a tile, at most (16 registers must do), ... */
#define WX_TILE_Q_PAIRS 4       /* ... of bf16 and int8, which are taken apart first, ... */
#define WX_TILE_V 2             /* ... and vectors, ... */
#define WX_TILE_I 2             /* ... of int8 */
#else
#define WX_TILE_Q 6
#define WX_TILE_Q_PAIRS 6
#define WX_TILE_V 4
#define WX_TILE_I 2             /* two planes */
#endif

#ifndef WX_TILE_AHEAD
#define WX_TILE_AHEAD 8192
#endif

/* What follows in a few KB is fetched meanwhile. */
WX_INLINE void fetch(const char * p, const int n_bytes) {
    WX_UNROLL for (int i = 0; i < n_bytes; i += 64) _mm_prefetch(p + WX_TILE_AHEAD + i, _MM_HINT_T0);
}

WX_INLINE void tile_f32(const int nq, const int nv, const int add, const char * w,
                        int32_t steps, const float * x, int64_t x_stride, float * out, int64_t out_stride) {
    wx_v acc[WX_TILE_Q][WX_TILE_V];
    WX_UNROLL for (int q = 0; q < nq; q++)
        WX_UNROLL for (int v = 0; v < nv; v++)
            acc[q][v] = add ? wx_load(out + q * out_stride + v * WX_LANES) : wx_zero();
    for (int32_t s = 0; s < steps; s++, w += nv * WX_LANES * 4) {
        fetch(w, nv * WX_LANES * 4);
        wx_v y[WX_TILE_V];
        WX_UNROLL for (int v = 0; v < nv; v++) y[v] = wx_load((const float *) w + v * WX_LANES);
        WX_UNROLL for (int q = 0; q < nq; q++) {
            wx_v b = wx_set1(x[q * x_stride + s]);
            WX_UNROLL for (int v = 0; v < nv; v++) acc[q][v] = wx_fma(y[v], b, acc[q][v]);
        }
    }
    WX_UNROLL for (int q = 0; q < nq; q++)
        WX_UNROLL for (int v = 0; v < nv; v++) wx_store(out + q * out_stride + v * WX_LANES, acc[q][v]);
}

#if defined(WX_ISA_AVX512_BF16)
/* bf16 with its own dot product; x holds pairs. */
WX_INLINE void tile_bf16(const int nq, const int nv, const int add, const char * w,
                         int32_t steps, const uint32_t * x, int64_t x_stride, float * out, int64_t out_stride) {
    wx_v acc[WX_TILE_Q][WX_TILE_V];
    WX_UNROLL for (int q = 0; q < nq; q++)
        WX_UNROLL for (int v = 0; v < nv; v++)
            acc[q][v] = add ? wx_load(out + q * out_stride + v * WX_LANES) : wx_zero();
    for (int32_t s = 0; s < steps; s++, w += nv * WX_LANES * 4) {
        fetch(w, nv * WX_LANES * 4);
        __m512bh y[WX_TILE_V];
        WX_UNROLL for (int v = 0; v < nv; v++) y[v] = (__m512bh) wx_loadi(w + v * 64);
        WX_UNROLL for (int q = 0; q < nq; q++) {
            __m512bh b = (__m512bh) wx_set1i((int32_t) x[q * x_stride + s]);
            WX_UNROLL for (int v = 0; v < nv; v++) acc[q][v] = _mm512_dpbf16_ps(acc[q][v], y[v], b);
        }
    }
    WX_UNROLL for (int q = 0; q < nq; q++)
        WX_UNROLL for (int v = 0; v < nv; v++) wx_store(out + q * out_stride + v * WX_LANES, acc[q][v]);
}
#else
/* bf16 multiplied as f32; a unit of x is two floats. */
WX_INLINE void tile_bf16(const int nq, const int nv, const int add, const char * w,
                         int32_t steps, const float * x, int64_t x_stride, float * out, int64_t out_stride) {
    wx_v acc[WX_TILE_Q][WX_TILE_V];
    WX_UNROLL for (int q = 0; q < nq; q++)
        WX_UNROLL for (int v = 0; v < nv; v++)
            acc[q][v] = add ? wx_load(out + q * out_stride + v * WX_LANES) : wx_zero();
    for (int32_t s = 0; s < steps; s++, w += nv * WX_LANES * 4) {
        fetch(w, nv * WX_LANES * 4);
        WX_UNROLL for (int v = 0; v < nv; v++) {
            wx_vi pair = wx_loadi(w + v * 4 * WX_LANES);
            wx_v even = wx_bf16_even(pair), odd = wx_bf16_odd(pair);
            WX_UNROLL for (int q = 0; q < nq; q++) {
                acc[q][v] = wx_fma(even, wx_set1(x[2 * (q * x_stride + s)]), acc[q][v]);
                acc[q][v] = wx_fma(odd, wx_set1(x[2 * (q * x_stride + s) + 1]), acc[q][v]);
            }
        }
    }
    WX_UNROLL for (int q = 0; q < nq; q++)
        WX_UNROLL for (int v = 0; v < nv; v++) wx_store(out + q * out_stride + v * WX_LANES, acc[q][v]);
}
#endif

/* Whole numbers: the queries (and the weights of the softmax) have 16 bits, so that only the stored side is coarse.
   `sum` takes nq x nv vectors. */
#if defined(WX_ISA_AVX2)
WX_INLINE void tile_i8(const int nq, const int nv, const int w_unsigned, const char * w,
                       int32_t steps, const int32_t * x, int64_t x_stride, wx_vi sum[WX_TILE_Q][WX_TILE_I]) {
    (void) w_unsigned;
    wx_vi acc[WX_TILE_Q][WX_TILE_I];
    WX_UNROLL for (int q = 0; q < nq; q++) WX_UNROLL for (int v = 0; v < nv; v++) acc[q][v] = wx_zeroi();
    for (int32_t s = 0; s < steps; s++, w += nv * WX_LANES * 2) {
        fetch(w, nv * WX_LANES * 2);
        WX_UNROLL for (int v = 0; v < nv; v++) {
            wx_vi y = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *) (w + v * 2 * WX_LANES)));
            WX_UNROLL for (int q = 0; q < nq; q++)
                acc[q][v] = wx_add_i32(acc[q][v], _mm256_madd_epi16(y, wx_set1i(x[q * x_stride + s])));
        }
    }
    WX_UNROLL for (int q = 0; q < nq; q++) WX_UNROLL for (int v = 0; v < nv; v++) sum[q][v] = acc[q][v];
}
#else
/* x holds the upper bytes, then (`plane` units on) the lower ones. Either w is u8 and x s8 or w is s8 and x u8.
   The sums are kept as vectors of 16 int32: with the general type gcc 12 stores them at every step. */
typedef int32_t wx_v16 __attribute__((vector_size(64)));

WX_INLINE void tile_i8(const int nq, const int nv, const int w_unsigned, const char * w,
                       int32_t steps, const int32_t * x, int64_t x_stride, int64_t plane,
                       wx_vi sum[WX_TILE_Q][WX_TILE_I]) {
    wx_v16 high[WX_TILE_Q][WX_TILE_I], low[WX_TILE_Q][WX_TILE_I];
    WX_UNROLL for (int q = 0; q < nq; q++)
        WX_UNROLL for (int v = 0; v < nv; v++) high[q][v] = low[q][v] = (wx_v16) wx_zeroi();
    for (int32_t s = 0; s < steps; s++, w += nv * WX_LANES * 4) {
        fetch(w, nv * WX_LANES * 4);
        wx_vi y[WX_TILE_I];
        WX_UNROLL for (int v = 0; v < nv; v++) y[v] = wx_loadi(w + v * 64);
        WX_UNROLL for (int q = 0; q < nq; q++) {
            wx_vi a = wx_set1i(x[q * x_stride + s]), b = wx_set1i(x[q * x_stride + plane + s]);
            WX_UNROLL for (int v = 0; v < nv; v++) {
                high[q][v] = (wx_v16) (w_unsigned ? _mm512_dpbusd_epi32((wx_vi) high[q][v], y[v], a)
                                                  : _mm512_dpbusd_epi32((wx_vi) high[q][v], a, y[v]));
                low[q][v] = (wx_v16) (w_unsigned ? _mm512_dpbusd_epi32((wx_vi) low[q][v], y[v], b)
                                                 : _mm512_dpbusd_epi32((wx_vi) low[q][v], b, y[v]));
            }
        }
    }
    WX_UNROLL for (int q = 0; q < nq; q++)
        WX_UNROLL for (int v = 0; v < nv; v++)
            sum[q][v] = wx_add_i32(_mm512_slli_epi32((wx_vi) high[q][v], 8), (wx_vi) low[q][v]);
}

/* The same with numbers of 8 bits in x. */
WX_INLINE void tile_byte(const int nq, const int nv, const int w_unsigned, const char * w, int32_t steps,
                         const int32_t * x, int64_t x_stride, wx_vi sum[WX_TILE_Q][WX_TILE_I]) {
    wx_v16 acc[WX_TILE_Q][WX_TILE_I];
    WX_UNROLL for (int q = 0; q < nq; q++)
        WX_UNROLL for (int v = 0; v < nv; v++) acc[q][v] = (wx_v16) wx_zeroi();
    for (int32_t s = 0; s < steps; s++, w += nv * WX_LANES * 4) {
        fetch(w, nv * WX_LANES * 4);
        wx_vi y[WX_TILE_I];
        WX_UNROLL for (int v = 0; v < nv; v++) y[v] = wx_loadi(w + v * 64);
        WX_UNROLL for (int q = 0; q < nq; q++) {
            wx_vi a = wx_set1i(x[q * x_stride + s]);
            WX_UNROLL for (int v = 0; v < nv; v++)
                acc[q][v] = (wx_v16) (w_unsigned ? _mm512_dpbusd_epi32((wx_vi) acc[q][v], y[v], a)
                                                 : _mm512_dpbusd_epi32((wx_vi) acc[q][v], a, y[v]));
        }
    }
    WX_UNROLL for (int q = 0; q < nq; q++) WX_UNROLL for (int v = 0; v < nv; v++) sum[q][v] = (wx_vi) acc[q][v];
}
#endif

#endif
