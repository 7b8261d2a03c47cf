/* parts.c - the parts of MPViT: patches of several sizes, encoders, the residual convolution, a stage.
 *
 *     p_0 = patches(map), p_n = patches(p_{n-1})            receptive fields of 3, 5, 7 pixels
 *     out = aggregate([residual(p_0), encoder_0(p_0), encoder_1(p_1), ...])
 *
 * All maps of a stage have one size, so its paths differ in what a token has seen only. */
#include <stdio.h>

#include "coat/inner.h"
#include "inner.h"
#include "model_inner.h"

/* ---- convolutions with batch norm ---- */

static void init_conv(tp_params *P, tp_mpvit_conv *m, const char *name, int64_t in, int64_t out,
                      bool plain)
{
    *m = (tp_mpvit_conv){ .path = tp_push(P, name), .plain = plain };
    tp_conv2d_init(P, &m->conv, "conv", in, out, 1, false, (tp_conv_cfg){ 0 });
    tp_batchnorm_init(P, &m->bn, "bn", out, 1e-5);
    tp_pop(P);
}

static tp_tensor run_conv(tp_tape *T, const tp_mpvit_conv *m, tp_tensor x)
{
    tp_enter(T, m->path);
    x = tp_batchnorm_forward(T, &m->bn, tp_conv2d_forward(T, &m->conv, x));
    return tp_leave(T, m->plain ? x : tp_hardswish(T, x));
}

static void init_depthwise(tp_params *P, tp_conv2d_m *m, int64_t dim, int64_t stride)
{
    tp_conv2d_init(P, m, "dwconv", dim, dim, 3, false,
                   (tp_conv_cfg){ .stride = { stride, stride }, .pad = { 1, 1 }, .groups = dim });
}

/* ---- patches ---- */

void tp_mpvit_embed_init(tp_params *P, tp_mpvit_embed *m, const char *name, int64_t dim, int paths,
                         int64_t stride)
{
    if (!tp_params_want_module(P, m, "mpvit_embed")) return;
    if (!tp__in_range(paths, 1, TP_MPVIT_PATHS) || dim < 1 || !tp__in_range(stride, 1, 2)) {
        tp_params_raise(P, TP_E_VALUE,
                        "patches %s: %d paths, not 1 to %d, of width %lld with stride %lld", name,
                        paths, TP_MPVIT_PATHS, (long long)dim, (long long)stride);
        return;
    }
    *m = (tp_mpvit_embed){ .paths = paths };
    tp_push(P, name);
    for (int i = 0; i < paths; i++) {
        tp_mpvit_patches *s = &m->step[i];
        char part[48];
        snprintf(part, sizeof part, "patch_embeds.%d.patch_conv", i);
        s->path = tp_push(P, part);
        init_depthwise(P, &s->dwconv, dim, i == 0 ? stride : 1);
        tp_conv2d_init(P, &s->pwconv, "pwconv", dim, dim, 1, false, (tp_conv_cfg){ 0 });
        tp_batchnorm_init(P, &s->bn, "bn", dim, 1e-5);
        tp_pop(P);
    }
    tp_pop(P);
}

void tp_mpvit_embed_forward(tp_tape *T, const tp_mpvit_embed *m, tp_tensor map, tp_tensor *out)
{
    if (!tp_want_module(T, m, "mpvit_embed")) return;
    for (int i = 0; i < m->paths; i++) {
        const tp_mpvit_patches *s = &m->step[i];
        tp_enter(T, s->path);
        const tp_tensor y = tp_conv2d_forward(T, &s->dwconv, map);
        map = tp_batchnorm_forward(T, &s->bn, tp_conv2d_forward(T, &s->pwconv, y));
        out[i] = map = tp_leave(T, tp_hardswish(T, map));
    }
}

/* ---- encoder ---- */

void tp_mpvit_encoder_init(tp_params *P, tp_mpvit_encoder *m, const char *name,
                           tp_mpvit_encoder_cfg cfg)
{
    if (!tp_params_want_module(P, m, "mpvit_encoder")) return;
    if (!tp__in_range(cfg.layers, 1, TP_MPVIT_MAX_LAYERS)) {
        tp_params_raise(P, TP_E_VALUE, "encoder %s: %d layers, not 1 to %d", name, cfg.layers,
                        TP_MPVIT_MAX_LAYERS);
        return;
    }
    m->path = tp_push(P, name);
    m->layers = cfg.layers;
    tp_coat_shared_init(P, &m->shared, "cpe", "crpe", cfg.dim, &cfg.kernels);
    for (int j = 0; j < cfg.layers && tp_params_ok(P); j++) {
        const tp_coat_block_cfg b = { .dim = cfg.dim,
                                      .heads = cfg.heads,
                                      .mlp_ratio = cfg.mlp_ratio,
                                      .drop_path = cfg.drop_path ? cfg.drop_path[j] : 0.0,
                                      .recompute = cfg.recompute };
        char layer[32];
        snprintf(layer, sizeof layer, "MHCA_layers.%d", j);
        tp_coat_block_init(P, &m->block[j], layer, b, &m->shared);
        tp_push(P, layer);
        tp__coat_tie(P, "cpe", "crpe", &m->shared);
        tp__coat_tie(P, NULL, "factoratt_crpe.crpe", &m->shared);
        tp_pop(P);
    }
    tp_pop(P);
}

tp_tensor tp_mpvit_encoder_forward(tp_tape *T, const tp_mpvit_encoder *m, tp_tensor map)
{
    if (!tp_want_module(T, m, "mpvit_encoder")) return TP_NONE;
    tp_enter(T, m->path);
    const tp_shape size = TP_SHAPE(tp_dim(map, 1), tp_dim(map, 2), 0);
    const tp_tensor grid = tp_full(T, TP_F32, size, 0.0);
    tp_tensor x = tp__tokens(T, map);
    for (int j = 0; j < m->layers && tp_ok(T); j++)
        x = tp_coat_block_forward(T, &m->block[j], x, grid);
    return tp_leave(T, tp_reshape(T, x, tp_shape_of(map)));
}

/* ---- residual convolution ---- */

void tp_mpvit_residual_init(tp_params *P, tp_mpvit_residual *m, const char *name, int64_t dim)
{
    if (!tp_params_want_module(P, m, "mpvit_residual")) return;
    m->path = tp_push(P, name);
    init_conv(P, &m->conv1, "conv1", dim, dim, false);
    init_depthwise(P, &m->dwconv, dim, 1);
    tp_batchnorm_init(P, &m->norm, "norm", dim, 1e-5);
    init_conv(P, &m->conv2, "conv2", dim, dim, true);
    tp_pop(P);
}

tp_tensor tp_mpvit_residual_forward(tp_tape *T, const tp_mpvit_residual *m, tp_tensor map)
{
    if (!tp_want_module(T, m, "mpvit_residual")) return TP_NONE;
    tp_enter(T, m->path);
    tp_tensor y = tp_conv2d_forward(T, &m->dwconv, run_conv(T, &m->conv1, map));
    y = tp_hardswish(T, tp_batchnorm_forward(T, &m->norm, y));
    return tp_leave(T, tp_add(T, map, run_conv(T, &m->conv2, y)));
}

/* ---- stage ---- */

void tp_mpvit_stage_init(tp_params *P, tp_mpvit_stage *m, const char *name, int paths, int64_t out,
                         tp_mpvit_encoder_cfg cfg)
{
    if (!tp_params_want_module(P, m, "mpvit_stage")) return;
    if (!tp__in_range(paths, 1, TP_MPVIT_PATHS) || out < 1) {
        tp_params_raise(P, TP_E_VALUE, "stage %s: %d paths, not 1 to %d, to width %lld", name,
                        paths, TP_MPVIT_PATHS, (long long)out);
        return;
    }
    m->path = tp_push(P, name);
    m->paths = paths;
    for (int i = 0; i < paths; i++) {
        char part[32];
        snprintf(part, sizeof part, "mhca_blks.%d", i);
        tp_mpvit_encoder_init(P, &m->encoder[i], part, cfg);
    }
    tp_mpvit_residual_init(P, &m->residual, "InvRes", cfg.dim);
    init_conv(P, &m->aggregate, "aggregate", (paths + 1) * cfg.dim, out, false);
    tp_pop(P);
}

tp_tensor tp_mpvit_stage_forward(tp_tape *T, const tp_mpvit_stage *m, const tp_tensor *in)
{
    if (!tp_want_module(T, m, "mpvit_stage")) return TP_NONE;
    tp_tensor all[TP_MPVIT_PATHS + 1];
    tp_enter(T, m->path);
    all[0] = tp_mpvit_residual_forward(T, &m->residual, in[0]);
    for (int i = 0; i < m->paths; i++)
        all[i + 1] = tp_mpvit_encoder_forward(T, &m->encoder[i], in[i]);
    return tp_leave(T, run_conv(T, &m->aggregate, tp_concat_n(T, 3, m->paths + 1, all)));
}
