/* parallel.c - the parallel loop; the only file that uses OpenMP. */
#include <omp.h>
#include <pthread.h>

#include "tensor/backend.h"

int tp__max_threads(void)
{
    return omp_get_max_threads();
}

/* True in a child after fork(), which lacks the threads that gcc's OpenMP would wait for. The child
 * uses one thread, which gives the same bits. */
static bool alone;

static void note_fork(void)
{
    alone = true;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, note_fork);
}

void tp__parallel(const tp_device *D, int64_t n, int64_t grain, tp_body body, const void *ctx)
{
    if (n <= 0) return;
    if (grain < 1) grain = 1;
    const int64_t chunks = (n + grain - 1) / grain;
    const int threads = chunks < D->threads ? (int)chunks : D->threads;
    if (threads <= 1 || alone) {
        body(ctx, 0, n, 0);
        return;
    }
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
#pragma omp parallel num_threads(threads)
    {
        const int self = omp_get_thread_num();
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < chunks; i++) {
            const int64_t end = (i + 1) * grain;
            body(ctx, i * grain, end < n ? end : n, self);
        }
    }
}
