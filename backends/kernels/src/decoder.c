/* The decoder, one block a call, for any number of rows: a token, a beam, many windows, a prompt.
 *
 * Few rows are bound by the memory that weights and cross keys come from: the threads share the outputs of a matrix,
 * each brings the rows it multiplies into form for itself, and they meet between phases. Many rows (a prompt) are bound
 * by arithmetic: each thread takes its rows through the whole block and they meet once, when keys and values of all
 * rows are in the cache. A row's sums run in the same order either way. Rows of earlier text are the first ones of a
 * job, and are multiplied in a coarser form.
 */
#include <string.h>

#include "cross.h"
#include "internal.h"
#include "selfattn.h"

#define FEW 16                  /* rows that every thread brings into form for itself */
#define ROWS_EACH 48            /* rows of a thread from which on it takes them through the block alone */
#define ROW_STEP 6

/* Where things are in the scratch memory; all sizes are multiples of WX_ALIGN. */
typedef struct plan {
    size_t x, qkv, att, up;     /* f32 rows: the stream; queries, keys, values; heads' results; inside the MLP */
    size_t rows;                /* in form for a matrix: of all threads together, or ... */
    size_t rows_each;           /* ... bytes of each thread's when it goes through the block alone */
    size_t own, own_bytes;      /* of each thread: a row, */
    size_t own_rows, own_work;  /* rows in form, and what attention needs, behind `own` */
    size_t total;
} plan;

static size_t aligned(size_t n) { return (n + WX_ALIGN - 1) / WX_ALIGN * WX_ALIGN; }

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* Bytes of n rows of whatever form a matrix of this model may want, those of earlier text apart. */
static size_t rows_bytes(int32_t n, int32_t k) {
    size_t most = larger(wx_rows_bytes(WX_F32, n, k), wx_rows_bytes(WX_I8, n, k));
    most = larger(most, wx_rows_bytes(WX_Q8, n, k));
    most = larger(most, wx_rows_bytes(WX_S8, n, k));
    return aligned(larger(most, wx_rows_bytes(WX_BF16, n, k))) + 3 * WX_ALIGN;     /* two kinds are rounded up twice */
}

/* Bytes of n rows in form for the parts of the output projection: as logit_rows_at lays them out. */
static size_t logit_bytes(const wx_model * m, int32_t n) {
    size_t bytes = aligned((size_t) n * sizeof(float));
    for (int p = 0, like = 0; p < WX_LOGIT_PARTS && m->logits[p].w.n_out > 0; p++, like = 0) {
        while (m->logits[like].w.type != m->logits[p].w.type) like++;
        if (like == p) bytes += wx_rows_bytes(wx_form(m->logits[p].w.type), n, wx_round_up(m->n_state, WX_K_STEP));
    }
    return bytes;
}

static int by_rows(int32_t n_rows, int32_t nth) { return n_rows >= ROWS_EACH * nth; }

static plan plan_of(const wx_model * m, int32_t n_rows, int32_t n_outputs, int32_t nth) {
    plan p;
    int32_t most = n_rows > n_outputs ? n_rows : n_outputs, n = m->n_state;
    int32_t k = wx_round_up(4 * (int64_t) n, WX_K_STEP);
    size_t row = (size_t) n * sizeof(float), at = 0;
    p.x = at, at += aligned(n_rows * row);
    p.qkv = at, at += aligned(n_rows * 3 * row);
    p.att = at, at += aligned(n_rows * row);
    p.up = at, at += aligned(n_rows * 4 * row);
    p.rows_each = by_rows(n_rows, nth) ? rows_bytes(n_rows / nth + 2 * ROW_STEP, k) : 0;
    p.rows = at, at += larger(larger(rows_bytes(most, k), logit_bytes(m, n_outputs)), p.rows_each * (size_t) nth);
    p.own = at;
    p.own_rows = aligned(row);
    p.own_work = p.own_rows + larger(rows_bytes(most < FEW ? most : FEW, k),
                                     logit_bytes(m, n_outputs < FEW ? n_outputs : FEW));
    p.own_bytes = p.own_work + aligned(larger(wx_cross_scratch(m), wx_self_scratch()));
    p.total = p.own + p.own_bytes * (size_t) nth;
    return p;
}

size_t wx_decode_bytes(const wx_model * model, int32_t n_rows, int32_t n_outputs, int32_t nth) {
    return plan_of(model, n_rows, n_outputs, nth).total;
}

/* What a thread works with. */
typedef struct task {
    const wx_decode * job;
    const wx_model * m;
    int32_t ith, nth;
    int32_t by_rows;
    int32_t first, last;        /* its rows when by_rows, else all ... */
    int32_t early;              /* ... of which [first, early) are of earlier text */
    float * x, * qkv, * att, * up, * own;
    char * rows, * own_rows, * work;
    char * all_rows;            /* plan.rows ... */
    size_t rows_each;           /* ... and plan.rows_each */
} task;

/* The rows from `from` on are shared out, or all threads work on all of them. */
static void take_rows(task * t, int32_t from) {
    int64_t n = t->job->n_rows - from, first = 0, last = n;
    t->by_rows = by_rows((int32_t) n, t->nth);
    if (t->by_rows) wx_share(n, ROW_STEP, t->ith, t->nth, &first, &last);
    t->first = from + (int32_t) first, t->last = from + (int32_t) last;
    t->early = t->job->n_early < t->first ? t->first : t->job->n_early < t->last ? t->job->n_early : t->last;
    t->rows = t->all_rows + (t->by_rows ? t->rows_each * (size_t) t->ith : 0);
}

static void meet(const task * t) { wx_barrier(t->job->sync, t->nth); }

/* After a phase whose results other threads read, unless each goes on with its own rows. */
static void phase(const task * t) {
    if (!t->by_rows) meet(t);
}

/* Rows of one kind, [first, last), in form for a matrix. */
typedef struct kind_rows {
    int32_t first, last;
    wx_rows rows;
} kind_rows;

/* The rows that a thread multiplies, in form for a matrix: earlier text, then the others. */
typedef struct formed {
    kind_rows of[2];
} formed;

/* Rows [first, last) in form, normalised if there is a norm; what a thread does of it unless all do all. */
static kind_rows in_form(const task * t, int32_t form, int32_t first, int32_t last, const wx_norm * norm,
                         const float * x, int32_t n_in, int share, char * memory) {
    kind_rows k = {first, last, wx_rows_at(form, last - first, wx_round_up(n_in, WX_K_STEP), memory)};
    int64_t from = 0, to = last - first;
    if (share) wx_share(to, 1, t->ith, t->nth, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const float * row = x + (first + i) * n_in;
        if (norm != NULL) wx_norm_row(norm, row, n_in, t->own);
        wx_rows_put(&k.rows, (int32_t) i, norm != NULL ? t->own : row, n_in);
    }
    return k;
}

/* The rows of a thread (its own when by_rows, else all) in form for matrix w. */
static formed form_rows(const task * t, const wx_matrix * w, const wx_norm * norm, const float * x, int32_t n_in) {
    const int few = !t->by_rows && t->last - t->first <= FEW, share = !few && !t->by_rows;
    const int32_t early = wx_early_form(w->type), k = wx_round_up(n_in, WX_K_STEP);
    char * memory = few ? t->own_rows : t->rows;
    formed f;
    f.of[0] = in_form(t, early, t->first, t->early, norm, x, n_in, share, memory);
    memory += wx_rows_bytes(early, t->early - t->first, k);
    f.of[1] = in_form(t, wx_form(w->type), t->early, t->last, norm, x, n_in, share, memory);
    if (!few) phase(t);
    return f;
}

/* A thread's share of y = x w + bias, y of `stride` floats a row; it makes outputs [*a, *b) of its rows. */
static void multiply(const task * t, const wx_linear * w, const formed * f, int32_t kind, float * y, int64_t stride,
                     int64_t * a, int64_t * b) {
    *a = 0, *b = w->w.n_out;
    if (!t->by_rows) wx_share(w->w.n_out, WX_PANEL, t->ith, t->nth, a, b);
    for (int i = 0; i < 2; i++) {
        const wx_rows * rows = &f->of[i].rows;
        const wx_epilogue e = {.kind = kind, .out_f32 = y + f->of[i].first * stride, .stride = stride};
        if (*a < *b && rows->n > 0) wx_gemm(&w->w, w->bias, rows, 0, rows->n, (int32_t) *a, (int32_t) *b, &e);
    }
}

static void add_linear(const task * t, const wx_linear * w, const formed * rows) {
    int64_t a, b;
    multiply(t, w, rows, WX_RESIDUAL, t->x, t->m->n_state, &a, &b);
    phase(t);
}

static void embed(const task * t) {
    const wx_model * m = t->m;
    int64_t first = t->first, last = t->last, n = m->n_state;
    size_t size = m->d_te_type == WX_F32 ? 4 : 2;
    if (!t->by_rows) wx_share(t->job->n_rows, 1, t->ith, t->nth, &first, &last);
    for (int64_t i = first; i < last; i++) {
        const wx_row * row = &t->job->rows[i];
        const float * pe = m->d_pe + row->pos * n;
        float * x = t->x + i * n;
        wx_to_f32((const char *) m->d_te + (size_t) row->token * (size_t) n * size, m->d_te_type, n, x);
        for (int64_t c = 0; c < n; c++) x[c] += pe[c];
    }
    phase(t);
}

/* Outputs [a, b) of queries, keys, values: those that are keys or values go to the row's cell. */
static void store_cells(const task * t, int32_t layer, int64_t a, int64_t b) {
    const wx_decode * job = t->job;
    int64_t n = t->m->n_state;
    for (int32_t part = 1; part < 3; part++) {
        int64_t from = a > part * n ? a : part * n, to = b < (part + 1) * n ? b : (part + 1) * n;
        if (from >= to) continue;
        uint16_t * cache = (part == 1 ? job->self_k : job->self_v) + layer * job->n_cells * n;
        for (int32_t i = t->first; i < t->last; i++)
            wx_self_store(t->qkv + i * 3 * n + from, (int32_t) (to - from),
                          cache + job->rows[i].slot * n + from - part * n);
    }
}

static void attend_self(const task * t, int32_t layer) {
    const wx_decode * job = t->job;
    int64_t n = t->m->n_state, heads = t->m->n_text_head, d = n / heads;
    const uint16_t * k = job->self_k + layer * job->n_cells * n, * v = job->self_v + layer * job->n_cells * n;
    int64_t first = 0, last = (t->last - t->first) * heads;
    if (!t->by_rows) wx_share(last, 1, t->ith, t->nth, &first, &last);
    for (int64_t i = first, end; i < last; i = end) {
        const int64_t row = t->first + i / heads, head = i % heads;
        const wx_row * r = &job->rows[row];
        end = i + heads - head < last ? i + heads - head : last;
        if (!t->by_rows)
            wx_self_bring(k + head * d, v + head * d, (int32_t) n, (int32_t) ((end - i) * d), r->cells, r->n_cells);
        for (int64_t at = head * d; at < (head + end - i) * d; at += d)
            wx_self_attend(t->qkv + row * 3 * n + at, k + at, v + at, (int32_t) n, (int32_t) d, r->cells, r->n_cells,
                           t->att + row * n + at, t->work);
    }
    phase(t);
}

/* The end of the rows from `row` on that share a window and are of one kind. */
static int32_t group_end(const task * t, int32_t row) {
    const wx_row * rows = t->job->rows;
    int32_t end = row + 1, last = row < t->early ? t->early : t->last;
    while (end < last && rows[end].cross == rows[row].cross) end++;
    return end;
}

/* Its queries are where those of self attention were. */
static void attend_cross(const task * t, int32_t layer) {
    const wx_decode * job = t->job;
    int64_t n = t->m->n_state, heads = t->m->n_text_head, d = n / heads;
    int64_t n_groups = 0, first, last, number = 0;
    for (int32_t row = t->first; row < t->last; row = group_end(t, row)) n_groups++;
    first = 0, last = n_groups * heads;
    if (!t->by_rows) wx_share(n_groups * heads, 1, t->ith, t->nth, &first, &last);
    for (int32_t row = t->first, end; row < t->last; row = end) {
        end = group_end(t, row);
        for (int64_t head = 0; head < heads; head++, number++) {
            if (number < first || number >= last) continue;
            float * look = NULL;
            for (int32_t i = 0; i < job->n_watched; i++)
                if (job->watched[i].layer == layer && job->watched[i].index == head)
                    look = job->look + ((int64_t) i * job->n_rows + row) * job->n_positions;
            wx_cross_attend(t->m, job->rows[row].cross, job->rows[row].n_ctx, layer, (int32_t) head, row < t->early,
                            t->qkv + row * 3 * n + head * d, 3 * n, end - row, t->att + row * n + head * d, n, look,
                            job->n_positions, t->work);
        }
    }
    phase(t);
}

/* Of the last block's results only those are needed that logits come from: rows before the first such one (all of a
   prompt but its end) only leave their keys and values. */
static void leave_prompt(task * t, int32_t layer) {
    const wx_decode * job = t->job;
    int32_t first = 0;
    if (layer < t->m->n_text_layer - 1) return;
    for (int32_t i = 0; i < job->n_watched; i++)
        if (job->watched[i].layer == layer) return;
    while (first < job->n_rows && job->rows[first].output < 0) first++;
    if (first == 0) return;
    take_rows(t, first);
}

static void block(task * t, int32_t layer) {
    const wx_decoder_layer * l = &t->m->decoder[layer];
    int32_t n = t->m->n_state;
    int64_t a, b;
    formed rows = form_rows(t, &l->qkv.w, &l->attn_ln, t->x, n);
    multiply(t, &l->qkv, &rows, WX_PLAIN, t->qkv, 3 * n, &a, &b);
    store_cells(t, layer, a, b);
    meet(t);
    leave_prompt(t, layer);
    attend_self(t, layer);
    rows = form_rows(t, &l->out.w, NULL, t->att, n);
    add_linear(t, &l->out, &rows);

    rows = form_rows(t, &l->cross_q.w, &l->cross_ln, t->x, n);
    multiply(t, &l->cross_q, &rows, WX_PLAIN, t->qkv, 3 * n, &a, &b);
    phase(t);
    attend_cross(t, layer);
    rows = form_rows(t, &l->cross_out.w, NULL, t->att, n);
    add_linear(t, &l->cross_out, &rows);

    rows = form_rows(t, &l->up.w, &l->mlp_ln, t->x, n);
    multiply(t, &l->up, &rows, WX_GELU, t->up, 4 * n, &a, &b);
    phase(t);
    rows = form_rows(t, &l->down.w, NULL, t->up, 4 * n);
    add_linear(t, &l->down, &rows);
}

/* The logits that matter, once more: a row is one thread's, or where there are more threads than rows all threads'. */
static void compute_again(const task * t) {
    const wx_decode * job = t->job;
    const wx_model * m = t->m;
    const int together = job->n_outputs < t->nth;
    int32_t found[WX_CANDIDATES];
    int64_t first = 0, last = job->n_rows;
    if (!together) wx_share(job->n_rows, 1, t->ith, t->nth, &first, &last);
    for (int64_t i = first; i < last; i++) {
        if (job->rows[i].output < 0) continue;
        float * logits = job->logits + (int64_t) job->rows[i].output * m->n_vocab;
        int64_t a = 0, b = wx_candidates(m, logits, found);
        wx_norm_row(&m->d_ln, t->x + i * m->n_state, m->n_state, t->own);
        if (together) {
            wx_share(b, 1, t->ith, t->nth, &a, &b);
            meet(t);            /* all have looked before the first one writes */
        }
        wx_rescore(m, t->own, found, (int32_t) a, (int32_t) b, logits);
    }
}

/* Rows in form for the parts of the output projection: parts of one type share them. */
typedef struct logit_rows {
    int n_parts;
    int like[WX_LOGIT_PARTS];       /* the first part of the same type */
    wx_rows rows[WX_LOGIT_PARTS];   /* of the first part of a type */
    const wx_matrix * around;       /* a part that lies around something, or NULL ... */
    float * plus;                   /* ... and what that adds to each row */
} logit_rows;

static logit_rows logit_rows_at(const wx_model * m, int32_t n, char * memory) {
    const int32_t k = wx_round_up(m->n_state, WX_K_STEP);
    logit_rows f = {.n_parts = 0};
    for (int p = 0; p < WX_LOGIT_PARTS && m->logits[p].w.n_out > 0; p++) {
        const wx_matrix * w = &m->logits[p].w;
        f.n_parts = p + 1;
        if (w->around != NULL) f.around = w;
        while (m->logits[f.like[p]].w.type != w->type) f.like[p]++;
        if (f.like[p] < p) continue;
        f.rows[p] = wx_rows_at(wx_form(w->type), n, k, memory);
        memory += wx_rows_bytes(wx_form(w->type), n, k);
    }
    f.plus = (float *) memory;
    return f;
}

static void put_logit_row(const logit_rows * f, int32_t row, const float * x, int32_t n) {
    for (int p = 0; p < f->n_parts; p++)
        if (f->like[p] == p) wx_rows_put(&f->rows[p], row, x, n);
    if (f->around != NULL) f->plus[row] = wx_around(f->around, x);
}

static void find_logits(const task * t) {
    const wx_decode * job = t->job;
    const wx_model * m = t->m;
    const int32_t n = job->n_outputs, few = n <= FEW;
    const logit_rows f = logit_rows_at(m, n, few ? t->own_rows : t->all_rows);
    int64_t first, last;
    if (n == 0) return;
    wx_share(job->n_rows, 1, few ? 0 : t->ith, few ? 1 : t->nth, &first, &last);
    for (int64_t i = first; i < last; i++) {
        if (job->rows[i].output < 0) continue;
        wx_norm_row(&m->d_ln, t->x + i * m->n_state, m->n_state, t->own);
        put_logit_row(&f, job->rows[i].output, t->own, m->n_state);
    }
    if (!few) meet(t);
    for (int p = 0; p < f.n_parts; p++) {
        const wx_matrix * w = &m->logits[p].w;
        const wx_epilogue e = {.kind = WX_PLAIN, .out_f32 = job->logits + m->logits[p].first, .stride = m->n_vocab,
                               .plus = w->around != NULL ? f.plus : NULL};
        wx_share(w->n_out, WX_PANEL, t->ith, t->nth, &first, &last);
        if (first < last) wx_gemm(w, NULL, &f.rows[f.like[p]], 0, n, (int32_t) first, (int32_t) last, &e);
    }
    if (m->logits[0].w.type == WX_F32) return;
    meet(t);
    compute_again(t);
}

void wx_decode_stage(const wx_decode * job, int32_t stage, int32_t ith, int32_t nth) {
    const wx_model * m = job->model;
    plan p = plan_of(m, job->n_rows, job->n_outputs, nth);
    char * base = job->scratch, * own = base + p.own + p.own_bytes * (size_t) ith;
    task t = {
        .job = job, .m = m, .ith = ith, .nth = nth,
        .x = (float *) (base + p.x), .qkv = (float *) (base + p.qkv), .att = (float *) (base + p.att),
        .up = (float *) (base + p.up), .all_rows = base + p.rows, .rows_each = p.rows_each,
        .own = (float *) own, .own_rows = own + p.own_rows, .work = own + p.own_work,
    };
    take_rows(&t, 0);
    if (stage == m->n_text_layer) {
        find_logits(&t);
        return;
    }
    if (stage == 0) embed(&t);
    block(&t, stage);
}
