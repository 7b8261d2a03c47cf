/* flops.c - closed forms of the multiply-adds and activation memory of Vision Longformer, for one
 * image of the configured size.
 *
 * The paper's rule differs: it counts no global tokens, (2w+1)^2 keys per window, and six products
 * with Performer's features; its rows of Global models count global tokens, a second kv and windows
 * that the models do not have. */
#include "inner.h"

typedef struct sizes {
    tp_vil_kind kind;
    double N, T, g, d, H, f, r;
    double padded;  /* tokens, padded to whole chunks */
    double reduced; /* tokens of SRA's reduced map    */
    double tile;    /* local keys of a window         */
} sizes;

static double whole(int64_t n, int64_t unit)
{
    return (double)((n + unit - 1) / unit * unit);
}

static sizes sizes_of(const tp_vil_cfg *c, int stage)
{
    const tp_vil_stage *s = &c->stage[stage];
    const tp_vil_kind kind = s->dense ? TP_VIL_FULL : c->kind;
    const int64_t w = s->feature > 0 ? s->feature : 1, side = w / 2 > 0 ? w / 2 : 1;
    int64_t map[2];
    tp__vil_map(c, stage, map);
    sizes z = { .kind = kind,
                .N = (double)(map[0] * map[1]),
                .g = (double)s->global,
                .d = (double)s->dim,
                .H = s->heads,
                .f = (double)s->feature,
                .r = s->rank,
                .padded = whole(map[0], w) * whole(map[1], w),
                .reduced = (double)((map[0] / w) * (map[1] / w)) };
    z.T = z.N + z.g;
    z.tile = kind == TP_VIL_LS ? (double)((w + 2 * side) * (w + 2 * side)) : 9.0 * z.f * z.f;
    if (kind == TP_VIL_LS && s->feature == 0) z.tile = 0.0;
    return z;
}

/* Multiply-adds of one attention, including its projections. */
static double attention_macs(const sizes *z)
{
    const double dense = 4.0 * z->T * z->d * z->d, rows = 2.0 * z->g * z->T * z->d;
    switch (z->kind) {
    case TP_VIL_FULL: return dense + 2.0 * z->T * z->T * z->d;
    case TP_VIL_WINDOW: return dense + 2.0 * z->padded * (z->tile + z->g) * z->d + rows;
    case TP_VIL_GLOBAL: return dense + 2.0 * z->N * z->g * z->d + rows;
    case TP_VIL_LINFORMER: return dense + 4.0 * z->T * z->f * z->d;
    case TP_VIL_SRA:
        return 2.0 * z->T * z->d * z->d + z->reduced * z->f * z->f * z->d * z->d +
               2.0 * (z->g + z->reduced) * z->d * z->d + 2.0 * z->T * (z->g + z->reduced) * z->d;
    case TP_VIL_PERFORMER: return dense + 4.0 * z->T * z->f * z->d + 2.0 * z->H * z->T * z->f;
    case TP_VIL_LS:
        return dense + z->N * z->d * z->H * z->r + 4.0 * z->N * z->r * z->d +
               2.0 * z->N * (z->tile + z->g) * z->d + rows;
    }
    return 0.0;
}

/* The same by the paper's rule. window: the window of Global models, which is 8, 4, 2, 1 in stages
 * 1 to 4. */
static double paper_macs(sizes z, tp_vil_kind model, double window)
{
    const double seen = 2.0 * z.f + 1.0, old = 2.0 * window + 1.0;
    if (model == TP_VIL_GLOBAL) {
        const double projections = (z.kind == TP_VIL_FULL ? 4.0 : 6.0) * z.T * z.d * z.d;
        return projections + 2.0 * z.N * (z.kind == TP_VIL_FULL ? z.N : old * old) * z.d;
    }
    z.g = 0.0;
    z.T = z.N;
    switch (z.kind) {
    case TP_VIL_WINDOW: return 4.0 * z.N * z.d * z.d + 2.0 * z.N * seen * seen * z.d;
    case TP_VIL_PERFORMER: return 4.0 * z.N * z.d * z.d + 6.0 * z.N * z.f * z.d;
    default: return attention_macs(&z);
    }
}

/* Multiply-adds, by the paper's rule or of the actual operations; *norm: elements that pass a
 * LayerNorm. */
static double count(const tp_vil_cfg *cfg, bool paper, double *norm)
{
    double macs = 0.0, in = 3.0;
    *norm = 0.0;
    for (int k = 0; k < cfg->stages; k++) {
        const tp_vil_stage *s = &cfg->stage[k];
        const sizes z = sizes_of(cfg, k);
        const double window = (double)(1 << (cfg->stages - 1 - k)), n = s->blocks;
        const bool tokens = !paper || cfg->kind == TP_VIL_GLOBAL; /* global tokens count */
        const double mlp = 8.0 * (tokens ? z.T : z.N) * z.d * z.d;
        const double p = (double)s->patch;
        macs += z.N * z.d * in * p * p +
                n * (mlp + (paper ? paper_macs(z, cfg->kind, window) : attention_macs(&z)));
        *norm += (cfg->raw_embed ? 0.0 : z.N * z.d) + 2.0 * n * z.T * z.d;
        if (z.kind == TP_VIL_LS) *norm += 2.0 * n * (z.T + z.r) * z.d;
        in = z.d;
    }
    return macs + in * (double)cfg->classes;
}

tp_flops tp_vil_flops(const tp_vil_cfg *cfg)
{
    if (!cfg) return (tp_flops){ 0 };
    tp_flops f = { 0 };
    f.macs = count(cfg, false, &f.norm);
    f.paper = cfg->kind == TP_VIL_LS ? f.macs : count(cfg, true, &f.norm);
    return f;
}

/* ---- activations, in values ---- */

/* Values that the ops of an attention save: the input of the projections, queries, keys, values,
 * statistics and the context. */
static double attention_values(const sizes *z)
{
    const double Td = z->T * z->d, Nd = z->N * z->d, Kd = z->f * z->d, rows = z->g * z->d;
    const double joined = z->g > 0.0 ? Td + rows : 0.0; /* context of global and local rows */
    switch (z->kind) {
    case TP_VIL_FULL: return 5.0 * Td + z->H * z->T;
    case TP_VIL_WINDOW:
    case TP_VIL_GLOBAL: return 4.0 * Td + Nd + joined + rows + z->H * z->T;
    case TP_VIL_LINFORMER: return 5.0 * Td + 2.0 * Kd + z->H * z->T;
    case TP_VIL_SRA: {
        const double R = z->reduced * z->d, from = z->g > 0.0 ? R + rows : 0.0;
        return 3.0 * Td + (z->g > 0.0 ? Nd : 0.0) + 2.0 * R + from + 2.0 * (R + rows) + z->H * z->T;
    }
    case TP_VIL_PERFORMER: return 10.0 * Td + 6.0 * z->H * z->T * z->f;
    case TP_VIL_LS:
        return 6.0 * Td + 4.0 * z->T + Nd + (z->g > 0.0 ? 3.0 * Td + 2.0 * Nd : 0.0) +
               z->N * z->H * z->r + 4.0 * z->r * z->d + z->H * z->T;
    }
    return 0.0;
}

double tp_vil_activations(const tp_vil_cfg *cfg)
{
    if (!cfg) return 0;
    double values = 0.0, before = 3.0 * (double)(cfg->image[0] * cfg->image[1]);
    for (int k = 0; k < cfg->stages; k++) {
        const sizes z = sizes_of(cfg, k);
        const double Td = z.T * z.d;
        double block = Td;
        if (cfg->recompute != TP_RECOMPUTE_BLOCK)
            block += 2.0 * z.T + 2.0 * Td + 2.0 * z.T + 8.0 * Td;
        if (cfg->recompute == TP_RECOMPUTE_NONE) block += attention_values(&z);
        values += before + z.N * z.d + cfg->stage[k].blocks * block;
        before = z.g > 0.0 || k + 1 == cfg->stages ? z.N * z.d : 0.0;
    }
    return 4.0 * (values + before);
}
