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
    const tp_tensor q = features(T, m, heads_of(T, m, tp__project(T, &m->qkv, x, 0, 3)), false);
    const tp_tensor k = features(T, m, heads_of(T, m, tp__project(T, &m->qkv, x, 1, 3)), true);
    const tp_tensor v = heads_of(T, m, tp__project(T, &m->qkv, x, 2, 3));
    const int64_t M = tp_dim(k, 3);

    const tp_tensor kv = tp_matmul_t(T, k, true, v, false); /* [B,H,m,D] */
    const tp_tensor sum = tp_reshape(T, tp_sum(T, k, 2), TP_SHAPE(B, H, M, 1));
    const tp_tensor y = tp_div(T, tp_matmul(T, q, kv), tp_matmul(T, q, sum));
    return tp_reshape(T, tp_permute(T, y, TP_SHAPE(0, 2, 1, 3)), TP_SHAPE(B, N, H * D));
}

bool tp__vil_redraw(tp_params *P, const void *module, uint64_t seed, uint64_t draw)
{
    const tp_vil *m = module;
    for (int i = 0; i < m->blocks; i++) {
        const tp_tensor w = m->block[i].attn.features;
        if (!tp_given(w)) continue;
        tp_random r = tp_random_stream(seed, "vil.features", (uint64_t)i, draw);
        if (!tp__draw_features(P, w, &r)) return false;
    }
    return tp_params_ok(P);
}
