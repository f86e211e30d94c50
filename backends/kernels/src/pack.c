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
        wx_store_i8(to + i, q);
    }
    int32_t lanes[WX_LANES], total = 0;
    memcpy(lanes, &sum, sizeof(lanes));
    for (int j = 0; j < WX_LANES; j++) total += lanes[j];
    return total;
}

/* A row of a matrix on its way into its panel. */
typedef struct packed_row {
    float scale, inverse;           /* of WX_I8 */
    int32_t sum;
} packed_row;

static packed_row begin_row(int32_t type, const void * src, int32_t src_type, int64_t at, int32_t n, float factor) {
    packed_row row = {0.0f, 0.0f, 0};
    if (type == WX_I8) {
        float top = largest(src, src_type, at, n, factor);
        if (!(top < 1e-30f)) {      /* NaN and infinity make the scale, and with it the outputs, NaN or infinite */
            row.scale = top / 127.0f;
            row.inverse = 127.0f / top;
        }
    }
    return row;
}

/* A chunk as f32, f16, bf16 or int8, the group of a unit in 32 bits. */
static void convert_chunk(int32_t type, const float * x, packed_row * row, uint32_t * to) {
    if (type == WX_F32) memcpy(to, x, CHUNK * sizeof(float));
    else if (type == WX_F16) to_f16(x, (uint16_t *) to);
    else if (type == WX_BF16) wx_to_bf16(x, CHUNK, (uint16_t *) to);
    else row->sum += quantise(x, row->inverse, (int8_t *) to);
}

/* What stands behind the units of an output; `to` is the output's place in the panel's first unit. */
static void end_row(int32_t type, const packed_row * row, uint32_t * to, int64_t units) {
    if (type != WX_I8) return;
    int32_t start = -128 * row->sum;
    memcpy(to + units * WX_PANEL, &row->scale, sizeof(row->scale));
    memcpy(to + (units + 1) * WX_PANEL, &start, sizeof(start));
}

static void pack_one(const wx_matrix * m, int64_t row, const void * src, int32_t src_type, int64_t at, float factor) {
    int32_t n_in = m->n_in, unit = wx_unit(m->type);
    uint32_t * panel = (uint32_t *) m->data + row / WX_PANEL * wx_panel_words(m->type, n_in) + row % WX_PANEL;
    float x[CHUNK];
    uint32_t converted[CHUNK];
    packed_row state = begin_row(m->type, src, src_type, at, n_in, factor);
    for (int32_t k = 0; k < n_in; k += CHUNK) {
        int32_t n = n_in - k < CHUNK ? n_in - k : CHUNK;
        read_chunk(src, src_type, at + k, n, factor, x);
        convert_chunk(m->type, x, &state, converted);
        if (m->type == WX_F16) put_f16((uint16_t *) (panel - row % WX_PANEL) + row % WX_PANEL, k, n, converted);
        else
            for (int32_t u = 0; u < (n + unit - 1) / unit; u++) panel[(k / unit + u) * WX_PANEL] = converted[u];
    }
    end_row(m->type, &state, panel, wx_units(m->type, n_in));
}

/* WX_LANES outputs at once, the first of which stands at a multiple of WX_LANES: whole vectors are written instead of
   single units far apart. */
static void pack_lanes(const wx_matrix * m, int64_t row, const void * src, int32_t src_type, int64_t at, float factor) {
    int32_t n_in = m->n_in, unit = wx_unit(m->type);
    uint32_t * panel = (uint32_t *) m->data + row / WX_PANEL * wx_panel_words(m->type, n_in);
    float x[CHUNK];
    uint32_t converted[WX_LANES][CHUNK + WX_LANES];     /* rows begin in different sets of the cache */
    packed_row states[WX_LANES];
    for (int i = 0; i < WX_LANES; i++)
        states[i] = begin_row(m->type, src, src_type, at + (int64_t) i * n_in, n_in, factor);
    for (int32_t k = 0; k < n_in; k += CHUNK) {
        int32_t n = n_in - k < CHUNK ? n_in - k : CHUNK, units = (n + unit - 1) / unit;
        for (int i = 0; i < WX_LANES; i++) {
            read_chunk(src, src_type, at + (int64_t) i * n_in + k, n, factor, x);
            convert_chunk(m->type, x, &states[i], converted[i]);
        }
        for (int32_t u = 0; u < units; u += WX_LANES) {
            wx_vi block[WX_LANES];
            for (int i = 0; i < WX_LANES; i++) memcpy(&block[i], &converted[i][u], sizeof(wx_vi));
            wx_transpose(block);
            for (int j = 0; j < WX_LANES && u + j < units; j++) {
                uint32_t * to = panel + (int64_t) (k / unit + u + j) * WX_PANEL;
                if (m->type == WX_F16) {
                    uint16_t * halves = (uint16_t *) to + row % WX_PANEL;
                    wx_store_u16(halves, block[j]);
                    wx_store_u16(halves + WX_PANEL, wx_right(block[j], 16));
                } else {
                    memcpy(to + row % WX_PANEL, &block[j], sizeof(wx_vi));
                }
            }
        }
    }
    for (int i = 0; i < WX_LANES; i++)
        end_row(m->type, &states[i], panel + row % WX_PANEL + i, wx_units(m->type, n_in));
}

void wx_pack(const wx_matrix * m, int32_t first, int32_t n_rows, const void * src, int32_t src_type, float factor) {
    int64_t words = wx_panel_words(m->type, m->n_in);
    int32_t r = 0;
    while (r < n_rows) {
        int64_t row = first + r, at = (int64_t) r * m->n_in;
        if (row % WX_LANES == 0 && n_rows - r >= WX_LANES) {
            pack_lanes(m, row, src, src_type, at, factor);
            r += WX_LANES;
        } else {
            pack_one(m, row, src, src_type, at, factor);
            r++;
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
