/* expand.c - repeats axes of size 1: pieces of rows are copied, or filled with one element.
 * Backward sums the repetitions (fold.h). */
#include "tensor/cpu/kit/fold.h"
#include "tensor/cpu/kit/real.h"
#include "tensor/cpu/kit/repeat.h"
#include "tensor/geometry/broadcast.h"
#include "tensor/kernel.h"

#define GRAIN (4 * TP_BLOCK)

static void expand(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const char *x = c->x[0].data;
    char *y = c->y[0].data;
    const int64_t size = (int64_t)tp_dtype_size(c->x[0].dtype);
    const tp_bcast p = tp__bcast(&c->y[0], &c->x[0]);
    (void)thread;
    for (tp_piece s = tp__piece(&p, begin, end); s.n > 0; tp__next(&p, &s, end)) {
        if (p.one)
            tp__repeat(y + s.a * size, x + s.b * size, size, s.n);
        else
            memcpy(y + s.a * size, x + s.b * size, (size_t)(s.n * size));
    }
}

static tp_code expand_fwd(const tp_call *c)
{
    tp__for(c, c->y[0].numel, GRAIN, expand);
    return TP_OK;
}

static tp_code expand_bwd(const tp_call *c)
{
    if (c->dx[0].data) fold(c, &c->dy[0], &c->dx[0], c->dy[0].data, NULL, c->dx[0].data);
    return TP_OK;
}

TP_CPU_KERNEL_UNTYPED(expand_fwd)
TP_CPU_KERNEL(expand_bwd)
