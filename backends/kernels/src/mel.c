#include "internal.h"
void wx_mel_frames(const float * padded, int64_t first, int64_t last, const float * window, const float * filters,
                   int32_t n_mels, float * out) {
    (void) padded, (void) first, (void) last, (void) window, (void) filters, (void) n_mels, (void) out;
}
