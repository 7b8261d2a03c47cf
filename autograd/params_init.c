/* params_init.c - initial values: from declared kinds to the numbers drawn. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <tapegrad/random.h>

#include "autograd/params.h"
#include "tensor/kernel.h"
#include "tensor/rng.h"
#include "tensor/shape.h"

/* ---- orthonormal rows ----
 *
 * Makes a matrix's rows orthonormal: the Q of a QR decomposition whose R has a positive diagonal,
 * which for normal random rows is uniform over all such matrices.
 *
 * Gram-Schmidt in double over panels of rows: two products orthogonalise each panel to all rows
 * above it, then its rows to each other; a second pass leaves errors of a few units in the last
 * place for any number of rows. */

enum { PANEL = 32 }; /* rows orthogonalised together */

/* x[m, n] -= (x q^T) q, for orthonormal rows q[k, n]. work: m k numbers. */
static void project_out(int64_t m, int64_t k, int64_t n, double *x, const double *q, double *work)
{
    if (k == 0) return;
    tp__gemm(TP_F64, false, true, m, k, n, 1.0, x, n, q, n, 0.0, work, k);
    tp__gemm(TP_F64, false, false, m, n, k, -1.0, work, k, q, n, 1.0, x, n);
}

static void scale_row(int64_t n, double *x)
{
    double square = 0.0;
    tp__gemm(TP_F64, false, true, 1, 1, n, 1.0, x, n, x, n, 0.0, &square, 1);
    const double by = square > 0.0 ? 1.0 / sqrt(square) : 0.0;
    for (int64_t i = 0; i < n; i++) x[i] *= by;
}

/* Makes the rows of q[rows, n], rows <= n and linearly independent, orthonormal. work: PANEL * rows
 * numbers. */
static void orthonormal_rows(int64_t rows, int64_t n, double *q, double *work)
{
    for (int64_t at = 0; at < rows; at += PANEL) {
        const int64_t end = at + PANEL < rows ? at + PANEL : rows, m = end - at;
        double *panel = q + at * n;
        for (int pass = 0; pass < 2; pass++) {
            project_out(m, at, n, panel, q, work);
            for (int64_t r = 0; r < m; r++) {
                project_out(1, r, n, panel + r * n, panel, work);
                scale_row(n, panel + r * n);
            }
        }
    }
}

/* ---- what to draw ---- */

static bool by_fans(tp_init_kind k)
{
    return k == TP_INIT_XAVIER_UNIFORM || k == TP_INIT_XAVIER_NORMAL ||
           k == TP_INIT_KAIMING_UNIFORM || k == TP_INIT_KAIMING_NORMAL;
}

/* Fans as in torch.nn.init: [out, in, ...], times the further axes' elements. */
static double deviation(const tp_init *init, const tp_shape *s)
{
    double field = 1.0;
    for (int i = 2; i < s->ndim; i++) field *= (double)s->dim[i];
    const double in = (double)s->dim[1] * field, out = (double)s->dim[0] * field;
    if (init->kind == TP_INIT_XAVIER_UNIFORM || init->kind == TP_INIT_XAVIER_NORMAL)
        return (init->a != 0.0 ? init->a : 1.0) * sqrt(2.0 / (in + out));
    return (init->a != 0.0 ? init->a : sqrt(2.0)) / sqrt(init->b != 0.0 ? out : in);
}

bool tp__init_resolve(const char *name, const tp_view *v, tp_init *init, tp_err *e)
{
    const tp_shape s = tp__view_shape(v);
    if (!by_fans(init->kind) && init->kind != TP_INIT_ORTHOGONAL) return true;
    if (s.ndim < 2) {
        tp__err(e, TP_E_SHAPE,
                "params: '%.200s' has %d axes; Xavier, Kaiming and orthogonal initial values need "
                "at least two, so use another tp_init_kind for it",
                name, s.ndim);
        return false;
    }
    if (init->kind == TP_INIT_ORTHOGONAL) {
        if (init->a == 0.0) init->a = 1.0;
        return true;
    }
    const bool uniform =
        init->kind == TP_INIT_XAVIER_UNIFORM || init->kind == TP_INIT_KAIMING_UNIFORM;
    const double std = v->numel > 0 ? deviation(init, &s) : 0.0;
    *init = uniform ? (tp_init){ TP_INIT_UNIFORM, sqrt(3.0) * std, 0.0 }
                    : (tp_init){ TP_INIT_NORMAL, std, 0.0 };
    return true;
}

/* ---- drawing ---- */

static double draw(const tp_init *init, uint64_t key, uint64_t e)
{
    switch (init->kind) {
    case TP_INIT_UNIFORM: return init->a * (2.0 * (double)tp__uniform(tp__word(key, 0, e)) - 1.0);
    case TP_INIT_TRUNC: {
        double x = tp__normal(key, 0, e);
        for (uint64_t again = 1; fabs(x) > 2.0; again++) x = tp__normal(key, again, e);
        return init->b + init->a * x;
    }
    default: return 0.0; /* filled, drawn in pairs, or resolved to one of these */
    }
}

/* Draws normal values in pairs, which halves the logarithms and roots. */
static void draw_normal(const tp_view *host, const tp_init *init, uint64_t key)
{
    for (int64_t i = 0; i < host->numel; i += 2) {
        double z[2];
        tp__normal_pair(key, 0, (uint64_t)i / 2, z);
        tp_st(host, i, init->b + init->a * z[0]);
        if (i + 1 < host->numel) tp_st(host, i + 1, init->b + init->a * z[1]);
    }
}

/* As torch.nn.init.orthogonal_, for the matrix of dim[0] rows: vectors along the shorter side are
 * orthonormal, times the gain. */
static bool draw_orthogonal(const tp_view *host, const tp_init *init, uint64_t key)
{
    const int64_t rows = host->dim[0], cols = host->numel / rows;
    const int64_t k = rows < cols ? rows : cols, n = rows < cols ? cols : rows;
    const tp_init normal = { TP_INIT_NORMAL, 1.0, 0.0 };
    tp_view q = tp__view(TP_F64, &TP_SHAPE(k, n), malloc((size_t)host->numel * sizeof(double)));
    double *work = malloc((size_t)k * PANEL * sizeof *work), *at = q.data;
    if (at && work) {
        draw_normal(&q, &normal, key);
        orthonormal_rows(k, n, at, work);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++)
                tp_st(host, r * cols + c, init->a * at[rows < cols ? r * n + c : c * n + r]);
    }
    const bool ok = at && work;
    free(q.data);
    free(work);
    return ok;
}

bool tp__init_draw(const tp_view *host, const tp_init *init, uint64_t key)
{
    if (init->kind == TP_INIT_ORTHOGONAL) return draw_orthogonal(host, init, key);
    if (init->kind == TP_INIT_NORMAL) {
        draw_normal(host, init, key);
        return true;
    }
    for (int64_t i = 0; i < host->numel; i++) tp_st(host, i, draw(init, key, (uint64_t)i));
    return true;
}
