/* focal_class.c - sigmoid focal loss of rows of K logits whose targets are classes, without one-hot
 * vectors.
 *
 *     f(x) = p^gamma softplus(x)     p = sigmoid(x), log p = x - softplus(x)
 *     loss = a1 f(-x_t) + a0 sum of f(x_j) over j other than t
 *     f'   = p^gamma (gamma (1-p) softplus(x) + p)
 *
 * a1 = alpha, a0 = 1 - alpha, or both are 1. Target K means background: no class t. Most rows of a
 * detector are background, so adjacent ones form one long loop. Blocks of about TP_BLOCK elements
 * are summed in order. */
#include <stdio.h>

#include "cpu/kit/real.h"
#include "tensor/geometry/index.h"
#include "tensor/geometry/loss.h"
#include "tensor/kernel.h"

static const tp__point_loss_attr *attr_of(const tp_call *c)
{
    return c->attr;
}

static int64_t classes_of(const tp_call *c)
{
    return c->x[0].dim[c->x[0].ndim - 1];
}

static int64_t blocks_of(const tp_call *c)
{
    const int64_t per = tp__focal_rows(classes_of(c));
    return (c->x[1].numel + per - 1) / per;
}

/* One partial sum per block. */
static size_t focal_class_work(const tp_call *c)
{
    return tp_is_backward(c) ? 0 : (size_t)blocks_of(c) * sizeof(double);
}

/* The divisor of the sum over rows; 1 if no row counts. */
static double divisor(const tp_call *c)
{
    const tp_reduction r = attr_of(c)->reduction;
    int64_t n = r == TP_MEAN_ALL ? c->x[1].numel : r == TP_MEAN ? 0 : 1;
    for (int64_t i = 0; r == TP_MEAN && i < c->x[1].numel; i++) n += tp__index(&c->x[1], i) >= 0;
    return n > 0 ? (double)n : 1.0;
}

/* ---- f and its slope ---- */

typedef struct point {
    real loss, slope;
} point;

/* gamma 2, the usual one, and 0 need no exponential for the power. */
typedef enum power { SQUARE, NONE, ANY } power;

TP_INLINE point f(real x, power kind, real gamma)
{
    const real e = r_exp(-r_abs(x)), l = r_log1p_finite(e), big = RC(1.0) / (RC(1.0) + e);
    const real small = e * big, p = x < 0 ? small : big, q = x < 0 ? big : small;
    const real soft = (x > 0 ? x : RC(0.0)) + l, log_p = (x < 0 ? x : RC(0.0)) - l;
    const real m = kind == SQUARE ? p * p : kind == NONE ? RC(1.0) : r_exp(gamma * log_p);
    return (point){ m * soft, m * (gamma * q * soft + p) };
}

/* Skips element `except`, which may be outside. */
TP_INLINE real sum_kind(const real *restrict x, int n, int except, power kind, real gamma)
{
    real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++) {
        const real loss = f(x[i], kind, gamma).loss;
        sum += i == except ? RC(0.0) : loss;
    }
    return sum;
}

static real sum_of(const real *x, int64_t n, int64_t except, real gamma)
{
    if (gamma == RC(2.0)) return sum_kind(x, (int)n, (int)except, SQUARE, gamma);
    return gamma == 0 ? sum_kind(x, (int)n, (int)except, NONE, gamma)
                      : sum_kind(x, (int)n, (int)except, ANY, gamma);
}

TP_INLINE void slopes_kind(const real *restrict x, real *restrict dx, int64_t n, real g, power kind,
                           real gamma)
{
    for (int64_t i = 0; i < n; i++) dx[i] = g * f(x[i], kind, gamma).slope;
}

static void slopes_of(const real *x, real *dx, int64_t n, real g, real gamma)
{
    if (gamma == RC(2.0))
        slopes_kind(x, dx, n, g, SQUARE, gamma);
    else if (gamma == 0)
        slopes_kind(x, dx, n, g, NONE, gamma);
    else
        slopes_kind(x, dx, n, g, ANY, gamma);
}

/* ---- rows ---- */

typedef struct weights {
    real object, background, gamma;
} weights;

static weights weights_of(const tp_call *c)
{
    const tp__point_loss_attr *a = attr_of(c);
    const bool none = a->alpha < 0;
    return (weights){ none ? RC(1.0) : (real)a->alpha, none ? RC(1.0) : (real)(1.0 - a->alpha),
                      (real)a->gamma };
}

/* The end of the rows from r on, below `end`, with row r's target. */
static int64_t same_target(const tp_view *target, int64_t r, int64_t end)
{
    const int64_t t = tp__index(target, r);
    int64_t to = r + 1;
    while (to < end && tp__index(target, to) == t) to++;
    return to;
}

/* The loss of rows with target t; only background comes in several rows. */
static real loss_of(const real *x, int64_t rows, int64_t t, int64_t K, weights w)
{
    const real others = w.background * sum_of(x, rows * K, t < K ? t : -1, w.gamma);
    return t < K ? others + w.object * f(-x[t], ANY, w.gamma).loss : others;
}

static void loss_blocks(const tp_call *c, int64_t begin, int64_t end)
{
    const tp_view *target = &c->x[1];
    const int64_t K = classes_of(c), per = tp__focal_rows(K), rows = target->numel;
    const bool each = attr_of(c)->reduction == TP_EACH;
    const weights w = weights_of(c);
    for (int64_t b = begin; b < end; b++) {
        const int64_t last = (b + 1) * per < rows ? (b + 1) * per : rows;
        double sum = 0.0;
        for (int64_t r = b * per, to; r < last; r = to) {
            const int64_t t = tp__index(target, r);
            const real *x = (const real *)c->x[0].data + r * K;
            to = !each && t >= K ? same_target(target, r, last) : r + 1;
            const real loss = t < 0 ? RC(0.0) : loss_of(x, to - r, t, K, w);
            if (each) ((real *)c->y[0].data)[r] = loss;
            sum += (double)loss;
        }
        ((double *)c->work)[b] = sum;
    }
}

static tp_code focal_class_fwd(const tp_call *c)
{
    const int64_t K = classes_of(c), bad = tp__first_outside(&c->x[1], INT64_MIN, K + 1);
    const double *part = c->work;
    double sum = 0.0;
    if (bad >= 0) {
        snprintf(c->why, TP_WHY, "target %lld in row %lld, but classes end at %lld, the background",
                 (long long)tp__index(&c->x[1], bad), (long long)bad, (long long)K);
        return TP_E_VALUE;
    }
    tp__for(c, blocks_of(c), 1, loss_blocks);
    if (attr_of(c)->reduction == TP_EACH) return TP_OK;
    for (int64_t b = 0; b < blocks_of(c); b++) sum += part[b];
    *(real *)c->y[0].data = (real)(sum / divisor(c));
    return TP_OK;
}

/* ---- backward ---- */

static void slope_blocks(const tp_call *c, int64_t begin, int64_t end)
{
    const tp_view *target = &c->x[1];
    const int64_t K = classes_of(c), per = tp__focal_rows(K);
    const int64_t last = end * per < target->numel ? end * per : target->numel;
    const bool each = attr_of(c)->reduction == TP_EACH;
    const weights w = weights_of(c);
    const real *dy = c->dy[0].data;
    const real shared = each ? 0 : (real)((double)*dy / divisor(c));
    for (int64_t r = begin * per, to; r < last; r = to) {
        const int64_t t = tp__index(target, r);
        const real *x = (const real *)c->x[0].data + r * K;
        real *dx = (real *)c->dx[0].data + r * K;
        const real g = each ? dy[r] : shared;
        to = !each && (t < 0 || t >= K) ? same_target(target, r, last) : r + 1;
        if (t < 0)
            memset(dx, 0, (size_t)((to - r) * K) * sizeof *dx);
        else
            slopes_of(x, dx, (to - r) * K, g * w.background, w.gamma);
        if (t >= 0 && t < K) dx[t] = -g * w.object * f(-x[t], ANY, w.gamma).slope;
    }
}

static tp_code focal_class_bwd(const tp_call *c)
{
    if (c->dx[0].data) tp__for(c, blocks_of(c), 2, slope_blocks);
    return TP_OK;
}

TP_CPU_KERNEL(focal_class_fwd)
TP_CPU_KERNEL(focal_class_bwd)
TP_CPU_WORK(focal_class_work)
