/* Weights into panels (panel.h). */
#include "panel.h"
#include "vector.h"

#define CHUNK 256       /* inputs of a row that are converted at a time */

size_t wx_matrix_bytes(int32_t type, int32_t n_out, int32_t n_in) {
    int64_t panels = ((int64_t) n_out + WX_PANEL - 1) / WX_PANEL;
    return (size_t) (panels * wx_panel_words(type, n_in)) * 4;
}

static void read_chunk(const void * src, int32_t type, int64_t at, int32_t n, float factor, const float * around,
                       float * to) {
    wx_to_f32((const char *) src + at * (type == WX_F32 ? 4 : 2), type, n, to);
    for (int32_t i = 0; i < n; i++) to[i] *= factor;
    if (around != NULL)
        for (int32_t i = 0; i < n; i++) to[i] -= around[i];
    for (int32_t i = n; i < CHUNK; i++) to[i] = 0.0f;
}

/* Largest |x| of whole vectors; NaN if one is NaN, since as integers the bits of NaN are above those of infinity. */
static float largest(const float * x, int32_t n) {
    wx_vi top = wx_set1i(0);
    for (int i = 0; i < n; i += WX_LANES) top = wx_max_i32(top, wx_bits(wx_abs(wx_load(x + i))));
    int32_t bits = wx_largest_i32(top);
    float found;
    memcpy(&found, &bits, sizeof(found));
    return found;
}

static float largest_of_row(const void * src, int32_t type, int64_t at, int32_t n, float factor) {
    float x[CHUNK], found[WX_LANES] = {0};
    for (int32_t k = 0; k < n; k += CHUNK) {
        read_chunk(src, type, at + k, n - k < CHUNK ? n - k : CHUNK, factor, NULL, x);
        found[1] = largest(x, CHUNK);
        found[0] = largest(found, WX_LANES);
    }
    return found[0];
}

/* x / scale as whole numbers of -127 .. 127; returns their sum. */
static int32_t quantise(const float * x, int32_t n, float inverse, int8_t * to) {
    wx_vi sum = wx_set1i(0);
    for (int i = 0; i < n; i += WX_LANES) {
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
    uint16_t scales[CHUNK / 32];                /* of WX_Q8 and WX_N4, of the chunk */
    float groups[CHUNK / WX_G8_INPUTS][2];      /* of WX_G8, of the chunk: scales, sums of weights */
} packed_row;

static packed_row begin_row(int32_t type, const void * src, int32_t src_type, int64_t at, int32_t n, float factor) {
    packed_row row = {.scale = 0.0f};
    if (type == WX_I8) {
        float top = largest_of_row(src, src_type, at, n, factor);
        if (!(top < 1e-30f)) {      /* NaN and infinity make the scale, and with it the outputs, NaN or infinite */
            row.scale = top / 127.0f;
            row.inverse = 127.0f / top;
        }
    }
    return row;
}

/* One block of a Q8 row. Its scale is largest / 127 as f16, not below it, so that every weight is at most 127 steps;
   weights that were stored so (q8_0) stay what they are. */
static uint16_t put_block(const float * x, uint32_t * to) {
    __m128i half = _mm_cvtps_ph(_mm_set_ss(largest(x, WX_Q8_INPUTS) / 127.0f), _MM_FROUND_TO_POS_INF);
    float scale = _mm_cvtss_f32(_mm_cvtph_ps(half));
    quantise(x, WX_Q8_INPUTS, scale > 0.0f ? 1.0f / scale : 0.0f, (int8_t *) to);
    for (int u = 0; u < WX_Q8_UNITS; u++) to[u] ^= WX_Q8_ZERO;
    return (uint16_t) _mm_extract_epi16(half, 0);
}

/* One block of an N4 row. What is furthest from 0 becomes -8, so that all 16 numbers are used. */
static uint16_t put_nibbles(const float * x, uint32_t * to) {
    wx_v high = wx_zero();
    for (int i = 0; i < WX_N4_INPUTS; i += WX_LANES) high = wx_max(wx_load(x + i), high);
    float furthest = largest(x, WX_N4_INPUTS);                  /* not finite where one is not */
    if (furthest == wx_largest(high)) furthest = -furthest;
    __m128i half = _mm_cvtps_ph(_mm_set_ss(furthest / 8.0f), _MM_FROUND_TO_NEAREST_INT);
    float scale = _mm_cvtss_f32(_mm_cvtph_ps(half)), inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
    uint8_t q[WX_N4_INPUTS];
    for (int i = 0; i < WX_N4_INPUTS; i += WX_LANES) {
        wx_vi v = wx_add_i32(wx_round_i32(wx_load(x + i) * wx_set1(inverse)), wx_set1i(8));
        wx_store_i8((int8_t *) q + i, wx_max_i32(wx_min_i32(v, wx_set1i(15)), wx_set1i(0)));
    }
    for (int u = 0; u < WX_N4_UNITS; u++) {
        uint64_t eight;
        memcpy(&eight, q + 8 * u, 8);
        to[u] = (uint32_t) (eight | eight >> 28);               /* the last four of them, four bits up */
    }
    return (uint16_t) _mm_extract_epi16(half, 0);
}

/* One group of a G8 row. What is not finite is handed on by its scale. */
static void put_group(const float * x, float group[2], uint32_t * to) {
    float top = largest(x, WX_G8_INPUTS);
    group[0] = top < 1e-30f ? 0.0f : top / 127.0f;
    group[1] = group[0] * (float) quantise(x, WX_G8_INPUTS, top < 1e-30f ? 0.0f : 127.0f / top, (int8_t *) to);
}

/* A chunk as f32, bf16 or int8, the group of a unit in 32 bits. */
static void convert_chunk(int32_t type, const float * x, packed_row * row, uint32_t * to) {
    if (type == WX_F32) memcpy(to, x, CHUNK * sizeof(float));
    else if (type == WX_BF16) wx_to_bf16(x, CHUNK, (uint16_t *) to);
    else if (type == WX_I8) row->sum += quantise(x, CHUNK, row->inverse, (int8_t *) to);
    else if (type == WX_G8)
        for (int g = 0; g < CHUNK / WX_G8_INPUTS; g++)
            put_group(x + g * WX_G8_INPUTS, row->groups[g], to + g * WX_G8_UNITS);
    else if (type == WX_N4)
        for (int b = 0; b < CHUNK / WX_N4_INPUTS; b++)
            row->scales[b] = put_nibbles(x + b * WX_N4_INPUTS, to + b * WX_N4_UNITS);
    else
        for (int b = 0; b < CHUNK / WX_Q8_INPUTS; b++)
            row->scales[b] = put_block(x + b * WX_Q8_INPUTS, to + b * WX_Q8_UNITS);
}

/* Where a unit of the panel's first output is. */
static int64_t unit_at(int32_t type, int64_t unit) {
    const int n = wx_block_units(type);
    if (wx_in_blocks(type)) return unit / n * wx_block_words(type) + unit % n * WX_PANEL;
    if (type == WX_G8) unit += unit / WX_G8_UNITS * 2;
    return unit * WX_PANEL;
}

/* What stands behind the units of a chunk; `panel` is the panel's begin, `unit` the first one of the chunk. */
static void end_chunk(int32_t type, const packed_row * row, uint32_t * panel, int64_t column, int64_t unit,
                      int64_t units) {
    for (int64_t g = 0; type == WX_G8 && g * WX_G8_UNITS < units; g++) {
        int64_t last = (g + 1) * WX_G8_UNITS < units ? (g + 1) * WX_G8_UNITS - 1 : units - 1;
        for (int i = 0; i < 2; i++)
            memcpy(panel + unit_at(type, unit + last) + (1 + i) * WX_PANEL + column, &row->groups[g][i], 4);
    }
    if (!wx_in_blocks(type)) return;
    const int n = wx_block_units(type);
    for (int64_t b = 0; b < units / n; b++)
        ((uint16_t *) (panel + unit_at(type, unit + b * n) + n * WX_PANEL))[column] = row->scales[b];
}

/* What stands behind all units of an output. */
static void end_row(int32_t type, const packed_row * row, uint32_t * panel, int64_t column, int64_t units) {
    if (type != WX_I8) return;
    memcpy(panel + units * WX_PANEL + column, &row->scale, sizeof(row->scale));
    memcpy(panel + (units + 1) * WX_PANEL + column, &row->sum, sizeof(row->sum));
}

/* n outputs at once, the first of which stands at a multiple of WX_LANES if n is that: whole vectors are written then
   instead of single units far apart. */
static void pack_rows(const wx_matrix * m, int64_t row, int n, const void * src, int32_t src_type, int64_t at,
                      float factor) {
    int32_t type = m->type, n_in = m->n_in, unit = wx_unit(type);
    int64_t column = row % WX_PANEL, all = wx_units(type, n_in);
    uint32_t * panel = (uint32_t *) m->data + row / WX_PANEL * wx_panel_words(type, n_in);
    float x[CHUNK];
    uint32_t converted[WX_LANES][CHUNK + WX_LANES];     /* rows begin in different sets of the cache */
    packed_row states[WX_LANES];
    for (int i = 0; i < n; i++) states[i] = begin_row(type, src, src_type, at + (int64_t) i * n_in, n_in, factor);
    for (int32_t k = 0; k < n_in; k += CHUNK) {
        int64_t first = k / unit, units = all - first < CHUNK / unit ? all - first : CHUNK / unit;
        for (int i = 0; i < n; i++) {
            read_chunk(src, src_type, at + (int64_t) i * n_in + k, n_in - k < CHUNK ? n_in - k : CHUNK, factor,
                       m->around == NULL ? NULL : m->around + k, x);
            convert_chunk(type, x, &states[i], converted[i]);
            end_chunk(type, &states[i], panel, column + i, first, units);
        }
        for (int64_t u = 0; u < units && n < WX_LANES; u++)
            for (int i = 0; i < n; i++) panel[unit_at(type, first + u) + column + i] = converted[i][u];
        for (int64_t u = 0; u < units && n == WX_LANES; u += WX_LANES) {
            wx_vi block[WX_LANES];
            for (int i = 0; i < WX_LANES; i++) memcpy(&block[i], &converted[i][u], sizeof(wx_vi));
            wx_transpose(block);
            for (int j = 0; j < WX_LANES && u + j < units; j++)
                memcpy(panel + unit_at(type, first + u + j) + column, &block[j], sizeof(wx_vi));
        }
    }
    for (int i = 0; i < n; i++) end_row(type, &states[i], panel, column + i, all);
}

/* Outputs behind the last one. */
static void fill_panel(const wx_matrix * m) {
    int64_t words = wx_panel_words(m->type, m->n_in);
    uint32_t * panel = (uint32_t *) m->data + m->n_out / WX_PANEL * words, * end = panel + words;
    if (wx_in_blocks(m->type)) {
        const int n = wx_block_units(m->type);
        for (; panel < end; panel += wx_block_words(m->type)) {
            uint16_t * scales = (uint16_t *) (panel + n * WX_PANEL);
            for (int32_t c = m->n_out % WX_PANEL; c < WX_PANEL; c++) {
                for (int u = 0; u < n; u++) panel[u * WX_PANEL + c] = m->type == WX_Q8 ? WX_Q8_ZERO : WX_N4_ZERO;
                scales[c] = 0;
            }
        }
        return;
    }
    for (; panel < end; panel += WX_PANEL)
        for (int32_t c = m->n_out % WX_PANEL; c < WX_PANEL; c++) panel[c] = 0;
}

void wx_pack(const wx_matrix * m, int32_t first, int32_t n_rows, const void * src, int32_t src_type, float factor) {
    for (int32_t r = 0, n; r < n_rows; r += n) {
        n = (first + r) % WX_LANES == 0 && n_rows - r >= WX_LANES ? WX_LANES : 1;
        pack_rows(m, first + r, n, src, src_type, (int64_t) r * m->n_in, factor);
    }
    /* Whoever brings the last row fills up the last panel. */
    if (first + n_rows == m->n_out && m->n_out % WX_PANEL) fill_panel(m);
}
