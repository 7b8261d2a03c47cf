/* fpn.c - the feature pyramid network: maps of a backbone to levels of equal width.
 *
 *     M5 = lateral5(C5),  Mi = laterali(Ci) + nearest(M(i+1)),  Pi = outputi(Mi) */
#include <stdio.h>

#include <tapegrad/detection/pyramid.h>

enum { STAGES = TP_BACKBONE_STAGES };

/* The first map of the backbone that makes a level. */
static int first_of(const tp_fpn_cfg *c)
{
    return c->top == TP_FPN_SUBSAMPLE ? 0 : 1;
}

static tp_init init_rule(const char *name, tp_shape s, tp_init dflt, void *env)
{
    (void)name;
    (void)dflt;
    (void)env;
    return s.ndim > 1 ? (tp_init){ TP_INIT_KAIMING_UNIFORM, 1.0, 0.0 }
                      : (tp_init){ .kind = TP_INIT_ZERO };
}

static void init_top(tp_params *P, tp_fpn *m)
{
    const tp_conv_cfg half = { .stride = { 2, 2 }, .pad = { 1, 1 } };
    tp_push(P, "top_block");
    tp_conv2d_init(P, &m->p6, "p6", m->cfg.channels[STAGES - 1], m->cfg.dim, 3, true, half);
    tp_conv2d_init(P, &m->p7, "p7", m->cfg.dim, m->cfg.dim, 3, true, half);
    tp_pop(P);
}

void tp_fpn_init(tp_params *P, tp_fpn *m, const char *name, tp_fpn_cfg cfg)
{
    if (!tp_params_want_module(P, m, "fpn")) return;
    if (cfg.dim == 0) cfg.dim = 256;
    *m = (tp_fpn){ .path = tp_push(P, name), .cfg = cfg };
    tp_params_init_rule(P, init_rule, NULL);
    for (int i = first_of(&cfg); i < STAGES; i++) {
        char text[32];
        snprintf(text, sizeof text, "fpn_lateral%d", i + 2);
        tp_conv2d_init(P, &m->lateral[i], text, cfg.channels[i], cfg.dim, 1, true,
                       (tp_conv_cfg){ 0 });
        snprintf(text, sizeof text, "fpn_output%d", i + 2);
        tp_conv2d_init(P, &m->output[i], text, cfg.dim, cfg.dim, 3, true,
                       (tp_conv_cfg){ .pad = { 1, 1 } });
    }
    if (cfg.top != TP_FPN_SUBSAMPLE) init_top(P, m);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

/* x, a lateral map, and the map above it. */
static tp_tensor merge(tp_tape *T, const tp_fpn *m, tp_tensor x, tp_tensor above)
{
    const tp_tensor up =
        tp_interpolate(T, above, tp_dim(x, 1), tp_dim(x, 2), TP_INTERPOLATE_NEAREST, false);
    const tp_tensor sum = tp_add(T, x, up);
    return m->cfg.average ? tp_scale(T, sum, 0.5) : sum;
}

/* Appends the levels above P5. top: the backbone's last map. */
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

tp_pyramid tp_fpn_forward(tp_tape *T, const tp_fpn *m, const tp_tensor map[TP_BACKBONE_STAGES])
{
    tp_pyramid p = { 0 };
    if (!tp_want_module(T, m, "fpn")) return p;
    const int first = first_of(&m->cfg);
    tp_tensor inner = TP_NONE;
    p.levels = STAGES - first;
    tp_enter(T, m->path);
    for (int i = STAGES - 1; i >= first; i--) {
        const tp_tensor x = tp_conv2d_forward(T, &m->lateral[i], map[i]);
        inner = i == STAGES - 1 ? x : merge(T, m, x, inner);
        p.map[i - first] = tp_conv2d_forward(T, &m->output[i], inner);
    }
    add_top(T, m, &p, map[STAGES - 1]);
    tp_leave_n(T, p.levels, p.map);
    return p;
}
