/* timing.c - the clock, and the machine's rate of products. OpenBLAS is called directly, so that
 * this rate does not depend on tapegrad's kernels. */
#include "timing.h"

#include <cblas.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

clockid_t timer = CLOCK_MONOTONIC;

double now(void)
{
    struct timespec t;
    clock_gettime(timer, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_size);
    return x[n / 2];
}

/* ---- the rate of products ---- */

enum { SIZE = 1024, PRODUCTS = 40 };

typedef struct job {
    const float *a;
    float *c;
    int threads;
    double best; /* seconds */
    pthread_barrier_t together;
} job;

typedef struct worker {
    pthread_t thread;
    job *job;
    int index;
} worker;

static void *multiply(void *arg)
{
    const worker *w = arg;
    job *j = w->job;
    const int begin = SIZE * w->index / j->threads, end = SIZE * (w->index + 1) / j->threads;
    for (int i = 0; i < PRODUCTS; i++) {
        pthread_barrier_wait(&j->together);
        const double start = now();
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, end - begin, SIZE, SIZE, 1.0f,
                    j->a + begin * SIZE, SIZE, j->a, SIZE, 0.0f, j->c + begin * SIZE, SIZE);
        pthread_barrier_wait(&j->together);
        const double seconds = now() - start;
        if (w->index == 0 && seconds < j->best) j->best = seconds;
    }
    return NULL;
}

static void fail(const char *what)
{
    fprintf(stderr, "blas_rate: cannot get %s\n", what);
    exit(1);
}

double blas_rate(int threads)
{
    if (threads < 1) threads = 1;
    float *a = malloc(sizeof *a * SIZE * SIZE), *c = malloc(sizeof *c * SIZE * SIZE);
    worker *w = malloc(sizeof *w * (size_t)threads);
    if (!a || !c || !w) fail("memory");
    for (int i = 0; i < SIZE * SIZE; i++) a[i] = 0.7f;
    job j = { .a = a, .c = c, .threads = threads, .best = 1e9 };
    openblas_set_num_threads(1);
    pthread_barrier_init(&j.together, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) { /* the calling thread is the first */
        w[i] = (worker){ .job = &j, .index = i };
        if (i > 0 && pthread_create(&w[i].thread, NULL, multiply, &w[i]) != 0) fail("threads");
    }
    multiply(&w[0]);
    for (int i = 1; i < threads; i++) pthread_join(w[i].thread, NULL);
    pthread_barrier_destroy(&j.together);
    free(w);
    free(c);
    free(a);
    return 2.0 * SIZE * SIZE * SIZE / j.best;
}
