/* lamb.c - LAMB's update over the flat blocks of a parameter set; formula in segments.h.
 *
 * Two passes, as the update of a parameter needs its norms: the first moves the moments and leaves
 * two sums of squares per block, which are added in order; the second recomputes the step from the
 * moments, which is cheaper than storing it. Sums are in double. */
#include "cpu/kit/real.h"
#include "cpu/kit/segment_loop.h"

/* c->work: for each block |p|^2 and |r|^2, then for each segment the factor |p| / |r|. */
static double *factors(const tp_call *c)
{
    const tp_optim_attr *a = c->attr;
    return (double *)c->work + 2 * a->s.blocks;
}

typedef struct numbers {
    real root, eps, c1, decay;
} numbers;

static numbers numbers_of(const tp_optim_attr *a, const tp_segment *s)
{
    return (numbers){ (real)s->root, (real)a->k[TP_LAMB_EPS], (real)s->before, (real)s->after };
}

static inline real step_of(numbers k, real p, real m, real v)
{
    return k.c1 * m / (k.root * r_sqrt(v) + k.eps) + k.decay * p;
}

static void moments_block(const tp_call *c, const tp_segment *s, int64_t block, int64_t at,
                          int64_t n)
{
    const tp_optim_attr *a = c->attr;
    const numbers k = numbers_of(a, s);
    const double beta1 = a->k[TP_LAMB_BETA1], beta2 = a->k[TP_LAMB_BETA2];
    const real scale = (real)a->scale, b1 = (real)beta1, b2 = (real)beta2;
    const real c1 = (real)(1.0 - beta1), c2 = (real)(1.0 - beta2);
    const real *restrict g = tp__gradient(s, at);
    const real *restrict p = (const real *)c->y[0].data + at;
    real *restrict m = tp__state(c, s, 0, at), *restrict v = tp__state(c, s, 1, at);
    double pp = 0.0, rr = 0.0;
#pragma omp simd reduction(+ : pp, rr)
    for (int64_t i = 0; i < n; i++) {
        const real d = scale * g[i];
        m[i] = b1 * m[i] + c1 * d;
        v[i] = b2 * v[i] + c2 * d * d;
        const double x = (double)p[i], r = (double)step_of(k, p[i], m[i], v[i]);
        pp += x * x;
        rr += r * r;
    }
    ((double *)c->work)[2 * block] = pp;
    ((double *)c->work)[2 * block + 1] = rr;
}

static void update_block(const tp_call *c, const tp_segment *s, int64_t block, int64_t at,
                         int64_t n)
{
    const tp_optim_attr *a = c->attr;
    const numbers k = numbers_of(a, s);
    const real rate = (real)(s->rate * factors(c)[s - a->s.at]);
    real *restrict p = (real *)c->y[0].data + at;
    const real *restrict m = tp__state(c, s, 0, at);
    const real *restrict v = tp__state(c, s, 1, at);
    (void)block;
    for (int64_t i = 0; i < n; i++) p[i] -= rate * step_of(k, p[i], m[i], v[i]);
}

static tp_code lamb_step(const tp_call *c)
{
    const tp_segments *all = c->attr;
    const double *part = c->work;
    tp__for_blocks(c, moments_block);
    for (int64_t i = 0; i < all->n; i++) {
        const tp_block_sums sum = tp__block_sums(all, part, i);
        factors(c)[i] = sum.a > 0.0 && sum.b > 0.0 ? sqrt(sum.a / sum.b) : 1.0;
    }
    tp__for_blocks(c, update_block);
    return TP_OK;
}

TP_CPU_KERNEL(lamb_step)
