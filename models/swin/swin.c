/* swin.c - Swin Transformer: patches, stages of windowed blocks with mergings between them, a head.
 *
 *     x  = x + drop_path(attn(norm1(x)))      softmax(q k^T / sqrt(d) + table + mask) v in windows
 *     x  = x + drop_path(mlp(norm2(x)))       every second block shifts its windows by half
 *
 * Activations are maps [B,H,W,D] throughout; windows are never copied out of them: the attention is
 * light self-limited attention with separate keys and values, a fixed scale and the inner bias alone. */
#include <stdio.h>
#include <string.h>

#include "inner.h"

/* ---- attention ---- */

void tp_swin_attn_init(tp_params *P, tp_swin_attn *m, const char *name, int64_t dim, int heads,
                       const int64_t window[2])
{
    if (!tp_params_want_module(P, m, "swin_attn")) return;
    int64_t w[2] = { window[0], window[1] };
    if (heads < 1 || dim < 1 || dim % heads || w[0] < 1 || w[1] < 1) {
        tp_params_raise(P, TP_E_VALUE,
                        "window attention %s: a width of %lld in %d heads with a window of %lld x "
                        "%lld is impossible",
                        name, (long long)dim, heads, (long long)w[0], (long long)w[1]);
        dim = heads = 1;
        w[0] = w[1] = 1;
    }
    const tp_shape table = TP_SHAPE((2 * w[0] - 1) * (2 * w[1] - 1), heads);
    *m = (tp_swin_attn){ .path = tp_push(P, name), .heads = heads, .window = { w[0], w[1] } };
    m->table = tp_param(P, "relative_position_bias_table", table,
                        (tp_init){ TP_INIT_NORMAL, 0.02, 0.0 }, 0);
    tp_linear_init(P, &m->qkv, "qkv", dim, 3 * dim, true);
    tp_linear_init(P, &m->proj, "proj", dim, dim, true);
    tp_pop(P);
}

/* Windows of any sides, which are not shifted. */
static tp_tensor rectangles(tp_tape *T, const tp_swin_attn *m, tp_tensor q, tp_tensor k,
                            tp_tensor v, const int64_t map[2])
{
    const tp_window_attn_cfg cfg = { .heads = m->heads,
                                     .height = map[0],
                                     .width = map[1],
                                     .window = { m->window[0], m->window[1] } };
    const tp_window_in in = { .q = q, .k = k, .v = v, .table = m->table };
    if (tp_ok(T) && (map[0] % m->window[0] || map[1] % m->window[1]))
        tp_raise(T, TP_E_SHAPE, "a map of %lld x %lld does not divide into windows of %lld x %lld",
                 (long long)map[0], (long long)map[1], (long long)m->window[0],
                 (long long)m->window[1]);
    return tp_window_attention_2d(T, in, cfg);
}

tp_tensor tp_swin_attn_forward(tp_tape *T, const tp_swin_attn *m, tp_tensor map, int64_t shift)
{
    if (!tp_want_module(T, m, "swin_attn")) return TP_NONE;
    const bool square = m->window[0] == m->window[1];
    const int64_t size[2] = { tp_dim(map, 1), tp_dim(map, 2) };
    const tp_lsla_attn_cfg cfg = { .heads = m->heads,
                                   .height = size[0],
                                   .width = size[1],
                                   .window = m->window[0],
                                   .shift = shift };
    tp_enter(T, m->path);
    if (!square && shift != 0)
        tp_raise(T, TP_E_VALUE, "windows of %lld x %lld cannot be shifted: only squares can",
                 (long long)m->window[0], (long long)m->window[1]);
    const tp_tensor x = tp__tokens(T, map);
    const tp_tensor q = tp__project(T, &m->qkv, x, 0, 3), k = tp__project(T, &m->qkv, x, 1, 3);
    const tp_tensor v = tp__project(T, &m->qkv, x, 2, 3);
    const tp_tensor y = square ? tp_lsla_attention(T, q, k, v, TP_NONE, m->table, TP_NONE, cfg)
                               : rectangles(T, m, q, k, v, size);
    const tp_tensor z = tp_linear_forward(T, &m->proj, y);
    return tp_leave(T, tp_reshape(T, z, tp_shape_of(map)));
}

/* ---- block ---- */

void tp_swin_block_init(tp_params *P, tp_swin_block *m, const char *name, tp_swin_block_cfg cfg)
{
    if (!tp_params_want_module(P, m, "swin_block")) return;
    const int64_t side = cfg.map[0] < cfg.map[1] ? cfg.map[0] : cfg.map[1];
    const int64_t window = cfg.window < side ? cfg.window : side;
    *m = (tp_swin_block){ .path = tp_push(P, name),
                          .window = cfg.window,
                          .shift = cfg.shift,
                          .drop_path = cfg.drop_path,
                          .recompute = cfg.recompute };
    tp_layernorm_init(P, &m->norm1, "norm1", cfg.dim, 1e-5);
    tp_swin_attn_init(P, &m->attn, "attn", cfg.dim, cfg.heads, (int64_t[2]){ window, window });
    tp_layernorm_init(P, &m->norm2, "norm2", cfg.dim, 1e-5);
    tp_mlp_init(P, &m->mlp, "mlp.fc1", "mlp.fc2", cfg.dim, tp__hidden(cfg.mlp_ratio, cfg.dim),
                TP_ACT_GELU, 0.0);
    tp_pop(P);
}

static tp_tensor attend(tp_tape *T, const void *self, tp_tensor x)
{
    const tp_swin_block *m = self;
    const int64_t w = m->attn.window[0];
    const int64_t shift = tp_dim(x, 1) > w && tp_dim(x, 2) > w ? m->shift : 0;
    const tp_tensor a = tp_layernorm_forward(T, &m->norm1, x);
    const tp_tensor y = tp_swin_attn_forward(T, &m->attn, a, shift);
    return tp_add(T, x, tp_drop_path(T, y, m->drop_path));
}

static tp_tensor run_block(tp_tape *T, const void *self, tp_tensor x)
{
    const tp_swin_block *m = self;
    tp_enter(T, m->path);
    if (!tp__fits_windows(T, x, m->window, m->attn.window[0], "tp_swin_load"))
        return tp_leave(T, TP_NONE);
    const tp_tensor y =
        m->recompute == TP_RECOMPUTE_ATTENTION ? tp_checkpoint(T, attend, m, x) : attend(T, m, x);
    return tp_leave(T, tp__feed_forward(T, &m->norm2, &m->mlp, y, m->drop_path));
}

tp_tensor tp_swin_block_forward(tp_tape *T, const tp_swin_block *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "swin_block")) return TP_NONE;
    return m->recompute == TP_RECOMPUTE_BLOCK ? tp_checkpoint(T, run_block, m, x)
                                              : run_block(T, m, x);
}

/* ---- merging ---- */

void tp_swin_merge_init(tp_params *P, tp_swin_merge *m, const char *name, int64_t dim)
{
    if (!tp_params_want_module(P, m, "swin_merge")) return;
    m->path = tp_push(P, name);
    tp_layernorm_init(P, &m->norm, "norm", 4 * dim, 1e-5);
    tp_linear_init(P, &m->reduction, "reduction", 4 * dim, 2 * dim, false);
    tp_pop(P);
}

tp_tensor tp_swin_merge_forward(tp_tape *T, const tp_swin_merge *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "swin_merge")) return TP_NONE;
    const int64_t B = tp_dim(x, 0), H = tp_dim(x, 1), W = tp_dim(x, 2), D = tp_dim(x, 3);
    tp_enter(T, m->path);
    if (tp_ok(T) && (H % 2 || W % 2))
        tp_raise(T, TP_E_SHAPE, "a map of %lld x %lld does not divide into cells of 2 x 2",
                 (long long)H, (long long)W);
    /* [B,H/2,row,W/2,column,D] -> [B,H/2,W/2,column,row,D] */
    tp_tensor y = tp_reshape(T, x, TP_SHAPE(B, H / 2, 2, W / 2, 2, D));
    y = tp_permute(T, y, TP_SHAPE(0, 1, 3, 4, 2, 5));
    y = tp_reshape(T, y, TP_SHAPE(B, H / 2, W / 2, 4 * D));
    return tp_leave(T, tp_linear_forward(T, &m->reduction, tp_layernorm_forward(T, &m->norm, y)));
}

/* ---- model ---- */

/* Declares stage i, whose blocks begin at block[first]; returns the first of the next stage. */
static int init_stage(tp_params *P, tp_swin *m, int i, int first)
{
    const tp_swin_cfg *c = &m->cfg;
    const tp_swin_stage s = tp__swin_stage(c, i);
    char name[32];
    snprintf(name, sizeof name, "layers.%d", i);
    tp_push(P, name);
    for (int j = 0; j < c->depths[i]; j++) {
        const tp_swin_block_cfg b = { .map = { s.map[0], s.map[1] },
                                      .dim = s.dim,
                                      .window = c->window,
                                      .shift = j % 2 ? c->window / 2 : 0,
                                      .heads = c->heads[i],
                                      .mlp_ratio = c->mlp_ratio,
                                      .drop_path = tp__drop_rate(c->drop_path, first + j,
                                                                 tp__swin_blocks(c)),
                                      .recompute = c->recompute };
        snprintf(name, sizeof name, "blocks.%d", j);
        tp_swin_block_init(P, &m->block[first + j], name, b);
    }
    if (i + 1 < c->stages) tp_swin_merge_init(P, &m->merge[i], "downsample", s.dim);
    tp_pop(P);
    return first + c->depths[i];
}

void tp_swin_init(tp_params *P, tp_swin *m, const char *name, tp_swin_cfg cfg)
{
    if (!tp_params_want_module(P, m, "swin")) return;
    char why[256];
    bool convolution = false;
    memset(m, 0, sizeof *m);
    m->params = P;
    m->cfg = cfg;
    if (!tp_swin_cfg_check(&cfg, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "Swin: %s", why);
        return;
    }
    const tp_swin_stage one = tp__swin_stage(&cfg, 0), last = tp__swin_stage(&cfg, cfg.stages - 1);
    m->path = tp_push(P, name);
    tp_params_init_rule(P, tp__usual_init, &convolution);
    tp_conv_norm_init(P, &m->embed, "patch_embed",
                      (tp_conv_norm_cfg){ .in = 3, .out = cfg.dim, .kernel = 4, .stride = 4 });
    if (cfg.ape)
        m->ape = tp_param(P, "absolute_pos_embed", TP_SHAPE(1, one.map[0] * one.map[1], cfg.dim),
                          (tp_init){ TP_INIT_NORMAL, 0.02, 0.0 }, 0);
    for (int i = 0, first = 0; i < cfg.stages; i++) first = init_stage(P, m, i, first);
    tp_layernorm_init(P, &m->norm, "norm", last.dim, 1e-5);
    tp_linear_init(P, &m->head, "head", last.dim, cfg.classes, true);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

/* x [B,H,W,D] with the position embedding. */
static tp_tensor placed(tp_tape *T, const tp_swin *m, tp_tensor x)
{
    if (!tp_given(m->ape)) return x;
    const tp_shape s = tp_shape_of(x);
    if (tp_ok(T) && s.dim[1] * s.dim[2] != tp_dim(m->ape, 1))
        tp_raise(
            T, TP_E_SHAPE,
            "there are %lld x %lld patches, but positions for %lld: declare the model for this "
            "image size and load the weights with tp_swin_load",
            (long long)s.dim[1], (long long)s.dim[2], (long long)tp_dim(m->ape, 1));
    const tp_tensor y = tp_add(T, tp__tokens(T, x), tp_cast(T, m->ape, tp_dtype_of(x)));
    return tp_reshape(T, y, s);
}

tp_tensor tp_swin_forward(tp_tape *T, const tp_swin *m, tp_tensor images)
{
    if (!tp_want_module(T, m, "swin")) return TP_NONE;
    const tp_swin_cfg *c = &m->cfg;
    const tp_swin_block *block = m->block;
    tp_enter(T, m->path);
    tp__check_images(T, m->params, images);
    tp_tensor x = placed(T, m, tp_conv_norm_forward(T, &m->embed, images));
    for (int i = 0; i < c->stages && tp_ok(T); i++) {
        for (int j = 0; j < c->depths[i] && tp_ok(T); j++) x = tp_swin_block_forward(T, block++, x);
        if (i + 1 < c->stages) x = tp_swin_merge_forward(T, &m->merge[i], x);
    }
    x = tp_mean(T, tp__tokens(T, tp_layernorm_forward(T, &m->norm, x)), 1);
    return tp_leave(T, tp_linear_forward(T, &m->head, x));
}
