/* bf16.c - widens bf16 arrays to f32 and rounds f32 arrays to bf16, around the kernels of bf16 tensors
 * (autograd/run_kernel.c). These are not ops: the tape calls them, one pass over each array of a call. */
#include "tensor/bf16.h"

#include "tensor/kernel.h"

#define GRAIN (1 << 16)

static void widen_range(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const uint16_t *restrict x = c->x[0].data;
    float *restrict y = c->y[0].data;
    (void)thread;
    for (int64_t i = begin; i < end; i++) y[i] = tp__from_bf16(x[i]);
}

/* f32 y = bf16 x */
static tp_code bf16_widen(const tp_call *c)
{
    tp__for(c, c->x[0].numel, GRAIN, widen_range);
    return TP_OK;
}

static void round_range(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const float *restrict x = c->x[0].data;
    uint16_t *restrict y = c->y[0].data;
    (void)thread;
    for (int64_t i = begin; i < end; i++) y[i] = tp__to_bf16(x[i]);
}

/* bf16 y = f32 x, rounded to nearest even */
static tp_code bf16_round(const tp_call *c)
{
    tp__for(c, c->x[0].numel, GRAIN, round_range);
    return TP_OK;
}

TP_CPU_KERNEL_UNTYPED(bf16_widen)
TP_CPU_KERNEL_UNTYPED(bf16_round)
