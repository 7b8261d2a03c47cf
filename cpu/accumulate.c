/* accumulate.c - dx += x: adds a second contribution to a gradient for the tape. */
#include "cpu/kit/real.h"
#include "tensor/kernel.h"

static void accumulate_range(const tp_call *c, int64_t begin, int64_t end)
{
    const real *restrict x = c->x[0].data;
    real *restrict y = c->dx[0].data;
    for (int64_t i = begin; i < end; i++) y[i] += x[i];
}

static tp_code accumulate(const tp_call *c)
{
    tp__for(c, c->x[0].numel, 4 * TP_BLOCK, accumulate_range);
    return TP_OK;
}

TP_CPU_KERNEL(accumulate)
