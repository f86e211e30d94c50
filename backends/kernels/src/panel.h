/* How packed weights lie in memory, shared by pack.c and the products.
 *
 * A matrix is a sequence of panels of WX_PANEL outputs (the last filled up with zeros). Inside a panel come, for every
 * group of 1, 2 or 4 inputs (f32, 16 bits, int8), one 32-bit unit per output that holds the group: the products load a
 * vector of outputs and broadcast the activations of the group. Of f16, which is widened before it is multiplied, the
 * first inputs of a group come for all outputs, then the second ones, in the same 32 bits per output. After the units
 * of an int8 panel come a f32 scale and an int32 start value (-128 times the sum of the row, as activations are stored
 * with 128 added) per output.
 */
#ifndef WX_PANEL_H
#define WX_PANEL_H

#include "internal.h"

static inline int wx_unit(int32_t type) { return type == WX_I8 ? 4 : type == WX_F32 ? 1 : 2; }

/* Units of one output. */
static inline int64_t wx_units(int32_t type, int32_t n_in) { return (n_in + wx_unit(type) - 1) / wx_unit(type); }

/* 32-bit words of one panel. */
static inline int64_t wx_panel_words(int32_t type, int32_t n_in) {
    return (wx_units(type, n_in) + (type == WX_I8 ? 2 : 0)) * WX_PANEL;
}

#endif
