/* cross_entropy.c - fused log-softmax and cross entropy, rows of V logits x.
 *
 *     q_j  = w_j ((1-e) t_j + e/V)  t the target, one-hot or given, e the smoothing, w the weights
 *                                   of classes, if given
 *     z_j  = m + s - x_j            m = max_j x_j, s = log sum_j exp(x_j - m)
 *     loss = sum_j q_j z_j
 *     dx_j = g (exp(-z_j) sum_k q_k - q_j)
 *
 * m and s of each row are saved separately, not as a sum, so large logits cost the result no
 * digits. Rows are independent. Their losses are added in f64 in order; rows not counted have loss
 * 0. */
#include <stdio.h>

#include "cpu/kit/real.h"
#include "cpu/kit/sums.h"
#include "tensor/geometry/index.h"
#include "tensor/geometry/loss.h"
#include "tensor/kernel.h"

/* The weights of classes, [V], or NULL. */
static const real *weights_of(const tp_call *c)
{
    return tp_absent(&c->x[2]) ? NULL : c->x[2].data;
}

/* The weights of the rows that count, all except those with a negative index target. */
static double counted(const tp_call *c, int64_t rows)
{
    const tp_view *target = &c->x[1];
    const real *w = weights_of(c);
    double n = 0.0;
    if (tp_is_float(target->dtype)) return (double)rows;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t t = tp__index(target, r);
        if (t >= 0) n += w ? (double)w[t] : 1.0;
    }
    return n;
}

/* The divisor of the sum over rows; 1 if no row counts, where the loss is 0. */
static double divisor(const tp_call *c, int64_t rows)
{
    const tp_reduction reduction = ((const tp__cross_entropy_attr *)c->attr)->reduction;
    const double n = reduction == TP_MEAN       ? counted(c, rows)
                     : reduction == TP_MEAN_ALL ? (double)rows
                                                : 1.0;
    return n != 0.0 ? n : 1.0;
}

static tp_code check_targets(const tp_call *c, int64_t V)
{
    const tp_view *target = &c->x[1];
    if (tp_is_float(target->dtype)) return TP_OK;
    const int64_t bad = tp__first_outside(target, INT64_MIN, V);
    if (bad < 0) return TP_OK;
    snprintf(c->why, TP_WHY, "target %lld in row %lld, but there are %lld classes",
             (long long)tp__index(target, bad), (long long)bad, (long long)V);
    return TP_E_VALUE;
}

/* m and s of a row. */
typedef struct lse {
    real m, s;
} lse;

static lse lse_of(const real *x, int64_t V)
{
    const real m = largest(x, V, -(real)INFINITY);
    real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < V; j++) sum += r_exp(x[j] - m);
    return (lse){ m, r_log(sum) };
}

/* sum_j z_j */
static real sum_z(const real *x, int64_t V, lse l)
{
    real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < V; j++) sum += l.s - (x[j] - l.m);
    return sum;
}

/* sum_j t_j z_j */
static real dot_z(const real *x, const real *t, int64_t V, lse l)
{
    real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < V; j++) sum += t[j] * (l.s - (x[j] - l.m));
    return sum;
}

static real sum_targets(const real *t, int64_t V)
{
    real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < V; j++) sum += t[j];
    return sum;
}

/* q_j without the part of an index target; t NULL: that is all. */
static real share(const real *w, const real *t, int64_t j, real hit, real rest)
{
    return w[j] * (t ? hit * t[j] + rest : rest);
}

static real sum_shares(const real *w, const real *t, int64_t V, real hit, real rest)
{
    real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < V; j++) sum += share(w, t, j, hit, rest);
    return sum;
}

static real dot_shares(const real *x, const real *w, const real *t, int64_t V, real hit, real rest,
                       lse l)
{
    real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < V; j++) sum += share(w, t, j, hit, rest) * (l.s - (x[j] - l.m));
    return sum;
}

/* ---- forward ---- */

/* With weights of classes. */
static real weighted_loss(const tp_call *c, const real *x, int64_t r, int64_t V, lse l)
{
    const real e = (real)((const tp__cross_entropy_attr *)c->attr)->smoothing, hit = RC(1.0) - e;
    const tp_view *target = &c->x[1];
    const real *w = weights_of(c);
    if (tp_is_float(target->dtype))
        return dot_shares(x, w, (const real *)target->data + r * V, V, hit, e / (real)V, l);
    const int64_t t = tp__index(target, r);
    const real loss = hit * w[t] * (l.s - (x[t] - l.m));
    return e == 0 ? loss : loss + dot_shares(x, w, NULL, V, hit, e / (real)V, l);
}

static real row_loss(const tp_call *c, const real *x, int64_t r, int64_t V, lse l)
{
    const real e = (real)((const tp__cross_entropy_attr *)c->attr)->smoothing;
    const tp_view *target = &c->x[1];
    const real hit = tp_is_float(target->dtype) ? dot_z(x, (const real *)target->data + r * V, V, l)
                                                : l.s - (x[tp__index(target, r)] - l.m);
    if (e == 0) return hit;
    return (RC(1.0) - e) * hit + e / (real)V * sum_z(x, V, l);
}

static void loss_rows(const tp_call *c, int64_t begin, int64_t end)
{
    const tp_view *logits = &c->x[0], *target = &c->x[1];
    const bool each = ((const tp__cross_entropy_attr *)c->attr)->reduction == TP_EACH;
    const int64_t V = logits->dim[logits->ndim - 1];
    for (int64_t r = begin; r < end; r++) {
        const real *x = (const real *)logits->data + r * V;
        lse *l = (lse *)c->y[1].data + r;
        real loss = 0;
        *l = (lse){ 0, 0 };
        if (tp_is_float(target->dtype) || tp__index(target, r) >= 0) {
            *l = lse_of(x, V);
            loss = weights_of(c) ? weighted_loss(c, x, r, V, *l) : row_loss(c, x, r, V, *l);
        }
        if (each)
            ((real *)c->y[0].data)[r] = loss;
        else
            ((double *)c->work)[r] = (double)loss;
    }
}

static tp_code cross_entropy_fwd(const tp_call *c)
{
    const tp_view *logits = &c->x[0];
    const int64_t V = logits->dim[logits->ndim - 1], rows = c->y[1].dim[0];
    const tp_code code = check_targets(c, V);
    const double *loss = c->work;
    double sum = 0.0;

    if (code != TP_OK) return code;
    tp__for(c, rows, 1 + 2 * TP_BLOCK / V, loss_rows);
    if (((const tp__cross_entropy_attr *)c->attr)->reduction == TP_EACH) return TP_OK;
    for (int64_t r = 0; r < rows; r++) sum += loss[r];
    *(real *)c->y[0].data = (real)(sum / divisor(c, rows));
    return TP_OK;
}

/* ---- backward ---- */

/* g: the gradient of the row's loss. */
static void row_slopes(const tp_call *c, int64_t r, int64_t V, real g)
{
    const tp_view *target = &c->x[1];
    const real e = (real)((const tp__cross_entropy_attr *)c->attr)->smoothing;
    const real *restrict x = (const real *)c->x[0].data + r * V;
    const lse l = ((const lse *)c->y[1].data)[r];
    const real hit = g * (RC(1.0) - e), rest = g * (e / (real)V);
    real *restrict dx = (real *)c->dx[0].data + r * V;

    if (tp_is_float(target->dtype)) {
        const real *restrict t = (const real *)target->data + r * V;
        const real total = hit * sum_targets(t, V) + g * e;
        for (int64_t j = 0; j < V; j++)
            dx[j] = total * r_exp((x[j] - l.m) - l.s) - hit * t[j] - rest;
    } else {
        for (int64_t j = 0; j < V; j++) dx[j] = g * r_exp((x[j] - l.m) - l.s) - rest;
        dx[tp__index(target, r)] -= hit;
    }
}

/* The same with weights of classes. */
static void weighted_slopes(const tp_call *c, int64_t r, int64_t V, real g)
{
    const tp_view *target = &c->x[1];
    const real e = (real)((const tp__cross_entropy_attr *)c->attr)->smoothing;
    const real *restrict x = (const real *)c->x[0].data + r * V, *restrict w = weights_of(c);
    const lse l = ((const lse *)c->y[1].data)[r];
    const real hit = g * (RC(1.0) - e), rest = g * (e / (real)V);
    const bool soft = tp_is_float(target->dtype);
    const real *t = soft ? (const real *)target->data + r * V : NULL;
    const int64_t label = soft ? 0 : tp__index(target, r);
    const bool shared = soft || e != 0; /* otherwise weights of other classes are not read */
    const real total = (shared ? sum_shares(w, t, V, hit, rest) : 0) + (soft ? 0 : hit * w[label]);
    real *restrict dx = (real *)c->dx[0].data + r * V;
    for (int64_t j = 0; j < V; j++) dx[j] = total * r_exp((x[j] - l.m) - l.s);
    for (int64_t j = 0; shared && j < V; j++) dx[j] -= share(w, t, j, hit, rest);
    if (!soft) dx[label] -= hit * w[label];
}

static void slope_rows(const tp_call *c, int64_t begin, int64_t end)
{
    const tp_view *logits = &c->x[0], *target = &c->x[1];
    const int64_t V = logits->dim[logits->ndim - 1];
    const bool each = ((const tp__cross_entropy_attr *)c->attr)->reduction == TP_EACH;
    const real *dy = c->dy[0].data;
    const real shared = each ? 0 : *dy * *(const real *)c->work;
    void (*const slopes)(const tp_call *, int64_t, int64_t, real) =
        weights_of(c) ? weighted_slopes : row_slopes;
    for (int64_t r = begin; r < end; r++)
        if (tp_is_float(target->dtype) || tp__index(target, r) >= 0)
            slopes(c, r, V, each ? dy[r] : shared);
        else
            memset((real *)c->dx[0].data + r * V, 0, (size_t)V * sizeof(real));
}

static tp_code cross_entropy_bwd(const tp_call *c)
{
    const tp_view *logits = &c->x[0];
    const int64_t V = logits->dim[logits->ndim - 1], rows = c->y[1].dim[0];

    *(real *)c->work = (real)(1.0 / divisor(c, rows));
    if (c->dx[0].data) tp__for(c, rows, 1 + 2 * TP_BLOCK / V, slope_rows);
    return TP_OK;
}

TP_CPU_KERNEL(cross_entropy_fwd)
TP_CPU_KERNEL(cross_entropy_bwd)
