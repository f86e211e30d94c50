/* What the files of one kernel library share. Everything is compiled once per instruction set with hidden symbols.
 *
 * Exactly one of these is set by the build: WX_ISA_AVX2, WX_ISA_AVX512 (F, BW, DQ, VL, VNNI), WX_ISA_AVX512_BF16 (the
 * same and BF16).
 */
#ifndef WX_INTERNAL_H
#define WX_INTERNAL_H

#include "sync.h"
#include "whispyx_kernels.h"

#if defined(WX_ISA_AVX2)
#define WX_LANES 8              /* floats of a vector */
#define WX_PANEL 16             /* outputs of a panel of packed weights */
#else
#define WX_LANES 16
#define WX_PANEL 64
#endif

#define WX_K_STEP 32            /* packed rows and activation rows are padded with zeros to a multiple of this */

static inline int32_t wx_round_up(int64_t n, int64_t step) { return (int32_t) ((n + step - 1) / step * step); }

/* ---- gemm.c: activations against packed weights ------------------------------------------------------------------ */

/* Activations in the form that a matrix multiplies with: rows of f32 (WX_F32; WX_BF16 where the instruction set has no
   bf16 dot product), bf16 (WX_BF16), u8 with one scale and one number for 0 per row (WX_I8) or per WX_G8_INPUTS numbers
   of a row (WX_G8), 16 bits and one scale per row (WX_Q8), or s8 with a scale per WX_G8_INPUTS numbers (WX_N4). Where
   that is faster, rows of earlier text meet a matrix of WX_Q8 in the last form: WX_S8, which is no type of a matrix. */
enum { WX_S8 = 16 };

typedef struct wx_rows {
    int32_t form;               /* wx_form(matrix type), or wx_early_form */
    int32_t n, k;               /* rows; numbers of a row, a multiple of WX_K_STEP */
    int64_t stride;             /* numbers from one row to the next: k; a convolution over rows sets another */
    void * data;                /* 64-byte aligned; a product reads round_up(n_in, 4) numbers of a row, no more
                                   (WX_Q8, WX_S8, WX_N4: k) */
    float * scale;              /* WX_I8 and WX_Q8: (n); WX_G8: (n, groups, 2), of each group the scale, and minus the
                                   scale times the number that stands for 0; WX_S8 and WX_N4: (n, groups) */
    int32_t * start;            /* WX_Q8, WX_S8, WX_N4: (n, k / 32), what the sums of a block begin with; WX_I8: (n),
                                   minus the number that stands for 0 */
} wx_rows;

int32_t wx_form(int32_t matrix_type);                       /* WX_F32 or the same type */
int32_t wx_early_form(int32_t matrix_type);                 /* the same for earlier text: WX_S8 or wx_form */
size_t wx_rows_bytes(int32_t form, int32_t n, int32_t k);   /* data and scales, rounded up to WX_ALIGN */
wx_rows wx_rows_at(int32_t form, int32_t n, int32_t k, void * memory);
/* Write the f32 numbers x (n_in) as one row, padding with zeros. The order of 8 bits and of WX_Q8 is private. */
void wx_rows_put(const wx_rows * to, int32_t row, const float * x, int32_t n_in);

enum { WX_PLAIN = 0, WX_GELU = 1, WX_RESIDUAL = 2 };

/* What happens to the products. Exactly one of out_f32 and out_bf16 is set for PLAIN and GELU; RESIDUAL adds to
   out_f32. Both are indexed by row and output as the product is: row 0, output 0 first. */
typedef struct wx_epilogue {
    int32_t kind;
    float * out_f32;            /* (rows, n_out) with `stride` floats between rows */
    int64_t stride;
    uint16_t * out_bf16;        /* the same as bf16, `stride` numbers between rows, or NULL */
    const float * plus;         /* PLAIN: (rows) added to all outputs of a row, or NULL */
} wx_epilogue;

/* Rows [row_first, row_last) times outputs [out_first, out_last) (multiples of WX_PANEL, or the end); called by one
   thread for its part. Few rows (a token, a beam) stream the weights once for all of them. */
void wx_gemm(const wx_matrix * w, const float * bias, const wx_rows * x, int32_t row_first, int32_t row_last,
             int32_t out_first, int32_t out_last, const wx_epilogue * e);

/* What a matrix's `around` adds to all outputs of a row x (n_in). */
float wx_around(const wx_matrix * w, const float * x);

size_t wx_matrix_bytes(int32_t type, int32_t n_out, int32_t n_in);
void wx_pack(const wx_matrix * m, int32_t first, int32_t n_rows, const void * src, int32_t src_type, float factor);
size_t wx_matmul_bytes(const wx_matrix * m, int32_t n);
void wx_matmul(const wx_linear * w, const float * x, int32_t n, float * y, void * scratch, wx_sync * sync, int32_t ith,
               int32_t nth);
double wx_peak(int32_t type, double seconds);

/* ---- elementwise.c ----------------------------------------------------------------------------------------------- */

void wx_norm_row(const wx_norm * norm, const float * x, int32_t n, float * y);      /* layer norm, epsilon 1e-5 */
void wx_gelu(float * x, int64_t n);                                                /* erf form */
void wx_to_f32(const void * src, int32_t type, int64_t n, float * dst);
void wx_to_bf16(const float * x, int64_t n, uint16_t * y);                         /* round to nearest even, NaN kept */

/* ---- attention.c, encoder.c, cross.c, decoder.c, scan.c, mel.c --------------------------------------------------- */

size_t wx_cross_bytes(const wx_model * model, int32_t n_ctx);
size_t wx_encode_bytes(const wx_model * model, int32_t n_ctx, int32_t nth);
void wx_encode_stage(const wx_encode * job, int32_t stage, int32_t ith, int32_t nth);

/* Keys and values of one layer of a window, per head; the layout is cross.c's. `kv` holds rows [first, last) of the
   product of cross_kv for this layer as f32: (n, 2 n_state), keys then values. Called by several threads for disjoint
   ranges that begin at multiples of WX_CROSS_STEP. */
#define WX_CROSS_STEP 64
void wx_cross_store(const wx_model * model, void * cross, int32_t n_ctx, int32_t layer, const float * kv,
                    int64_t stride, int32_t first, int32_t last);

size_t wx_decode_bytes(const wx_model * model, int32_t n_rows, int32_t n_outputs, int32_t nth);
void wx_decode_stage(const wx_decode * job, int32_t stage, int32_t ith, int32_t nth);

/* The tokens whose logits of a row matter, of text, times and what lies behind; returns how many. */
#define WX_CANDIDATES_OF_A_KIND 512
#define WX_CANDIDATES (3 * WX_CANDIDATES_OF_A_KIND)
int32_t wx_candidates(const wx_model * model, const float * logits, int32_t * found);
/* Compute the logits of found[first] .. found[last - 1] again, from the embedding as it is in the file. */
void wx_rescore(const wx_model * model, const float * hidden, const int32_t * found, int32_t first, int32_t last,
                float * logits);

void wx_scan_row(const float * row, int32_t n, int32_t beg, wx_scan * found);
void wx_mel_frames(const float * padded, int64_t first, int64_t last, const float * window, const float * filters,
                   int32_t n_mels, float * out);

#endif
