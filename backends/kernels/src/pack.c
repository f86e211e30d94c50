/* Weights into panels (panel.h). */
#include "panel.h"
#include "vector.h"

#define CHUNK 256       /* inputs of a row that are converted at a time */

size_t wx_matrix_bytes(int32_t type, int32_t n_out, int32_t n_in) {
    int64_t panels = ((int64_t) n_out + WX_PANEL - 1) / WX_PANEL;
    return (size_t) (panels * wx_panel_words(type, n_in)) * 4;
}

static void read_chunk(const void * src, int32_t type, int64_t at, int32_t n, float factor, float * to) {
    wx_to_f32((const char *) src + at * (type == WX_F32 ? 4 : 2), type, n, to);
    for (int32_t i = 0; i < n; i++) to[i] *= factor;
    for (int32_t i = n; i < CHUNK; i++) to[i] = 0.0f;
}

/* Largest |x| of a row; NaN if one is NaN, since as integers the bits of NaN are above those of infinity. */
static float largest(const void * src, int32_t type, int64_t at, int32_t n, float factor) {
    float x[CHUNK];
    wx_vi top = wx_set1i(0);
    for (int32_t k = 0; k < n; k += CHUNK) {
        read_chunk(src, type, at + k, n - k < CHUNK ? n - k : CHUNK, factor, x);
        for (int i = 0; i < CHUNK; i += WX_LANES) top = wx_max_i32(top, wx_bits(wx_abs(wx_load(x + i))));
    }
    int32_t bits = wx_largest_i32(top);
    float found;
    memcpy(&found, &bits, sizeof(found));
    return found;
}

/* Rounded to nearest even; what is beyond the range of f16 becomes infinite, as it would in a file of f16. */
static void to_f16(const float * x, uint16_t * to) {
    for (int i = 0; i < CHUNK; i += 8)
        _mm_storeu_si128((__m128i *) (to + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), 0));
}

/* To inputs k .. k + n - 1 of the output whose first one is at `to`; an odd number of inputs is made even. */
static void put_f16(uint16_t * to, int32_t k, int32_t n, const void * from) {
    const uint16_t * x = from;
    for (int32_t i = 0; i < n + n % 2; i++) to[(int64_t) (k + i) * WX_PANEL] = x[i];
}

/* x / scale as whole numbers of -127 .. 127; returns their sum. */
static int32_t quantise(const float * x, float inverse, int8_t * to) {
    wx_vi sum = wx_set1i(0);
    for (int i = 0; i < CHUNK; i += WX_LANES) {
        wx_vi q = wx_round_i32(wx_load(x + i) * wx_set1(inverse));
        q = wx_max_i32(wx_min_i32(q, wx_set1i(127)), wx_set1i(-127));
        sum = wx_add_i32(sum, q);
        int32_t lanes[WX_LANES];
        memcpy(lanes, &q, sizeof(lanes));
        for (int j = 0; j < WX_LANES; j++) to[i + j] = (int8_t) lanes[j];
    }
    int32_t lanes[WX_LANES], total = 0;
    memcpy(lanes, &sum, sizeof(lanes));
    for (int j = 0; j < WX_LANES; j++) total += lanes[j];
    return total;
}

void wx_pack(const wx_matrix * m, int32_t first, int32_t n_rows, const void * src, int32_t src_type, float factor) {
    int64_t units = wx_units(m->type, m->n_in), words = wx_panel_words(m->type, m->n_in);
    int unit = wx_unit(m->type);
    float x[CHUNK];
    uint32_t converted[CHUNK];      /* the same numbers as f32, f16, bf16 or int8 */
    for (int32_t r = 0; r < n_rows; r++) {
        int64_t row = first + r;
        uint32_t * panel = (uint32_t *) m->data + row / WX_PANEL * words + row % WX_PANEL;
        float scale = 0.0f, inverse = 0.0f;
        int32_t sum = 0;
        if (m->type == WX_I8) {
            float top = largest(src, src_type, (int64_t) r * m->n_in, m->n_in, factor);
            if (!(top < 1e-30f)) {      /* NaN and infinity make the scale, and with it the outputs, NaN or infinite */
                scale = top / 127.0f;
                inverse = 127.0f / top;
            }
        }
        for (int32_t k = 0; k < m->n_in; k += CHUNK) {
            int32_t n = m->n_in - k < CHUNK ? m->n_in - k : CHUNK;
            read_chunk(src, src_type, (int64_t) r * m->n_in + k, n, factor, x);
            if (m->type == WX_F32) memcpy(converted, x, sizeof(x));
            else if (m->type == WX_F16) to_f16(x, (uint16_t *) converted);
            else if (m->type == WX_BF16) wx_to_bf16(x, CHUNK, (uint16_t *) converted);
            else sum += quantise(x, inverse, (int8_t *) converted);
            if (m->type == WX_F16) put_f16((uint16_t *) (panel - row % WX_PANEL) + row % WX_PANEL, k, n, converted);
            else
                for (int32_t u = 0; u < (n + unit - 1) / unit; u++) panel[(k / unit + u) * WX_PANEL] = converted[u];
        }
        if (m->type == WX_I8) {
            int32_t start = -128 * sum;
            memcpy(panel + units * WX_PANEL, &scale, sizeof(scale));
            memcpy(panel + (units + 1) * WX_PANEL, &start, sizeof(start));
        }
    }
    /* Whoever brings the last row fills up the last panel. */
    if (first + n_rows == m->n_out && m->n_out % WX_PANEL) {
        uint32_t * panel = (uint32_t *) m->data + m->n_out / WX_PANEL * words;
        for (int64_t u = 0; u < words / WX_PANEL; u++)
            for (int32_t c = m->n_out % WX_PANEL; c < WX_PANEL; c++) {
                if (m->type == WX_F16) {
                    ((uint16_t *) panel)[2 * u * WX_PANEL + c] = 0;
                    ((uint16_t *) panel)[(2 * u + 1) * WX_PANEL + c] = 0;
                } else {
                    panel[u * WX_PANEL + c] = 0;
                }
            }
    }
}
