/* vil.c - Vision Longformer: stages of a patch embedding and blocks, then the classifier.
 *
 *     x = x + drop_path(attn(norm1 x));  x = x + drop_path(mlp(norm2 x))
 *
 * Global tokens belong to one stage: the next stage reads only the map of the local tokens. */
#include <stdio.h>
#include <string.h>

#include <tapegrad/random.h>

#include "inner.h"

/* ---- patches ---- */

static void embed_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_vil_embed *m = module;
    const tp_vil_part_cfg *part = cfg;
    const tp_vil_cfg *c = part->model;
    const tp_vil_stage *s = &c->stage[part->stage];
    const tp_init normal = { TP_INIT_NORMAL, 0.02, 0.0 };
    const int64_t g = s->global, p = s->patch;
    int64_t map[2];

    tp__vil_map(c, part->stage, map);
    *m = (tp_vil_embed){ .path = tp_push(P, name) };
    if (g > 0) m->cls = tp_param(P, "cls_token", TP_SHAPE(1, g, s->dim), normal, 0);
    if (g > 0 && s->absolute)
        m->cls_pos = tp_param(P, "cls_pos_embed", TP_SHAPE(1, g, s->dim), normal, 0);
    if (s->absolute) {
        m->row_pos = tp_param(P, "x_pos_embed", TP_SHAPE(1, map[0], s->dim / 2), normal, 0);
        m->col_pos = tp_param(P, "y_pos_embed", TP_SHAPE(1, map[1], s->dim / 2), normal, 0);
    }
    tp_conv2d_init(P, &m->proj, "proj", part->in, s->dim, p, true,
                   (tp_conv_cfg){ .stride = { p, p } });
    if (!c->raw_embed) tp_layernorm_init(P, &m->norm, "norm_embed", s->dim, 1e-6);
    tp_pop(P);
}

/* x [B,h,w,d] + positions: rows in the first half of the channels, columns in the second. */
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

static tp_tensor embed_forward(tp_tape *T, const void *module, void *with, tp_tensor x)
{
    const tp_vil_embed *m = module;
    int64_t *size = with;
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

static void block_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_vil_block *m = module;
    const tp_vil_part_cfg *part = cfg;
    const int64_t d = part->model->stage[part->stage].dim;
    *m = (tp_vil_block){ .recompute = part->model->recompute };
    tp_push(P, name);
    tp_layernorm_init(P, &m->norm1, "norm", d, 1e-6);
    tp__vil_attn_init(P, &m->attn, "attn", part);
    tp_pop(P);
    tp_push(P, part->mlp);
    tp_layernorm_init(P, &m->norm2, "norm", d, 1e-6);
    tp_mlp_init(P, &m->mlp, "mlp.fc1", "mlp.fc2", d, 4 * d, TP_ACT_GELU, 0.0);
    tp_pop(P);
}

/* x: tokens, and an empty tensor [height,width,0] carrying the map's size to recomputation. */
static tp_tensor attend(tp_tape *T, const void *self, int nx, const tp_tensor *x)
{
    const tp_vil_block *m = self;
    int64_t size[2] = { tp_dim(x[1], 0), tp_dim(x[1], 1) };
    const tp_tensor a = tp_layernorm_forward(T, &m->norm1, x[0]);
    const tp_tensor y = tp__vil_attn(T, &m->attn, size, a);
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

static tp_tensor block_forward(tp_tape *T, const void *module, void *with, tp_tensor x)
{
    const tp_vil_block *m = module;
    const int64_t *size = with;
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
    const tp_vil_part_cfg part = {
        .model = c, .stage = stage, .in = stage ? c->stage[stage - 1].dim : 3, .mlp = second
    };

    snprintf(name, sizeof name, "layer%d", stage + 1);
    tp_push(P, name);
    tp_params_init_rule(P, NULL, NULL);
    embed_init(P, &m->embed[stage], "0", &part);
    tp_params_init_rule(P, linear_rule, NULL);
    for (int i = 0; i < c->stage[stage].blocks; i++, m->blocks++) {
        tp_vil_block *b = &m->block[m->blocks];
        snprintf(name, sizeof name, "%d", 2 * i + 1);
        snprintf(second, sizeof second, "%d", 2 * i + 2);
        block_init(P, b, name, &part);
        if (total > 1) b->drop_path = c->drop_path * m->blocks / (total - 1);
    }
    tp_pop(P);
}

static void model_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_vil *m = module;
    const tp_vil_cfg *c = cfg;
    char why[256];
    int total = 0;

    *m = (tp_vil){ .params = P, .cfg = *c };
    if (!tp__vil_check_any(c, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "Vision Longformer: %s", why);
        return;
    }
    for (int k = 0; k < c->stages; k++) total += c->stage[k].blocks;
    m->path = tp_push(P, name);
    for (int k = 0; k < c->stages; k++) init_stage(P, m, k, total);
    if (c->classes > 0) {
        tp_layernorm_init(P, &m->norm, "norm", c->stage[c->stages - 1].dim, 1e-6);
        tp_linear_init(P, &m->head, "head", c->stage[c->stages - 1].dim, c->classes, true);
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

    y.tokens = embed_forward(T, &m->embed[stage], size, map);
    for (int i = 0; i < s->blocks; i++) y.tokens = block_forward(T, &block[i], size, y.tokens);
    const int64_t N = size[0] * size[1];
    y.map = s->global ? tp_slice(T, y.tokens, 1, s->global, N) : y.tokens;
    y.map = tp_reshape(T, y.map, TP_SHAPE(tp_dim(map, 0), size[0], size[1], s->dim));
    return y;
}

tp_tensor tp__vil_trunk(tp_tape *T, const void *module, void *out, tp_tensor images)
{
    const tp_vil *m = module;
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
    memcpy(out, y, (size_t)n * sizeof *y);
    return y[n - 1].tokens;
}

static tp_tensor head_forward(tp_tape *T, const void *module, void *with, tp_tensor tokens)
{
    const tp_vil *m = module;
    (void)with;
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

static tp_tensor model_forward(tp_tape *T, const void *m, void *state, tp_tensor images)
{
    return head_forward(T, m, state, tp__vil_trunk(T, m, NULL, images));
}

/* Sets tp_vil_cfg.shift, the choice of visible chunks, for later training passes. */
static void model_set_shift(void *module, int shift)
{
    tp_vil *m = module;
    m->cfg.shift = shift;
    for (int i = 0; i < m->blocks; i++) m->block[i].attn.shift = shift;
}

static bool model_redraw(tp_params *P, const void *module, uint64_t seed, uint64_t draw)
{
    const tp_vil *m = module;
    for (int i = 0; i < m->blocks; i++) {
        const tp_tensor w = m->block[i].attn.features;
        if (!tp_given(w)) continue;
        tp_random r = tp_random_stream(seed, "vil.features", (uint64_t)i, draw);
        if (!tp__draw_features(P, w, &r)) return false;
    }
    return tp_params_ok(P);
}

/* Windows and numbers of global tokens may differ, since loading resizes their tables. */
static bool model_same(const void *one, const void *other)
{
    const tp_vil_cfg *a = one, *b = other;
    bool same = a->kind == b->kind && a->stages == b->stages;
    for (int i = 0; i < a->stages && same; i++) {
        const tp_vil_stage *x = &a->stage[i], *y = &b->stage[i];
        same = x->dim == y->dim && x->heads == y->heads && x->blocks == y->blocks &&
               x->patch == y->patch && x->dense == y->dense && x->absolute == y->absolute;
    }
    return same;
}

/* Linformer's mixtures fit one map size; for others they keep their initial values. */
static bool model_all_resized(const void *cfg)
{
    return ((const tp_vil_cfg *)cfg)->kind != TP_VIL_LINFORMER;
}

static const tp_spelling spellings[] = {
    { "calls_since_last_redraw", NULL }, /* Performer's */
    { 0 },
};

static const tp_model_part parts[] = {
    { "embed", sizeof(tp_vil_embed), embed_init, embed_forward },
    { "attn", sizeof(tp_vil_attn), tp__vil_attn_init, tp__vil_attn },
    { "block", sizeof(tp_vil_block), block_init, block_forward },
    { "trunk", sizeof(tp_vil), model_init, tp__vil_trunk },
    { "head", sizeof(tp_vil), model_init, head_forward },
    { 0 },
};

const tp_model tp_model_vil = {
    .name = "vision-longformer",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_vil_cfg),
    .size = sizeof(tp_vil),
    .presets = tp__vil_presets,
    .preset = tp__vil_preset,
    .check = tp__vil_check,
    .members = tp__vil_members,
    .init = model_init,
    .forward = model_forward,
    .paper = tp__vil_paper,
    .same = model_same,
    .load = tp__vil_load,
    .resizes = "tables of positions are resized",
    .all_resized = model_all_resized,
    .resizes_to = tp__vil_resizes,
    .head = "head.weight",
    .spellings = spellings,
    .set_shift = model_set_shift,
    .redraw = model_redraw,
    .parts = parts,
    .backbone = &tp__vil_backbone,
};
