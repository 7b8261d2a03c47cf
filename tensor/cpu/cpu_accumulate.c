/* cpu_accumulate.c - dx += x: how the tape adds a second contribution to a gradient. */
#ifndef real
#include "tensor/kernel.h"
#define TP_FILE "tensor/cpu/cpu_accumulate.c"
#include "tensor/cpu/cpu_each_real.h"
TP_CPU_KERNEL(accumulate)
#else

static void R(accumulate_range)(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const real *restrict x = c->x[0].data;
    real *restrict y = c->dx[0].data;
    (void)thread;
    for (int64_t i = begin; i < end; i++) y[i] += x[i];
}

static tp_code R(accumulate)(const tp_call *c)
{
    tp__for(c, c->x[0].numel, 4 * TP_BLOCK, R(accumulate_range));
    return TP_OK;
}

#endif
