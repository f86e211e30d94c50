/* What the sampler wants to know of a row of logits: one pass for the largest values, one for the exponentials. The
 * row (200 kB) stays in the second level cache between them. */
#include <math.h>

#include "vector.h"

#define BLOCK 1024      /* summed in f32 lanes before the sum goes to double */

/* Largest of n values, NaN left out, and where it is first; -INFINITY and 0 if there is none. */
static float largest(const float * x, int32_t n, int32_t * where) {
    wx_v top[4];
    for (int i = 0; i < 4; i++) top[i] = wx_set1(-INFINITY);
    int32_t at = 0;
    for (; at + 4 * WX_LANES <= n; at += 4 * WX_LANES)
        for (int i = 0; i < 4; i++) top[i] = wx_max(wx_load(x + at + i * WX_LANES), top[i]);
    float lanes[WX_LANES], found = -INFINITY;
    wx_store(lanes, wx_max(wx_max(top[0], top[1]), wx_max(top[2], top[3])));
    for (int i = 0; i < WX_LANES; i++)
        if (lanes[i] > found) found = lanes[i];
    for (; at < n; at++)
        if (x[at] > found) found = x[at];
    *where = 0;
    if (found == -INFINITY) return found;
    while (x[*where] != found) ++*where;
    return found;
}

/* Sum of exp(x - top) over n values; NaN if one is NaN or top is infinite. */
static double sum_exp(const float * x, int32_t n, float top) {
    const wx_v t = wx_set1(top);
    double total = 0.0;
    for (int32_t block = 0; block < n; block += BLOCK) {
        int32_t end = n - block < BLOCK ? n : block + BLOCK, i = block;
        wx_v a = wx_zero(), b = wx_zero();
        for (; i + 2 * WX_LANES <= end; i += 2 * WX_LANES) {
            a += wx_exp(wx_load(x + i) - t);
            b += wx_exp(wx_load(x + i + WX_LANES) - t);
        }
        for (; i < end; i += WX_LANES) {
            float rest[WX_LANES];
            for (int j = 0; j < WX_LANES; j++) rest[j] = i + j < end ? x[i + j] : -INFINITY;
            a += wx_exp(wx_load(rest) - t);
        }
        total += (double) wx_sum(a + b);
    }
    return total;
}

static int has_nan(const float * x, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (x[i] != x[i]) return 1;
    return 0;
}

void wx_scan_row(const float * row, int32_t n, int32_t beg, wx_scan * found) {
    found->text_top = largest(row, beg, &found->text_arg);
    found->time_top = largest(row + beg, n - beg, &found->time_arg);
    found->time_arg += beg;
    int text = found->text_top >= found->time_top;
    found->top = text ? found->text_top : found->time_top;
    found->arg = text ? found->text_arg : found->time_arg;
    found->total = found->time_total = 0.0;
    if (found->top == -INFINITY) {      /* a row without a number is no row without a candidate */
        if (has_nan(row, n)) found->top = NAN, found->total = NAN;
        return;
    }
    if (found->time_top > -INFINITY) {
        found->time_total = sum_exp(row + beg, n - beg, found->time_top);
        found->total = found->time_total * exp((double) found->time_top - (double) found->top);
    } else if (has_nan(row + beg, n - beg)) {
        found->total = NAN;
    }
    found->total += sum_exp(row, beg, found->top);
}
