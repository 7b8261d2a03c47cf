/* weight_standardize.c - standardises the rows of W [Co,n].
 *
 *     h = w - m     y = h s     dw = s (dy - mean dy) - k h sum(dy h)
 *     s = 1 / (std + eps), k = s^2 / ((n - 1) std)     biased: s = (var + eps)^-1/2, k = s^3 / n
 *
 * Hidden output: m, s and k of each row, [Co,3]. */
#include "cpu/kit/real.h"
#include "cpu/kit/statistics.h"
#include "cpu/kit/sums.h"
#include "tensor/geometry/norms.h"
#include "tensor/kernel.h"

static void standardize_rows(const tp_call *c, int64_t begin, int64_t end)
{
    const tp__standardize_attr *at = c->attr;
    const int64_t n = c->x[0].numel / c->x[0].dim[0];
    const real eps = (real)at->eps;
    for (int64_t r = begin; r < end; r++) {
        const real *w = (const real *)c->x[0].data + r * n;
        real *y = (real *)c->y[0].data + r * n, *stats = (real *)c->y[1].data + 3 * r;
        real m = sum_of(w, n) / (real)n;
        const real v = squares_about(m, w, n);
        real std = r_sqrt(v / (real)(at->biased ? n : n - 1));
        real s = 1 / (at->biased ? r_sqrt(v / (real)n + eps) : std + eps);
        if (!are_squares_exact(v)) {
            const deviation d = deviation_of(w, n, true);
            m = (real)d.mean;
            std = (real)(at->biased ? d.root : d.root * sqrt((double)n / (double)(n - 1)));
            s = 1 / (at->biased ? (real)hypot(d.root, sqrt(at->eps)) : std + eps);
        }
        for (int64_t i = 0; i < n; i++) y[i] = (w[i] - m) * s;
        stats[0] = m;
        stats[1] = s;
        const real k = at->biased ? s * s * s / (real)n
                       : std > 0  ? s * s / ((real)(n - 1) * std)
                                  : 0;
        /* Too small: no gradient rather than part of one. */
        stats[2] = k == 0 && std > 0 && n > 1 ? (real)NAN : k;
    }
}

static tp_code standardize_fwd(const tp_call *c)
{
    const int64_t rows = c->y[1].dim[0];
    if (c->x[0].numel == 0)
        memset(c->y[1].data, 0, (size_t)c->y[1].numel * sizeof(real));
    else
        tp__for(c, rows, 16384 * rows / c->x[0].numel, standardize_rows);
    return TP_OK;
}

static void standardize_grad(const tp_call *c, int64_t begin, int64_t end)
{
    const int64_t n = c->x[0].numel / c->x[0].dim[0];
    for (int64_t r = begin; r < end; r++) {
        const real *w = (const real *)c->x[0].data + r * n, *stats = (real *)c->y[1].data + 3 * r;
        const real *dy = (const real *)c->dy[0].data + r * n, m = stats[0], s = stats[1];
        real *dw = (real *)c->dx[0].data + r * n, sum_dy = 0, sum_dyh = 0;
#pragma omp simd reduction(+ : sum_dy, sum_dyh)
        for (int64_t i = 0; i < n; i++) {
            sum_dy += dy[i];
            sum_dyh += dy[i] * (w[i] - m);
        }
        const real mean_dy = sum_dy / (real)n, k = stats[2] * sum_dyh;
        for (int64_t i = 0; i < n; i++) dw[i] = s * (dy[i] - mean_dy) - k * (w[i] - m);
    }
}

static tp_code standardize_bwd(const tp_call *c)
{
    const int64_t rows = c->y[1].dim[0];
    if (c->dx[0].data && c->x[0].numel > 0)
        tp__for(c, rows, 16384 * rows / c->x[0].numel, standardize_grad);
    return TP_OK;
}

TP_CPU_KERNEL(standardize_fwd)
TP_CPU_KERNEL(standardize_bwd)
