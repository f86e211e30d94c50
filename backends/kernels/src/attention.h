/* Self-attention of the encoder: every position of a window sees every other one. */
#ifndef WX_ATTENTION_H
#define WX_ATTENTION_H

#include "internal.h"

#define WX_HEADS_ROWS 6         /* queries of a tile */
#define WX_HEADS_STEP 48        /* rows are stored and attended in ranges that begin at multiples of this */

/* Queries, keys and values of all heads, packed for the tiles of attention.c. A unit is what one step of a tile takes
   of each lane, 32 bits: four int8, a pair of bf16, or one float. */
typedef struct wx_heads {
    int32_t form;               /* of what is stored and of the weights of values: WX_BF16 or WX_F32 */
    int32_t products;           /* what queries and keys, and weights and values are multiplied as: `form`, or WX_I8 */
    int32_t n_head, d, n_ctx;
    int32_t units;              /* of a query or key */
    int32_t n_keys;             /* n_ctx rounded up to whole panels */
    int32_t width;              /* d rounded up to whole panels */
    uint32_t * q;               /* (n_head, n_ctx rounded up to tiles, units) */
    uint32_t * k;               /* (n_head, n_keys / WX_PANEL, units, WX_PANEL) */
    uint32_t * v;               /* (n_head, width / WX_PANEL, wx_heads_steps, WX_PANEL): a step is a key, for bf16 a
                                   pair, for int8 four, and behind WX_HEADS_STEP keys of int8 come their scales */
    /* for WX_I8: */
    float * q_scale;            /* (n_head, n_ctx rounded up to tiles) */
    float * k_scale;            /* (n_head, n_keys) */
    int32_t * k_start;          /* (n_head, n_keys): where sums begin, since queries are stored 128 too high */
} wx_heads;

#define WX_GROUP_STEPS (WX_HEADS_STEP / 4 + 1)      /* of a group of int8 values: its keys, and their scales */

static inline int64_t wx_heads_queries(const wx_heads * h) { return wx_round_up(h->n_ctx, WX_HEADS_ROWS); }

static inline int64_t wx_heads_steps(const wx_heads * h) {
    if (h->products == WX_I8) return (int64_t) (h->n_ctx + WX_HEADS_STEP - 1) / WX_HEADS_STEP * WX_GROUP_STEPS;
    return h->products == WX_BF16 ? h->n_keys / 2 : h->n_keys;
}

/* Attention beside matrices of this type, with wx_model.score_type. */
size_t wx_heads_bytes(int32_t matrix_type, int32_t score_type, int32_t n_head, int32_t d, int32_t n_ctx);
wx_heads wx_heads_at(int32_t matrix_type, int32_t score_type, int32_t n_head, int32_t d, int32_t n_ctx, void * memory);

/* Store rows [first, last) of the merged projection, (queries, keys, values) of n_head * d numbers each: bf16 or f32 as
   `form` says, `stride` numbers between rows; row `first` at qkv. The last range also stores what pads the panels. */
void wx_heads_put(const wx_heads * h, const void * qkv, int64_t stride, int32_t first, int32_t last);

/* One head's context of queries [first, last), into columns [head * d, (head + 1) * d) of the rows of `out`: f32, or
   bf16 where out_bf16 (form WX_BF16 only). `work` is one thread's, wx_heads_work(d) bytes. */
size_t wx_heads_work(int32_t d);
void wx_heads_attend(const wx_heads * h, int32_t head, int32_t first, int32_t last, void * out, int64_t stride,
                     int out_bf16, void * work);

#endif
