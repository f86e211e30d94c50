/* One pass over a row of logits. */
#include <math.h>

#include "internal.h"

static void part(const float * row, int32_t from, int32_t to, float * top, int32_t * arg, double * total) {
    *top = -INFINITY, *arg = from, *total = 0.0;
    for (int32_t i = from; i < to; i++)
        if (row[i] > *top) *top = row[i], *arg = i;
    if (*top == -INFINITY) return;
    for (int32_t i = from; i < to; i++) *total += exp((double) row[i] - (double) *top);
}

void wx_scan_row(const float * row, int32_t n, int32_t beg, wx_scan * found) {
    double unused;
    part(row, 0, n, &found->top, &found->arg, &found->total);
    part(row, beg, n, &found->time_top, &found->time_arg, &found->time_total);
    part(row, 0, beg, &found->text_top, &found->text_arg, &unused);
}
