/* cast.c - conversion between f32 and f64. The tape has widened bf16 to f32 before, so input and output
 * may have the same dtype. */
#include "tensor/kernel.h"

#define GRAIN (4 * TP_BLOCK)

typedef struct cast {
    const tp_view *from, *to;
} cast;

static void convert(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const cast *k = ctx;
    const float *x32 = k->from->data;
    const double *x64 = k->from->data;
    float *y32 = k->to->data;
    double *y64 = k->to->data;
    (void)thread;
    if (k->from->dtype == k->to->dtype) {
        const size_t size = tp_dtype_size(k->to->dtype);
        memcpy((char *)y32 + (size_t)begin * size, (const char *)x32 + (size_t)begin * size,
               (size_t)(end - begin) * size);
    } else if (k->to->dtype == TP_F64) {
        for (int64_t i = begin; i < end; i++) y64[i] = (double)x32[i];
    } else {
        for (int64_t i = begin; i < end; i++) y32[i] = (float)x64[i];
    }
}

static tp_code cast_fwd(const tp_call *c)
{
    const cast k = { &c->x[0], &c->y[0] };
    tp__parallel(c->dev, c->x[0].numel, GRAIN, convert, &k);
    return TP_OK;
}

static tp_code cast_bwd(const tp_call *c)
{
    const cast k = { &c->dy[0], &c->dx[0] };
    if (c->dx[0].data) tp__parallel(c->dev, c->dx[0].numel, GRAIN, convert, &k);
    return TP_OK;
}

TP_CPU_KERNEL_UNTYPED(cast_fwd)
TP_CPU_KERNEL_UNTYPED(cast_bwd)
