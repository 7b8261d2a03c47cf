/* parallel.c - the parallel loop; the only file that knows OpenMP.
 *
 * ThreadSanitizer does not see libgomp's barriers, so that builds for it say what they order. */
#include <omp.h>

#include "tensor/backend.h"

#if defined(__SANITIZE_THREAD__)
#define TP_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TP_TSAN 1
#endif
#endif
#ifdef TP_TSAN
void __tsan_acquire(void *);
void __tsan_release(void *);
#else
#define __tsan_acquire(p) ((void)(p))
#define __tsan_release(p) ((void)(p))
#endif

int tp__max_threads(void)
{
    return omp_get_max_threads();
}

void tp__parallel(const tp_device *D, int64_t n, int64_t grain, tp_body body, const void *ctx)
{
    if (n <= 0) return;
    if (grain < 1) grain = 1;
    const int64_t chunks = (n + grain - 1) / grain;
    const int threads = chunks < D->threads ? (int)chunks : D->threads;
    if (threads <= 1) {
        body(ctx, 0, n, 0);
        return;
    }
    char fork = 0, join = 0;
    __tsan_release(&fork);
#pragma omp parallel num_threads(threads)
    {
        __tsan_acquire(&fork);
        const int self = omp_get_thread_num();
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < chunks; i++) {
            const int64_t end = (i + 1) * grain;
            body(ctx, i * grain, end < n ? end : n, self);
        }
        __tsan_release(&join);
    }
    __tsan_acquire(&join);
    (void)fork;
    (void)join;
}
