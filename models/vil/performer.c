/* performer.c - attention by positive random features (Choromanski et al. 2021), as in the official
 * code of Vision Longformer.
 *
 *     u = W z D^(-1/4),  c = |z|^2 D^(-1/2) / 2,  phi(z) = exp(u - c - mu) + 1e-4
 *     out = phi(q) (phi(k)^T v) / (phi(q) sum phi(k))
 *
 * mu is the largest u of a query; for keys, the largest over all keys, heads and images of the
 * call. It has a gradient, small but not zero, because of the 1e-4. Upstream's factor m^(-1/2) of
 * phi cancels. */
#include <math.h>
#include <stdlib.h>
#include <tapegrad/random.h>

#include "inner.h"

/* x [B,N,H D] -> [B,H,N,D] */
static tp_tensor heads_of(tp_tape *T, const tp_vil_attn *m, tp_tensor x)
{
    const int64_t B = tp_dim(x, 0), N = tp_dim(x, 1), H = m->stage.heads;
    const tp_tensor split = tp_reshape(T, x, TP_SHAPE(B, N, H, m->stage.dim / H));
    return tp_permute(T, split, TP_SHAPE(0, 2, 1, 3));
}

/* z [B,H,N,D] -> phi [B,H,N,m] */
static tp_tensor features(tp_tape *T, const tp_vil_attn *m, tp_tensor z, bool keys)
{
    const double D = (double)tp_dim(z, 3);
    const tp_shape each = TP_SHAPE(tp_dim(z, 0), tp_dim(z, 1), tp_dim(z, 2), 1);
    const tp_tensor w = tp_cast(T, m->features, tp_dtype_of(z));
    const tp_tensor u = tp_linear(T, tp_scale(T, z, pow(D, -0.25)), w, TP_NONE, TP_ACT_NONE);
    const tp_tensor c = tp_scale(T, tp_sum(T, tp_square(T, z), -1), 0.5 / sqrt(D));
    const tp_tensor mu = tp_max(T, u, keys ? TP_ALL : -1);
    const tp_tensor top = tp_reshape(T, tp_add(T, c, mu), each);
    const tp_tensor e = tp_exp(T, tp_sub(T, u, top));
    return tp_add(T, e, tp_full(T, tp_dtype_of(e), TP_SCALAR, 1e-4));
}

tp_tensor tp__vil_performer(tp_tape *T, const tp_vil_attn *m, tp_tensor x)
{
    const int64_t B = tp_dim(x, 0), N = tp_dim(x, 1), H = m->stage.heads, D = m->stage.dim / H;
    const tp_tensor q = features(T, m, heads_of(T, m, tp__vil_project(T, &m->qkv, x, 0, 3)), false);
    const tp_tensor k = features(T, m, heads_of(T, m, tp__vil_project(T, &m->qkv, x, 1, 3)), true);
    const tp_tensor v = heads_of(T, m, tp__vil_project(T, &m->qkv, x, 2, 3));
    const int64_t M = tp_dim(k, 3);

    const tp_tensor kv = tp_matmul_t(T, k, true, v, false); /* [B,H,m,D] */
    const tp_tensor sum = tp_reshape(T, tp_sum(T, k, 2), TP_SHAPE(B, H, M, 1));
    const tp_tensor y = tp_div(T, tp_matmul(T, q, kv), tp_matmul(T, q, sum));
    return tp_reshape(T, tp_permute(T, y, TP_SHAPE(0, 2, 1, 3)), TP_SHAPE(B, N, H * D));
}

/* ---- features ---- */

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

bool tp_vil_redraw(tp_params *P, const tp_vil *m, uint64_t seed, uint64_t draw)
{
    if (!tp_params_want_module(P, m, "vil")) return false;
    for (int i = 0; i < m->blocks; i++) {
        const tp_tensor w = m->block[i].attn.features;
        const size_t n = (size_t)tp_numel(w);
        if (!tp_given(w)) continue;
        double *x = calloc(n, sizeof *x);
        if (!x) {
            tp_params_raise(P, TP_E_MEMORY, "random features: out of host memory");
            return false;
        }
        tp_random r = tp_random_stream(seed, "vil.features", (uint64_t)i, draw);
        draw_features(&r, x, tp_dim(w, 0), tp_dim(w, 1));
        tp_param_set(P, w, TP_F64, x, n * sizeof *x);
        free(x);
    }
    return tp_params_ok(P);
}
