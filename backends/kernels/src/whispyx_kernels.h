/* What whispyx's recogniser and a library of compute kernels agree on.
 *
 * One library per instruction set (avx2, avx512, avx512-bf16) exports three symbols:
 *   int whispyx_kernels_score(void)              how well it suits this machine; 0: cannot run here
 *   int whispyx_kernels_abi(void)                WX_KERNELS_ABI
 *   const wx_kernels * whispyx_kernels(void)     the functions
 * The functions are called by the threads of ggml's pool through its custom operations: every thread of the pool calls
 * with its number `ith` of `nth` and all of them come. They allocate nothing, keep no state and never fail: whoever
 * calls has checked every size.
 */
#ifndef WHISPYX_KERNELS_H
#define WHISPYX_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#define WX_KERNELS_ABI 6
#define WX_ALIGN 64             /* of every block of memory that is handed over */
#define WX_MAX_LAYERS 128
#define WX_Q8_INPUTS 32         /* that share a scale */
#define WX_G8_INPUTS 64         /* the same of G8 */
#define WX_N4_INPUTS 32         /* the same of N4 */
#define WX_LOGIT_PARTS 3        /* ranges of tokens whose logits' weights are of one type */

/* How numbers are stored. Packed matrices are F32, BF16, I8 (one scale per output, activations of 8 bits), G8 (a scale
   per WX_G8_INPUTS inputs, activations of 8 bits with such scales, too) or, in the decoder, Q8 (a scale per
   WX_Q8_INPUTS inputs, activations of 16 bits) and N4 (4 bits, a scale per WX_N4_INPUTS inputs, activations as of G8,
   for the logits of tokens that rarely come); sources are F32, F16 or BF16. */
enum { WX_F32 = 0, WX_F16 = 1, WX_BF16 = 2, WX_I8 = 3, WX_Q8 = 4, WX_G8 = 5, WX_N4 = 6 };

/* A packed weight matrix, n_out x n_in. The layout behind `data` is private to the library. */
typedef struct wx_matrix {
    int32_t type;
    int32_t n_out, n_in;
    void * data;                /* matrix_bytes(type, n_out, n_in), aligned */
    const float * around;       /* WX_N4: (n_in), near which all rows lie: only what a row differs by is packed, and
                                   activations times `around` are added to all outputs. NULL: zeros */
} wx_matrix;

typedef struct wx_linear {
    wx_matrix w;
    const float * bias;         /* (n_out), or NULL */
} wx_linear;

/* The logits of tokens [first, first + w.n_out). */
typedef struct wx_logits {
    int32_t first;
    wx_matrix w;
} wx_logits;

typedef struct wx_norm {
    const float * w, * b;       /* (n_state) */
} wx_norm;

typedef struct wx_encoder_layer {
    wx_norm attn_ln;
    wx_linear qkv;              /* (3 n_state, n_state): queries, keys, values; bias 0 for keys; queries carry d^-1/2 */
    wx_linear out;
    wx_norm mlp_ln;
    wx_linear up, down;         /* (4 n_state, n_state), (n_state, 4 n_state) */
} wx_encoder_layer;

typedef struct wx_decoder_layer {
    wx_norm attn_ln;
    wx_linear qkv;              /* as in the encoder */
    wx_linear out;
    wx_norm cross_ln;
    wx_linear cross_q;          /* carries d^-1/2 */
    wx_linear cross_out;
    wx_norm mlp_ln;
    wx_linear up, down;
} wx_decoder_layer;

typedef struct wx_model {
    int32_t n_mels, n_audio_ctx, n_state, n_audio_head, n_audio_layer;
    int32_t n_text_ctx, n_text_head, n_text_layer, n_vocab;
    int32_t cross_type;         /* how cross keys and values are kept: WX_F32, WX_BF16, WX_I8 */
    int32_t score_type;         /* WX_I8: the encoder's attention multiplies 8-bit queries and keys, weights and values,
                                   where VNNI is and the matrices are not f32; else it multiplies like those */
    wx_linear conv1, conv2;     /* (n_state, 3 n_in): input index k * n_in + channel, k = 0 the earliest */
    const float * e_pe;         /* (n_audio_ctx, n_state) */
    const wx_encoder_layer * encoder;   /* NULL: no encoder */
    wx_norm ln_post;
    wx_linear cross_kv;         /* (n_text_layer * 2 * n_state, n_state): keys, then values, of every layer */
    const void * d_te;          /* (n_vocab, n_state) token embedding, rows as in the file ... */
    int32_t d_te_type;          /* ... of this type: WX_F32, WX_F16, WX_BF16 */
    const float * d_pe;         /* (n_text_ctx, n_state) */
    const wx_decoder_layer * decoder;
    wx_norm d_ln;
    wx_logits logits[WX_LOGIT_PARTS];   /* together (n_vocab, n_state); parts of no tokens last; all f32, or none */
    int32_t beg, end;           /* tokens [beg, end) are the timestamps */
} wx_model;

/* Threads of one operation meet here between its phases. Zeroed once by whoever owns it. */
typedef struct wx_sync {
    volatile int32_t arrived;
    char apart[60];             /* a cache line each: those who come do not disturb those who wait */
    volatile int32_t passed;
    volatile int32_t asleep;
    volatile int32_t slept;     /* how often a thread slept for long: a core was taken away */
    char end[52];
} wx_sync;

/* One window through the encoder. */
typedef struct wx_encode {
    const wx_model * model;
    const float * mel;          /* (n_mels, 2 n_ctx) */
    int32_t n_ctx;              /* 1 .. n_audio_ctx */
    float * out;                /* (n_ctx, n_state) hidden states after the last norm; WX_STAGE_CROSS reads them */
    void * cross;               /* cross_bytes(model, n_ctx) */
    void * scratch;             /* encode_bytes(model, n_ctx, nth) */
    wx_sync * sync;
} wx_encode;

/* One row of a batch that goes through the decoder. */
typedef struct wx_row {
    int32_t token, pos;
    int32_t slot;               /* cell of the self cache that takes this row's key and value */
    int32_t n_cells;
    const int32_t * cells;      /* (n_cells) cells it attends to, its own among them */
    const void * cross;         /* keys and values of its window */
    int32_t n_ctx;              /* encoder positions in them; rows of one window stand side by side */
    int32_t output;             /* row of `logits` that it fills; -1: none */
} wx_row;

typedef struct wx_head {
    int32_t layer, index;
} wx_head;

/* A batch through the decoder. */
typedef struct wx_decode {
    const wx_model * model;
    const wx_row * rows;
    int32_t n_rows;
    int32_t n_early;            /* rows [0, n_early) are text of before the window: no outputs, 8 bits do for them */
    int32_t n_outputs;
    uint16_t * self_k, * self_v;        /* f16 (n_text_layer, n_cells, n_state) */
    int64_t n_cells;
    float * logits;                     /* (n_outputs, n_vocab) */
    const wx_head * watched;            /* heads to look at, layers ascending */
    int32_t n_watched;
    int32_t n_positions;
    float * look;                       /* (n_watched, n_rows, n_positions): softmax over the first n_positions */
    void * scratch;                     /* decode_bytes(model, n_rows, n_outputs, nth) */
    wx_sync * sync;
} wx_decode;

/* What one pass over a row of logits finds. */
typedef struct wx_scan {
    float top;                  /* largest of all; -INFINITY when there is none */
    int32_t arg;                /* its index, the lowest on ties */
    double total;               /* sum of exp(x - top) */
    float time_top;             /* the same of [beg, n) */
    int32_t time_arg;
    double time_total;          /* sum of exp(x - time_top) over [beg, n) */
    float text_top;             /* largest of [0, beg) */
    int32_t text_arg;
} wx_scan;

typedef struct wx_kernels {
    uint32_t abi, size;         /* WX_KERNELS_ABI, sizeof(wx_kernels) */
    const char * name;          /* "avx512-bf16" */
    const char * bf16, * i8;    /* what a matrix of that type is multiplied with: "bf16 dot", "f32", ... */

    size_t (*matrix_bytes)(int32_t type, int32_t n_out, int32_t n_in);
    /* Pack rows [first, first + n_rows) of m from src (row after row, src_type), each value times `factor`. Ranges that
       begin at multiples of 64 may be packed by several threads at once. */
    void (*pack)(const wx_matrix * m, int32_t first, int32_t n_rows, const void * src, int32_t src_type, float factor);
    /* y (n, n_out) = x (n, n_in) w^T + bias, all f32 rows without gaps; scratch of matmul_bytes(m, n). For tests. */
    size_t (*matmul_bytes)(const wx_matrix * m, int32_t n);
    void (*matmul)(const wx_linear * w, const float * x, int32_t n, float * y, void * scratch, wx_sync * sync,
                   int32_t ith, int32_t nth);

    size_t (*cross_bytes)(const wx_model * model, int32_t n_ctx);
    size_t (*encode_bytes)(const wx_model * model, int32_t n_ctx, int32_t nth);
    /* Stages 0: convolutions and positions; 1 .. n_audio_layer: blocks; n_audio_layer + 1: last norm, into `out`;
       n_audio_layer + 2: cross keys and values from `out`. */
    void (*encode)(const wx_encode * job, int32_t stage, int32_t ith, int32_t nth);

    size_t (*decode_bytes)(const wx_model * model, int32_t n_rows, int32_t n_outputs, int32_t nth);
    /* Stages 0 .. n_text_layer - 1: blocks (0 embeds first); n_text_layer: last norm and logits. */
    void (*decode)(const wx_decode * job, int32_t stage, int32_t ith, int32_t nth);

    void (*scan)(const float * row, int32_t n, int32_t beg, wx_scan * found);
    /* Log mel energies of frames [first, last): see mel.c. */
    void (*mel)(const float * padded, int64_t first, int64_t last, const float * window, const float * filters,
                int32_t n_mels, float * out);
    /* Peaks of one thread, for benchmarks: operations per second of the dot products that matrices of `type` use. */
    double (*peak)(int32_t type, double seconds);
} wx_kernels;

#endif
