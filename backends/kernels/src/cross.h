/* Keys and values of the encoder's positions, as cross attention reads them. */
#ifndef WX_CROSS_H
#define WX_CROSS_H

#include "internal.h"

#define WX_HEAD_MAX 512         /* numbers of a head, at most */

/* Memory of one thread for wx_cross_attend. */
size_t wx_cross_scratch(const wx_model * model);

/* One head of one layer for n_q rows of one window, whose q and out lie strides apart; q carries the scale
   of the softmax. `look`, if there is one, takes (n_q, n_positions): the softmax over the first n_positions alone. */
void wx_cross_attend(const wx_model * model, const void * cross, int32_t n_ctx, int32_t layer, int32_t head,
                     const float * q, int64_t q_stride, int32_t n_q, float * out, int64_t out_stride, float * look,
                     int32_t n_positions, void * scratch);

#endif
