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

size_t wx_self_scratch(void) { return CHUNK * sizeof(float); }

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

static void find_scores(const float * q, const uint16_t * k, int32_t n_state, int32_t d, const int32_t * cells,
                        int32_t n, float * scores) {
    for (int32_t i = 0; i < n; i++) {
        const uint16_t * key = k + (int64_t) cells[i] * n_state;
        vf sum = vf_zero();
        for (int32_t c = 0; c < d; c += WX_LANES) sum = vf_fma(numbers(key, c, d), vf_load(q + c), sum);
        scores[i] = vf_sum(sum);
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
        find_scores(query, k, n_state, d, cells + first, n, scores);
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
