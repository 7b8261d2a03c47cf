/* drop_path.c - y[s] = m[s] x[s] for the samples s along axis 0; m[s] is 1/(1-p) if word s is at
 * least p 2^32, else 0. Backward is the same function of dy. */
#include "cpu/kit/real.h"
#include "tensor/kernel.h"

/* Elements [begin, end), which may start and end inside a sample. */
static void drop_samples(const tp_call *c, const real *x, real *y, int64_t begin, int64_t end)
{
    const double p = *(const double *)c->attr;
    const uint32_t below = tp__drop_below(p);
    const int64_t size = c->x[0].numel / c->x[0].dim[0];

    for (int64_t e = begin, next; e < end; e = next) {
        const int64_t s = e / size;
        const bool keep = tp__word(c->rng.seed, c->rng.offset, (uint64_t)s) >= below;
        const real m = keep ? (real)(1.0 / (1.0 - p)) : RC(0.0);
        next = (s + 1) * size < end ? (s + 1) * size : end;
        for (int64_t i = e; i < next; i++) y[i] = keep ? m * x[i] : RC(0.0);
    }
}

static void drop_path_fwd_range(const tp_call *c, int64_t begin, int64_t end)
{
    drop_samples(c, c->x[0].data, c->y[0].data, begin, end);
}

static void drop_path_bwd_range(const tp_call *c, int64_t begin, int64_t end)
{
    drop_samples(c, c->dy[0].data, c->dx[0].data, begin, end);
}

static tp_code drop_path_fwd(const tp_call *c)
{
    tp__for(c, c->x[0].numel, 4 * TP_BLOCK, drop_path_fwd_range);
    return TP_OK;
}

static tp_code drop_path_bwd(const tp_call *c)
{
    if (c->dx[0].data) tp__for(c, c->x[0].numel, 4 * TP_BLOCK, drop_path_bwd_range);
    return TP_OK;
}

TP_CPU_KERNEL(drop_path_fwd)
TP_CPU_KERNEL(drop_path_bwd)
