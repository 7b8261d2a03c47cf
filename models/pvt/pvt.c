/* pvt.c - PVT and PVTv2: images to classes in four stages, or to four feature
 * maps.
 *
 *     map    = norm(conv(map))                   patches: smaller and wider
 *     map    = map + positions                   PVT; in the last stage after
 * the class token map    = block(map)                        for each block map
 * = norm(map)                         PVTv2 logits = head(norm(class token))
 * PVTv2: head(mean of the last map)
 *
 * The last stage with a class token has no reduction, so its tokens pass the
 * blocks as one row. */
#include <stdio.h>
#include <string.h>

#include "inner.h"

tp_conv_cfg tp__pvt_patches(const tp_pvt_cfg *cfg, int stage, int64_t *kernel)
{
    const int64_t stride = stage == 0 ? 4 : 2, pad = cfg->kind == TP_PVT ? 0 : stride - 1;
    *kernel = cfg->kind == TP_PVT ? stride : 2 * stride - 1;
    return (tp_conv_cfg){ .stride = { stride, stride }, .pad = { pad, pad } };
}

void tp__pvt_shrink(const tp_pvt_cfg *cfg, int stage, int64_t map[2])
{
    int64_t kernel;
    const tp_conv_cfg conv = tp__pvt_patches(cfg, stage, &kernel);
    for (int i = 0; i < 2; i++) {
        const int64_t span = map[i] + 2 * conv.pad[i] - kernel;
        map[i] = span < 0 ? 0 : span / conv.stride[i] + 1;
    }
}

tp__table tp__pvt_table(const tp_pvt *m, int stage)
{
    static const char *const names[] = { "pos_embed1", "pos_embed2", "pos_embed3", "pos_embed4" };
    tp__table t = { .name = names[stage],
                    .table = m->stage[stage].pos_embed,
                    .extra = stage == TP_PVT_STAGES - 1,
                    .grid = { m->cfg.image[0], m->cfg.image[1] },
                    .mode = TP_INTERPOLATE_BILINEAR };
    for (int s = 0; s <= stage; s++) tp__pvt_shrink(&m->cfg, s, t.grid);
    return t;
}

/* ---- parameters ---- */

static const tp_init normal = { TP_INIT_NORMAL, 0.02, 0.0 };

/* Linear layers of both; in PVTv2 also the convolutions, where a depthwise one
 * has a fan out of 9. */
static tp_init init_rule(const char *name, tp_shape s, tp_init dflt, void *env)
{
    const bool second = *(const tp_pvt_kind *)env != TP_PVT;
    const bool conv = tp_ends_in(name, ".proj.bias") && strstr(name, "patch_embed");
    if (s.ndim == 2) return normal;
    if (s.ndim == 4 && second)
        return s.dim[1] == 1 && tp_ends_in(name, "dwconv.weight")
                   ? (tp_init){ TP_INIT_NORMAL, 0.47140452079103168, 0.0 } /* sqrt(2 / 9) */
                   : (tp_init){ TP_INIT_KAIMING_NORMAL, 0.0, 1.0 };
    if (s.ndim == 1 && tp_ends_in(name, ".bias") &&
        (second || !(conv || tp_ends_in(name, ".sr.bias"))))
        return (tp_init){ .kind = TP_INIT_ZERO };
    return dflt;
}

static void init_patches(tp_params *P, tp_pvt *m, int s)
{
    const tp_pvt_cfg *c = &m->cfg;
    tp_pvt_stage *stage = &m->stage[s];
    char name[32];
    int64_t kernel;
    const tp_conv_cfg conv = tp__pvt_patches(c, s, &kernel);
    snprintf(name, sizeof name, "patch_embed%d", s + 1);
    tp_push(P, name);
    tp_conv2d_init(P, &stage->proj, "proj", s ? c->dim[s - 1] : 3, c->dim[s], kernel, true, conv);
    tp_layernorm_init(P, &stage->patch_norm, "norm", c->dim[s], 1e-5);
    tp_pop(P);
    if (c->kind == TP_PVT) {
        const tp__table t = tp__pvt_table(m, s);
        const tp_shape shape = TP_SHAPE(1, t.extra + t.grid[0] * t.grid[1], c->dim[s]);
        stage->pos_embed = tp_param(P, t.name, shape, normal, 0);
    }
}

/* Declares stage s, whose first block is block i of the model, of n in all. */
static void init_stage(tp_params *P, tp_pvt *m, int s, int i, int n)
{
    const tp_pvt_cfg *c = &m->cfg;
    char name[32];
    init_patches(P, m, s);
    m->stage[s].first = i;
    for (int b = 0; b < c->blocks[s]; b++, i++) {
        snprintf(name, sizeof name, "block%d.%d", s + 1, b);
        tp_pvt_block_init(P, &m->block[i], name, c, s, tp__drop_rate(c->drop_path, i, n));
    }
    snprintf(name, sizeof name, "norm%d", s + 1);
    if (c->kind != TP_PVT) tp_layernorm_init(P, &m->stage[s].norm, name, c->dim[s], 1e-6);
}

void tp_pvt_init(tp_params *P, tp_pvt *m, const char *name, tp_pvt_cfg cfg)
{
    if (!tp_params_want_module(P, m, "pvt")) return;
    const int64_t D = cfg.dim[TP_PVT_STAGES - 1];
    char why[256];
    int n = 0;
    *m = (tp_pvt){ .params = P, .cfg = cfg };
    if (!tp_pvt_cfg_check(&cfg, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "PVT: %s", why);
        return;
    }
    m->path = tp_push(P, name);
    tp_params_init_rule(P, init_rule, &m->cfg.kind);
    for (int s = 0; s < TP_PVT_STAGES; s++) n += cfg.blocks[s];
    for (int s = 0, i = 0; s < TP_PVT_STAGES; i += cfg.blocks[s++]) init_stage(P, m, s, i, n);
    if (cfg.kind == TP_PVT && cfg.classes > 0) {
        m->cls_token = tp_param(P, "cls_token", TP_SHAPE(1, 1, D), normal, 0);
        tp_layernorm_init(P, &m->norm, "norm", D, 1e-6);
    }
    if (cfg.classes > 0) tp_linear_init(P, &m->head, "head", D, cfg.classes, true);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

/* ---- forward ---- */

/* map [B,H,W,D] plus positions; with a class token in front as one row
 * [B,1,1+H*W,D]. */
static tp_tensor add_positions(tp_tape *T, const tp_pvt *m, int s, tp_tensor map, bool class_token)
{
    const int64_t B = tp_dim(map, 0), H = tp_dim(map, 1), W = tp_dim(map, 2), D = tp_dim(map, 3);
    const tp__table t = tp__pvt_table(m, s);
    tp_tensor pos = tp_cast(T, tp__positions(T, &t, H, W), tp_dtype_of(map));
    tp_tensor x = tp_reshape(T, map, TP_SHAPE(B, H * W, D));
    if (class_token)
        x = tp__prepend(T, m->cls_token, x);
    else if (t.extra)
        pos = tp_slice(T, pos, 1, 1, H * W);
    x = tp_add(T, x, pos);
    return tp_reshape(T, x, class_token ? TP_SHAPE(B, 1, 1 + H * W, D) : TP_SHAPE(B, H, W, D));
}

static tp_tensor run_stage(tp_tape *T, const tp_pvt *m, int s, tp_tensor map, bool class_token)
{
    const tp_pvt_stage *stage = &m->stage[s];
    map = tp_layernorm_forward(T, &stage->patch_norm, tp_conv2d_forward(T, &stage->proj, map));
    if (!tp_ok(T)) return TP_NONE;
    if (m->cfg.kind == TP_PVT) map = add_positions(T, m, s, map, class_token);
    for (int b = 0; b < m->cfg.blocks[s]; b++)
        map = tp_pvt_block_forward(T, &m->block[stage->first + b], map);
    return m->cfg.kind == TP_PVT ? map : tp_layernorm_forward(T, &stage->norm, map);
}

void tp_pvt_features(tp_tape *T, const tp_pvt *m, tp_tensor images, tp_tensor maps[TP_PVT_STAGES])
{
    if (!tp_want(T, maps, "pvt", "room for the maps")) return;
    for (int s = 0; s < TP_PVT_STAGES; s++) maps[s] = TP_NONE;
    if (!tp_want_module(T, m, "pvt")) return;
    tp_enter(T, m->path);
    tp__check_images(T, m->params, images);
    for (int s = 0; s < TP_PVT_STAGES && tp_ok(T); s++)
        maps[s] = run_stage(T, m, s, s ? maps[s - 1] : images, false);
    tp_leave_n(T, TP_PVT_STAGES, maps);
}

/* The last stage's result -> [B,D] */
static tp_tensor pool(tp_tape *T, const tp_pvt *m, tp_tensor x)
{
    const tp_shape s = TP_SHAPE(tp_dim(x, 0), tp_dim(x, 3));
    if (m->cfg.kind != TP_PVT) return tp_mean(T, tp_mean(T, x, 1), 1);
    return tp_layernorm_forward(T, &m->norm, tp_reshape(T, tp_slice(T, x, 2, 0, 1), s));
}

tp_tensor tp_pvt_forward(tp_tape *T, const tp_pvt *m, tp_tensor images)
{
    if (!tp_want_module(T, m, "pvt")) return TP_NONE;
    if (tp_params_ok(m->params) && !tp_given(m->head.weight))
        return tp_raise(T, TP_E_STATE, "this PVT is a backbone without a head");
    tp_tensor x = images;
    tp_enter(T, m->path);
    tp__check_images(T, m->params, images);
    for (int s = 0; s < TP_PVT_STAGES && tp_ok(T); s++)
        x = run_stage(T, m, s, x, s == TP_PVT_STAGES - 1 && m->cfg.kind == TP_PVT);
    return tp_leave(T, tp_linear_forward(T, &m->head, pool(T, m, x)));
}
