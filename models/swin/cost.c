/* cost.c - closed forms of the multiply-adds and activation memory of Swin, for one image of the
 * configured size. */
#include "inner.h"

static double tokens(const tp_swin_stage *s)
{
    return (double)s->map[0] * (double)s->map[1];
}

tp_flops tp_swin_flops(const tp_swin_cfg *c)
{
    if (!c) return (tp_flops){ 0 };
    const tp_swin_stage one = tp__swin_stage(c, 0);
    const double patches = tokens(&one) * (double)c->dim;
    tp_flops f = { .macs = 48.0 * patches, .norm = patches };
    for (int i = 0; i < c->stages; i++) {
        const tp_swin_stage s = tp__swin_stage(c, i);
        const double N = tokens(&s), D = (double)s.dim, n = (double)(s.window * s.window);
        f.macs += c->depths[i] * N * ((4.0 + 2.0 * c->mlp_ratio) * D * D + 2.0 * n * D);
        f.norm += (c->depths[i] * 2.0 + 1.0) * N * D; /* of the blocks, then of merging or head */
        f.macs += i + 1 < c->stages ? 2.0 * N * D * D : D * (double)c->classes;
    }
    f.paper = f.macs;
    return f;
}

/* Values that a block saves: its input; the normalised input, queries, keys, values and output of the
 * attention; the sum and its norm; input and output of GELU. */
static double block_values(const tp_swin_cfg *c, double N, double D, double heads)
{
    const double attention = 5.0 * N * D + N * heads + 2.0 * N;
    const double feed_forward = (2.0 + 2.0 * c->mlp_ratio) * N * D + 2.0 * N;
    if (c->recompute == TP_RECOMPUTE_BLOCK) return N * D;
    return N * D + feed_forward + (c->recompute == TP_RECOMPUTE_NONE ? attention : 0.0);
}

double tp_swin_activations(const tp_swin_cfg *c)
{
    if (!c) return 0;
    const tp_swin_stage one = tp__swin_stage(c, 0);
    double sum = 48.0 * tokens(&one) + tokens(&one) * ((double)c->dim + 2.0); /* image, patches */
    for (int i = 0; i < c->stages; i++) {
        const tp_swin_stage s = tp__swin_stage(c, i);
        const double N = tokens(&s), D = (double)s.dim;
        sum += c->depths[i] * block_values(c, N, D, c->heads[i]);
        sum += i + 1 < c->stages ? 2.0 * N * D + N / 2.0 : N * (D + 2.0) + D;
    }
    return 4.0 * sum;
}
