/* random_features.c - random features of Performer's attention. */
#include <math.h>
#include <stdlib.h>
#include <tapegrad/random.h>

#include "model_inner.h"

/* a -= (a . b) b */
static void project_out(double *a, const double *b, int64_t D)
{
    double along = 0.0;
    for (int64_t c = 0; c < D; c++) along += a[c] * b[c];
    for (int64_t c = 0; c < D; c++) a[c] -= along * b[c];
}

/* Gram-Schmidt on the rows of x [n,D], n at most D. Each row is orthogonalised twice against the
 * earlier ones, to remove the rounding error of the first pass. */
static void orthonormalise(double *x, int64_t n, int64_t D)
{
    for (int64_t i = 0; i < n; i++) {
        double *row = x + i * D, square = 0.0;
        for (int pass = 0; pass < 2; pass++)
            for (int64_t k = 0; k < i; k++) project_out(row, x + k * D, D);
        for (int64_t c = 0; c < D; c++) square += row[c] * row[c];
        for (int64_t c = 0; c < D; c++) row[c] /= sqrt(square);
    }
}

/* x [m,D]: blocks of D orthogonal rows, each with the length of a random normal vector. */
static void draw_features(tp_random *r, double *x, int64_t m, int64_t D)
{
    for (int64_t i = 0; i < m * D; i++) x[i] = tp_random_normal(r);
    for (int64_t i = 0; i < m; i += D) orthonormalise(x + i * D, m - i < D ? m - i : D, D);
    for (int64_t i = 0; i < m; i++) {
        double square = 0.0;
        for (int64_t c = 0; c < D; c++) {
            const double z = tp_random_normal(r);
            square += z * z;
        }
        for (int64_t c = 0; c < D; c++) x[i * D + c] *= sqrt(square);
    }
}

bool tp__draw_features(tp_params *P, tp_tensor w, tp_random *r)
{
    const size_t n = (size_t)tp_numel(w);
    double *x = calloc(n, sizeof *x);
    if (!x) {
        tp_params_raise(P, TP_E_MEMORY, "random features: out of host memory");
        return false;
    }
    draw_features(r, x, tp_dim(w, 0), tp_dim(w, 1));
    const bool ok = tp_param_set(P, w, TP_F64, x, n * sizeof *x);
    free(x);
    return ok;
}
