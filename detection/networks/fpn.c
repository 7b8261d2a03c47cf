/* fpn.c - the feature pyramid network: converts maps of a backbone to levels of equal width.
 *
 *     M5 = lateral5(C5),  Mi = laterali(Ci) + nearest(M(i+1)),  Pi = outputi(Mi)
 *
 * C5 is the last map, whatever its stride. */
#include <stdio.h>

#include "inner.h"

enum { COARSEST = 20, MAX_WIDTH = 1 << 16 };

/* ---- configuration ---- */

tp_fpn_cfg tp_fpn_of(const tp_backbone_cfg *backbone, int64_t dim, tp_fpn_top top)
{
    if (!backbone) return (tp_fpn_cfg){ 0 };
    const int first = top == TP_FPN_SUBSAMPLE ? 0 : 1; /* stage */
    int64_t channels[TP_BACKBONE_STAGES];
    tp_fpn_cfg c = {
        .first = first + 2, .maps = TP_BACKBONE_STAGES - first, .dim = dim, .top = top
    };
    tp_backbone_channels(backbone, channels);
    for (int i = 0; i < c.maps; i++) c.channels[i] = channels[first + i];
    return c;
}

/* Replaces zeros in c with the defaults. */
static tp_fpn_cfg defaults_of(tp_fpn_cfg c)
{
    if (c.first == 0) c.first = 2;
    if (c.maps == 0) c.maps = 4;
    if (c.dim == 0) c.dim = 256;
    return c;
}

bool tp_fpn_check(const tp_fpn_cfg *cfg, char *why, size_t size)
{
    if (!cfg) return tp__refuse(why, size, "fpn_check: NULL was given in place of a configuration");
    const tp_fpn_cfg c = defaults_of(*cfg);
    bool ok = c.first >= 1 && c.first <= COARSEST && c.maps >= 1 && c.maps <= TP_FPN_MAPS;
    if (!ok)
        return tp__refuse(why, size,
                          "a pyramid has 1 to %d maps, the first of stride 2, 4 ... 2^%d",
                          TP_FPN_MAPS, COARSEST);
    ok = c.dim >= 1 && c.dim <= MAX_WIDTH;
    for (int i = 0; i < c.maps; i++) ok = ok && c.channels[i] >= 1 && c.channels[i] <= MAX_WIDTH;
    if (!ok) snprintf(why, size, "maps and levels of a pyramid have 1 to 2^16 channels");
    return ok;
}

/* ---- parameters ---- */

static void init_top(tp_params *P, tp_fpn *m)
{
    const tp_conv_cfg half = { .stride = { 2, 2 }, .pad = { 1, 1 } };
    tp_push(P, "top_block");
    tp_conv2d_init(P, &m->p6, "p6", m->cfg.channels[m->cfg.maps - 1], m->cfg.dim, 3, true, half);
    tp_conv2d_init(P, &m->p7, "p7", m->cfg.dim, m->cfg.dim, 3, true, half);
    tp_pop(P);
}

void tp_fpn_init(tp_params *P, tp_fpn *m, const char *name, tp_fpn_cfg cfg)
{
    if (!tp_params_want_module(P, m, "fpn")) return;
    char why[200];
    cfg = defaults_of(cfg);
    *m = (tp_fpn){ .cfg = cfg };
    if (!tp_fpn_check(&cfg, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "fpn: %s", why);
        return;
    }
    m->path = tp_push(P, name);
    tp_params_init_rule(P, tp__init_weights, &(tp_init){ TP_INIT_KAIMING_UNIFORM, 1.0, 0.0 });
    for (int i = 0; i < cfg.maps; i++) {
        char text[32];
        snprintf(text, sizeof text, "fpn_lateral%d", cfg.first + i);
        tp_conv2d_init(P, &m->lateral[i], text, cfg.channels[i], cfg.dim, 1, true,
                       (tp_conv_cfg){ 0 });
        snprintf(text, sizeof text, "fpn_output%d", cfg.first + i);
        tp_conv2d_init(P, &m->output[i], text, cfg.dim, cfg.dim, 3, true,
                       (tp_conv_cfg){ .pad = { 1, 1 } });
    }
    if (cfg.top != TP_FPN_SUBSAMPLE) init_top(P, m);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

/* ---- forward ---- */

/* Adds the map above to x, a lateral map. */
static tp_tensor merge(tp_tape *T, const tp_fpn *m, tp_tensor x, tp_tensor above)
{
    const tp_tensor up =
        tp_interpolate(T, above, tp_dim(x, 1), tp_dim(x, 2), TP_INTERPOLATE_NEAREST, false);
    const tp_tensor sum = tp_add(T, x, up);
    return m->cfg.average ? tp_scale(T, sum, 0.5) : sum;
}

/* Appends the levels above the last map, top. */
static void add_top(tp_tape *T, const tp_fpn *m, tp_pyramid *p, tp_tensor top)
{
    if (m->cfg.top == TP_FPN_SUBSAMPLE) {
        const tp_pool_cfg half = { .kernel = { 1, 1 }, .stride = { 2, 2 } };
        p->map[p->levels] = tp_max_pool2d(T, p->map[p->levels - 1], half);
        p->levels++;
        return;
    }
    const tp_tensor p6 = tp_conv2d_forward(T, &m->p6, top);
    const tp_tensor from = m->cfg.top == TP_FPN_RELU ? tp_relu(T, p6) : p6;
    p->map[p->levels++] = p6;
    p->map[p->levels++] = tp_conv2d_forward(T, &m->p7, from);
}

tp_pyramid tp_fpn_forward(tp_tape *T, const tp_fpn *m, const tp_tensor *map)
{
    tp_pyramid p = { 0 };
    if (!tp_want_module(T, m, "fpn")) return p;
    tp_tensor inner = TP_NONE;
    p.levels = m->cfg.maps;
    tp_enter(T, m->path);
    for (int i = p.levels - 1; i >= 0; i--) {
        const tp_tensor x = tp_conv2d_forward(T, &m->lateral[i], map[i]);
        inner = i == m->cfg.maps - 1 ? x : merge(T, m, x, inner);
        p.map[i] = tp_conv2d_forward(T, &m->output[i], inner);
    }
    add_top(T, m, &p, map[m->cfg.maps - 1]);
    tp_leave_n(T, p.levels, p.map);
    return p;
}
