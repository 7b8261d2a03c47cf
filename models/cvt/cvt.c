/* cvt.c - CvT, CvT* and CvT*-LS: images to classes in three stages.
 *
 *     map    = norm(conv(map))               token embedding: smaller and wider
 *     x      = tokens(map)                   in the last stage after the class token
 *     x      = x + attn(norm1(x))            for each block; with drop path in training
 *     x      = x + mlp(norm2(x))
 *     logits = head(norm(class token))       or of the mean of all normalised tokens
 *
 * Another resolution changes the size of the map only; no weight depends on it. */
#include <stdio.h>
#include <string.h>

#include <tapegrad/cvt.h>

#include "model_inner.h"

/* ---- token embedding ---- */

void tp_cvt_embed_init(tp_params *P, tp_cvt_embed *m, const char *name, int64_t in, int64_t out,
                       int64_t kernel, int64_t stride, int64_t pad)
{
    if (!tp_params_want_module(P, m, "cvt_embed")) return;
    const tp_conv_cfg cfg = { { stride, stride }, { pad, pad }, { 1, 1 }, 1 };

    m->path = tp_push(P, name);
    tp_conv2d_init(P, &m->proj, "proj", in, out, kernel, true, cfg);
    tp_layernorm_init(P, &m->norm, "norm", out, 1e-5);
    tp_pop(P);
}

tp_tensor tp_cvt_embed_forward(tp_tape *T, const tp_cvt_embed *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "cvt_embed")) return TP_NONE;
    tp_enter(T, m->path);
    return tp_leave(T, tp_layernorm_forward(T, &m->norm, tp_conv2d_forward(T, &m->proj, x)));
}

/* ---- block ---- */

void tp_cvt_block_init(tp_params *P, tp_cvt_block *m, const char *name, const tp_cvt_cfg *cfg,
                       int stage, double drop_path)
{
    if (!tp_params_want_module(P, m, "cvt_block")) return;
    const int64_t D = cfg->dim[stage];
    const tp_act act = cfg->quick_gelu ? TP_ACT_QUICK_GELU : TP_ACT_GELU;

    m->path = tp_push(P, name);
    m->drop_path = drop_path;
    m->recompute = cfg->recompute;
    tp_layernorm_init(P, &m->norm1, "norm1", D, 1e-5);
    tp_cvt_attn_init(P, &m->attn, "attn", cfg, stage);
    tp_layernorm_init(P, &m->norm2, "norm2", D, 1e-5);
    tp_mlp_init(P, &m->mlp, "mlp.fc1", "mlp.fc2", D, 4 * D, act, 0.0);
    tp_pop(P);
}

/* x: tokens, grid -> x + attn(norm1(x)). */
static tp_tensor attend(tp_tape *T, const void *self, int nx, const tp_tensor *x)
{
    const tp_cvt_block *m = self;
    const tp_tensor u = tp_layernorm_forward(T, &m->norm1, x[0]);
    const tp_tensor y = tp_cvt_attn_forward(T, &m->attn, u, x[1]);
    (void)nx;
    return tp_add(T, x[0], tp_drop_path(T, y, m->drop_path));
}

static tp_tensor run_block(tp_tape *T, const void *self, int nx, const tp_tensor *x)
{
    const tp_cvt_block *m = self;
    tp_enter(T, m->path);
    const tp_tensor a = m->recompute == TP_RECOMPUTE_ATTENTION
                            ? tp_checkpoint_n(T, attend, m, nx, x)
                            : attend(T, m, nx, x);
    return tp_leave(T, tp__mlp_branch(T, &m->norm2, &m->mlp, a, m->drop_path));
}

tp_tensor tp_cvt_block_forward(tp_tape *T, const tp_cvt_block *m, tp_tensor x, tp_tensor grid)
{
    if (!tp_want_module(T, m, "cvt_block")) return TP_NONE;
    const tp_tensor in[] = { x, grid };
    return m->recompute == TP_RECOMPUTE_BLOCK ? tp_checkpoint_n(T, run_block, m, 2, in)
                                              : run_block(T, m, 2, in);
}

/* ---- model ---- */

/* Linear weights are N(0, 0.02), biases 0 except in the head and in convolutions. */
static tp_init init_rule(const char *name, tp_shape s, tp_init dflt, void *env)
{
    const bool bias = s.ndim == 1 && tp_ends_in(name, ".bias");
    (void)env;
    if (s.ndim == 2) return (tp_init){ TP_INIT_NORMAL, 0.02, 0.0 };
    if (!bias || tp_ends_in(name, "head.bias") || tp_ends_in(name, "conv.bias") ||
        tp_ends_in(name, "patch_embed.proj.bias"))
        return dflt;
    return (tp_init){ .kind = TP_INIT_ZERO };
}

/* The drop path rate of block b of `stage`, which is block i of the model. */
static double rate_of(const tp_cvt_cfg *c, int stage, int b, int i)
{
    int at = i, last = -1;
    if (c->drop_last_stage) {
        at = stage == TP_CVT_STAGES - 1 ? b : 0;
        last = c->blocks[TP_CVT_STAGES - 1] - 1;
    } else {
        for (int s = 0; s < TP_CVT_STAGES; s++) last += c->blocks[s];
    }
    return last > 0 ? c->drop_path * at / last : 0.0;
}

/* Declares stage s, whose first block is block i of the model; returns the next first block. */
static int init_stage(tp_params *P, tp_cvt *m, int s, int i)
{
    const tp_cvt_cfg *c = &m->cfg;
    const bool last = s == TP_CVT_STAGES - 1;
    char name[32];

    snprintf(name, sizeof name, "stage%d", s);
    tp_push(P, name);
    if (s == 0)
        tp_cvt_embed_init(P, &m->embed[s], "patch_embed", 3, c->dim[s], 7, 4, 2);
    else
        tp_cvt_embed_init(P, &m->embed[s], "patch_embed", c->dim[s - 1], c->dim[s], 3, 2, 1);
    if (last && !c->mean_pool)
        m->cls_token = tp_param(P, "cls_token", TP_SHAPE(1, 1, c->dim[s]),
                                (tp_init){ TP_INIT_NORMAL, c->class_std, 0.0 }, 0);
    for (int b = 0; b < c->blocks[s]; b++, i++) {
        snprintf(name, sizeof name, "blocks.%d", b);
        tp_cvt_block_init(P, &m->block[i], name, c, s, rate_of(c, s, b, i));
    }
    tp_pop(P);
    return i;
}

void tp_cvt_init(tp_params *P, tp_cvt *m, const char *name, tp_cvt_cfg cfg)
{
    if (!tp_params_want_module(P, m, "cvt")) return;
    const int64_t width = cfg.dim[TP_CVT_STAGES - 1];
    char why[256];
    int i = 0;

    *m = (tp_cvt){ .params = P, .cfg = cfg };
    if (!tp_cvt_cfg_check(&cfg, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "CvT: %s", why);
        return;
    }
    m->path = tp_push(P, name);
    tp_params_init_rule(P, init_rule, NULL);
    for (int s = 0; s < TP_CVT_STAGES; s++) i = init_stage(P, m, s, i);
    tp_layernorm_init(P, &m->norm, "norm", width, 1e-5);
    tp_linear_init(P, &m->head, "head", width, cfg.classes, true);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

/* Stage s: map [B,H,W,C] -> tokens [B,c+H'W',D]; *grid is [H',W',0], the map without channels. */
static tp_tensor run_stage(tp_tape *T, const tp_cvt *m, int s, tp_tensor map, tp_tensor *grid)
{
    int first = 0;
    for (int i = 0; i < s; i++) first += m->cfg.blocks[i];

    map = tp_cvt_embed_forward(T, &m->embed[s], map);
    const int64_t B = tp_dim(map, 0), H = tp_dim(map, 1), W = tp_dim(map, 2), D = tp_dim(map, 3);
    tp_tensor x = tp_reshape(T, map, TP_SHAPE(B, H * W, D));
    if (s == TP_CVT_STAGES - 1 && tp_given(m->cls_token)) x = tp__after_token(T, m->cls_token, x);
    *grid = tp_full(T, TP_F32, TP_SHAPE(H, W, 0), 0.0);
    for (int b = 0; b < m->cfg.blocks[s]; b++)
        x = tp_cvt_block_forward(T, &m->block[first + b], x, *grid);
    return x;
}

/* tokens [B,c+N,D] -> [B,D] */
static tp_tensor pool(tp_tape *T, const tp_cvt *m, tp_tensor x)
{
    const tp_shape s = TP_SHAPE(tp_dim(x, 0), tp_dim(x, 2));

    if (m->cfg.mean_pool) return tp_mean(T, tp_layernorm_forward(T, &m->norm, x), 1);
    return tp_layernorm_forward(T, &m->norm, tp_reshape(T, tp_slice(T, x, 1, 0, 1), s));
}

tp_tensor tp_cvt_forward(tp_tape *T, const tp_cvt *m, tp_tensor images)
{
    if (!tp_want_module(T, m, "cvt")) return TP_NONE;
    tp_tensor x = images, grid;

    tp_enter(T, m->path);
    tp__takes_images(T, m->params, images);
    for (int s = 0; s < TP_CVT_STAGES; s++) {
        const int64_t B = tp_dim(x, 0);
        x = run_stage(T, m, s, x, &grid);
        if (s < TP_CVT_STAGES - 1)
            x = tp_reshape(T, x, TP_SHAPE(B, tp_dim(grid, 0), tp_dim(grid, 1), m->cfg.dim[s]));
    }
    return tp_leave(T, tp_linear_forward(T, &m->head, pool(T, m, x)));
}
