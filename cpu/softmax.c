/* softmax.c - softmax and its logarithm over the rows of X [rows,n].
 *
 *     softmax      y = e^(x - max) / sum     dx = y (dy - sum_j dy_j y_j)
 *     log_softmax  y = x - max - log(sum)    dx = dy - e^y sum_j dy_j
 *
 * Backward reads only y. */
#include "cpu/kit/real.h"
#include "cpu/kit/sums.h"
#include "tensor/kernel.h"

static int64_t row_of(const tp_call *c)
{
    return c->y[0].dim[c->y[0].ndim - 1];
}

/* Runs body over the rows, in pieces of about 4 K elements. */
static tp_code each_row(const tp_call *c, tp_call_body body)
{
    const int64_t n = row_of(c);
    if (n > 0) tp__for(c, c->y[0].numel / n, 4096 / n, body);
    return TP_OK;
}

static void softmax_rows(const tp_call *c, int64_t begin, int64_t end)
{
    const int64_t n = row_of(c);
    for (int64_t r = begin; r < end; r++) {
        const real *x = (const real *)c->x[0].data + r * n;
        real *y = (real *)c->y[0].data + r * n;
        const real m = largest(x + 1, n - 1, x[0]);
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) {
            y[i] = r_exp(x[i] - m);
            sum += y[i];
        }
        const real k = 1 / sum;
        for (int64_t i = 0; i < n; i++) y[i] *= k;
    }
}

static void softmax_grad_rows(const tp_call *c, int64_t begin, int64_t end)
{
    const int64_t n = row_of(c);
    for (int64_t r = begin; r < end; r++) {
        const real *y = (const real *)c->y[0].data + r * n;
        const real *dy = (const real *)c->dy[0].data + r * n;
        real *dx = (real *)c->dx[0].data + r * n;
        const real dot = dot_of(dy, y, n);
        for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - dot);
    }
}

static void log_softmax_rows(const tp_call *c, int64_t begin, int64_t end)
{
    const int64_t n = row_of(c);
    for (int64_t r = begin; r < end; r++) {
        const real *x = (const real *)c->x[0].data + r * n;
        real *y = (real *)c->y[0].data + r * n;
        const real m = largest(x + 1, n - 1, x[0]);
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) sum += r_exp(x[i] - m);
        const real k = r_log(sum);
        for (int64_t i = 0; i < n; i++) y[i] = x[i] - m - k;
    }
}

static void log_softmax_grad_rows(const tp_call *c, int64_t begin, int64_t end)
{
    const int64_t n = row_of(c);
    for (int64_t r = begin; r < end; r++) {
        const real *y = (const real *)c->y[0].data + r * n;
        const real *dy = (const real *)c->dy[0].data + r * n;
        real *dx = (real *)c->dx[0].data + r * n;
        const real sum = sum_of(dy, n);
        for (int64_t i = 0; i < n; i++) dx[i] = dy[i] - r_exp(y[i]) * sum;
    }
}

static tp_code softmax_fwd(const tp_call *c)
{
    return each_row(c, softmax_rows);
}

static tp_code softmax_bwd(const tp_call *c)
{
    return each_row(c, softmax_grad_rows);
}

static tp_code log_softmax_fwd(const tp_call *c)
{
    return each_row(c, log_softmax_rows);
}

static tp_code log_softmax_bwd(const tp_call *c)
{
    return each_row(c, log_softmax_grad_rows);
}

TP_CPU_KERNEL(softmax_fwd)
TP_CPU_KERNEL(softmax_bwd)
TP_CPU_KERNEL(log_softmax_fwd)
TP_CPU_KERNEL(log_softmax_bwd)
