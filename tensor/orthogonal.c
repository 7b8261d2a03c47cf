/* orthogonal.c - makes the rows of a matrix orthonormal: the Q of a QR decomposition whose R has a
 * positive diagonal, which for normal random rows is uniform over all such matrices.
 *
 * Gram-Schmidt in double over panels of rows: each panel is freed from all rows above it by two
 * products, then its rows from each other, and all of that twice, which leaves an error of a few
 * units in the last place however many rows there are. */
#include "tensor/orthogonal.h"

#include <math.h>

#include "tensor/kernel.h"

/* x[m, n] -= (x q^T) q, for orthonormal rows q[k, n]. work: m k numbers. */
static void free_from(int64_t m, int64_t k, int64_t n, double *x, const double *q, double *work)
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

void tp__orthonormal_rows(int64_t rows, int64_t n, double *q, double *work)
{
    for (int64_t at = 0; at < rows; at += TP_ORTHO_PANEL) {
        const int64_t end = at + TP_ORTHO_PANEL < rows ? at + TP_ORTHO_PANEL : rows, m = end - at;
        double *panel = q + at * n;
        for (int pass = 0; pass < 2; pass++) {
            free_from(m, at, n, panel, q, work);
            for (int64_t r = 0; r < m; r++) {
                free_from(1, r, n, panel + r * n, panel, work);
                scale_row(n, panel + r * n);
            }
        }
    }
}
