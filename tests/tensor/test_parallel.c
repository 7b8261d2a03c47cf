/* test_parallel.c - the parallel loop: every index once, nested loops, one device in several
 * threads, children after fork(), sleeping workers, workers that never start. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <tapegrad/tapegrad.h>

#include "tensor/backend.h"

enum { N = 10007, THREADS = 4 };

typedef struct counts {
    tp_device *D;
    atomic_int seen[N];
    atomic_int inside[THREADS]; /* loops running as that thread */
    atomic_int shared;          /* times that two ran as one thread */
} counts;

static void count(const void *ctx, int64_t begin, int64_t end, int thread)
{
    counts *c = (counts *)ctx;
    if (atomic_fetch_add(&c->inside[thread], 1) != 0) atomic_fetch_add(&c->shared, 1);
    for (int64_t i = begin; i < end; i++) atomic_fetch_add(&c->seen[i], 1);
    atomic_fetch_sub(&c->inside[thread], 1);
}

static tp_device *open_device(void)
{
    return tp_device_open("cpu", &(tp_device_opts){ .threads = THREADS });
}

static int wrong(counts *c, int times)
{
    int n = 0;
    for (int i = 0; i < N; i++) n += atomic_load(&c->seen[i]) != times;
    return n;
}

Test(parallel, every_index_once)
{
    static const int64_t grains[] = { 1, 7, 100, N - 1, N, N + 1, INT64_MAX };
    counts *c = calloc(1, sizeof *c);
    tp_device *D = open_device();
    int times = 0;
    for (int round = 0; round < 50; round++)
        for (size_t g = 0; g < sizeof grains / sizeof *grains; g++, times++)
            tp__parallel(D, N, grains[g], count, c);
    tp__parallel(D, 0, 1, count, c);
    tp__parallel(D, -1, 1, count, c);
    cr_expect_eq(wrong(c, times), 0);
    cr_expect_eq(atomic_load(&c->shared), 0, "each running thread has a number of its own");
    tp_device_close(D);
    free(c);
}

static void nest(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const counts *c = ctx;
    (void)thread;
    for (int64_t i = begin; i < end; i++) tp__parallel(c->D, N, 100, count, c);
}

Test(parallel, nested_loops)
{
    counts *c = calloc(1, sizeof *c);
    c->D = open_device();
    tp__parallel(c->D, 20, 1, nest, c);
    cr_expect_eq(wrong(c, 20), 0);
    tp_device_close(c->D);
    free(c);
}

static void *loops(void *arg)
{
    counts *c = arg;
    for (int i = 0; i < 100; i++) tp__parallel(c->D, N, 50, count, c);
    return NULL;
}

Test(parallel, one_device_in_several_threads)
{
    counts *c = calloc(1, sizeof *c);
    pthread_t threads[3];
    c->D = open_device();
    for (int i = 0; i < 3; i++) cr_assert_eq(pthread_create(&threads[i], NULL, loops, c), 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    cr_expect_eq(wrong(c, 300), 0);
    tp_device_close(c->D);
    free(c);
}

/* Pauses outlast the spinning. */
Test(parallel, workers_that_sleep_are_woken)
{
    counts *c = calloc(1, sizeof *c);
    c->D = open_device();
    for (int i = 0; i < 20; i++) {
        tp__parallel(c->D, N, 50, count, c);
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    }
    cr_expect_eq(wrong(c, 20), 0);
    tp_device_close(c->D);
    free(c);
}

Test(parallel, child_after_fork, .timeout = 60)
{
    counts *c = calloc(1, sizeof *c);
    int status;
    c->D = open_device();
    loops(c);
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGALRM, SIG_DFL);
        alarm(30);
        loops(c); /* the parent's device */
        const int bad = wrong(c, 200);
        tp_device_close(c->D);
        c->D = open_device(); /* its own */
        loops(c);
        tp_device_close(c->D);
        _exit(bad == 0 && wrong(c, 300) == 0 ? 0 : 1);
    }
    cr_assert(child > 0 && waitpid(child, &status, 0) == child);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
    loops(c);
    cr_expect_eq(wrong(c, 200), 0, "the parent continues");
    tp_device_close(c->D);
    free(c);
}

/* ---- forks while other threads use the device ---- */

typedef struct busy {
    tp_device *D;
    atomic_bool stop;
} busy;

static void compute(tp_device *D)
{
    tp_tape *T = tp_tape_new(D, NULL);
    for (int i = 0; i < 50; i++) {
        tp_tensor x = tp_randn(T, TP_F32, TP_SHAPE(8, 8));
        for (int j = 0; j < 20; j++) x = tp_softmax(T, tp_matmul(T, x, x));
        tp_reset(T);
    }
    tp_tape_free(T);
}

static void *compute_on(void *at)
{
    busy *b = at;
    while (!atomic_load(&b->stop)) compute(b->D);
    return NULL;
}

/* No lock (allocator, OpenBLAS) may be held by a thread that the child lacks. The baseline computes
 * all products with OpenBLAS. */
Test(parallel, child_while_others_compute, .timeout = 120)
{
    enum { CHILDREN = 60, OTHERS = 3 };
#ifdef __SANITIZE_ADDRESS__
    cr_skip_test("AddressSanitizer's allocator leaves its locks taken in the child");
#endif
    if (!tp_isa_runs(TP_ISA_BASE)) cr_skip_test("this build has no baseline kernels");
    busy b = { .D = tp_device_open("cpu",
                                   &(tp_device_opts){ .threads = THREADS, .isa = TP_ISA_BASE }) };
    pthread_t other[OTHERS];
    int bad = 0, status;
    for (int i = 0; i < OTHERS; i++)
        cr_assert_eq(pthread_create(&other[i], NULL, compute_on, &b), 0);
    for (int i = 0; i < CHILDREN; i++) {
        nanosleep(&(struct timespec){ 0, 1000000 + 37000 * i }, NULL);
        const pid_t child = fork();
        if (child == 0) {
            signal(SIGALRM, SIG_DFL);
            alarm(20);
            compute(b.D);
            _exit(0);
        }
        cr_assert(child > 0 && waitpid(child, &status, 0) == child);
        bad += status != 0;
        if (bad > 1) break; /* each waits for the alarm */
    }
    cr_expect_eq(bad, 0, "%d children did not end", bad);
    atomic_store(&b.stop, true);
    for (int i = 0; i < OTHERS; i++) pthread_join(other[i], NULL);
    tp_device_close(b.D);
}

Test(parallel, threads_that_cannot_start)
{
    struct rlimit limit;
    counts *c = calloc(1, sizeof *c);
    if (getuid() == 0) cr_skip_test("the limit does not bind root");
    c->D = open_device();
    getrlimit(RLIMIT_NPROC, &limit);
    limit.rlim_cur = 1;
    setrlimit(RLIMIT_NPROC, &limit);
    loops(c);
    cr_expect_eq(wrong(c, 100), 0);
    tp_device_close(c->D);
    free(c);
}
