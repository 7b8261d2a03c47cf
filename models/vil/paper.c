/* paper.c - multiply-adds of Vision Longformer by the rule behind the figures of its paper.
 *
 * The rule counts no global tokens, (2w+1)^2 keys per window, and six products with Performer's features; its rows of
 * Global models count global tokens, a second kv and windows that the models do not have. ViL-LS has no figure of its
 * own: another paper counts it, with whole windows and without scores of the global tokens' dynamic projection. Neither
 * counts the last norm. */
#include "inner.h"

/* The attention of a stage of N tokens, with its projections. reduced: tokens of SRA's map. window: that of Global
 * models, which is 8, 4, 2, 1 in stages 1 to 4. */
static double attention(const tp_vil_cfg *c, const tp_vil_stage *s, double N, double reduced,
                        double window)
{
    const bool full = s->dense || c->kind == TP_VIL_FULL;
    const double g = (double)s->global, d = (double)s->dim, f = (double)s->feature;
    const double seen = 2.0 * f + 1.0, old = 2.0 * window + 1.0, dense = 4.0 * N * d * d;
    if (c->kind == TP_VIL_GLOBAL)
        return (full ? 4.0 : 6.0) * (N + g) * d * d + 2.0 * N * (full ? N : old * old) * d;
    if (full) return dense + 2.0 * N * N * d;
    switch (c->kind) {
    case TP_VIL_WINDOW: return dense + 2.0 * N * seen * seen * d;
    case TP_VIL_PERFORMER: return dense + 6.0 * N * f * d;
    case TP_VIL_LINFORMER: return dense + 4.0 * N * f * d;
    default: /* SRA */
        return 2.0 * N * d * d + reduced * (f * f + 2.0) * d * d + 2.0 * N * reduced * d;
    }
}

void tp__vil_paper(const void *cfg, int64_t tokens, tp_cost *cost)
{
    const tp_vil_cfg *c = cfg;
    double macs = 0.0, in = 3.0, N = 0.0, spared = 0.0;
    (void)tokens;
    for (int k = 0; k < c->stages; k++) {
        const tp_vil_stage *s = &c->stage[k];
        const int64_t f = s->feature > 0 ? s->feature : 1;
        int64_t map[2];
        tp__vil_map(c, k, map);
        N = (double)(map[0] * map[1]);
        const double d = (double)s->dim, p = (double)s->patch,
                     window = (double)(1 << (c->stages - 1 - k));
        const double rows = c->kind == TP_VIL_GLOBAL ? N + (double)s->global : N;
        macs += N * d * in * p * p +
                s->blocks * (8.0 * rows * d * d +
                             attention(c, s, N, (double)((map[0] / f) * (map[1] / f)), window));
        spared += s->blocks * (double)s->global * d * (double)(s->dense ? 0 : s->heads * s->rank);
        in = d;
    }
    const bool pools = c->avg_pool || c->stage[c->stages - 1].global == 0;
    cost->norm -= (pools ? N + (double)c->stage[c->stages - 1].global : 1.0) * in;
    cost->paper =
        c->kind == TP_VIL_LS ? cost->macs + cost->beyond - spared : macs + in * (double)c->classes;
}
