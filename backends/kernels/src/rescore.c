/* The logits that matter, once more and exactly.
 *
 * Eight bits tell well enough which of some fifty thousand tokens cannot come next. Those that can, the few within
 * NEAR of the largest, get their logit again from the embedding as it is in the file: near ties then fall as they do in
 * full precision, for the price of some rows of the embedding. (The idea is that of two-pass search in quantised
 * retrieval.) A row's choice depends on that row alone.
 */
#include "vector.h"

#define MOST WX_CANDIDATES_OF_A_KIND
#define AHEAD 12                /* rows whose lines are asked for ahead: they lie anywhere in the file */

static const float NEAR[] = {8.0f, 6.0f, 4.0f, 2.0f, 1.0f};

static float row_times(const wx_model * m, int32_t row, const float * x) {
    int32_t n = m->n_state, i = 0;
    wx_v s = wx_zero();
    if (m->d_te_type == WX_F32) {
        const float * w = (const float *) m->d_te + (int64_t) row * n;
        for (; i + WX_LANES <= n; i += WX_LANES) s = wx_fma(wx_load(w + i), wx_load(x + i), s);
        float sum = wx_sum(s);
        for (; i < n; i++) sum += w[i] * x[i];
        return sum;
    }
    const uint16_t * w = (const uint16_t *) m->d_te + (int64_t) row * n;
    for (; i + WX_LANES <= n; i += WX_LANES)
        s = wx_fma(m->d_te_type == WX_F16 ? wx_load_f16(w + i) : wx_load_bf16(w + i), wx_load(x + i), s);
    float sum = wx_sum(s);
    if (i < n) {
        float rest[WX_LANES];
        wx_to_f32(w + i, m->d_te_type, n - i, rest);
        for (int32_t j = 0; i + j < n; j++) sum += rest[j] * x[i + j];
    }
    return sum;
}

/* Numbers above `least`, their places in `found`; more than MOST end the search. */
static int32_t above(const float * x, int32_t n, float least, int32_t * found) {
    int32_t count = 0;
    for (int32_t i = 0; i < n && count <= MOST; i += 8 * WX_LANES) {
        int32_t end = n - i < 8 * WX_LANES ? n : i + 8 * WX_LANES;
        int any = 0;
        for (int32_t j = i; j < end; j++) any |= x[j] > least;
        if (!any) continue;
        for (int32_t j = i; j < end && count <= MOST; j++)
            if (x[j] > least) {
                if (count < MOST) found[count] = j;
                count++;
            }
    }
    return count;
}

static float top_of(const float * x, int32_t n) {
    const int32_t whole = n - n % WX_LANES;
    wx_v tops = wx_set1(-__builtin_inff());
    for (int32_t i = 0; i < whole; i += WX_LANES) tops = wx_max(wx_load(x + i), tops);     /* NaN is left out */
    float top = wx_largest(tops);
    for (int32_t i = whole; i < n; i++) top = x[i] > top ? x[i] : top;
    return top;
}

/* Those of tokens [first, last) that are near their largest. */
static int32_t near_top(const float * logits, int32_t first, int32_t last, int32_t * found) {
    const float top = top_of(logits + first, last - first);
    int32_t count = MOST + 1;
    for (size_t i = 0; i < sizeof(NEAR) / sizeof(NEAR[0]) && count > MOST; i++)
        count = above(logits + first, last - first, top - NEAR[i], found);
    if (count > MOST) return 0; /* so many are alike that none of them is worth the trouble */
    for (int32_t i = 0; i < count; i++) found[i] += first;
    return count;
}

/* Text and times apart: where the rules ask for a time, the likeliest one counts, however unlikely it is. So are the
   tokens behind the times, which may be words or of no use at all. */
int32_t wx_candidates(const wx_model * m, const float * logits, int32_t * found) {
    int32_t count = near_top(logits, 0, m->beg, found);
    count += near_top(logits, m->beg, m->end, found + count);
    return count + near_top(logits, m->end, m->n_vocab, found + count);
}

void wx_rescore(const wx_model * m, const float * hidden, const int32_t * found, int32_t first, int32_t last,
                float * logits) {
    const int64_t row = (int64_t) m->n_state * (m->d_te_type == WX_F32 ? 4 : 2);
    for (int32_t i = first; i < last + AHEAD; i++) {
        if (i < last) {
            const char * next = (const char *) m->d_te + found[i] * row;
            for (int64_t at = 0; at < row; at += 64) _mm_prefetch(next + at, _MM_HINT_T0);
        }
        if (i >= first + AHEAD) logits[found[i - AHEAD]] = row_times(m, found[i - AHEAD], hidden);
    }
}
