/* point_loss.c - elementwise losses: loss l(x, t) and slope dl/dx, summed over fixed blocks.
 *
 *     bce        max(x,0) - x t + log(1 + exp(-|x|))           slope p - t, p = sigmoid(x)
 *     focal      a_t (1-p_t)^gamma bce                         see below
 *     smooth_l1  d^2/(2 beta) if |d| < beta else |d| - beta/2  d = x - t
 *     mse        d^2
 *     probs      -t log x - (1-t) log(1-x), logarithms >= -100 slope (x - t) / max(x (1-x), 1e-12)
 *     kl         t (log t - x)                                 slope -t
 *     poisson    e^x - t x, or x - t log(x + eps)              slope e^x - t, or 1 - t / (x + eps)
 *     hinge      max(0, margin - t x)
 *     embedding  (t != -1) x + (t != 1) max(0, margin - x)
 *     soft       log(1 + e^(-t x))
 *     cosine     (t = 1) (1 - x) + (t = -1) max(0, x - margin)
 *
 * The slope of a NaN is NaN if it depends on the number.
 *
 * One function computes both, always inlined (compilers find focal too large) into the loops, which
 * keep the half they use and vectorise. */
#include "cpu/kit/real.h"
#include "tensor/geometry/loss.h"
#include "tensor/kernel.h"

typedef struct point {
    real loss, slope;
} point;

typedef point (*point_fn)(real x, real t, const tp__point_loss_attr *a);

/* log(1 + e) for e >= 0, to full relative accuracy where 1 + e loses digits of e (Kahan). */
TP_INLINE real log1(real e)
{
    const real u = RC(1.0) + e;
    return u == RC(1.0) ? e : r_log(u) * (e / (u - RC(1.0)));
}

TP_INLINE point bce(real x, real t, const tp__point_loss_attr *a)
{
    const real e = r_exp(-r_abs(x)), p = (x < 0 ? e : RC(1.0)) / (RC(1.0) + e);
    (void)a;
    return (point){ (x > 0 ? x : RC(0.0)) - x * t + log1(e), p - t };
}

/* With m = 1 - p_t = p (1-t) + (1-p) t: m^gamma bce, and dm/dx = (1-2t) p (1-p). Has no branches,
 * which would prevent vectorisation; m stays away from 0, where log and quotient are infinite. */
TP_INLINE point focal(real x, real t, const tp__point_loss_attr *a)
{
    const real alpha = (real)a->alpha, gamma = (real)a->gamma, tiny = RC(1e-37);
    const real a0 = alpha < 0 ? RC(1.0) : RC(1.0) - alpha;
    const real a1 = alpha < 0 ? RC(0.0) : RC(2.0) * alpha - RC(1.0);
    const real e = r_exp(-r_abs(x)), big = RC(1.0) / (RC(1.0) + e), small = e * big;
    const real p = x < 0 ? small : big, q = x < 0 ? big : small; /* q = 1 - p */
    const real m = p * (RC(1.0) - t) + q * t, safe = m < tiny ? tiny : m;
    const real factor = (a0 + a1 * t) * r_exp(gamma * r_log(safe));
    const real dm = gamma * (RC(1.0) - RC(2.0) * t) * (p * q / safe); /* divided by m */
    const point b = bce(x, t, a);
    return (point){ factor * b.loss, factor * (b.slope + dm * b.loss) };
}

TP_INLINE point smooth_l1(real x, real t, const tp__point_loss_attr *a)
{
    const real beta = (real)a->beta, d = x - t, size = r_abs(d);
    const real half = RC(0.5) * beta, sign = d > 0 ? RC(1.0) : d < 0 ? RC(-1.0) : d;
    const real inner = beta > 0 ? d / beta : RC(0.0);
    const bool inside = size < beta;
    return (point){ inside ? RC(0.5) * d * inner : size - half, inside ? inner : sign };
}

TP_INLINE point mse(real x, real t, const tp__point_loss_attr *a)
{
    const real d = x - t;
    (void)a;
    return (point){ d * d, RC(2.0) * d };
}

TP_INLINE real at_least(real low, real x)
{
    return x < low ? low : x; /* NaN stays */
}

TP_INLINE point probs(real x, real t, const tp__point_loss_attr *a)
{
    const real q = RC(1.0) - x;
    const real yes = at_least(RC(-100.0), r_log(x)), no = at_least(RC(-100.0), r_log1p(-x));
    (void)a;
    return (point){ (t - RC(1.0)) * no - t * yes, (x - t) / at_least(RC(1e-12), x * q) };
}

TP_INLINE point kl(real x, real t, const tp__point_loss_attr *a)
{
    (void)a;
    return (point){ t == 0 ? 0 : t * (r_log(t) - x), -t };
}

TP_INLINE point kl_log(real x, real t, const tp__point_loss_attr *a)
{
    const real p = r_exp(t);
    (void)a;
    return (point){ p == 0 ? 0 : p * (t - x), -p };
}

/* Stirling's approximation of log t! for t > 1. */
TP_INLINE real stirling(real t)
{
    const real safe = t > 1 ? t : RC(1.0), two_pi = RC(6.283185307179586477);
    const real s = safe * r_log(safe) - safe + RC(0.5) * r_log(two_pi * safe);
    return t > 1 ? s : RC(0.0);
}

TP_INLINE point poisson(real x, real t, const tp__point_loss_attr *a)
{
    const real e = r_exp(x);
    (void)a;
    return (point){ e - t * x, e - t };
}

TP_INLINE point poisson_full(real x, real t, const tp__point_loss_attr *a)
{
    const point s = poisson(x, t, a);
    return (point){ s.loss + stirling(t), s.slope };
}

TP_INLINE point rate(real x, real t, const tp__point_loss_attr *a)
{
    const real safe = x + (real)a->eps;
    return (point){ x - t * r_log(safe), RC(1.0) - t / safe };
}

TP_INLINE point rate_full(real x, real t, const tp__point_loss_attr *a)
{
    const point s = rate(x, t, a);
    return (point){ s.loss + stirling(t), s.slope };
}

/* v, or NaN if m is NaN */
TP_INLINE real or_nan(real m, real v)
{
    return m == m ? v : m;
}

TP_INLINE point hinge(real x, real t, const tp__point_loss_attr *a)
{
    const real m = (real)a->margin - t * x;
    return (point){ m < 0 ? RC(0.0) : m, m < 0 ? RC(0.0) : or_nan(m, -t) };
}

TP_INLINE point embedding(real x, real t, const tp__point_loss_attr *a)
{
    const real m = (real)a->margin - x, far = m < 0 ? RC(0.0) : m,
               pull = m <= 0 ? RC(0.0) : or_nan(m, RC(-1.0)); /* 0 at the margin, as in PyTorch */
    const bool near = t != RC(-1.0), apart = t != RC(1.0);
    return (point){ (near ? x : RC(0.0)) + (apart ? far : RC(0.0)),
                    (near ? RC(1.0) : RC(0.0)) + (apart ? pull : RC(0.0)) };
}

TP_INLINE point soft(real x, real t, const tp__point_loss_attr *a)
{
    const real z = -t * x, e = r_exp(-r_abs(z)), p = (z < 0 ? e : RC(1.0)) / (RC(1.0) + e);
    (void)a;
    return (point){ (z > 0 ? z : RC(0.0)) + log1(e), -t * p };
}

TP_INLINE point cosine(real x, real t, const tp__point_loss_attr *a)
{
    const real m = x - (real)a->margin, far = m < 0 ? RC(0.0) : m,
               push = m < 0 ? RC(0.0) : or_nan(m, RC(1.0));
    const bool near = t == RC(1.0), apart = t == RC(-1.0);
    return (point){ near    ? RC(1.0) - x
                    : apart ? far
                            : RC(0.0),
                    near    ? RC(-1.0)
                    : apart ? push
                            : RC(0.0) };
}

/* ---- forward ---- */

/* Writes elements [begin, end) to y, or returns their sum. */
TP_INLINE double losses(const tp_call *c, int64_t begin, int64_t end, point_fn f)
{
    const tp__point_loss_attr *a = c->attr;
    const real *restrict x = c->x[0].data, *restrict t = c->x[1].data;
    real *restrict y = c->y[0].data, sum = 0;
    if (a->reduction == TP_EACH) {
        for (int64_t i = begin; i < end; i++) y[i] = f(x[i], t[i], a).loss;
        return 0.0;
    }
#pragma omp simd reduction(+ : sum)
    for (int64_t i = begin; i < end; i++) sum += f(x[i], t[i], a).loss;
    return (double)sum;
}

static void loss_blocks(const tp_call *c, int64_t begin, int64_t end)
{
    const int64_t n = c->x[0].numel;
    for (int64_t k = begin; k < end; k++) {
        const int64_t from = k * TP_BLOCK, to = from + TP_BLOCK < n ? from + TP_BLOCK : n;
        double *part = (double *)c->work + k;
        switch (((const tp__point_loss_attr *)c->attr)->loss) {
        case TP_LOSS_BCE: *part = losses(c, from, to, bce); break;
        case TP_LOSS_FOCAL: *part = losses(c, from, to, focal); break;
        case TP_LOSS_SMOOTH_L1: *part = losses(c, from, to, smooth_l1); break;
        case TP_LOSS_MSE: *part = losses(c, from, to, mse); break;
        case TP_LOSS_PROBS: *part = losses(c, from, to, probs); break;
        case TP_LOSS_KL: *part = losses(c, from, to, kl); break;
        case TP_LOSS_KL_LOG: *part = losses(c, from, to, kl_log); break;
        case TP_LOSS_POISSON: *part = losses(c, from, to, poisson); break;
        case TP_LOSS_POISSON_FULL: *part = losses(c, from, to, poisson_full); break;
        case TP_LOSS_POISSON_RATE: *part = losses(c, from, to, rate); break;
        case TP_LOSS_POISSON_RATE_FULL: *part = losses(c, from, to, rate_full); break;
        case TP_LOSS_HINGE: *part = losses(c, from, to, hinge); break;
        case TP_LOSS_HINGE_EMBEDDING: *part = losses(c, from, to, embedding); break;
        case TP_LOSS_SOFT_MARGIN: *part = losses(c, from, to, soft); break;
        case TP_LOSS_COSINE: *part = losses(c, from, to, cosine); break;
        }
    }
}

static tp_code point_loss_fwd(const tp_call *c)
{
    const tp_reduction reduction = ((const tp__point_loss_attr *)c->attr)->reduction;
    const int64_t n = c->x[0].numel, blocks = (n + TP_BLOCK - 1) / TP_BLOCK;
    const double *part = c->work;
    double sum = 0.0;

    tp__for(c, blocks, 2, loss_blocks);
    if (reduction == TP_EACH) return TP_OK;
    for (int64_t k = 0; k < blocks; k++) sum += part[k];
    if (reduction != TP_SUM && n > 0) sum /= (double)n;
    *(real *)c->y[0].data = (real)sum;
    return TP_OK;
}

/* ---- backward ---- */

TP_INLINE void slopes(const tp_call *c, int64_t begin, int64_t end, point_fn f)
{
    const tp__point_loss_attr *a = c->attr;
    const real *restrict x = c->x[0].data, *restrict t = c->x[1].data;
    const real *restrict dy = c->dy[0].data;
    real *restrict dx = c->dx[0].data;
    if (a->reduction == TP_EACH) {
        for (int64_t i = begin; i < end; i++) dx[i] = dy[i] * f(x[i], t[i], a).slope;
        return;
    }
    const real g = a->reduction == TP_SUM ? *dy : *dy / (real)c->x[0].numel;
    for (int64_t i = begin; i < end; i++) dx[i] = g * f(x[i], t[i], a).slope;
}

static void slope_range(const tp_call *c, int64_t begin, int64_t end)
{
    switch (((const tp__point_loss_attr *)c->attr)->loss) {
    case TP_LOSS_BCE: slopes(c, begin, end, bce); break;
    case TP_LOSS_FOCAL: slopes(c, begin, end, focal); break;
    case TP_LOSS_SMOOTH_L1: slopes(c, begin, end, smooth_l1); break;
    case TP_LOSS_MSE: slopes(c, begin, end, mse); break;
    case TP_LOSS_PROBS: slopes(c, begin, end, probs); break;
    case TP_LOSS_KL: slopes(c, begin, end, kl); break;
    case TP_LOSS_KL_LOG: slopes(c, begin, end, kl_log); break;
    case TP_LOSS_POISSON: slopes(c, begin, end, poisson); break;
    case TP_LOSS_POISSON_FULL: slopes(c, begin, end, poisson_full); break;
    case TP_LOSS_POISSON_RATE: slopes(c, begin, end, rate); break;
    case TP_LOSS_POISSON_RATE_FULL: slopes(c, begin, end, rate_full); break;
    case TP_LOSS_HINGE: slopes(c, begin, end, hinge); break;
    case TP_LOSS_HINGE_EMBEDDING: slopes(c, begin, end, embedding); break;
    case TP_LOSS_SOFT_MARGIN: slopes(c, begin, end, soft); break;
    case TP_LOSS_COSINE: slopes(c, begin, end, cosine); break;
    }
}

static tp_code point_loss_bwd(const tp_call *c)
{
    if (c->dx[0].data) tp__for(c, c->x[0].numel, 2 * TP_BLOCK, slope_range);
    return TP_OK;
}

TP_CPU_KERNEL(point_loss_fwd)
TP_CPU_KERNEL(point_loss_bwd)
