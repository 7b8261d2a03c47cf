/* optim.c - optimiser updates, gradient norm, clipping and averaging over the segments of a
 * parameter set; formulas: segments.h.
 *
 * All are memory-bound: one pass, every array read and written once. Sums of squares are in double,
 * so that no float gradient overflows; those of blocks are added in order. */
#include "cpu/kit/real.h"
#include "cpu/kit/segment_loop.h"

static void sgd_block(const tp_call *c, const tp_segment *s, int64_t block, int64_t at, int64_t n)
{
    const tp_optim_attr *a = c->attr;
    const real scale = (real)a->scale, l2 = (real)s->l2, mu = (real)a->k[TP_SGD_MOMENTUM];
    const real rate = (real)s->rate;
    const real *restrict g = tp__gradient(s, at);
    real *restrict p = (real *)c->y[0].data + at;
    (void)block;
    if (!c->y[1].data) {
        for (int64_t i = 0; i < n; i++) p[i] -= rate * (scale * g[i] + l2 * p[i]);
        return;
    }
    real *restrict u = tp__state(c, s, 0, at);
    const real gain = (real)a->k[TP_SGD_GAIN];
    const real of_g = (real)a->k[TP_SGD_OF_G], of_u = (real)a->k[TP_SGD_OF_U];
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
    const tp_optim_attr *a = c->attr;
    const double beta1 = a->k[TP_ADAM_BETA1], beta2 = a->k[TP_ADAM_BETA2];
    const real scale = (real)a->scale, l2 = (real)s->l2, eps = (real)a->k[TP_ADAM_EPS];
    const real b1 = (real)beta1, b2 = (real)beta2;
    const real c1 = (real)(1.0 - beta1), c2 = (real)(1.0 - beta2);
    const real rate = (real)s->rate, root = (real)s->root;
    const real before = (real)s->before, after = (real)s->after;
    const real *restrict g = tp__gradient(s, at);
    real *restrict p = (real *)c->y[0].data + at;
    real *restrict m = tp__state(c, s, 0, at);
    real *restrict v = tp__state(c, s, 1, at);
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

/* A loop per form, because the compiler vectorises no loop that tests the form. */
static inline void rmsprop_loop(const tp_call *c, const tp_segment *s, int64_t at, int64_t n,
                                bool momentum, bool centered)
{
    const tp_optim_attr *a = c->attr;
    const double alpha = a->k[TP_RMSPROP_ALPHA];
    const real scale = (real)a->scale, l2 = (real)s->l2, eps = (real)a->k[TP_RMSPROP_EPS];
    const real keep = (real)alpha, rest = (real)(1.0 - alpha), rate = (real)s->rate;
    const real mu = (real)a->k[TP_RMSPROP_MOMENTUM];
    const real *restrict g = tp__gradient(s, at);
    real *restrict p = (real *)c->y[0].data + at, *restrict v = tp__state(c, s, 0, at);
    real *restrict u = momentum ? tp__state(c, s, 1, at) : NULL;
    real *restrict mean = centered ? tp__state(c, s, 2, at) : NULL;
    for (int64_t i = 0; i < n; i++) {
        const real d = scale * g[i] + l2 * p[i];
        real spread = v[i] = keep * v[i] + rest * d * d;
        if (centered) {
            const real m = mean[i] + rest * (d - mean[i]);
            mean[i] = m;
            spread -= m * m;
            spread = spread < 0 ? 0 : spread; /* by rounding */
        }
        real by = d / (r_sqrt(spread) + eps);
        if (momentum) by = u[i] = mu * u[i] + by;
        p[i] -= rate * by;
    }
}

static void rmsprop_block(const tp_call *c, const tp_segment *s, int64_t block, int64_t at,
                          int64_t n)
{
    const bool momentum = c->y[2].data != NULL, centered = c->y[3].data != NULL;
    (void)block;
    if (momentum && centered)
        rmsprop_loop(c, s, at, n, true, true);
    else if (momentum)
        rmsprop_loop(c, s, at, n, true, false);
    else if (centered)
        rmsprop_loop(c, s, at, n, false, true);
    else
        rmsprop_loop(c, s, at, n, false, false);
}

static tp_code rmsprop_step(const tp_call *c)
{
    tp__for_blocks(c, rmsprop_block);
    return TP_OK;
}

static void adagrad_block(const tp_call *c, const tp_segment *s, int64_t block, int64_t at,
                          int64_t n)
{
    const tp_optim_attr *a = c->attr;
    const real scale = (real)a->scale, l2 = (real)s->l2, eps = (real)a->k[TP_ADAGRAD_EPS];
    const real rate = (real)s->rate;
    const real *restrict g = tp__gradient(s, at);
    real *restrict p = (real *)c->y[0].data + at, *restrict v = tp__state(c, s, 0, at);
    (void)block;
    for (int64_t i = 0; i < n; i++) {
        const real d = scale * g[i] + l2 * p[i];
        v[i] += d * d;
        p[i] -= rate * d / (r_sqrt(v[i]) + eps);
    }
}

static tp_code adagrad_step(const tp_call *c)
{
    tp__for_blocks(c, adagrad_block);
    return TP_OK;
}

static void lion_block(const tp_call *c, const tp_segment *s, int64_t block, int64_t at, int64_t n)
{
    const tp_optim_attr *a = c->attr;
    const double beta1 = a->k[TP_LION_BETA1], beta2 = a->k[TP_LION_BETA2];
    const real scale = (real)a->scale, b1 = (real)beta1, b2 = (real)beta2;
    const real c1 = (real)(1.0 - beta1), c2 = (real)(1.0 - beta2);
    const real rate = (real)s->rate, before = (real)s->before;
    const real *restrict g = tp__gradient(s, at);
    real *restrict p = (real *)c->y[0].data + at, *restrict m = tp__state(c, s, 0, at);
    (void)block;
    for (int64_t i = 0; i < n; i++) {
        const real d = scale * g[i], to = b1 * m[i] + c1 * d, q = p[i] - before * p[i];
        const real sign = (real)(to > 0) - (real)(to < 0);
        p[i] = q - rate * (to == to ? sign : to); /* NaN stays NaN */
        m[i] = b2 * m[i] + c2 * d;
    }
}

static tp_code lion_step(const tp_call *c)
{
    tp__for_blocks(c, lion_block);
    return TP_OK;
}

static void schedulefree_block(const tp_call *c, const tp_segment *s, int64_t block, int64_t at,
                               int64_t n)
{
    const tp_optim_attr *a = c->attr;
    const double beta2 = a->k[TP_FREE_BETA2], rest = 1.0 - a->k[TP_FREE_C];
    const double beta1 = a->k[TP_FREE_BETA1];
    const real scale = (real)a->scale, eps = (real)a->k[TP_FREE_EPS],
               toward = (real)a->k[TP_FREE_C];
    const real b2 = (real)beta2, c2 = (real)(1.0 - beta2), root = (real)s->root;
    const real decay = (real)s->after, keep = (real)rest, back = (real)(s->rate * beta1);
    const real rate = (real)(s->rate * (1.0 - beta1 * rest));
    const real *restrict g = tp__gradient(s, at);
    real *restrict p = (real *)c->y[0].data + at;
    real *restrict e = tp__state(c, s, 0, at), *restrict v = tp__state(c, s, 1, at);
    (void)block;
    for (int64_t i = 0; i < n; i++) {
        const real d = scale * g[i];
        v[i] = b2 * v[i] + c2 * d * d;
        const real q = d / (root * r_sqrt(v[i]) + eps) + decay * p[i];
        p[i] += toward * e[i] - rate * q;
        e[i] = keep * (e[i] - back * q);
    }
}

static tp_code schedulefree_step(const tp_call *c)
{
    tp__for_blocks(c, schedulefree_block);
    return TP_OK;
}

static void average_block(const tp_call *c, const tp_segment *s, int64_t block, int64_t at,
                          int64_t n)
{
    const double beta1 = ((const tp_optim_attr *)c->attr)->k[TP_FREE_BETA1];
    const real k = (real)((1.0 - beta1) / beta1), *restrict e = tp__state(c, s, 0, at);
    real *restrict p = (real *)c->y[0].data + at;
    (void)block;
    for (int64_t i = 0; i < n; i++) p[i] -= k * e[i];
}

static tp_code schedulefree_average(const tp_call *c)
{
    tp__for_blocks(c, average_block);
    return TP_OK;
}

static void squares_block(const tp_call *c, const tp_segment *s, int64_t block, int64_t at,
                          int64_t n)
{
    const real *g = tp__gradient(s, at);
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += (double)g[i] * (double)g[i];
    ((double *)c->work)[block] = sum;
}

static tp_code grad_squares(const tp_call *c)
{
    tp__for_blocks(c, squares_block);
    return TP_OK;
}

static tp_code grad_root(const tp_call *c)
{
    const int64_t blocks = ((const tp_segments_attr *)c->attr)->s.blocks;
    const double *partial = c->work;
    double sum = 0.0;
    for (int64_t b = 0; b < blocks; b++) sum += partial[b];
    *(real *)c->y[0].data = (real)sqrt(sum);
    return TP_OK;
}

static void clip_block(const tp_call *c, const tp_segment *s, int64_t block, int64_t at, int64_t n)
{
    const tp_segments_attr *a = c->attr;
    const real k = (real)(a->number / ((double)*(const real *)c->x[0].data + 1e-6));
    real *g = tp__gradient(s, at);
    (void)block;
    for (int64_t i = 0; i < n; i++) g[i] *= k;
}

/* A NaN norm must make gradients NaN instead of passing as a small one. */
static tp_code grad_clip(const tp_call *c)
{
    const tp_segments_attr *a = c->attr;
    if (!((double)*(const real *)c->x[0].data + 1e-6 <= a->number)) tp__for_blocks(c, clip_block);
    return TP_OK;
}

static void clamp_block(const tp_call *c, const tp_segment *s, int64_t block, int64_t at, int64_t n)
{
    const real most = (real)((const tp_segments_attr *)c->attr)->number;
    real *g = tp__gradient(s, at);
    (void)block;
    for (int64_t i = 0; i < n; i++) {
        const real x = g[i] < -most ? -most : g[i];
        g[i] = x > most ? most : x;
    }
}

static tp_code grad_clamp(const tp_call *c)
{
    tp__for_blocks(c, clamp_block);
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
TP_CPU_KERNEL(rmsprop_step)
TP_CPU_KERNEL(adagrad_step)
TP_CPU_KERNEL(lion_step)
TP_CPU_KERNEL(schedulefree_step)
TP_CPU_KERNEL(schedulefree_average)
TP_CPU_KERNEL(grad_squares)
TP_CPU_KERNEL(grad_root)
TP_CPU_KERNEL(grad_clip)
TP_CPU_KERNEL(grad_clamp)
TP_CPU_KERNEL(ema_step)
