/* Row by row work of the layers: norms, activation, conversions. */
#include "vector.h"

/* Layer norm: mean first, then the mean square of what is left, so that a large mean costs no digits. */
void wx_norm_row(const wx_norm * norm, const float * x, int32_t n, float * y) {
    int32_t full = n - n % WX_LANES, rest = n - full;
    wx_v s = wx_zero();
    for (int32_t i = 0; i < full; i += WX_LANES) s += wx_load(x + i);
    if (rest) s += wx_load_n(x + full, rest);
    float mean = wx_sum(s) / (float) n;
    wx_v m = wx_set1(mean);
    wx_v square = wx_zero();
    for (int32_t i = 0; i < full; i += WX_LANES) {
        wx_v d = wx_load(x + i) - m;
        square = wx_fma(d, d, square);
    }
    float variance = wx_sum(square);
    for (int32_t i = full; i < n; i++) variance += (x[i] - mean) * (x[i] - mean);
    wx_v scale = wx_set1(1.0f) / wx_sqrt(wx_set1(variance / (float) n + 1e-5f));
    for (int32_t i = 0; i < full; i += WX_LANES)
        wx_store(y + i, wx_fma((wx_load(x + i) - m) * scale, wx_load(norm->w + i), wx_load(norm->b + i)));
    if (rest)
        wx_store_n(y + full, wx_fma((wx_load_n(x + full, rest) - m) * scale, wx_load_n(norm->w + full, rest),
                                    wx_load_n(norm->b + full, rest)), rest);
}

void wx_gelu(float * x, int64_t n) {
    int64_t i = 0;
    for (; i + WX_LANES <= n; i += WX_LANES) wx_store(x + i, wx_gelu_v(wx_load(x + i)));
    if (i < n) wx_store_n(x + i, wx_gelu_v(wx_load_n(x + i, (int) (n - i))), (int) (n - i));
}

void wx_to_f32(const void * src, int32_t type, int64_t n, float * dst) {
    if (type == WX_F32) {
        memcpy(dst, src, (size_t) n * sizeof(float));
        return;
    }
    const uint16_t * x = src;
    int64_t i = 0;
    for (; i + WX_LANES <= n; i += WX_LANES)
        wx_store(dst + i, type == WX_F16 ? wx_load_f16(x + i) : wx_load_bf16(x + i));
    if (i < n) {
        uint16_t last[WX_LANES] = {0};
        memcpy(last, x + i, (size_t) (n - i) * sizeof(uint16_t));
        wx_store_n(dst + i, type == WX_F16 ? wx_load_f16(last) : wx_load_bf16(last), (int) (n - i));
    }
}

void wx_to_bf16(const float * x, int64_t n, uint16_t * y) {
    int64_t i = 0;
    for (; i + WX_LANES <= n; i += WX_LANES) wx_store_bf16(y + i, wx_load(x + i));
    if (i < n) wx_store_bf16_n(y + i, wx_load_n(x + i, (int) (n - i)), (int) (n - i));
}
