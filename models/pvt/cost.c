/* cost.c - closed forms of the multiply-adds and activation memory of PVT and
 * PVTv2, for one image. */
#include "inner.h"

/* The sizes of one stage. */
typedef struct stage {
    double N, n, S;    /* tokens of the map, with the class token, of keys and values */
    double D, C, taps; /* width, width of the input, taps of the patches */
    double ratio, heads, blocks;
    bool reduces, pools;
} stage;

/* The sizes of stage s; map is replaced by that after the stage's patches. */
static stage stage_of(const tp_pvt_cfg *c, int s, int64_t map[2])
{
    int64_t kernel;
    const int64_t R = c->reduction[s];
    tp__pvt_patches(c, s, &kernel);
    tp__pvt_shrink(c, s, map);
    stage z = {
        .N = (double)(map[0] * map[1]),
        .D = (double)c->dim[s],
        .C = s ? (double)c->dim[s - 1] : 3.0,
        .taps = (double)(kernel * kernel),
        .ratio = (double)c->mlp_ratio[s],
        .heads = c->heads[s],
        .blocks = c->blocks[s],
        .pools = c->kind == TP_PVT2_LINEAR,
    };
    z.reduces = z.pools || R > 1;
    z.n = z.N + (c->kind == TP_PVT && s == TP_PVT_STAGES - 1 && c->classes > 0);
    z.S = z.pools ? (double)(c->pool * c->pool) : R > 1 ? (double)(map[0] / R * (map[1] / R)) : z.n;
    return z;
}

/* Multiply-adds of one block. */
static double block_macs(const tp_pvt_cfg *c, const stage *z, int s)
{
    const double R = z->pools ? 1.0 : (double)c->reduction[s], DD = z->D * z->D;
    const double linear = (2.0 + 2.0 * z->ratio) * z->n * DD + 2.0 * z->S * DD;
    const double reduction = z->reduces ? z->S * R * R * DD : 0.0;
    const double depthwise = c->kind == TP_PVT ? 0.0 : 9.0 * z->ratio * z->n * z->D;
    return linear + reduction + depthwise + 2.0 * z->n * z->S * z->D;
}

tp_flops tp_pvt_flops(const tp_pvt_cfg *c)
{
    if (!c) return (tp_flops){ 0 };
    int64_t map[2] = { c->image[0], c->image[1] };
    const bool second = c->kind != TP_PVT;
    tp_flops f = { .macs = (double)c->dim[TP_PVT_STAGES - 1] * (double)c->classes };
    for (int s = 0; s < TP_PVT_STAGES; s++) {
        const stage z = stage_of(c, s, map);
        const double each = (2.0 * z.n + (z.reduces ? z.S : 0.0)) * z.D;
        f.macs += z.N * z.taps * z.C * z.D + z.blocks * block_macs(c, &z, s);
        f.norm += (second ? 2.0 : 1.0) * z.N * z.D + z.blocks * each;
        if (s == TP_PVT_STAGES - 1 && !second && c->classes > 0) f.norm += z.D;
    }
    f.paper = f.macs;
    return f;
}

/* ---- activations, in values ---- */

/* Values that the attention saves: its input, queries, keys and values, its
 * output and log-sum-exp; the reduced map before and after its norm and, if it
 * is pooled, before its projection and after GELU. */
static double attention_values(const stage *z)
{
    const double maps = z->pools ? 4.0 : 2.0;
    const double reduced = z->reduces ? z->S * (maps * z->D + 2.0) : 0.0;
    return (3.0 * z->n + 2.0 * z->S) * z->D + z->n * (z->heads + 2.0) + reduced;
}

/* The input of a block, and what attention and feed-forward network save with
 * their norms. */
static double block_values(const tp_pvt_cfg *c, const stage *z)
{
    const double wide = c->kind == TP_PVT ? 2.0 : z->pools ? 3.25 : 3.0; /* ReLU saves a byte */
    const double forward = z->n * ((2.0 + wide * z->ratio) * z->D + 2.0);
    switch (c->recompute) {
    case TP_RECOMPUTE_BLOCK: return z->n * z->D;
    case TP_RECOMPUTE_ATTENTION: return z->n * z->D + forward;
    default: return z->n * z->D + attention_values(z) + forward;
    }
}

double tp_pvt_activations(const tp_pvt_cfg *c)
{
    if (!c) return 0;
    int64_t map[2] = { c->image[0], c->image[1] };
    double values = (double)(3 * map[0] * map[1]);
    for (int s = 0; s < TP_PVT_STAGES; s++) {
        const stage z = stage_of(c, s, map);
        const bool last = s == TP_PVT_STAGES - 1;
        values +=
            z.N * (z.D + 2.0) + z.blocks * block_values(c, &z); /* before the norm of patches */
        if (c->kind != TP_PVT) values += z.N * (z.D + 2.0);     /* before the norm of the stage */
        if (!last) values += z.N * z.D;                         /* input of the next patches */
    }
    return 4.0 * values;
}
