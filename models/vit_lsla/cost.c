/* cost.c - closed forms of the multiply-adds and activation memory of ViT-LSLA, for one image of
 * the configured size. */
#include "inner.h"

/* Pixels of the image after a number of halvings. */
static double pixels(const tp_vit_lsla_cfg *c, int halvings)
{
    int64_t side[2] = { c->image[0], c->image[1] };
    for (int i = 0; i < halvings; i++)
        for (int axis = 0; axis < 2; axis++) side[axis] = (side[axis] + 1) / 2;
    return (double)side[0] * (double)side[1];
}

/* The number of D x D matrices of an attention. */
static double matrices(const tp_lsla_cfg *o)
{
    return o->variant == TP_LSLA_QKV ? 4.0 : o->variant == TP_LSLA_QXX_NP ? 1.0 : 2.0;
}

tp_flops tp_vit_lsla_flops(const tp_vit_lsla_cfg *c)
{
    if (!c) return (tp_flops){ 0 };
    const double d = (double)c->dim, half = d / 2.0;
    tp_flops f = { .macs = pixels(c, 1) * 27.0 * half + pixels(c, 2) * 9.0 * half * d,
                   .batchnorm = pixels(c, 1) * half + pixels(c, 2) * d };
    for (int i = 0; i < c->stages; i++) {
        const tp_lsla_stage s = tp__lsla_stage(c, i);
        const double T = pixels(c, i + 2), D = (double)s.dim, n = (double)(s.window * s.window);
        const double dense = (matrices(&c->attn) + 2.0 * c->mlp_ratio) * D * D;
        f.macs += c->depths[i] * T * (dense + 2.0 * n * D);
        f.norm += c->depths[i] * 2.0 * T * D;
        if (i + 1 < c->stages) {
            f.macs += pixels(c, i + 3) * 18.0 * D * D;
            f.norm += pixels(c, i + 3) * 2.0 * D;
        } else {
            f.norm += T * D;
            f.macs += D * (double)c->classes;
        }
    }
    f.paper = f.macs;
    return f;
}

/* Values that a block saves: its input; the normalised input, queries, other projections and output
 * of the attention; the sum and its norm; input and output of GELU. */
static double block_values(const tp_vit_lsla_cfg *c, double T, double D, double heads)
{
    const tp_lsla_variant v = c->attn.variant;
    const double projected = v == TP_LSLA_QKV ? 2.0 : v == TP_LSLA_QXV ? 1.0 : 0.0;
    const double result = v == TP_LSLA_QXX || v == TP_LSLA_QKV ? 1.0 : 0.0;
    const double attention = (2.0 + projected + result) * T * D + T * heads + 2.0 * T;
    const double feed_forward = (2.0 + 2.0 * c->mlp_ratio) * T * D + 2.0 * T;
    if (c->recompute == TP_RECOMPUTE_BLOCK) return T * D;
    return T * D + feed_forward + (c->recompute == TP_RECOMPUTE_NONE ? attention : 0.0);
}

double tp_vit_lsla_activations(const tp_vit_lsla_cfg *c)
{
    if (!c) return 0;
    const double d = (double)c->dim;
    double sum = pixels(c, 0) * 3.0 + pixels(c, 1) * 1.5 * d + pixels(c, 2) * 2.0 * d;
    for (int i = 0; i < c->stages; i++) {
        const double T = pixels(c, i + 2), D = (double)(c->dim << i);
        sum += c->depths[i] * block_values(c, T, D, c->heads[i]) + T * D;
        if (i + 1 < c->stages) sum += pixels(c, i + 3) * (2.0 * D + 2.0);
    }
    return 4.0 * sum;
}
