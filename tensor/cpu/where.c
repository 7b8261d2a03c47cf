/* where.c - mask ? a : b; each gradient flows where its operand was selected. */
#include "tensor/cpu/kit/real.h"
#include "tensor/kernel.h"

#define GRAIN (4 * TP_BLOCK)

static void choose(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const uint8_t *restrict mask = c->x[0].data;
    const real *restrict a = c->x[1].data, *restrict b = c->x[2].data;
    real *restrict y = c->y[0].data;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const real yes = a[i], no = b[i];
        y[i] = mask[i] ? yes : no;
    }
}

static void take_a(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const uint8_t *restrict mask = c->x[0].data;
    const real *restrict dy = c->dy[0].data;
    real *restrict da = c->dx[1].data;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const real g = dy[i];
        da[i] = mask[i] ? g : 0;
    }
}

static void take_b(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const uint8_t *restrict mask = c->x[0].data;
    const real *restrict dy = c->dy[0].data;
    real *restrict db = c->dx[2].data;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const real g = dy[i];
        db[i] = mask[i] ? 0 : g;
    }
}

static tp_code where_fwd(const tp_call *c)
{
    tp__for(c, c->y[0].numel, GRAIN, choose);
    return TP_OK;
}

static tp_code where_bwd(const tp_call *c)
{
    if (c->dx[1].data) tp__for(c, c->dy[0].numel, GRAIN, take_a);
    if (c->dx[2].data) tp__for(c, c->dy[0].numel, GRAIN, take_b);
    return TP_OK;
}

TP_CPU_KERNEL(where_fwd)
TP_CPU_KERNEL(where_bwd)
