/* mpvit.c - MPViT: a stem, four stages of multi-path patches and encoders, the mean of the last map. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "inner.h"

/* Convolutions with batch norm: normal by the number of outputs, k k out, which only the residual
 * convolution divides by its groups. Encodings keep their modules' defaults, as all others. */
static tp_init init_rule(const char *name, tp_shape s, tp_init dflt, void *last)
{
    const bool embedded = strstr(name, ".patch_conv.") != NULL;
    const bool normed =
        embedded || tp_ends_in(name, ".conv.weight") || tp_ends_in(name, ".dwconv.weight");
    if (s.ndim != 4 || !normed) return tp__usual_init(name, s, dflt, last);
    const bool depthwise = tp_ends_in(name, ".dwconv.weight") && !embedded;
    const double out = depthwise ? 1.0 : (double)s.dim[0];
    const double fan = (double)(s.dim[2] * s.dim[3]) * out;
    return (tp_init){ TP_INIT_NORMAL, sqrt(2.0 / fan), 0.0 };
}

/* Declares stage s, whose layers begin at layer `first` of `all`; returns the first of the next. */
static int init_stage(tp_params *P, tp_mpvit *m, int s, int first, int all)
{
    const tp_mpvit_cfg *c = &m->cfg;
    double rates[TP_MPVIT_MAX_LAYERS];
    char name[48];
    for (int j = 0; j < c->layers[s]; j++) rates[j] = tp__drop_rate(c->drop_path, first + j, all);
    const tp_mpvit_encoder_cfg e = { .dim = c->dim[s],
                                     .layers = c->layers[s],
                                     .heads = c->heads,
                                     .mlp_ratio = c->mlp_ratio[s],
                                     .drop_path = rates,
                                     .kernels = c->kernels,
                                     .recompute = c->recompute };
    snprintf(name, sizeof name, "patch_embed_stages.%d", s);
    tp_mpvit_embed_init(P, &m->embed[s], name, c->dim[s], c->paths[s], s == 0 ? 1 : 2);
    snprintf(name, sizeof name, "mhca_stages.%d", s);
    tp_mpvit_stage_init(P, &m->stage[s], name, c->paths[s], tp__mpvit_out(c, s), e);
    return first + c->layers[s];
}

void tp_mpvit_init(tp_params *P, tp_mpvit *m, const char *name, tp_mpvit_cfg cfg)
{
    if (!tp_params_want_module(P, m, "mpvit")) return;
    char why[256];
    bool convolution = false;
    int layers = 0;
    memset(m, 0, sizeof *m);
    m->params = P;
    m->cfg = cfg;
    if (!tp_mpvit_cfg_check(&cfg, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "MPViT: %s", why);
        return;
    }
    for (int s = 0; s < TP_MPVIT_STAGES; s++) layers += cfg.layers[s];
    m->path = tp_push(P, name);
    tp_params_init_rule(P, init_rule, &convolution);
    tp_lsla_stem_init(P, &m->stem, "stem", cfg.dim[0]);
    for (int s = 0, first = 0; s < TP_MPVIT_STAGES; s++) first = init_stage(P, m, s, first, layers);
    tp_linear_init(P, &m->head, "cls_head.cls", cfg.dim[TP_MPVIT_STAGES - 1], cfg.classes, true);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

tp_tensor tp_mpvit_forward(tp_tape *T, const tp_mpvit *m, tp_tensor images)
{
    if (!tp_want_module(T, m, "mpvit")) return TP_NONE;
    tp_tensor paths[TP_MPVIT_PATHS];
    tp_enter(T, m->path);
    tp__check_images(T, m->params, images);
    tp_tensor x = tp_lsla_stem_forward(T, &m->stem, images);
    for (int s = 0; s < TP_MPVIT_STAGES && tp_ok(T); s++) {
        tp_mpvit_embed_forward(T, &m->embed[s], x, paths);
        x = tp_mpvit_stage_forward(T, &m->stage[s], paths);
    }
    x = tp_mean(T, tp__tokens(T, x), 1);
    return tp_leave(T, tp_linear_forward(T, &m->head, x));
}
