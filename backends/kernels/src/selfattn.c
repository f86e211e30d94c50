/* Self attention over lists of cells, keys and values in f16, sums in f32.
 *
 * Cells are taken in the order of the list and in chunks, so that the memory for scores does not depend on how long a
 * list is; up to a chunk (every list of Whisper's) the softmax is the plain one of two passes.
 */
#include "selfattn.h"

#include <math.h>
#include <string.h>

#include "cross.h"

#define CHUNK 512

size_t wx_self_scratch(void) { return (CHUNK + 16) * sizeof(float); }

void wx_self_bring(const uint16_t * k, const uint16_t * v, int32_t n_state, int32_t n, const int32_t * cells,
                   int32_t n_cells) {
    for (int32_t i = 0; i < n_cells; i++) {
        const int64_t cell = (int64_t) cells[i] * n_state;
        for (int32_t c = 0; c < n; c += 32) {       /* a line */
            _mm_prefetch((const char *) (k + cell + c), _MM_HINT_T1);
            _mm_prefetch((const char *) (v + cell + c), _MM_HINT_T1);
        }
    }
}

void wx_self_store(const float * x, int32_t n, uint16_t * cell) {
    int32_t c = 0;
    for (; c + WX_LANES <= n; c += WX_LANES) wx_store_f16(cell + c, wx_load(x + c));
    for (; c < n; c++) cell[c] = _cvtss_sh(x[c], _MM_FROUND_TO_NEAREST_INT);
}

/* Numbers c and on of a head, zeros after the end. */
WX_INLINE wx_v numbers(const uint16_t * x, int32_t c, int32_t d) {
    if (c + WX_LANES <= d) return wx_load_f16(x + c);
    uint16_t part[WX_LANES] = {0};
    memcpy(part, x + c, (size_t) (d - c) * sizeof(uint16_t));
    return wx_load_f16(part);
}

#define FETCH 8                 /* cells ahead: a cell's part of a head is two lines, far from the next cell's */

WX_INLINE void fetch_head(const uint16_t * x, int32_t d) {
    for (int32_t c = 0; c < d; c += 32) _mm_prefetch((const char *) (x + c), _MM_HINT_T0);
}

/* The sums of 4 vectors, each in the same order. */
WX_INLINE __m128 sums_of(wx_v a, wx_v b, wx_v c, wx_v d) {
#if defined(WX_ISA_AVX2)
    wx_v ab = _mm256_hadd_ps(a, b), cd = _mm256_hadd_ps(c, d), all = _mm256_hadd_ps(ab, cd);
    return _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
#else
    wx_v ab = _mm512_unpacklo_ps(a, b) + _mm512_unpackhi_ps(a, b);
    wx_v cd = _mm512_unpacklo_ps(c, d) + _mm512_unpackhi_ps(c, d);
    wx_v all = _mm512_shuffle_ps(ab, cd, 0x44) + _mm512_shuffle_ps(ab, cd, 0xee);
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
#endif
}

/* Scores of n cells; room for 4 more. */
WX_INLINE void find_scores(const float * q, const uint16_t * k, const uint16_t * v, int32_t n_state, int32_t d,
                           const int32_t * cells, int32_t n, float * scores) {
    for (int32_t i = 0; i < n; i += 4) {
        const uint16_t * key[4];
        wx_v sum[4];
        for (int32_t j = 0; j < 4; j++) {
            int32_t at = i + j < n ? i + j : n - 1, next = at + FETCH < n ? at + FETCH : n - 1;
            key[j] = k + (int64_t) cells[at] * n_state;
            fetch_head(k + (int64_t) cells[next] * n_state, d);
            fetch_head(v + (int64_t) cells[at] * n_state, d);
            sum[j] = wx_zero();
        }
        for (int32_t c = 0; c < d; c += WX_LANES) {
            wx_v x = wx_load(q + c);
            for (int32_t j = 0; j < 4; j++) sum[j] = wx_fma(numbers(key[j], c, d), x, sum[j]);
        }
        _mm_storeu_ps(scores + i, sums_of(sum[0], sum[1], sum[2], sum[3]));
    }
}

/* out = out * keep + sum of weights times values; 4 vectors at a time where there are as many. */
WX_INLINE void add_values(const uint16_t * v, int32_t n_state, int32_t d, const int32_t * cells, int32_t n,
                          const float * weights, float keep, float * out) {
    int32_t c = 0;
    for (; c + 4 * WX_LANES <= d; c += 4 * WX_LANES) {
        wx_v sum[4];
        for (int32_t j = 0; j < 4; j++) sum[j] = wx_load(out + c + j * WX_LANES) * wx_set1(keep);
        for (int32_t i = 0; i < n; i++) {
            const uint16_t * x = v + (int64_t) cells[i] * n_state + c;
            wx_v w = wx_set1(weights[i]);
            for (int32_t j = 0; j < 4; j++) sum[j] = wx_fma(wx_load_f16(x + j * WX_LANES), w, sum[j]);
        }
        for (int32_t j = 0; j < 4; j++) wx_store(out + c + j * WX_LANES, sum[j]);
    }
    for (; c < d; c += WX_LANES) {
        wx_v sum = wx_load(out + c) * wx_set1(keep);
        for (int32_t i = 0; i < n; i++)
            sum = wx_fma(numbers(v + (int64_t) cells[i] * n_state, c, d), wx_set1(weights[i]), sum);
        wx_store(out + c, sum);
    }
}

WX_INLINE void attend(const float * q, const uint16_t * k, const uint16_t * v, int32_t n_state, int32_t d,
                      const int32_t * cells, int32_t n_cells, float * out, void * scratch) {
    float query[WX_HEAD_MAX], sums[WX_HEAD_MAX], * scores = scratch;
    int32_t dp = wx_round_up(d, 16);
    memcpy(query, q, (size_t) d * sizeof(float));
    for (int32_t c = d; c < dp; c++) query[c] = 0.0f;
    for (int32_t c = 0; c < dp; c++) sums[c] = 0.0f;
    float top = -INFINITY, total = 0.0f;
    for (int32_t first = 0; first < n_cells; first += CHUNK) {
        int32_t n = n_cells - first < CHUNK ? n_cells - first : CHUNK, padded = wx_round_up(n, WX_LANES);
        find_scores(query, k, v, n_state, d, cells + first, n, scores);
        for (int32_t i = n; i < padded; i++) scores[i] = -INFINITY;
        wx_v most = wx_set1(top);
        for (int32_t i = 0; i < padded; i += WX_LANES) most = wx_max(most, wx_load(scores + i));
        float higher = wx_largest(most), keep = first == 0 ? 0.0f : expf(top - higher);
        wx_v sum = wx_zero(), by = wx_set1(higher);
        for (int32_t i = 0; i < padded; i += WX_LANES) {
            wx_v p = wx_exp_weight(wx_load(scores + i) - by);
            wx_store(scores + i, p);
            sum += p;
        }
        total = total * keep + wx_sum(sum);
        add_values(v, n_state, d, cells + first, n, scores, keep, sums);
        top = higher;
    }
    float by = 1.0f / total;
    for (int32_t c = 0; c < d; c++) out[c] = sums[c] * by;
}

/* The usual head has 64 numbers: its loops have constant bounds. */
void wx_self_attend(const float * q, const uint16_t * k, const uint16_t * v, int32_t n_state, int32_t d,
                    const int32_t * cells, int32_t n_cells, float * out, void * scratch) {
    if (d == 64) attend(q, k, v, n_state, 64, cells, n_cells, out, scratch);
    else attend(q, k, v, n_state, d, cells, n_cells, out, scratch);
}
