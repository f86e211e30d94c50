/* The encoder of one window, stage after stage.
 *
 * Rows go through everything between two attentions in chunks that stay in the second-level cache: what a chunk needs
 * of others is only their keys and values. Chunks are handed out by tickets, so that a thread whose core is taken from
 * it does not keep the others waiting; where a chunk begins does not depend on who takes it, nor on how many there are.
 */
#include <string.h>

#include "attention.h"

#define CHUNK WX_HEADS_STEP     /* rows; 96 and 192 are no faster, and leave threads waiting for the last one */
#define CROSS_CHUNK 192         /* rows; a multiple of WX_CROSS_STEP and of 6, the rows of a product's tile */
#define CROSS_FEW 4             /* more threads than this take ranges of WX_CROSS_STEP */
#define TICKETS 3               /* phases of a stage, at most */

/* Where everything lies in the scratch memory of a job. */
typedef struct plan {
    const wx_model * m;
    const wx_encode * job;
    int32_t n_ctx, n;           /* positions, n_state */
    int32_t n_head, d;
    int32_t k_context;          /* numbers from row to row of `context` */
    int32_t * tickets;          /* (TICKETS), a cache line each */
    float * x;                  /* (n_ctx, n): the residual stream */
    void * heads;
    void * context;             /* (n_ctx, k_context): what attention found, f32 or bf16 */
    /* of one thread */
    void * rows;                /* activations of a chunk in the form of a product */
    void * wide;                /* products of a chunk; in stage 0 frames between the convolutions */
    void * narrow;              /* mel frames; one row */
    void * work;                /* of attention */
    size_t bytes;
} plan;

static void * take(plan * p, char * base, size_t bytes) {
    void * at = base ? base + p->bytes : NULL;
    p->bytes += (bytes + WX_ALIGN - 1) / WX_ALIGN * WX_ALIGN;
    return at;
}

static size_t most(size_t a, size_t b) { return a > b ? a : b; }

/* With `scratch` NULL only `bytes` means anything. */
static plan plan_at(const wx_model * m, int32_t n_ctx, int32_t ith, int32_t nth, void * scratch) {
    plan p = {.m = m, .n_ctx = n_ctx, .n = m->n_state};
    const size_t n = (size_t) m->n_state, n_mels = (size_t) m->n_mels;
    p.n_head = m->n_audio_head > 0 ? m->n_audio_head : 1;
    p.d = m->n_state / p.n_head;
    p.k_context = wx_round_up(p.n, WX_K_STEP);
    p.tickets = take(&p, scratch, TICKETS * WX_ALIGN);
    p.x = take(&p, scratch, (size_t) n_ctx * n * 4);
    size_t heads = 0;
    for (int32_t i = 0; m->encoder && i < m->n_audio_layer; i++)
        heads = most(heads, wx_heads_bytes(m->encoder[i].qkv.w.type, m->score_type, p.n_head, p.d, n_ctx));
    p.heads = take(&p, scratch, heads);
    p.context = take(&p, scratch, (size_t) n_ctx * (size_t) p.k_context * 4);
    size_t shared = p.bytes;
    /* f32 rows are the largest */
    size_t rows = most(wx_rows_bytes(WX_F32, CHUNK, wx_round_up(4 * p.n, WX_K_STEP)),
                       wx_rows_bytes(WX_F32, CROSS_CHUNK, wx_round_up(p.n, WX_K_STEP)));
    p.rows = take(&p, scratch, rows);
    size_t wide = most(CHUNK * 4 * n * 4, (2 * CHUNK + 1) * n * 4 + WX_ALIGN);
    p.wide = take(&p, scratch, most(wide, CROSS_CHUNK * (2 * n + 2 * WX_PANEL) * 4));
    p.narrow = take(&p, scratch, most(n * 4, 2 * ((2 * CHUNK + 3) * n_mels * 4 + WX_ALIGN)));
    p.work = take(&p, scratch, wx_heads_work(p.d));
    size_t own = p.bytes - shared;
    p.bytes = shared + own * (size_t) nth;
    if (scratch) {
        size_t skip = own * (size_t) ith;
        p.rows = (char *) p.rows + skip;
        p.wide = (char *) p.wide + skip;
        p.narrow = (char *) p.narrow + skip;
        p.work = (char *) p.work + skip;
    }
    return p;
}

size_t wx_encode_bytes(const wx_model * model, int32_t n_ctx, int32_t nth) {
    return plan_at(model, n_ctx, 0, nth, NULL).bytes;
}

/* The next chunk of a phase: [*first, *last) of n rows; false when all are taken. */
static int next_chunk(const plan * p, int32_t phase, int32_t n, int32_t step, int32_t * first, int32_t * last) {
    int32_t i = __atomic_fetch_add(p->tickets + phase * (WX_ALIGN / 4), 1, __ATOMIC_RELAXED);
    if (i >= (n + step - 1) / step) return 0;
    *first = i * step;
    *last = *first + step < n ? *first + step : n;
    return 1;
}

/* ---- pieces: rows [first, last) --------------------------------------------------------------------------------- */

/* Two convolutions of width 3 over time, as products over rows that overlap: three frames of all channels, one after
   another, are a row. The second one moves by two frames. */
static void convolve(const plan * p, int32_t first, int32_t last) {
    const wx_model * m = p->m;
    const int32_t n_frames = 2 * p->n_ctx, n_mels = m->n_mels, n = p->n;
    const int32_t form = wx_form(m->conv1.w.type), form2 = wx_form(m->conv2.w.type);
    const int32_t from = first == 0 ? 0 : 2 * first - 1, count = 2 * last - from;      /* frames of the first one */
    /* the frame before the first and the one behind the last are zero */
    float * mel = p->narrow;
    const int32_t n_in = count + 2;
    for (int32_t c = 0; c < n_mels; c++) {
        const float * line = p->job->mel + (int64_t) c * n_frames;
        for (int32_t i = 0; i < n_in; i++) {
            int32_t frame = from - 1 + i;
            mel[(int64_t) i * n_mels + c] = frame < 0 || frame >= n_frames ? 0.0f : line[frame];
        }
    }
    const int64_t n_numbers = (int64_t) n_in * n_mels;
    memset(mel + n_numbers, 0, 16);     /* a product reads up to 3 numbers behind the last row */
    wx_rows in = {.form = form, .n = count, .k = wx_round_up(3 * n_mels, WX_K_STEP), .stride = n_mels, .data = mel};
    if (form == WX_BF16) {
        in.data = (char *) p->narrow + wx_round_up(n_numbers * 4 + 16, WX_ALIGN);
        wx_to_bf16(mel, n_numbers + 4, in.data);
    }
    const int64_t size = form2 == WX_BF16 ? 2 : 4;
    char * between = p->wide;           /* frames 2 first - 1 .. 2 last - 1 */
    const int64_t skip = first == 0 ? n : 0;
    memset(between, 0, (size_t) (skip * size));
    memset(between + (skip + (int64_t) count * n) * size, 0, (size_t) (4 * size));
    wx_epilogue to = {.kind = WX_GELU, .stride = n};
    if (form2 == WX_BF16) to.out_bf16 = (uint16_t *) between + skip;
    else to.out_f32 = (float *) between + skip;
    wx_gemm(&m->conv1.w, m->conv1.bias, &in, 0, count, 0, n, &to);

    wx_rows frames = {.form = form2, .n = last - first, .k = wx_round_up(3 * n, WX_K_STEP), .stride = 2 * n,
                      .data = between};
    wx_epilogue out = {.kind = WX_GELU, .stride = n, .out_f32 = p->x + (int64_t) first * n};
    wx_gemm(&m->conv2.w, m->conv2.bias, &frames, 0, last - first, 0, n, &out);
    float * x = p->x + (int64_t) first * n;
    const float * position = m->e_pe + (int64_t) first * n;
    for (int64_t i = 0; i < (int64_t) (last - first) * n; i++) x[i] += position[i];
}

/* Rows of x, normalised, in the form that matrix w takes. */
static wx_rows normed(const plan * p, const wx_norm * norm, const wx_matrix * w, int32_t first, int32_t last) {
    wx_rows rows = wx_rows_at(wx_form(w->type), last - first, wx_round_up(p->n, WX_K_STEP), p->rows);
    for (int32_t i = first; i < last; i++) {
        wx_norm_row(norm, p->x + (int64_t) i * p->n, p->n, p->narrow);
        wx_rows_put(&rows, i - first, p->narrow, p->n);
    }
    return rows;
}

static wx_heads heads_of(const plan * p, const wx_encoder_layer * layer) {
    return wx_heads_at(layer->qkv.w.type, p->m->score_type, p->n_head, p->d, p->n_ctx, p->heads);
}

/* Queries, keys and values. */
static void project(const plan * p, const wx_encoder_layer * layer, int32_t first, int32_t last) {
    const wx_heads heads = heads_of(p, layer);
    const wx_rows rows = normed(p, &layer->attn_ln, &layer->qkv.w, first, last);
    const int32_t n_out = 3 * p->n;
    wx_epilogue to = {.kind = WX_PLAIN, .stride = n_out};
    if (heads.form == WX_BF16) to.out_bf16 = p->wide;
    else to.out_f32 = p->wide;
    wx_gemm(&layer->qkv.w, layer->qkv.bias, &rows, 0, last - first, 0, n_out, &to);
    wx_heads_put(&heads, p->wide, n_out, first, last);
}

/* Does attention write its rows as the next product takes them? */
static int context_is_bf16(const plan * p, const wx_encoder_layer * layer) {
    return heads_of(p, layer).form == WX_BF16 && wx_form(layer->out.w.type) == WX_BF16;
}

static void attend(const plan * p, const wx_encoder_layer * layer, int32_t head, int32_t first, int32_t last) {
    const wx_heads heads = heads_of(p, layer);
    const int bf16 = context_is_bf16(p, layer);
    wx_heads_attend(&heads, head, first, last, p->context, p->k_context, bf16, p->work);
    if (head < p->n_head - 1 || p->k_context == p->n) return;
    for (int64_t i = first; i < last; i++) {
        if (bf16) memset((uint16_t *) p->context + i * p->k_context + p->n, 0, (size_t) (p->k_context - p->n) * 2);
        else memset((float *) p->context + i * p->k_context + p->n, 0, (size_t) (p->k_context - p->n) * 4);
    }
}

/* What follows attention in a block: its projection, then the perceptron. */
static void mix(const plan * p, const wx_encoder_layer * layer, int32_t first, int32_t last) {
    const int32_t n = p->n, n_rows = last - first, form = wx_form(layer->out.w.type);
    const wx_epilogue add = {.kind = WX_RESIDUAL, .stride = n, .out_f32 = p->x + (int64_t) first * n};
    wx_rows rows = {.form = form, .n = n_rows, .k = p->k_context, .stride = p->k_context};
    if (context_is_bf16(p, layer)) {
        rows.data = (uint16_t *) p->context + (int64_t) first * p->k_context;
    } else if (form == WX_F32) {
        rows.data = (float *) p->context + (int64_t) first * p->k_context;
    } else {
        rows = wx_rows_at(form, n_rows, p->k_context, p->rows);
        for (int32_t i = 0; i < n_rows; i++)
            wx_rows_put(&rows, i, (const float *) p->context + (int64_t) (first + i) * p->k_context, n);
    }
    wx_gemm(&layer->out.w, layer->out.bias, &rows, 0, n_rows, 0, n, &add);

    rows = normed(p, &layer->mlp_ln, &layer->up.w, first, last);
    const int32_t n_hidden = 4 * n, hidden_form = wx_form(layer->down.w.type);
    wx_epilogue to = {.kind = WX_GELU, .stride = n_hidden};
    if (hidden_form == WX_BF16) to.out_bf16 = p->wide;
    else to.out_f32 = p->wide;
    wx_gemm(&layer->up.w, layer->up.bias, &rows, 0, n_rows, 0, n_hidden, &to);
    wx_rows hidden = {.form = hidden_form, .n = n_rows, .k = wx_round_up(n_hidden, WX_K_STEP), .stride = n_hidden,
                      .data = p->wide};
    if (hidden_form == WX_I8 || hidden_form == WX_G8) {
        hidden = wx_rows_at(hidden_form, n_rows, hidden.k, p->rows);
        for (int32_t i = 0; i < n_rows; i++)
            wx_rows_put(&hidden, i, (float *) p->wide + (int64_t) i * n_hidden, n_hidden);
    }
    wx_gemm(&layer->down.w, layer->down.bias, &hidden, 0, n_rows, 0, n, &add);
}

/* Keys and values of all layers of the decoder. Ranges of outputs begin at whole panels, those of a layer need not. */
static void cross(const plan * p, int32_t first, int32_t last) {
    const wx_linear * linear = &p->m->cross_kv;
    const int32_t n = p->n, n_rows = last - first;
    const wx_rows rows = wx_rows_at(wx_form(linear->w.type), n_rows, wx_round_up(n, WX_K_STEP), p->rows);
    for (int32_t i = 0; i < n_rows; i++) wx_rows_put(&rows, i, p->job->out + (int64_t) (first + i) * n, n);
    const int64_t stride = 2 * (int64_t) n + 2 * WX_PANEL;
    for (int32_t layer = 0; layer < p->m->n_text_layer; layer++) {
        const int32_t begin = layer * 2 * n, end = begin + 2 * n;
        const int32_t from = begin / WX_PANEL * WX_PANEL;
        int32_t to = wx_round_up(end, WX_PANEL);
        if (to > linear->w.n_out) to = linear->w.n_out;
        float * kv = p->wide;
        const wx_epilogue e = {.kind = WX_PLAIN, .stride = stride, .out_f32 = kv - from};
        wx_gemm(&linear->w, linear->bias, &rows, 0, n_rows, from, to, &e);
        wx_cross_store(p->m, p->job->cross, p->n_ctx, layer, kv + (begin - from), stride, first, last);
    }
}

/* ---- stages ----------------------------------------------------------------------------------------------------- */

static void stage_begin(const plan * p, int32_t first, int32_t last) {
    convolve(p, first, last);
    if (p->m->n_audio_layer > 0) project(p, &p->m->encoder[0], first, last);
}

static void stage_block(const plan * p, int32_t index, int32_t nth) {
    const wx_encoder_layer * layer = &p->m->encoder[index];
    /* Chunks of all heads in one line: a chunk of rows of one head is one ticket. */
    const int32_t per_head = (p->n_ctx + CHUNK - 1) / CHUNK;
    int32_t i, end, first, last;
    while (next_chunk(p, 0, per_head * p->n_head, 1, &i, &end)) {
        first = i % per_head * CHUNK;
        last = first + CHUNK < p->n_ctx ? first + CHUNK : p->n_ctx;
        attend(p, layer, i / per_head, first, last);
    }
    wx_barrier(p->job->sync, nth);
    while (next_chunk(p, 1, p->n_ctx, CHUNK, &first, &last)) {
        mix(p, layer, first, last);
        if (index + 1 < p->m->n_audio_layer) project(p, layer + 1, first, last);
    }
}

void wx_encode_stage(const wx_encode * job, int32_t stage, int32_t ith, int32_t nth) {
    const wx_model * m = job->model;
    plan p = plan_at(m, job->n_ctx, ith, nth, job->scratch);
    p.job = job;
    if (ith == 0)
        for (int32_t i = 0; i < TICKETS; i++) __atomic_store_n(p.tickets + i * (WX_ALIGN / 4), 0, __ATOMIC_RELAXED);
    wx_barrier(job->sync, nth);
    int32_t first, last;
    if (stage == 0) {
        while (next_chunk(&p, 0, p.n_ctx, CHUNK, &first, &last)) stage_begin(&p, first, last);
    } else if (stage <= m->n_audio_layer) {
        stage_block(&p, stage - 1, nth);
    } else if (stage == m->n_audio_layer + 1) {
        while (next_chunk(&p, 0, p.n_ctx, CHUNK, &first, &last))
            for (int32_t i = first; i < last; i++)
                wx_norm_row(&m->ln_post, p.x + (int64_t) i * p.n, p.n, job->out + (int64_t) i * p.n);
    } else {
        const int32_t step = nth > CROSS_FEW ? WX_CROSS_STEP : CROSS_CHUNK;
        while (next_chunk(&p, 0, p.n_ctx, step, &first, &last)) cross(&p, first, last);
    }
}
