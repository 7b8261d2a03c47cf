/* kernels.c - attentions whose weights are products of features: phi(q) (phi(k)^T v), linear in n.
 *
 * Performer, as in the official code, multiplies queries and keys by (d / h)^(-1/4) twice, so that the
 * effective score is q k / (d / h). Linear attention is divided by the root of n, padding included. */
#include <math.h>
#include <tapegrad/random.h>

#include "inner.h"
#include "model_inner.h"

tp_tensor tp__lra_kernel(tp_tape *T, const tp_lra_attn *m, tp_tensor q, tp_tensor k, tp_tensor v,
                         tp_tensor mask)
{
    const tp_lra_attn_cfg *c = &m->cfg;
    tp_linear_attn_cfg a = { .heads = c->heads, .features = TP_FEATURES_ELU };
    if (c->kind == TP_LRA_PERFORMER) {
        a.features = c->relu ? TP_FEATURES_RELU : TP_FEATURES_POSITIVE;
        a.scale = 1.0 / sqrt((double)(c->dim / c->heads));
    }
    return tp_linear_attention(T, q, k, v, m->features, mask, a);
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
