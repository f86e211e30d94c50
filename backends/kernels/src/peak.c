/* What one thread can do at most with the dot products of a type: a loop that touches registers only. */
#include <time.h>

#include "vector.h"

#define CHAINS 12       /* sums that do not wait for each other: more than two a cycle times their latency */
#define STEPS 4096

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

/* A value that the compiler must not look through. */
#if defined(WX_ISA_AVX2)
#define HIDE(v) __asm__ volatile("" : "+x"(v))
#elif defined(WX_EMULATED)
#define HIDE(v) __asm__ volatile("" : "+m"(v))          /* no register is as wide */
#else
#define HIDE(v) __asm__ volatile("" : "+v"(v))
#endif

#define CHAIN(EXPRESSION) \
    do { \
        for (int i = 0; i < CHAINS; i++) s[i] = (wx_v) zero; \
        for (int step = 0; step < STEPS; step++) { \
            _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) s[i] = EXPRESSION; \
        } \
        for (int i = 0; i < CHAINS; i++) HIDE(s[i]); \
    } while (0)

#if defined(WX_ISA_AVX2)
/* Written out, since the same product every time would be computed once. */
static inline wx_v add_products(wx_v sum, wx_v a, wx_v b) {
    wx_v product;
    __asm__ volatile("vpmaddwd %1, %2, %0" : "=x"(product) : "x"(a), "x"(b));
    __asm__ volatile("vpaddd %1, %0, %0" : "+x"(sum) : "x"(product));
    return sum;
}
#endif

/* Operations (multiplications and additions) of one round of CHAINS * STEPS vectors. */
static double round_of(int32_t type) {
    wx_v s[CHAINS], zero = wx_zero(), a = wx_zero(), b = wx_zero();
    HIDE(a);
    HIDE(b);
    int per_lane = 2;
    if (type == WX_I8 || type == WX_G8 || type == WX_N4) {
#if defined(WX_ISA_AVX2)
        per_lane = 4;
        CHAIN(add_products(s[i], a, b));
#else
        per_lane = 8;
        CHAIN(wx_floats(_mm512_dpbusd_epi32(wx_bits(s[i]), wx_bits(a), wx_bits(b))));
#endif
#if defined(WX_ISA_AVX512_BF16)
    } else if (type == WX_BF16) {
        per_lane = 4;
        CHAIN(_mm512_dpbf16_ps(s[i], (__m512bh) a, (__m512bh) b));
#endif
    } else {
        CHAIN(wx_fma(a, b, s[i]));
    }
    return (double) CHAINS * STEPS * WX_LANES * per_lane;
}

double wx_peak(int32_t type, double seconds) {
    double best = 0.0, start = now(), before = start, after;
    do {
        double done = round_of(type);
        after = now();
        if (done / (after - before) > best) best = done / (after - before);
        before = after;
    } while (after - start < seconds);
    return best;
}
