/* tsan_parallel.c - the parallel loop under ThreadSanitizer; a plain program, since Criterion and
 * ThreadSanitizer do not go together. Exit status 0: every index ran once, and no race was seen. */
#include <stdio.h>
#include <stdlib.h>

#include "tensor/backend.h"

typedef struct job {
    int64_t *out;
    int64_t n;
} job;

static void fill(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const job *j = ctx;
    (void)thread;
    for (int64_t i = begin; i < end; i++) j->out[i] += i;
}

int main(void)
{
    enum { N = 100000, ROUNDS = 50 };
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 8 });
    int64_t *out = calloc(N, sizeof *out);
    if (!out || !tp_device_ok(D)) return 2;
    const job j = { out, N };
    for (int r = 0; r < ROUNDS; r++) tp__parallel(D, N, 1000, fill, &j);
    int bad = 0;
    for (int64_t i = 0; i < N; i++) bad += out[i] != ROUNDS * i;
    printf("%d of %d elements wrong\n", bad, N);
    free(out);
    tp_device_close(D);
    return bad != 0;
}
