/* optim.c - optimiser updates, gradient norm, clipping and averaging over the flat blocks of a
 * parameter set; their formulas are in segments.h.
 *
 * All are bound by memory: one pass, every array read and written once. Sums of squares are in
 * double, so that no float gradient overflows; those of the blocks are added in order. */
#include "tensor/cpu/kit/real.h"
#include "tensor/cpu/kit/segment_loop.h"

static void sgd_block(const tp_call *c, const tp_segment *s, int64_t block, int64_t at, int64_t n)
{
    const tp_sgd_attr *a = c->attr;
    const real scale = (real)a->scale, l2 = (real)s->l2, mu = (real)a->momentum;
    const real rate = (real)s->rate;
    const real *restrict g = (const real *)c->x[0].data + at;
    real *restrict p = (real *)c->y[0].data + at;
    (void)block;
    if (!c->y[1].data) {
        for (int64_t i = 0; i < n; i++) p[i] -= rate * (scale * g[i] + l2 * p[i]);
        return;
    }
    real *restrict u = (real *)c->y[1].data + at;
    const real gain = (real)a->gain, of_g = (real)a->of_g, of_u = (real)a->of_u;
    for (int64_t i = 0; i < n; i++) {
        const real d = scale * g[i] + l2 * p[i];
        u[i] = mu * u[i] + gain * d;
        p[i] -= rate * (of_g * d + of_u * u[i]);
    }
}

static tp_code sgd_step(const tp_call *c)
{
    tp__for_blocks(c, sgd_block);
    return TP_OK;
}

static void adam_block(const tp_call *c, const tp_segment *s, int64_t block, int64_t at, int64_t n)
{
    const tp_adam_attr *a = c->attr;
    const real scale = (real)a->scale, l2 = (real)s->l2, eps = (real)a->eps;
    const real b1 = (real)a->beta1, b2 = (real)a->beta2;
    const real c1 = (real)(1.0 - a->beta1), c2 = (real)(1.0 - a->beta2);
    const real rate = (real)s->rate, root = (real)s->root;
    const real before = (real)s->before, after = (real)s->after;
    const real *restrict g = (const real *)c->x[0].data + at;
    real *restrict p = (real *)c->y[0].data + at;
    real *restrict m = (real *)c->y[1].data + at;
    real *restrict v = (real *)c->y[2].data + at;
    (void)block;
    for (int64_t i = 0; i < n; i++) {
        const real d = scale * g[i] + l2 * p[i];
        m[i] = b1 * m[i] + c1 * d;
        v[i] = b2 * v[i] + c2 * d * d;
        real q = p[i] - before * p[i];
        q -= rate * m[i] / (root * r_sqrt(v[i]) + eps);
        p[i] = q - after * q;
    }
}

static tp_code adam_step(const tp_call *c)
{
    tp__for_blocks(c, adam_block);
    return TP_OK;
}

static void norm_block(const tp_call *c, const tp_segment *s, int64_t block, int64_t at, int64_t n)
{
    const real *g = (const real *)c->x[0].data + at;
    double sum = 0.0;
    (void)s;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += (double)g[i] * (double)g[i];
    ((double *)c->work)[block] = sum;
}

static tp_code grad_norm(const tp_call *c)
{
    const int64_t blocks = ((const tp_segments_attr *)c->attr)->s.blocks;
    const double *partial = c->work;
    double sum = 0.0;
    tp__for_blocks(c, norm_block);
    for (int64_t b = 0; b < blocks; b++) sum += partial[b];
    *(real *)c->y[0].data = (real)sqrt(sum);
    return TP_OK;
}

static void clip_block(const tp_call *c, const tp_segment *s, int64_t block, int64_t at, int64_t n)
{
    const tp_segments_attr *a = c->attr;
    const real k = (real)(a->number / ((double)*(const real *)c->x[0].data + 1e-6));
    real *g = (real *)c->y[0].data + at;
    (void)s;
    (void)block;
    for (int64_t i = 0; i < n; i++) g[i] *= k;
}

/* A NaN norm must make the gradients NaN instead of passing for a small one. */
static tp_code grad_clip(const tp_call *c)
{
    const tp_segments_attr *a = c->attr;
    if (!((double)*(const real *)c->x[0].data + 1e-6 <= a->number)) tp__for_blocks(c, clip_block);
    return TP_OK;
}

static void ema_block(const tp_call *c, const tp_segment *s, int64_t block, int64_t at, int64_t n)
{
    const real k = (real)((const tp_segments_attr *)c->attr)->number;
    const real *restrict p = (const real *)c->x[0].data + at;
    real *restrict e = (real *)c->y[0].data + at;
    (void)s;
    (void)block;
    for (int64_t i = 0; i < n; i++) e[i] += k * (p[i] - e[i]);
}

static tp_code ema_step(const tp_call *c)
{
    tp__for_blocks(c, ema_block);
    return TP_OK;
}

TP_CPU_KERNEL(sgd_step)
TP_CPU_KERNEL(adam_step)
TP_CPU_KERNEL(grad_norm)
TP_CPU_KERNEL(grad_clip)
TP_CPU_KERNEL(ema_step)
