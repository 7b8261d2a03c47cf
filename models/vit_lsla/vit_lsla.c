/* vit_lsla.c - ViT-LSLA: a convolutional stem, stages of windowed blocks, and a head.
 *
 *     x  = x + drop_path(attn(norm1(x)))
 *     x  = x + drop_path(mlp(norm2(x)))       the next stage begins with norm(conv(x))
 *
 * Activations are maps [B,H,W,D] throughout; windows are never copied out of them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "inner.h"

/* ---- stem and downsampling ---- */

static const tp_conv_cfg halving = { .stride = { 2, 2 }, .pad = { 1, 1 } };

void tp_lsla_stem_init(tp_params *P, tp_lsla_stem *m, const char *name, int64_t channels)
{
    if (!tp_params_want_module(P, m, "lsla_stem")) return;
    m->path = tp_push(P, name);
    for (int i = 0; i < 2; i++) {
        const int64_t in = i ? channels / 2 : 3, out = i ? channels : channels / 2;
        char part[16];
        snprintf(part, sizeof part, "%d", i);
        tp_push(P, part);
        tp_conv2d_init(P, &m->conv[i], "conv", in, out, 3, false, halving);
        tp_batchnorm_init(P, &m->bn[i], "bn", out, 1e-5);
        tp_pop(P);
    }
    tp_pop(P);
}

tp_tensor tp_lsla_stem_forward(tp_tape *T, const tp_lsla_stem *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "lsla_stem")) return TP_NONE;
    tp_enter(T, m->path);
    for (int i = 0; i < 2; i++) {
        x = tp_conv2d_forward(T, &m->conv[i], x);
        x = tp_hardswish(T, tp_batchnorm_forward(T, &m->bn[i], x));
    }
    return tp_leave(T, x);
}

void tp_lsla_merge_init(tp_params *P, tp_lsla_merge *m, const char *name, int64_t dim)
{
    if (!tp_params_want_module(P, m, "lsla_merge")) return;
    m->path = tp_push(P, name);
    tp_conv2d_init(P, &m->conv, "conv", dim, 2 * dim, 3, true, halving);
    tp_layernorm_init(P, &m->norm, "norm", 2 * dim, 1e-5);
    tp_pop(P);
}

tp_tensor tp_lsla_merge_forward(tp_tape *T, const tp_lsla_merge *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "lsla_merge")) return TP_NONE;
    tp_enter(T, m->path);
    return tp_leave(T, tp_layernorm_forward(T, &m->norm, tp_conv2d_forward(T, &m->conv, x)));
}

/* ---- block ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void tp_lsla_block_init(tp_params *P, tp_lsla_block *m, const char *name, tp_lsla_block_cfg cfg)
{
    if (!tp_params_want_module(P, m, "lsla_block")) return;
    const int64_t window = least(cfg.window, least(cfg.map[0], cfg.map[1]));
    const int64_t hidden = tp__hidden(cfg.mlp_ratio, cfg.dim);
    *m = (tp_lsla_block){ .path = tp_push(P, name),
                          .window = cfg.window,
                          .shift = cfg.shift,
                          .drop_path = cfg.drop_path,
                          .recompute = cfg.recompute };
    tp_layernorm_init(P, &m->norm1, "norm1", cfg.dim, 1e-5);
    tp_lsla_attn_init(P, &m->attn, "attn", cfg.dim, cfg.heads, window, cfg.attn);
    tp_layernorm_init(P, &m->norm2, "norm2", cfg.dim, 1e-5);
    tp_mlp_init(P, &m->mlp, "mlp.fc1", "mlp.fc2", cfg.dim, hidden, TP_ACT_GELU, 0.0);
    tp_pop(P);
}

static tp_tensor attend(tp_tape *T, const void *self, tp_tensor x)
{
    const tp_lsla_block *m = self;
    const int64_t shift = least(tp_dim(x, 1), tp_dim(x, 2)) > m->attn.window ? m->shift : 0;
    const tp_tensor a = tp_layernorm_forward(T, &m->norm1, x);
    const tp_tensor y = tp_lsla_attn_forward(T, &m->attn, a, shift);
    return tp_add(T, x, tp_drop_path(T, y, m->drop_path));
}

static tp_tensor run_block(tp_tape *T, const void *self, tp_tensor x)
{
    const tp_lsla_block *m = self;
    tp_enter(T, m->path);
    if (!tp__fits_windows(T, x, m->window, m->attn.window, "tp_vit_lsla_load"))
        return tp_leave(T, TP_NONE);
    const tp_tensor y =
        m->recompute == TP_RECOMPUTE_ATTENTION ? tp_checkpoint(T, attend, m, x) : attend(T, m, x);
    return tp_leave(T, tp__feed_forward(T, &m->norm2, &m->mlp, y, m->drop_path));
}

tp_tensor tp_lsla_block_forward(tp_tape *T, const tp_lsla_block *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "lsla_block")) return TP_NONE;
    return m->recompute == TP_RECOMPUTE_BLOCK ? tp_checkpoint(T, run_block, m, x)
                                              : run_block(T, m, x);
}

/* ---- model ---- */

/* Swin's initial values, and MPViT's for the stem; scales and downsampling keep their defaults. */
static tp_init init_rule(const char *name, tp_shape s, tp_init dflt, void *env)
{
    (void)env;
    if (strstr(name, ".downsample.conv.") || tp_ends_in(name, ".dynamic_scale")) return dflt;
    if (s.ndim == 4) return (tp_init){ TP_INIT_NORMAL, sqrt(2.0 / (9.0 * (double)s.dim[0])), 0.0 };
    if (s.ndim == 2) return (tp_init){ TP_INIT_NORMAL, 0.02, 0.0 };
    return tp_ends_in(name, ".bias") ? (tp_init){ .kind = TP_INIT_ZERO } : dflt;
}

/* Declares stage i, whose blocks begin at block[first]; returns the first of the next stage. */
static int init_stage(tp_params *P, tp_vit_lsla *m, int i, int first)
{
    const tp_vit_lsla_cfg *c = &m->cfg;
    const tp_lsla_stage s = tp__lsla_stage(c, i);
    char name[32];
    snprintf(name, sizeof name, "layers.%d", i);
    tp_push(P, name);
    for (int j = 0; j < c->depths[i]; j++) {
        const int last = tp__lsla_blocks(c) - 1;
        const tp_lsla_block_cfg b = { .map = { s.map[0], s.map[1] },
                                      .dim = s.dim,
                                      .window = c->window,
                                      .shift = j % 2 ? c->window / 2 : 0,
                                      .heads = c->heads[i],
                                      .mlp_ratio = c->mlp_ratio,
                                      .drop_path = last ? c->drop_path * (first + j) / last : 0.0,
                                      .attn = c->attn,
                                      .recompute = c->recompute };
        snprintf(name, sizeof name, "blocks.%d", j);
        tp_lsla_block_init(P, &m->block[first + j], name, b);
    }
    if (i + 1 < c->stages) tp_lsla_merge_init(P, &m->merge[i], "downsample", s.dim);
    tp_pop(P);
    return first + c->depths[i];
}

void tp_vit_lsla_init(tp_params *P, tp_vit_lsla *m, const char *name, tp_vit_lsla_cfg cfg)
{
    if (!tp_params_want_module(P, m, "vit_lsla")) return;
    char why[256];
    memset(m, 0, sizeof *m);
    m->params = P;
    m->cfg = cfg;
    if (!tp_vit_lsla_cfg_check(&cfg, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "ViT-LSLA: %s", why);
        return;
    }
    const int64_t dim = tp__lsla_stage(&cfg, cfg.stages - 1).dim;
    m->path = tp_push(P, name);
    tp_params_init_rule(P, init_rule, NULL);
    tp_lsla_stem_init(P, &m->stem, "stem", cfg.dim);
    for (int i = 0, first = 0; i < cfg.stages; i++) first = init_stage(P, m, i, first);
    tp_layernorm_init(P, &m->norm, "norm", dim, 1e-5);
    tp_linear_init(P, &m->head, "head", dim, cfg.classes, true);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

tp_tensor tp_vit_lsla_forward(tp_tape *T, const tp_vit_lsla *m, tp_tensor images)
{
    if (!tp_want_module(T, m, "vit_lsla")) return TP_NONE;
    const tp_vit_lsla_cfg *c = &m->cfg;
    const tp_lsla_block *block = m->block;
    tp_enter(T, m->path);
    tp__check_images(T, m->params, images);
    tp_tensor x = tp_lsla_stem_forward(T, &m->stem, images);
    for (int i = 0; i < c->stages && tp_ok(T); i++) {
        for (int j = 0; j < c->depths[i] && tp_ok(T); j++) x = tp_lsla_block_forward(T, block++, x);
        if (i + 1 < c->stages) x = tp_lsla_merge_forward(T, &m->merge[i], x);
    }
    x = tp_layernorm_forward(T, &m->norm, x);
    x = tp_mean(T, tp_reshape(T, x, TP_SHAPE(tp_dim(x, 0), -1, tp_dim(x, 3))), 1);
    return tp_leave(T, tp_linear_forward(T, &m->head, x));
}
