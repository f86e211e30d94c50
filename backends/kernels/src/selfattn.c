/* Self attention over lists of cells, keys and values in f16, sums in f32.
 *
 * Cells are taken in the order of the list and in chunks, so that the memory for scores does not depend on how long a
 * list is; up to a chunk (every list of Whisper's) the softmax is the plain one of two passes.
 */
#include "selfattn.h"

#include <math.h>
#include <string.h>

#include "cross.h"
#include "lanes.h"

#define CHUNK 512

size_t wx_self_scratch(void) { return (CHUNK + 16) * sizeof(float); }

void wx_self_store(const float * x, int32_t n, uint16_t * cell) {
    int32_t c = 0;
    for (; c + WX_LANES <= n; c += WX_LANES) vf_to_f16(cell + c, vf_load(x + c));
    for (; c < n; c++) cell[c] = _cvtss_sh(x[c], _MM_FROUND_TO_NEAREST_INT);
}

/* Numbers c and on of a head, zeros after the end. */
WX_INLINE vf numbers(const uint16_t * x, int32_t c, int32_t d) {
    if (c + WX_LANES <= d) return vf_from_f16(x + c);
    uint16_t part[WX_LANES] = {0};
    memcpy(part, x + c, (size_t) (d - c) * sizeof(uint16_t));
    return vf_from_f16(part);
}

#define FETCH 8                 /* cells ahead: a cell's part of a head is two lines, far from the next cell's */

WX_INLINE void fetch_head(const uint16_t * x, int32_t d) {
    for (int32_t c = 0; c < d; c += 32) _mm_prefetch((const char *) (x + c), _MM_HINT_T0);
}

/* The sums of 4 vectors, each in the same order. */
WX_INLINE __m128 sums_of(vf a, vf b, vf c, vf d) {
#if defined(WX_ISA_AVX2)
    vf ab = _mm256_hadd_ps(a, b), cd = _mm256_hadd_ps(c, d), all = _mm256_hadd_ps(ab, cd);
    return _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
#else
    vf ab = vf_add(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    vf cd = vf_add(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    vf all = vf_add(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
#endif
}

/* Scores of n cells; room for 4 more. */
static void find_scores(const float * q, const uint16_t * k, const uint16_t * v, int32_t n_state, int32_t d,
                        const int32_t * cells, int32_t n, float * scores) {
    for (int32_t i = 0; i < n; i += 4) {
        const uint16_t * key[4];
        vf sum[4];
        for (int32_t j = 0; j < 4; j++) {
            int32_t at = i + j < n ? i + j : n - 1, next = at + FETCH < n ? at + FETCH : n - 1;
            key[j] = k + (int64_t) cells[at] * n_state;
            fetch_head(k + (int64_t) cells[next] * n_state, d);
            fetch_head(v + (int64_t) cells[at] * n_state, d);
            sum[j] = vf_zero();
        }
        for (int32_t c = 0; c < d; c += WX_LANES) {
            vf x = vf_load(q + c);
            for (int32_t j = 0; j < 4; j++) sum[j] = vf_fma(numbers(key[j], c, d), x, sum[j]);
        }
        _mm_storeu_ps(scores + i, sums_of(sum[0], sum[1], sum[2], sum[3]));
    }
}

/* out = out * keep + sum of weights times values; 4 vectors at a time where there are as many. */
static void add_values(const uint16_t * v, int32_t n_state, int32_t d, const int32_t * cells, int32_t n,
                       const float * weights, float keep, float * out) {
    int32_t c = 0;
    for (; c + 4 * WX_LANES <= d; c += 4 * WX_LANES) {
        vf sum[4];
        for (int32_t j = 0; j < 4; j++) sum[j] = vf_mul(vf_load(out + c + j * WX_LANES), vf_all(keep));
        for (int32_t i = 0; i < n; i++) {
            const uint16_t * x = v + (int64_t) cells[i] * n_state + c;
            vf w = vf_all(weights[i]);
            for (int32_t j = 0; j < 4; j++) sum[j] = vf_fma(vf_from_f16(x + j * WX_LANES), w, sum[j]);
        }
        for (int32_t j = 0; j < 4; j++) vf_store(out + c + j * WX_LANES, sum[j]);
    }
    for (; c < d; c += WX_LANES) {
        vf sum = vf_mul(vf_load(out + c), vf_all(keep));
        for (int32_t i = 0; i < n; i++)
            sum = vf_fma(numbers(v + (int64_t) cells[i] * n_state, c, d), vf_all(weights[i]), sum);
        vf_store(out + c, sum);
    }
}

void wx_self_attend(const float * q, const uint16_t * k, const uint16_t * v, int32_t n_state, int32_t d,
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
        vf most = vf_all(top);
        for (int32_t i = 0; i < padded; i += WX_LANES) most = vf_max(most, vf_load(scores + i));
        float higher = vf_top(most), keep = first == 0 ? 0.0f : expf(top - higher);
        vf sum = vf_zero(), by = vf_all(higher);
        for (int32_t i = 0; i < padded; i += WX_LANES) {
            vf p = vf_exp(vf_sub(vf_load(scores + i), by));
            vf_store(scores + i, p);
            sum = vf_add(sum, p);
        }
        total = total * keep + vf_sum(sum);
        add_values(v, n_state, d, cells + first, n, scores, keep, sums);
        top = higher;
    }
    float by = 1.0f / total;
    for (int32_t c = 0; c < d; c++) out[c] = sums[c] * by;
}
