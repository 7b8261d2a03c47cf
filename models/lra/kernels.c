/* kernels.c - attentions whose weights are products of features: phi(q) (phi(k)^T v), linear in n.
 *
 * Performer, as in the official code: D = d / h, and the factors D^(-1/4) come twice, so that the
 * effective score is q k / D.
 *
 *     c = D^(-1/2) x, keys of padding 0        u = c W^T       phi(x) = exp(u - |c|^2 / 2 - max u) + 1e-4
 *     y = phi(q) (phi(k)^T v) / (phi(q) sum phi(k))
 *
 * The maximum is a query's own or that of all keys of a sequence and head, and a constant for the gradient.
 * Padding stays in the sum of the keys. Upstream's factor m^(-1/2) of phi cancels. */
#include <math.h>
#include <tapegrad/random.h>

#include "inner.h"
#include "model_inner.h"

static tp_tensor plus(tp_tape *T, tp_tensor x, double k)
{
    return tp_add(T, x, tp_full(T, tp_dtype_of(x), TP_SCALAR, k));
}

/* x [B,h,n,D] -> phi [B,h,n,m] */
static tp_tensor features(tp_tape *T, const tp_lra_attn *m, tp_tensor x, bool keys)
{
    const tp_tensor c = tp_scale(T, x, 1.0 / sqrt((double)tp_dim(x, 3)));
    const tp_tensor w = tp_cast(T, m->features, tp_dtype_of(x));
    const tp_tensor u = tp_linear(T, c, w, TP_NONE, TP_ACT_NONE);
    if (m->cfg.relu) return plus(T, tp_relu(T, u), 1e-3);
    const tp_tensor half = tp_scale(T, tp_sum(T, tp_square(T, c), TP_KEEP(-1)), 0.5);
    const tp_tensor top = tp_max(T, tp_detach(T, u), keys ? TP_KEEP(TP_AXES(-1, -2)) : TP_KEEP(-1));
    return plus(T, tp_exp(T, tp_sub(T, u, tp_add(T, half, top))), 1e-4);
}

tp_tensor tp__lra_performer(tp_tape *T, const tp_lra_attn *m, tp_tensor q, tp_tensor k, tp_tensor v,
                            tp_tensor mask)
{
    const int H = m->cfg.heads;
    k = features(T, m, tp__lra_split(T, tp__lra_hide(T, k, mask), H), true);
    q = features(T, m, tp__lra_split(T, q, H), false);
    v = tp__lra_split(T, tp__lra_hide(T, v, mask), H);
    const tp_tensor kv = tp_matmul_t(T, k, true, v, false);                /* [B,h,m,D] */
    const tp_tensor sum = tp_transpose(T, tp_sum(T, k, TP_KEEP(2)), 2, 3); /* [B,h,m,1] */
    return tp__lra_merge(T, tp_div(T, tp_matmul(T, q, kv), tp_matmul(T, q, sum)));
}

/* phi = (elu + 1) n^(-1/4), without a normaliser; n counts padding. */
tp_tensor tp__lra_linear(tp_tape *T, const tp_lra_attn *m, tp_tensor q, tp_tensor k, tp_tensor v,
                         tp_tensor mask)
{
    const int H = m->cfg.heads;
    const double scale = 1.0 / sqrt((double)tp_dim(q, 1)); /* of both sides */
    q = plus(T, tp_elu(T, q, 1.0), 1.0);
    k = tp__lra_hide(T, plus(T, tp_elu(T, k, 1.0), 1.0), mask);
    v = tp__lra_split(T, tp__lra_hide(T, v, mask), H);
    const tp_tensor kv = tp_matmul_t(T, tp__lra_split(T, k, H), true, v, false); /* [B,h,D,D] */
    return tp__lra_merge(T, tp_matmul(T, tp__lra_split(T, q, H), tp_scale(T, kv, scale)));
}

bool tp_lra_redraw(tp_params *P, const tp_lra *m, uint64_t seed, uint64_t draw)
{
    if (!tp_params_want_module(P, m, "lra")) return false;
    for (int i = 0; i < m->cfg.layers; i++) {
        const tp_tensor w = m->layer[i].attn.features;
        if (!tp_given(w)) continue;
        tp_random r = tp_random_stream(seed, "lra.features", (uint64_t)i, draw);
        if (!tp__draw_features(P, w, &r)) return false;
    }
    return tp_params_ok(P);
}
