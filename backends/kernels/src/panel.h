/* How packed weights lie in memory, shared by pack.c and the products.
 *
 * A matrix is a sequence of panels of WX_PANEL outputs (the last filled up with zeros). Inside a panel come, for every
 * group of 1, 2 or 4 inputs (f32, 16 bits, int8), one 32-bit unit per output that holds the group: the products load a
 * vector of outputs and broadcast the activations of the group. After the units of an int8 panel come a f32 scale and
 * the int32 sum of the row per output: activations are stored with a number added, every row with its own.
 *
 * G8: int8 in groups of WX_G8_INPUTS inputs (fewer in the last), each followed by a f32 scale and the f32 sum of the
 * group's weights per output.
 *
 * Q8: int8 in blocks of 32 inputs, eight units and then a f16 scale per output; the inputs are filled up with zeros to
 * whole blocks. Where products take weights without a sign (VNNI), 128 is added to them: activations are signed there,
 * and their sum times -128 is what a block's sum begins with.
 *
 * N4: 4 bits in blocks of 32 inputs. A unit holds eight inputs, four in the lower halves of its bytes and four in the
 * upper ones, 8 added to each; after four units come f16 scales as in Q8. `around` is taken off every row before.
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

#define WX_G8_UNITS (WX_G8_INPUTS / 4)

#define WX_N4_UNITS (WX_N4_INPUTS / 8)
#define WX_N4_WORDS (WX_N4_UNITS * WX_PANEL + WX_PANEL / 2)
#define WX_N4_ZERO 0x88888888u                                  /* eight weights of 0 */

static inline int wx_unit(int32_t type) { return type == WX_F32 ? 1 : type == WX_BF16 ? 2 : type == WX_N4 ? 8 : 4; }

/* Units and 32-bit words of a block of weights with scales of f16: WX_Q8 and WX_N4. */
static inline int wx_block_units(int32_t type) { return type == WX_Q8 ? WX_Q8_UNITS : WX_N4_UNITS; }
static inline int wx_block_words(int32_t type) { return type == WX_Q8 ? WX_Q8_WORDS : WX_N4_WORDS; }
static inline int wx_in_blocks(int32_t type) { return type == WX_Q8 || type == WX_N4; }

/* Units of one output. */
static inline int64_t wx_units(int32_t type, int32_t n_in) {
    if (wx_in_blocks(type)) return (int64_t) wx_round_up(n_in, 32) / wx_unit(type);
    return (n_in + wx_unit(type) - 1) / wx_unit(type);
}

/* 32-bit words of one panel. */
static inline int64_t wx_panel_words(int32_t type, int32_t n_in) {
    int64_t units = wx_units(type, n_in);
    if (wx_in_blocks(type)) return units / wx_block_units(type) * wx_block_words(type);
    if (type == WX_G8) return (units + (units + WX_G8_UNITS - 1) / WX_G8_UNITS * 2) * WX_PANEL;
    return (units + (type == WX_I8 ? 2 : 0)) * WX_PANEL;
}

#endif
