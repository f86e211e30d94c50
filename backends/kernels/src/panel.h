/* How packed weights lie in memory, shared by pack.c and the products.
 *
 * A matrix is a sequence of panels of WX_PANEL outputs (the last filled up with zeros). Inside a panel come, for every
 * group of 1, 2 or 4 inputs (f32, 16 bits, int8), one 32-bit unit per output that holds the group: the products load a
 * vector of outputs and broadcast the activations of the group. After the units of an int8 panel come a f32 scale and
 * an int32 start value (-128 times the sum of the row, as activations are stored with 128 added) per output.
 *
 * Q8: int8 in blocks of 32 inputs, eight units and then a f16 scale per output; the inputs are filled up with zeros to
 * whole blocks. Where products take weights without a sign (VNNI), 128 is added to them: activations are signed there,
 * and their sum times -128 is what a block's sum begins with.
 */
#ifndef WX_PANEL_H
#define WX_PANEL_H

#include "internal.h"

#define WX_Q8_UNITS (WX_Q8_INPUTS / 4)
#define WX_Q8_WORDS (WX_Q8_UNITS * WX_PANEL + WX_PANEL / 2)     /* of a block: weights, scales */

#if defined(WX_ISA_AVX2)
#define WX_Q8_ZERO 0
#else
#define WX_Q8_ZERO 0x80808080u                                  /* four weights of 0 */
#endif

static inline int wx_unit(int32_t type) { return type == WX_I8 || type == WX_Q8 ? 4 : type == WX_F32 ? 1 : 2; }

/* Units of one output. */
static inline int64_t wx_units(int32_t type, int32_t n_in) {
    if (type == WX_Q8) return (int64_t) wx_round_up(n_in, WX_Q8_INPUTS) / 4;
    return (n_in + wx_unit(type) - 1) / wx_unit(type);
}

/* 32-bit words of one panel. */
static inline int64_t wx_panel_words(int32_t type, int32_t n_in) {
    if (type == WX_Q8) return wx_units(type, n_in) / WX_Q8_UNITS * WX_Q8_WORDS;
    return (wx_units(type, n_in) + (type == WX_I8 ? 2 : 0)) * WX_PANEL;
}

#endif
