/* Keys and values of the encoder's positions, as cross attention reads them.
 *
 * A layer is kept head after head, so that a thread streams what it reads. A head has its keys in blocks of 64, then
 * its values in blocks of 64 keys; the last block is filled up with zeros. A block is cut into panels as wide as a tile
 * of the products (tile.h), so that they read it from end to end: in a panel of keys the keys lie side by side in the
 * lanes and the numbers of the head follow each other in units of 32 bits (a float, two bf16, four int8; AVX2: two
 * int8); in a panel of values the numbers of the head lie side by side and the keys follow each other in the same
 * units. int8 keys have one scale each, int8 values one per number of the head and block, behind the block.
 */
#ifndef WX_CROSS_H
#define WX_CROSS_H

#include "tile.h"

#define WX_HEAD_MAX 512         /* numbers of a head, at most */
#define WX_BLOCK WX_CROSS_STEP

#if defined(WX_ISA_AVX2)
#define WX_UNIT_I8 2            /* int8 numbers of a unit */
#else
#define WX_UNIT_I8 4
#endif

typedef struct wx_cross_shape {
    int32_t d, dp;              /* numbers of a head, and padded to whole vectors */
    int32_t size;               /* bytes of a number */
    int32_t panel;              /* keys or numbers side by side; values that do not fill one: WX_LANES */
    int32_t n_blocks;
    int64_t k_block, v_block;   /* bytes */
    int64_t head, layer;
} wx_cross_shape;

wx_cross_shape wx_cross_shape_of(const wx_model * m, int32_t n_ctx);

/* Numbers side by side in the panel of values that begins with number `at`. */
static inline int32_t wx_cross_width(const wx_cross_shape * s, int32_t at) {
    return at + s->panel <= s->dp ? s->panel : WX_LANES;
}

/* Memory of one thread for wx_cross_attend. */
size_t wx_cross_scratch(const wx_model * model);

/* One head of one layer for n_q rows of one window, whose q and out lie strides apart; q carries the scale of the
   softmax. With `early`, int8 keys and values meet queries and weights of 8 bits where that is faster. `look`, if there
   is one, takes (n_q, n_positions): the softmax over the first n_positions alone. */
void wx_cross_attend(const wx_model * model, const void * cross, int32_t n_ctx, int32_t layer, int32_t head,
                     int early, const float * q, int64_t q_stride, int32_t n_q, float * out, int64_t out_stride,
                     float * look, int32_t n_positions, void * scratch);

#endif
