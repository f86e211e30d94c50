/* Self attention of one row of the decoder over cells of the cache. */
#ifndef WX_SELFATTN_H
#define WX_SELFATTN_H

#include "internal.h"

size_t wx_self_scratch(void);       /* of one thread */

/* One head: d numbers of q and out; k and v begin at the head's first number in cell 0, cells are n_state apart. */
void wx_self_attend(const float * q, const uint16_t * k, const uint16_t * v, int32_t n_state, int32_t d,
                    const int32_t * cells, int32_t n_cells, float * out, void * scratch);

/* Ask for n numbers of each cell's key and value, from where k and v begin: a cell is a few lines, far from the next
   one, and one head after another would wait for them. */
void wx_self_bring(const uint16_t * k, const uint16_t * v, int32_t n_state, int32_t n, const int32_t * cells,
                   int32_t n_cells);

/* n numbers into a cell. */
void wx_self_store(const float * x, int32_t n, uint16_t * cell);

#endif
