/* vil.c - Vision Longformer: stages of a patch embedding and blocks, then the classifier.
 *
 *     x = x + drop_path(attn(norm1 x));  x = x + drop_path(mlp(norm2 x))
 *
 * Global tokens belong to one stage: the next stage reads only the map of the local tokens. */
#include <stdio.h>
#include <string.h>

#include "inner.h"

/* ---- patches ---- */

void tp_vil_embed_init(tp_params *P, tp_vil_embed *m, const char *name, int64_t in,
                       const tp_vil_cfg *cfg, int stage)
{
    if (!tp_params_want_module(P, m, "vil_embed")) return;
    const tp_vil_stage *s = &cfg->stage[stage];
    const tp_init normal = { TP_INIT_NORMAL, 0.02, 0.0 };
    const int64_t g = s->global, p = s->patch;
    int64_t map[2];

    tp__vil_map(cfg, stage, map);
    *m = (tp_vil_embed){ .path = tp_push(P, name) };
    if (g > 0) m->cls = tp_param(P, "cls_token", TP_SHAPE(1, g, s->dim), normal, 0);
    if (g > 0 && s->absolute)
        m->cls_pos = tp_param(P, "cls_pos_embed", TP_SHAPE(1, g, s->dim), normal, 0);
    if (s->absolute) {
        m->row_pos = tp_param(P, "x_pos_embed", TP_SHAPE(1, map[0], s->dim / 2), normal, 0);
        m->col_pos = tp_param(P, "y_pos_embed", TP_SHAPE(1, map[1], s->dim / 2), normal, 0);
    }
    tp_conv2d_init(P, &m->proj, "proj", in, s->dim, p, true, (tp_conv_cfg){ .stride = { p, p } });
    if (!cfg->raw_embed) tp_layernorm_init(P, &m->norm, "norm_embed", s->dim, 1e-6);
    tp_pop(P);
}

/* x [B,h,w,d] + positions: of rows in the first half of the channels, of columns in the second. */
static tp_tensor add_positions(tp_tape *T, const tp_vil_embed *m, tp_tensor x)
{
    const int64_t h = tp_dim(x, 1), w = tp_dim(x, 2), half = tp_dim(m->row_pos, 2);
    if (h > tp_dim(m->row_pos, 1) || w > tp_dim(m->col_pos, 1))
        return tp_raise(
            T, TP_E_SHAPE,
            "%s: the map is %lld x %lld, but the tables of positions have %lld rows and "
            "%lld columns",
            m->path, (long long)h, (long long)w, (long long)tp_dim(m->row_pos, 1),
            (long long)tp_dim(m->col_pos, 1));
    const tp_tensor rows = tp_reshape(T, tp_slice(T, m->row_pos, 1, 0, h), TP_SHAPE(h, 1, half));
    const tp_tensor cols = tp_slice(T, m->col_pos, 1, 0, w);
    const tp_shape all = TP_SHAPE(h, w, half);
    const tp_tensor pos = tp_concat(T, 2, tp_expand(T, rows, all), tp_expand(T, cols, all));
    return tp_add(T, x, tp_cast(T, pos, tp_dtype_of(x)));
}

tp_tensor tp_vil_embed_forward(tp_tape *T, const tp_vil_embed *m, tp_tensor x, int64_t size[2])
{
    if (!tp_want_module(T, m, "vil_embed")) return TP_NONE;
    tp_enter(T, m->path);
    x = tp_conv2d_forward(T, &m->proj, x);
    const int64_t B = tp_dim(x, 0), d = tp_dim(x, 3);
    size[0] = tp_dim(x, 1);
    size[1] = tp_dim(x, 2);
    if (m->norm.path) x = tp_layernorm_forward(T, &m->norm, x);
    if (tp_given(m->row_pos)) x = add_positions(T, m, x);
    x = tp_reshape(T, x, TP_SHAPE(B, size[0] * size[1], d));
    if (!tp_given(m->cls)) return tp_leave(T, x);

    const tp_tensor cls = tp_given(m->cls_pos) ? tp_add(T, m->cls, m->cls_pos) : m->cls;
    const tp_tensor each = tp_cast(T, cls, tp_dtype_of(x));
    const tp_shape all = TP_SHAPE(B, tp_dim(cls, 1), d);
    return tp_leave(T, tp_concat(T, 1, tp_expand(T, each, all), x));
}

/* ---- blocks ---- */

void tp_vil_block_init(tp_params *P, tp_vil_block *m, const char *attention, const char *mlp,
                       const tp_vil_cfg *cfg, int stage)
{
    if (!tp_params_want_module(P, m, "vil_block")) return;
    const int64_t d = cfg->stage[stage].dim;
    *m = (tp_vil_block){ .recompute = cfg->recompute };
    tp_push(P, attention);
    tp_layernorm_init(P, &m->norm1, "norm", d, 1e-6);
    tp_vil_attn_init(P, &m->attn, "attn", cfg, stage);
    tp_pop(P);
    tp_push(P, mlp);
    tp_layernorm_init(P, &m->norm2, "norm", d, 1e-6);
    tp_mlp_init(P, &m->mlp, "mlp.fc1", "mlp.fc2", d, 4 * d, TP_ACT_GELU, 0.0);
    tp_pop(P);
}

/* x: tokens, and an empty tensor [height,width,0] that carries the map's size to recomputation. */
static tp_tensor attend(tp_tape *T, const void *self, int nx, const tp_tensor *x)
{
    const tp_vil_block *m = self;
    const int64_t size[2] = { tp_dim(x[1], 0), tp_dim(x[1], 1) };
    const tp_tensor a = tp_layernorm_forward(T, &m->norm1, x[0]);
    const tp_tensor y = tp_vil_attn_forward(T, &m->attn, a, size);
    (void)nx;
    return tp_add(T, x[0], tp_drop_path(T, y, m->drop_path));
}

static tp_tensor run_block(tp_tape *T, const void *self, int nx, const tp_tensor *x)
{
    const tp_vil_block *m = self;
    tp_enter(T, m->attn.path);
    const tp_tensor b = m->recompute == TP_RECOMPUTE_ATTENTION
                            ? tp_checkpoint_n(T, attend, m, nx, x)
                            : attend(T, m, nx, x);
    return tp_leave(T, tp__feed_forward(T, &m->norm2, &m->mlp, b, m->drop_path));
}

tp_tensor tp_vil_block_forward(tp_tape *T, const tp_vil_block *m, tp_tensor x,
                               const int64_t size[2])
{
    if (!tp_want_module(T, m, "vil_block")) return TP_NONE;
    const tp_shape map = TP_SHAPE(size[0], size[1], 0);
    const tp_tensor in[] = { x, tp_full(T, TP_F32, map, 0.0) };
    return m->recompute == TP_RECOMPUTE_BLOCK ? tp_checkpoint_n(T, run_block, m, 2, in)
                                              : run_block(T, m, 2, in);
}

/* ---- model ---- */

/* The initial values of linear layers in blocks and the head. */
static tp_init linear_rule(const char *name, tp_shape s, tp_init dflt, void *env)
{
    (void)env;
    if (dflt.kind != TP_INIT_UNIFORM || s.ndim > 2) return dflt;
    if (s.ndim == 1) return (tp_init){ .kind = TP_INIT_ZERO };
    if (tp_ends_in(name, ".proj_k") || tp_ends_in(name, ".proj_v")) return dflt;
    return (tp_init){ TP_INIT_NORMAL, 0.02, 0.0 };
}

static void init_stage(tp_params *P, tp_vil *m, int stage, int total)
{
    const tp_vil_cfg *c = &m->cfg;
    char name[32], second[32];

    snprintf(name, sizeof name, "layer%d", stage + 1);
    tp_push(P, name);
    tp_params_init_rule(P, NULL, NULL);
    tp_vil_embed_init(P, &m->embed[stage], "0", stage ? c->stage[stage - 1].dim : 3, c, stage);
    tp_params_init_rule(P, linear_rule, NULL);
    for (int i = 0; i < c->stage[stage].blocks; i++, m->blocks++) {
        tp_vil_block *b = &m->block[m->blocks];
        snprintf(name, sizeof name, "%d", 2 * i + 1);
        snprintf(second, sizeof second, "%d", 2 * i + 2);
        tp_vil_block_init(P, b, name, second, c, stage);
        if (total > 1) b->drop_path = c->drop_path * m->blocks / (total - 1);
    }
    tp_pop(P);
}

void tp_vil_init(tp_params *P, tp_vil *m, const char *name, tp_vil_cfg cfg)
{
    if (!tp_params_want_module(P, m, "vil")) return;
    char why[256];
    int total = 0;

    memset(m, 0, sizeof *m);
    m->params = P;
    m->cfg = cfg;
    if (!tp_vil_cfg_check(&cfg, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "Vision Longformer: %s", why);
        return;
    }
    for (int k = 0; k < cfg.stages; k++) total += cfg.stage[k].blocks;
    m->path = tp_push(P, name);
    for (int k = 0; k < cfg.stages; k++) init_stage(P, m, k, total);
    if (cfg.classes > 0) {
        tp_layernorm_init(P, &m->norm, "norm", cfg.stage[cfg.stages - 1].dim, 1e-6);
        tp_linear_init(P, &m->head, "head", cfg.stage[cfg.stages - 1].dim, cfg.classes, true);
    }
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

/* Runs one stage: map -> tokens and their map. */
static tp_vil_out run_stage(tp_tape *T, const tp_vil *m, int stage, const tp_vil_block *block,
                            tp_tensor map)
{
    const tp_vil_stage *s = &m->cfg.stage[stage];
    int64_t size[2] = { 0 };
    tp_vil_out y;

    y.tokens = tp_vil_embed_forward(T, &m->embed[stage], map, size);
    for (int i = 0; i < s->blocks; i++)
        y.tokens = tp_vil_block_forward(T, &block[i], y.tokens, size);
    const int64_t N = size[0] * size[1];
    y.map = s->global ? tp_slice(T, y.tokens, 1, s->global, N) : y.tokens;
    y.map = tp_reshape(T, y.map, TP_SHAPE(tp_dim(map, 0), size[0], size[1], s->dim));
    return y;
}

tp_tensor tp_vil_trunk(tp_tape *T, const tp_vil *m, tp_tensor images, tp_vil_out *out)
{
    if (!tp_want_module(T, m, "vil")) return TP_NONE;
    tp_vil_out y[TP_VIL_MAX_STAGES];
    tp_tensor all[2 * TP_VIL_MAX_STAGES];
    const int n = m->cfg.stages;
    const tp_vil_block *block = m->block;

    if (!tp_params_ok(m->params)) return tp_raise(T, TP_E_STATE, "%s", tp_params_why(m->params));
    if (tp_ok(T) && (tp_ndim(images) != 4 || tp_dim(images, 3) != 3))
        return tp_raise(T, TP_E_SHAPE, "images must be [batch,height,width,3]");
    tp_enter(T, m->path);
    for (int k = 0; k < n; k++) {
        y[k] = run_stage(T, m, k, block, k ? y[k - 1].map : images);
        block += m->cfg.stage[k].blocks;
        all[2 * k] = y[k].tokens;
        all[2 * k + 1] = y[k].map;
    }
    if (!out) return tp_leave(T, y[n - 1].tokens);
    tp_leave_n(T, 2 * n, all);
    memcpy(out, y, (size_t)n * sizeof *out);
    return y[n - 1].tokens;
}

tp_tensor tp_vil_head(tp_tape *T, const tp_vil *m, tp_tensor tokens)
{
    if (!tp_want_module(T, m, "vil")) return TP_NONE;
    const bool first = m->cfg.stage[m->cfg.stages - 1].global > 0 && !m->cfg.avg_pool;
    const int64_t B = tp_dim(tokens, 0), d = tp_dim(tokens, 2);

    if (tp_params_ok(m->params) && !tp_given(m->head.weight))
        return tp_raise(T, TP_E_STATE, "this Vision Longformer is a backbone without a head");
    tp_enter(T, m->path);
    if (first) tokens = tp_slice(T, tokens, 1, 0, 1);
    tp_tensor y = tp_layernorm_forward(T, &m->norm, tokens);
    y = first ? tp_reshape(T, y, TP_SHAPE(B, d)) : tp_mean(T, y, 1);
    return tp_leave(T, tp_linear_forward(T, &m->head, y));
}

tp_tensor tp_vil_forward(tp_tape *T, const tp_vil *m, tp_tensor images)
{
    return tp_vil_head(T, m, tp_vil_trunk(T, m, images, NULL));
}

void tp_vil_set_shift(tp_vil *m, int shift)
{
    if (!m) return;
    m->cfg.shift = shift;
    for (int i = 0; i < m->blocks; i++) m->block[i].attn.shift = shift;
}
