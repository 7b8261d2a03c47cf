/* parallel.c - the parallel loop: a pool of threads for each device.
 *
 * The calling thread works too, and never waits for a worker that has not begun: a worker joins a
 * loop through its gate, which closes when the chunks are used up, so that a worker that the system
 * does not schedule costs nothing. Waiting threads spin for SPIN nanoseconds and then sleep. On a
 * busy machine a worker may lose its core in the middle of a chunk, and the loop takes longer than
 * without it. The pool adds up its workers' gains and losses; if they lose, loops run on the
 * calling thread for a while. */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tensor/backend.h"

enum {
    LINE = 64,         /* bytes of a cache line */
    SPIN = 100000,     /* nanoseconds that a waiting thread spins before it sleeps */
    LOOKS = 32,        /* pauses between looks at the clock */
    LOSS = 1000000,    /* nanoseconds of net loss after which one thread runs loops, */
    REST = 20,         /* for this many times the loss */
    MEMORY = 100000000 /* nanoseconds in loops after which most of a gain or loss is forgotten */
};

/* A loop's gate: its number (high bits), whether it is closed, the number of workers inside. */
#define CLOSED ((uint64_t)1 << 16)
#define INSIDE (CLOSED - 1)
#define NUMBER 17

typedef struct worker {
    _Alignas(LINE) atomic_uint_fast64_t call; /* the last loop it was called to; 0: end */
    atomic_bool asleep;
    struct tp_pool *pool;
    int self; /* 1, 2, ..; the calling thread is 0 */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
} worker;

/* The chunks that a thread runs first. In successive loops a thread gets the same part of tensors
 * of one size, which are then in its cache. */
typedef struct share {
    _Alignas(LINE) atomic_int_fast64_t next; /* chunk */
    int64_t end;
} share;

struct tp_pool {
    const tp_device *dev;
    pthread_mutex_t busy; /* held by the thread whose loop runs */
    int wanted, workers;  /* -1: not started yet */
    unsigned forks;       /* of the process when the pool was made */
    worker *worker;
    uint64_t number; /* of the loop */

    /* the loop, constant while the gate is open or workers are inside */
    tp_body body;
    const void *ctx;
    int64_t n, grain, chunks;
    int threads;
    share *share; /* of each thread */

    int64_t gained, lost, rest_until; /* nanoseconds */

    _Alignas(LINE) atomic_uint_fast64_t gate;
    atomic_bool waits; /* the caller sleeps until the last worker has left */
    pthread_mutex_t lock;
    pthread_cond_t left;
};

/* ---- waiting ---- */

static inline void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Spins until x differs from `seen`; false if that takes longer than SPIN. */
static bool spin(const atomic_uint_fast64_t *x, uint64_t seen)
{
    for (int64_t began = 0;;) {
        for (int i = 0; i < LOOKS; i++) {
            if (atomic_load_explicit(x, memory_order_acquire) != seen) return true;
            pause_briefly();
        }
        const int64_t time = tp__nanoseconds();
        if (!began) began = time;
        if (time - began > SPIN) return false;
    }
}

/* ---- workers ---- */

/* Runs chunks, its share first, until none are left; returns their number. */
static int64_t work(struct tp_pool *p, int self)
{
    int64_t done = 0;
    for (int k = 0; k < p->threads; k++) {
        share *s = &p->share[(self + k) % p->threads];
        for (;; done++) {
            if (atomic_load_explicit(&s->next, memory_order_relaxed) >= s->end) break;
            const int64_t i = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
            if (i >= s->end) break;
            const int64_t end = (i + 1) * p->grain;
            p->body(p->ctx, i * p->grain, end < p->n ? end : p->n, self);
        }
    }
    return done;
}

/* Deals chunks to the threads evenly. */
static void deal(struct tp_pool *p)
{
    const int64_t each = p->chunks / p->threads, more = p->chunks % p->threads;
    int64_t next = 0;
    for (int i = 0; i < p->threads; i++) {
        atomic_store_explicit(&p->share[i].next, next, memory_order_relaxed);
        p->share[i].end = next += each + (i < more);
    }
}

/* Joins loop `number` unless its gate has closed. */
static bool enter(struct tp_pool *p, uint64_t number)
{
    uint64_t gate = atomic_load_explicit(&p->gate, memory_order_acquire);
    while (gate >> NUMBER == number && !(gate & CLOSED))
        if (atomic_compare_exchange_weak_explicit(&p->gate, &gate, gate + 1, memory_order_acquire,
                                                  memory_order_acquire))
            return true;
    return false;
}

static void leave(struct tp_pool *p)
{
    const uint64_t gate = atomic_fetch_sub(&p->gate, 1) - 1;
    if ((gate & INSIDE) || !(gate & CLOSED) || !atomic_load(&p->waits)) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_signal(&p->left);
    pthread_mutex_unlock(&p->lock);
}

static void sleep_until_called(worker *w, uint64_t seen)
{
    pthread_mutex_lock(&w->lock);
    atomic_store(&w->asleep, true);
    while (atomic_load(&w->call) == seen) pthread_cond_wait(&w->wake, &w->lock);
    atomic_store(&w->asleep, false);
    pthread_mutex_unlock(&w->lock);
}

static void *live(void *arg)
{
    worker *w = arg;
    (void)tp__float_begin(w->pool->dev);
    for (uint64_t seen = 1;;) { /* loops are numbered from 2 */
        if (!spin(&w->call, seen)) sleep_until_called(w, seen);
        seen = atomic_load_explicit(&w->call, memory_order_acquire);
        if (seen == 0) return NULL;
        if (!enter(w->pool, seen)) continue;
        work(w->pool, w->self);
        leave(w->pool);
    }
}

static void call(worker *w, uint64_t number)
{
    atomic_store(&w->call, number);
    if (!atomic_load(&w->asleep)) return;
    pthread_mutex_lock(&w->lock);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

/* ---- the pool ---- */

struct tp_pool *tp__pool_new(const tp_device *D)
{
    struct tp_pool *p = aligned_alloc(LINE, sizeof *p);
    if (!p) return NULL;
    *p = (struct tp_pool){ .dev = D,
                           .wanted = D->threads - 1,
                           .workers = -1,
                           .forks = tp__forks(),
                           .number = 1,
                           .gate = CLOSED };
    pthread_mutex_init(&p->busy, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->left, NULL);
    return p;
}

/* Starts as many workers as allowed. They block signals, since handlers belong to the program's
 * threads, but not those of their own faults, which would end the process past its handlers. */
static void start(struct tp_pool *p)
{
    static const int faults[] = { SIGILL, SIGSEGV, SIGBUS, SIGFPE };
    sigset_t all, before;
    p->workers = 0;
    p->worker = aligned_alloc(LINE, (size_t)p->wanted * sizeof *p->worker);
    p->share = aligned_alloc(LINE, ((size_t)p->wanted + 1) * sizeof *p->share);
    if (!p->worker || !p->share) return;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 0; i < p->wanted; i++) {
        worker *w = &p->worker[i];
        *w = (worker){ .call = 1, .pool = p, .self = i + 1 };
        pthread_mutex_init(&w->lock, NULL);
        pthread_cond_init(&w->wake, NULL);
        if (pthread_create(&w->thread, NULL, live, w) != 0) break;
        p->workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void tp__pool_free(struct tp_pool *p)
{
    if (!p) return;
    for (int i = 0; i < p->workers && p->forks == tp__forks(); i++) {
        call(&p->worker[i], 0);
        pthread_join(p->worker[i].thread, NULL);
    }
    free(p->worker);
    free(p->share);
    free(p);
}

/* Waits for the workers to leave. */
static void wait(struct tp_pool *p)
{
    uint64_t gate = atomic_fetch_or(&p->gate, CLOSED) | CLOSED;
    while ((gate & INSIDE) && spin(&p->gate, gate))
        gate = atomic_load_explicit(&p->gate, memory_order_acquire);
    if (!(gate & INSIDE)) return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->waits, true);
    while (atomic_load(&p->gate) & INSIDE) pthread_cond_wait(&p->left, &p->lock);
    atomic_store(&p->waits, false);
    pthread_mutex_unlock(&p->lock);
}

/* Accounts for a loop that began at `began`, ran out of chunks at `out` and finished at `end`. The
 * caller ran `own` of its chunks. */
static void account(struct tp_pool *p, int64_t began, int64_t out, int64_t end, int64_t own)
{
    const int64_t single =
        own ? (int64_t)((double)(out - began) * (double)p->chunks / (double)own) : end - began;
    const int64_t gain = single - (end - began);
    const double kept = 1.0 - fmin(1.0, (double)(end - began) / MEMORY);
    p->gained = (int64_t)((double)p->gained * kept);
    p->lost = (int64_t)((double)p->lost * kept);
    if (gain > 0)
        p->gained += gain;
    else
        p->lost -= gain;
    if (p->lost - p->gained < LOSS) return;
    p->rest_until = end + REST * (p->lost - p->gained);
    p->gained = p->lost = 0;
}

/* Runs the loop on up to `threads` threads; false if the caller must: the pool is busy or rests. */
static bool run(struct tp_pool *p, int threads, int64_t n, int64_t grain, int64_t chunks,
                tp_body body, const void *ctx)
{
    if (p->forks != tp__forks()) return false;
    if (pthread_mutex_trylock(&p->busy) != 0) return false;
    const int64_t began = tp__nanoseconds();
    if (p->workers < 0) start(p);
    const int called = threads - 1 < p->workers ? threads - 1 : p->workers;
    const bool rests = called == 0 || began < p->rest_until;
    if (!rests) {
        p->body = body;
        p->ctx = ctx;
        p->n = n;
        p->grain = grain;
        p->chunks = chunks;
        p->threads = called + 1;
        deal(p);
        atomic_store_explicit(&p->gate, ++p->number << NUMBER, memory_order_release);
        for (int i = 0; i < called; i++) call(&p->worker[i], p->number);
        const int64_t own = work(p, 0), out = tp__nanoseconds();
        wait(p);
        account(p, began, out, tp__nanoseconds(), own);
    }
    pthread_mutex_unlock(&p->busy);
    return !rests;
}

void tp__parallel(const tp_device *D, int64_t n, int64_t grain, tp_body body, const void *ctx)
{
    if (n <= 0) return;
    if (grain < 1) grain = 1;
    const int64_t chunks = n / grain + (n % grain != 0);
    const int threads = chunks < D->threads ? (int)chunks : D->threads;
    const uint64_t before = tp__float_begin(D);
    if (threads <= 1 || !D->pool || !run(D->pool, threads, n, grain, chunks, body, ctx))
        body(ctx, 0, n, 0);
    tp__float_end(before);
}
