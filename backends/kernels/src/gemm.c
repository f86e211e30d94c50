/* Activations times packed weights, and what is done to the products. */
#include <math.h>

#include "tiles.h"

#define BLOCK_BYTES (192 * 1024)    /* of activations that stay in the second level cache while panels pass */
#define Q8_MOST (127 * 256 + 127)   /* largest number of 16 bits that splits into two signed bytes */

int32_t wx_form(int32_t type) {
#if defined(WX_ISA_AVX512_BF16)
    return type;
#else
    return type == WX_BF16 ? WX_F32 : type;
#endif
}

int32_t wx_early_form(int32_t type) {
#if !defined(WX_ISA_AVX2)
    if (type == WX_Q8) return WX_S8;
#endif
    return wx_form(type);
}

static int64_t number_bytes(int32_t form) {
    if (form == WX_S8 || form == WX_N4) return 1;
    return form == WX_I8 || form == WX_G8 ? WX_I8_BYTES : form == WX_Q8 ? 2 : form == WX_BF16 ? WX_BF16_BYTES : 4;
}

static size_t aligned(size_t bytes) { return (bytes + WX_ALIGN - 1) & -(size_t) WX_ALIGN; }

static size_t data_bytes(int32_t form, int32_t n, int32_t k) {
    return aligned((size_t) n * (size_t) wx_round_up(k, WX_K_STEP) * (size_t) number_bytes(form));
}

static int64_t groups_of(int32_t k) { return ((int64_t) k + WX_G8_INPUTS - 1) / WX_G8_INPUTS; }

static size_t scale_bytes(int32_t form, int32_t n, int32_t k) {
    if (form == WX_G8) return aligned((size_t) n * (size_t) groups_of(k) * 2 * sizeof(float));
    if (form == WX_S8 || form == WX_N4) return aligned((size_t) n * (size_t) groups_of(k) * sizeof(float));
    return form == WX_I8 || form == WX_Q8 ? aligned((size_t) n * sizeof(float)) : 0;
}

size_t wx_rows_bytes(int32_t form, int32_t n, int32_t k) {
    size_t blocks = (size_t) wx_round_up(k, WX_K_STEP) / WX_Q8_INPUTS;
    size_t starts = form == WX_Q8 || form == WX_S8 || form == WX_N4 ? blocks : form == WX_I8 ? 1 : 0;
    return data_bytes(form, n, k) + scale_bytes(form, n, wx_round_up(k, WX_K_STEP)) +
           aligned((size_t) n * starts * sizeof(int32_t));
}

wx_rows wx_rows_at(int32_t form, int32_t n, int32_t k, void * memory) {
    wx_rows rows = {.form = form, .n = n, .k = wx_round_up(k, WX_K_STEP), .data = memory};
    rows.stride = rows.k;
    rows.scale = (float *) ((char *) memory + data_bytes(form, n, k));
    rows.start = (int32_t *) ((char *) rows.scale + scale_bytes(form, n, rows.k));
    return rows;
}

/* Whole numbers of LANES activations, 0 .. 255 when `zero` is added; AVX2 keeps them as they are, VNNI with it. (What a
   NaN becomes does not matter: its row's scale is NaN, too.) */
static void put_i8(void * to, int32_t at, wx_v x, wx_v inverse, wx_vi zero) {
    wx_vi q = wx_max_i32(wx_add_i32(wx_round_i32(x * inverse), zero), wx_set1i(0));
#if defined(WX_ISA_AVX2)
    q = wx_sub_i32(wx_min_i32(q, wx_set1i(255)), zero);
    q = _mm256_shuffle_epi32(q, _MM_SHUFFLE(3, 1, 2, 0));
    wx_store_u16((uint16_t *) to + at, q);
#else
    _mm_storeu_si128((__m128i *) ((uint8_t *) to + at), _mm512_cvtusepi32_epi8(q));
#endif
}

/* The scale of a row whose largest number is to become `most`; returns its inverse. Rows of zeros have scale 0. */
static float put_scale(const wx_rows * to, int32_t row, const float * x, int32_t n, float most) {
    int32_t full = n - n % WX_LANES;
    wx_vi top = wx_set1i(0);        /* NaN counts as the largest: as integers its bits are */
    for (int32_t i = 0; i < full; i += WX_LANES) top = wx_max_i32(top, wx_bits(wx_abs(wx_load(x + i))));
    if (full < n) top = wx_max_i32(top, wx_bits(wx_abs(wx_load_n(x + full, n - full))));
    int32_t bits = wx_largest_i32(top);
    float largest, scale = 0.0f, inverse = 0.0f;
    memcpy(&largest, &bits, sizeof(largest));
    if (!(largest < 1e-30f)) {
        scale = largest / most;
        inverse = most / largest;
    }
    to->scale[row] = scale;
    return inverse;
}

/* The range from the least to the largest of n numbers, 0 in it, is divided into 255 steps: what comes out of GELU has
   nearly all of it above 0, and so steps of half the size that they would have around 0. Zeros follow up to `k`.
   Returns the number that stands for 0. */
static int32_t put_steps(const float * x, int32_t n, int32_t k, char * data, float * scale) {
    int32_t full = n - n % WX_LANES;
    wx_v low = wx_zero(), high = wx_zero(), nothing = wx_zero();
    for (int32_t i = 0; i < n; i += WX_LANES) {
        wx_v v = i < full ? wx_load(x + i) : wx_load_n(x + i, n - i);
        low = wx_min(v, low);
        high = wx_max(v, high);
        nothing = wx_fma(v, wx_zero(), nothing);        /* NaN where a number is not finite */
    }
    float least = -wx_largest(wx_zero() - low), range = wx_largest(high) - least, inverse = 0.0f;
    *scale = wx_sum(nothing);
    if (!(range < 1e-30f)) {
        *scale += range / 255.0f;
        inverse = 255.0f / range;
    }
    int32_t zero = -least * inverse < 255.0f ? (int32_t) lrintf(-least * inverse) : 255;
    for (int32_t i = 0; i < full; i += WX_LANES) put_i8(data, i, wx_load(x + i), wx_set1(inverse), wx_set1i(zero));
    for (int32_t i = full; i < k; i += WX_LANES)
        put_i8(data, i, i < n ? wx_load_n(x + i, n - i) : wx_zero(), wx_set1(inverse), wx_set1i(zero));
    return zero;
}

static void put_row_i8(const wx_rows * to, int32_t row, const float * x, int32_t n) {
    to->start[row] = -put_steps(x, n, to->k, (char *) to->data + row * to->stride * WX_I8_BYTES, to->scale + row);
}

static void put_row_g8(const wx_rows * to, int32_t row, const float * x, int32_t n) {
    char * data = (char *) to->data + row * to->stride * WX_I8_BYTES;
    float * scale = to->scale + row * groups_of(to->k) * 2;
    for (int32_t i = 0; i < to->k; i += WX_G8_INPUTS, scale += 2) {
        int32_t k = to->k - i < WX_G8_INPUTS ? to->k - i : WX_G8_INPUTS, there = n - i < k ? n - i : k;
        int32_t zero = put_steps(x + i, there < 0 ? 0 : there, k, data + i * WX_I8_BYTES, scale);
        scale[1] = scale[0] * (float) -zero;
    }
}

/* The same in 16 bits: an upper byte of -127 .. 127 and a signed lower one where 8-bit products take them. */
static wx_vi put_q8(void * to, int32_t at, wx_v x, wx_v inverse) {
    wx_vi q = wx_round_i32(x * inverse);
    q = wx_max_i32(wx_min_i32(q, wx_set1i(Q8_MOST)), wx_set1i(-Q8_MOST));
#if defined(WX_ISA_AVX2)
    wx_store_u16((uint16_t *) to + at, _mm256_shuffle_epi32(q, _MM_SHUFFLE(3, 1, 2, 0)));
#else
    __m128i low = _mm512_cvtepi32_epi8(q);
    __m128i high = _mm512_cvtepi32_epi8(_mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(128)), 8));
    _mm_storeu_si128((__m128i *) ((char *) to + 2 * at), _mm_unpacklo_epi32(high, low));
    _mm_storeu_si128((__m128i *) ((char *) to + 2 * at + 16), _mm_unpackhi_epi32(high, low));
#endif
    return q;
}

static void put_row_q8(const wx_rows * to, int32_t row, const float * x, int32_t n) {
    float inverse = put_scale(to, row, x, n, (float) Q8_MOST);
    char * data = (char *) to->data + row * to->stride * 2;
    int32_t * start = to->start + (int64_t) row * (to->k / WX_Q8_INPUTS);
    for (int32_t i = 0; i < to->k; i += WX_Q8_INPUTS, start++) {
        wx_vi sum = wx_set1i(0);
        for (int32_t j = i; j < i + WX_Q8_INPUTS; j += WX_LANES) {
            wx_v v = j + WX_LANES <= n ? wx_load(x + j) : j < n ? wx_load_n(x + j, n - j) : wx_zero();
            sum = wx_add_i32(sum, put_q8(data, j, v, wx_set1(inverse)));
        }
#if !defined(WX_ISA_AVX2)
        *start = -128 * _mm512_reduce_add_epi32(sum);       /* weights come with 128 added */
#else
        *start = 0;
#endif
    }
}

/* In steps of each group's largest number / 127. Weights come with `zero` added. */
static void put_row_s8(const wx_rows * to, int32_t row, const float * x, int32_t n, int32_t zero) {
    int8_t * data = (int8_t *) to->data + row * to->stride;
    float * scale = to->scale + row * groups_of(to->k);
    int32_t * start = to->start + (int64_t) row * (to->k / WX_Q8_INPUTS);
    for (int32_t first = 0; first < to->k; first += WX_G8_INPUTS, scale++) {
        const int32_t k = to->k - first < WX_G8_INPUTS ? to->k - first : WX_G8_INPUTS;
        wx_v v[WX_G8_INPUTS / WX_LANES], top = wx_zero(), nothing = wx_zero();
        for (int32_t i = 0; i < k / WX_LANES; i++) {
            const int32_t at = first + i * WX_LANES;
            v[i] = at + WX_LANES <= n ? wx_load(x + at) : at < n ? wx_load_n(x + at, n - at) : wx_zero();
            top = wx_max(top, wx_abs(v[i]));
            nothing = wx_fma(v[i], wx_zero(), nothing);     /* NaN where a number is not finite */
        }
        const float largest = wx_largest(top);
        const wx_v steps = wx_set1(largest < 1e-30f ? 0.0f : 127.0f / largest);
        *scale = largest / 127.0f + wx_sum(nothing);
        for (int32_t i = 0; i < k / WX_LANES; i += 32 / WX_LANES, start++) {
            wx_vi sum = wx_zeroi();
            for (int32_t j = i; j < i + 32 / WX_LANES; j++) {
                wx_vi q = wx_max_i32(wx_min_i32(wx_round_i32(v[j] * steps), wx_set1i(127)), wx_set1i(-127));
                wx_store_i8(data + first + j * WX_LANES, q);
                sum = wx_add_i32(sum, q);
            }
            *start = -zero * wx_sum_i32(sum);
        }
    }
}

void wx_rows_put(const wx_rows * to, int32_t row, const float * x, int32_t n_in) {
    if (to->form == WX_S8 || to->form == WX_N4) {
        put_row_s8(to, row, x, n_in, to->form == WX_S8 ? 128 : 8);
    } else if (to->form == WX_I8) {
        put_row_i8(to, row, x, n_in);
    } else if (to->form == WX_G8) {
        put_row_g8(to, row, x, n_in);
    } else if (to->form == WX_Q8) {
        put_row_q8(to, row, x, n_in);
    } else if (to->form == WX_BF16) {
        uint16_t * data = (uint16_t *) to->data + row * to->stride;
        wx_to_bf16(x, n_in, data);
        memset(data + n_in, 0, (size_t) (to->k - n_in) * 2);
    } else {
        float * data = (float *) to->data + row * to->stride;
        if (data != x) memcpy(data, x, (size_t) n_in * 4);
        memset(data + n_in, 0, (size_t) (to->k - n_in) * 4);
    }
}

/* What is the same for all tiles of one call. */
typedef struct job {
    int32_t type;               /* of the matrix, or WX_S8 where the rows have that form */
    int64_t stride;             /* bytes from row to row of activations */
    int64_t units, words;
    int64_t groups;             /* of a row of activations, for WX_G8, WX_S8 and WX_N4 */
    const uint32_t * weights;
    const char * x;
    const float * x_scale, * bias;
    const int32_t * x_start;
    const wx_epilogue * e;
    int32_t n_out;
} job;

/* Products of rows [row, row + rows) and outputs [out, out + n) of a panel to where they belong. */
static inline __attribute__((always_inline)) void put_tile(const job * j, const int kind, const float * tile,
                                                           int64_t row, int rows, int32_t out, const float * w_scale) {
    int n = j->n_out - out < WX_PANEL ? j->n_out - out : WX_PANEL;
    for (int c = 0; c < n; c += WX_LANES) {
        int lanes = n - c < WX_LANES ? n - c : WX_LANES;
        wx_v bias = wx_zero(), scale = wx_zero();
        if (j->bias) bias = lanes == WX_LANES ? wx_load(j->bias + out + c) : wx_load_n(j->bias + out + c, lanes);
        if (j->type == WX_I8) scale = wx_load(w_scale + c);
        for (int r = 0; r < rows; r++) {
            wx_v v = wx_load(tile + r * WX_PANEL + c);
            if (j->type == WX_I8) v = wx_fma(v, scale * wx_set1(j->x_scale[row + r]), bias);
            else if (j->type == WX_Q8) v = wx_fma(v, wx_set1(j->x_scale[row + r]), bias);
            else v += bias;
            if (kind == WX_PLAIN && j->e->plus) v += wx_set1(j->e->plus[row + r]);
            int64_t at = (row + r) * j->e->stride + out + c;
            if (kind == WX_GELU) v = wx_gelu_v(v);
            if (kind != WX_RESIDUAL && j->e->out_bf16) {
                if (lanes == WX_LANES) wx_store_bf16(j->e->out_bf16 + at, v);
                else wx_store_bf16_n(j->e->out_bf16 + at, v, lanes);
                continue;
            }
            float * to = j->e->out_f32 + at;
            if (lanes == WX_LANES) {
                if (kind == WX_RESIDUAL) v += wx_load(to);
                wx_store(to, v);
            } else {
                if (kind == WX_RESIDUAL) v += wx_load_n(to, lanes);
                wx_store_n(to, v, lanes);
            }
        }
    }
}

#define TILE(TYPE, ROWS) case ROWS: wx_tile_##TYPE(ROWS, x, j->stride, panel, j->units, tile); break
#define TILES(TYPE) \
    static void tiles_##TYPE(const job * j, const char * x, const uint32_t * panel, int rows, float * tile) { \
        switch (rows) { \
            TILE(TYPE, 1); TILE(TYPE, 2); TILE(TYPE, 3); TILE(TYPE, 4); TILE(TYPE, 5); TILE(TYPE, 6); \
        } \
    }
TILES(f32)
TILES(bf16)

#define TILE_I8(ROWS) case ROWS: wx_tile_i8(ROWS, x, j->stride, j->x_start + row, panel, j->units, tile); break
#define TILE_G8(ROWS) case ROWS: wx_tile_g8(ROWS, x, j->stride, scale, j->groups, panel, j->units, tile); break
static void tiles_g8(const job * j, const char * x, int64_t row, const uint32_t * panel, int rows, float * tile) {
    const float * scale = j->x_scale + row * j->groups * 2;
    switch (rows) { TILE_G8(1); TILE_G8(2); TILE_G8(3); TILE_G8(4); TILE_G8(5); TILE_G8(6); }
}

static void tiles_i8(const job * j, const char * x, int64_t row, const uint32_t * panel, int rows, float * tile) {
    switch (rows) { TILE_I8(1); TILE_I8(2); TILE_I8(3); TILE_I8(4); TILE_I8(5); TILE_I8(6); }
}

#define TILE_Q8(ROWS) case ROWS: wx_tile_q8(ROWS, x, j->stride, start, blocks, panel, tile); break
static void tiles_q8(const job * j, const char * x, int64_t row, const uint32_t * panel, int rows, float * tile) {
    int64_t blocks = j->units / WX_Q8_UNITS;
    const int32_t * start = j->x_start + row * blocks;
    switch (rows) { TILE_Q8(1); TILE_Q8(2); TILE_Q8(3); }
}

#if !defined(WX_ISA_AVX2)
#define TILE_S8(ROWS) case ROWS: wx_tile_s8(ROWS, x, j->stride, start, scale, j->groups, blocks, panel, tile); break
static void tiles_s8(const job * j, const char * x, int64_t row, const uint32_t * panel, int rows, float * tile) {
    int64_t blocks = j->units / WX_Q8_UNITS;
    const int32_t * start = j->x_start + row * blocks;
    const float * scale = j->x_scale + row * j->groups;
    switch (rows) { TILE_S8(1); TILE_S8(2); TILE_S8(3); TILE_S8(4); TILE_S8(5); TILE_S8(6); }
}
#endif

#define TILE_N4(ROWS) case ROWS: wx_tile_n4(ROWS, x, j->stride, start, scale, j->groups, blocks, panel, tile); break
static void tiles_n4(const job * j, const char * x, int64_t row, const uint32_t * panel, int rows, float * tile) {
    int64_t blocks = j->units / WX_N4_UNITS;
    const int32_t * start = j->x_start + row * blocks;
    const float * scale = j->x_scale + row * j->groups;
    switch (rows) {
        TILE_N4(1); TILE_N4(2); TILE_N4(3);
#if WX_TILE_N4 == 6
        TILE_N4(4); TILE_N4(5); TILE_N4(6);
#endif
    }
}

static void multiply(const job * j, int64_t row, int rows, int32_t out) {
    _Alignas(64) float tile[WX_TILE * WX_PANEL];
    const uint32_t * panel = j->weights + out / WX_PANEL * j->words;
    const float * w_scale = (const float *) (panel + j->units * WX_PANEL);
    const char * x = j->x + row * j->stride;
#if !defined(WX_ISA_AVX2)
    if (j->type == WX_S8) tiles_s8(j, x, row, panel, rows, tile);
    else
#endif
    if (j->type == WX_F32) tiles_f32(j, x, panel, rows, tile);
    else if (j->type == WX_Q8) tiles_q8(j, x, row, panel, rows, tile);
    else if (j->type == WX_BF16) tiles_bf16(j, x, panel, rows, tile);
    else if (j->type == WX_G8) tiles_g8(j, x, row, panel, rows, tile);
    else if (j->type == WX_N4) tiles_n4(j, x, row, panel, rows, tile);
    else tiles_i8(j, x, row, panel, rows, tile);
    if (j->e->kind == WX_GELU) put_tile(j, WX_GELU, tile, row, rows, out, w_scale);
    else if (j->e->kind == WX_RESIDUAL) put_tile(j, WX_RESIDUAL, tile, row, rows, out, w_scale);
    else put_tile(j, WX_PLAIN, tile, row, rows, out, w_scale);
}

void wx_gemm(const wx_matrix * w, const float * bias, const wx_rows * x, int32_t row_first, int32_t row_last,
             int32_t out_first, int32_t out_last, const wx_epilogue * e) {
    job j = {.type = w->type, .stride = x->stride * number_bytes(x->form), .units = wx_units(w->type, w->n_in),
             .words = wx_panel_words(w->type, w->n_in), .groups = groups_of(x->k), .weights = w->data, .x = x->data,
             .x_scale = x->scale, .x_start = x->start, .bias = bias, .e = e, .n_out = w->n_out};
    int32_t block = (int32_t) (BLOCK_BYTES / j.stride / WX_TILE * WX_TILE);
    if (block < WX_TILE) block = WX_TILE;
    if (x->form == WX_S8) j.type = WX_S8;
    int32_t height = j.type == WX_Q8 ? WX_TILE_Q8 : j.type == WX_N4 ? WX_TILE_N4 : WX_TILE;
    for (int32_t first = row_first; first < row_last; first += block) {
        int32_t last = row_last - first < block ? row_last : first + block;
        for (int32_t out = out_first; out < out_last; out += WX_PANEL) {
            /* The first tile brings the panel from memory, the others find it in a cache; asking for it ahead of time
               only costs (measured). Tiles are of equal height: 4 + 4 rows, not 6 + 2. */
            int32_t tiles = (last - first + height - 1) / height;
            for (int32_t t = 0; t < tiles; t++) {
                int32_t from = first + (last - first) * t / tiles, to = first + (last - first) * (t + 1) / tiles;
                multiply(&j, from, to - from, out);
            }
        }
    }
}

float wx_around(const wx_matrix * w, const float * x) {
    int32_t n = w->around == NULL ? 0 : w->n_in, i = 0;
    wx_v sum = wx_zero();
    for (; i + WX_LANES <= n; i += WX_LANES) sum = wx_fma(wx_load(w->around + i), wx_load(x + i), sum);
    if (i < n) sum = wx_fma(wx_load_n(w->around + i, n - i), wx_load_n(x + i, n - i), sum);
    return wx_sum(sum);
}

/* Rows in form, then what `around` adds to each. */
size_t wx_matmul_bytes(const wx_matrix * m, int32_t n) {
    return wx_rows_bytes(wx_form(m->type), n, m->n_in) + (size_t) n * sizeof(float);
}

void wx_matmul(const wx_linear * w, const float * x, int32_t n, float * y, void * scratch, wx_sync * sync, int32_t ith,
               int32_t nth) {
    wx_rows rows = wx_rows_at(wx_form(w->w.type), n, w->w.n_in, scratch);
    float * plus = (float *) ((char *) scratch + wx_rows_bytes(wx_form(w->w.type), n, w->w.n_in));
    wx_epilogue e = {.kind = WX_PLAIN, .out_f32 = y, .stride = w->w.n_out, .plus = w->w.around ? plus : NULL};
    int64_t first, last;
    wx_share(n, 1, ith, nth, &first, &last);
    for (int64_t r = first; r < last; r++) {
        wx_rows_put(&rows, (int32_t) r, x + r * w->w.n_in, w->w.n_in);
        plus[r] = wx_around(&w->w, x + r * w->w.n_in);
    }
    wx_barrier(sync, nth);
    if (n >= 64 * nth) {
        wx_share(n, WX_TILE, ith, nth, &first, &last);
        wx_gemm(&w->w, w->bias, &rows, (int32_t) first, (int32_t) last, 0, w->w.n_out, &e);
    } else {
        wx_share(w->w.n_out, WX_PANEL, ith, nth, &first, &last);
        wx_gemm(&w->w, w->bias, &rows, 0, n, (int32_t) first, (int32_t) last, &e);
    }
}
