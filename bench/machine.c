/* What the machine gives: how far two cores are from each other, and how fast two threads read memory.
 * Compiled by machine.py when a benchmark runs. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

typedef struct {
    _Alignas(128) atomic_int turn;
    atomic_int give_up;
    int cpu, n;
} ball;

static void * answer(void * arg) {
    ball * b = arg;
    pin(b->cpu);
    for (int i = 0; i < b->n; i++) {
        while (atomic_load_explicit(&b->turn, memory_order_acquire) != 2 * i + 1)
            if (atomic_load_explicit(&b->give_up, memory_order_relaxed)) return NULL;
        atomic_store_explicit(&b->turn, 2 * i + 2, memory_order_release);
    }
    return NULL;
}

typedef struct { ball * b; int cpu; double one_way_s; } thrower;

static void * throw(void * arg) {
    thrower * t = arg;
    pin(t->cpu);
    double best = 1.0;
    const int block = 200;       /* the best block: one that nothing interrupted */
    double start = now();
    for (int i = 0; i < t->b->n; i++) {
        if (i % block == 0) start = now();
        atomic_store_explicit(&t->b->turn, 2 * i + 1, memory_order_release);
        double waited = now();
        for (long spins = 0; atomic_load_explicit(&t->b->turn, memory_order_acquire) != 2 * i + 2; spins++)
            if (spins % 100000 == 99999 && now() - waited > 2.0) {
                atomic_store(&t->b->give_up, 1);
                return NULL;
            }
        if (i % block == block - 1) {
            double each = (now() - start) / (2.0 * block);
            if (each < best) best = each;
        }
    }
    t->one_way_s = best;
    return NULL;
}

/* Nanoseconds that a word takes from one core to another; 0 when the two never met. */
double one_way_ns(int cpu_a, int cpu_b) {
    ball b = {0};
    b.cpu = cpu_b;
    b.n = 4000;
    thrower t = {&b, cpu_a, 0.0};
    pthread_t one, two;
    if (pthread_create(&one, NULL, answer, &b)) return 0.0;
    if (pthread_create(&two, NULL, throw, &t)) {
        atomic_store(&b.give_up, 1);
        pthread_join(one, NULL);
        return 0.0;
    }
    pthread_join(two, NULL);
    pthread_join(one, NULL);
    return t.one_way_s * 1e9;
}

typedef struct {
    const uint64_t * data;
    size_t n;
    int cpu, rounds;
    pthread_barrier_t * gate;
    double best;
    uint64_t sum;
} reader;

static void * sweep(void * arg) {
    reader * r = arg;
    pin(r->cpu);
    uint64_t sum = 0;
    r->best = 1e9;
    for (int round = 0; round < r->rounds; round++) {
        pthread_barrier_wait(r->gate);
        double start = now();
        uint64_t part[8] = {0};
        for (size_t i = 0; i + 8 <= r->n; i += 8)
            for (int k = 0; k < 8; k++) part[k] += r->data[i + k];
        for (int k = 0; k < 8; k++) sum += part[k];
        pthread_barrier_wait(r->gate);
        double spent = now() - start;
        if (spent < r->best) r->best = spent;
    }
    r->sum = sum;                /* so that the loop is not left out */
    return NULL;
}

/* Bytes per second that `n_threads` threads, on the cores of `cpus`, read together out of `bytes` swept again and
 * again; 0 without memory. */
double read_rate(const int * cpus, int n_threads, size_t bytes, int rounds) {
    if (n_threads < 1 || n_threads > 64) return 0.0;
    size_t n = bytes / 8 / (size_t) n_threads;
    uint64_t * data = aligned_alloc(64, ((size_t) n_threads * n * 8 + 63) / 64 * 64);
    if (!data) return 0.0;
    for (size_t i = 0; i < n * (size_t) n_threads; i++) data[i] = i;
    pthread_barrier_t gate;
    pthread_barrier_init(&gate, NULL, (unsigned) n_threads);
    reader readers[64];
    pthread_t threads[64];
    int started = 0;
    for (; started < n_threads; started++) {
        readers[started] = (reader) {data + (size_t) started * n, n, cpus[started], rounds, &gate, 0.0, 0};
        if (pthread_create(&threads[started], NULL, sweep, &readers[started])) abort();
    }
    double slowest = 0.0;
    for (int i = 0; i < n_threads; i++) {
        pthread_join(threads[i], NULL);
        if (readers[i].best > slowest) slowest = readers[i].best;
    }
    pthread_barrier_destroy(&gate);
    free(data);
    return slowest > 0.0 ? (double) n * 8.0 * n_threads / slowest : 0.0;
}
