/* Where the threads of one operation wait for each other: a short spin, then sleep, so that a thread that is not
 * running (another process has its core) finds a free core instead of one that spins. */
#ifndef WX_SYNC_H
#define WX_SYNC_H

#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#endif

#include "whispyx_kernels.h"

#define WX_SPINS 4000
#define WX_LONG_NS 500000       /* another process that takes a core keeps it longer; uneven shares are shorter */

static inline void wx_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

#if defined(__linux__)
static inline int64_t wx_clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t) t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Until the others have passed; counted when that took long. */
static inline void wx_sleep(wx_sync * s, int32_t passed) {
    int64_t start = wx_clock_ns();
    __atomic_add_fetch(&s->asleep, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&s->passed, __ATOMIC_SEQ_CST) == passed)
        syscall(SYS_futex, &s->passed, FUTEX_WAIT_PRIVATE, passed, NULL, NULL, 0);
    __atomic_sub_fetch(&s->asleep, 1, __ATOMIC_SEQ_CST);
    if (wx_clock_ns() - start > WX_LONG_NS) __atomic_add_fetch(&s->slept, 1, __ATOMIC_RELAXED);
}
#endif

/* All nth threads call it; none goes on before the last has come. What they wrote before is seen by all after. */
static inline void wx_barrier(wx_sync * s, int nth) {
    if (nth == 1) return;
    int32_t passed = __atomic_load_n(&s->passed, __ATOMIC_RELAXED);
    if (__atomic_add_fetch(&s->arrived, 1, __ATOMIC_ACQ_REL) == nth) {
        __atomic_store_n(&s->arrived, 0, __ATOMIC_RELAXED);
        __atomic_add_fetch(&s->passed, 1, __ATOMIC_SEQ_CST);
#if defined(__linux__)
        if (__atomic_load_n(&s->asleep, __ATOMIC_SEQ_CST) > 0)
            syscall(SYS_futex, &s->passed, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
#endif
        return;
    }
    for (int spins = 0; __atomic_load_n(&s->passed, __ATOMIC_ACQUIRE) == passed; spins++) {
#if defined(__linux__)
        if (spins > WX_SPINS) {
            wx_sleep(s, passed);
            return;
        }
#endif
        wx_relax();
    }
}

/* The share of n items, in steps of `step`, that thread ith of nth takes: [*first, *last). */
static inline void wx_share(int64_t n, int64_t step, int ith, int nth, int64_t * first, int64_t * last) {
    int64_t blocks = (n + step - 1) / step;
    *first = blocks * ith / nth * step;
    *last = blocks * (ith + 1) / nth * step;
    if (*first > n) *first = n;
    if (*last > n) *last = n;
}

#endif
