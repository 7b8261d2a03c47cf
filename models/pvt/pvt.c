/* pvt.c - PVT and PVTv2: images to classes in four stages, or to four feature maps.
 *
 *     map    = norm(conv(map))                   patches: smaller and wider
 *     map    = map + positions                   PVT; in the last stage after the class token
 *     map    = block(map)                        for each block
 *     map    = norm(map)                         PVTv2
 *     logits = head(norm(class token))           PVTv2: head(mean of the last map)
 *
 * A block:
 *     attention   queries of all tokens; keys and values of a smaller map: convolved with kernel
 *                 and stride R, then norm; or pooled to a fixed size, projected, norm, GELU
 *     mlp         fc1, GELU, fc2; PVTv2: fc1, depthwise 3x3, GELU, fc2 (linear: ReLU after fc1)
 *
 * Tokens are a map [B,H,W,D] that convolutions can read. A last stage with a class token has no
 * reduction, so its tokens pass the blocks as one row. */
#include <stdio.h>
#include <string.h>
#include <tapegrad/pvt.h>

#include "model_inner.h"
#include "parts.h"

enum { STAGES = TP_PVT_STAGES };
enum {
    MAX_SIZE = 1 << 20,
    MAX_SIDE = 1 << 16,
    MAX_RATIO = 64,
    MAX_REDUCTION = 256,
    MAX_POOL = 1 << 10
}; /* so that products fit */

/* ---- presets ---- */

/* The image baselines of the papers, then small ones. */
/* clang-format off */
#define WIDE   .dim = { 64, 128, 320, 512 }, .heads = { 1, 2, 5, 8 }
#define NARROW .dim = { 32, 64, 160, 256 }, .heads = { 1, 2, 5, 8 }
#define MINI   .dim = { 32, 64, 128, 192 }, .heads = { 1, 2, 4, 6 }
#define R8     .reduction = { 8, 4, 2, 1 }
#define R4     .reduction = { 4, 2, 1, 1 }
#define POOL   .reduction = { 1, 1, 1, 1 }, .pool = 7
#define M8     .mlp_ratio = { 8, 8, 4, 4 }
#define M4     .mlp_ratio = { 4, 4, 4, 4 }
#define DEPTHS(a, b, c, d) .blocks = { a, b, c, d }
#define CFG(which, side, ...) \
    .cfg = &(const tp_pvt_cfg){ .kind = which, .image = { side, side }, .classes = 1000, \
                                __VA_ARGS__ }
/* clang-format on */
static const tp_model_row presets[] = {
    { "pvt-tiny", "PVT", .also = "pvt_tiny PVT-Tiny", .params = 13.2e6, .flops = 1.9e9,
      CFG(TP_PVT, 224, WIDE, DEPTHS(2, 2, 2, 2), R8, M8) },
    { "pvt-small", "PVT", .also = "pvt_small PVT-Small", .params = 24.5e6, .flops = 3.8e9,
      CFG(TP_PVT, 224, WIDE, DEPTHS(3, 4, 6, 3), R8, M8) },
    { "pvt-medium", "PVT", .also = "pvt_medium PVT-Medium", .params = 44.2e6, .flops = 6.7e9,
      CFG(TP_PVT, 224, WIDE, DEPTHS(3, 4, 18, 3), R8, M8) },
    { "pvt-large", "PVT", .also = "pvt_large PVT-Large", .params = 61.4e6, .flops = 9.8e9,
      CFG(TP_PVT, 224, WIDE, DEPTHS(3, 8, 27, 3), R8, M8) },
    { "pvt2-b0", "PVTv2", .also = "pvt_v2_b0 PVTv2-B0",
      CFG(TP_PVT2, 224, NARROW, DEPTHS(2, 2, 2, 2), R8, M8) },
    { "pvt2-b1", "PVTv2", .also = "pvt_v2_b1 PVTv2-B1",
      CFG(TP_PVT2, 224, WIDE, DEPTHS(2, 2, 2, 2), R8, M8) },
    { "pvt2-b2", "PVTv2", .also = "pvt_v2_b2 PVTv2-B2", .params = 25.4e6, .flops = 4.0e9,
      CFG(TP_PVT2, 224, WIDE, DEPTHS(3, 4, 6, 3), R8, M8) },
    { "pvt2-b2-li", "PVTv2", .also = "pvt_v2_b2_li PVTv2-B2-Li", .params = 22.6e6, .flops = 3.9e9,
      CFG(TP_PVT2_LINEAR, 224, WIDE, DEPTHS(3, 4, 6, 3), POOL, M8) },
    { "pvt2-b3", "PVTv2", .also = "pvt_v2_b3 PVTv2-B3", .params = 45.2e6, .flops = 6.9e9,
      CFG(TP_PVT2, 224, WIDE, DEPTHS(3, 4, 18, 3), R8, M8) },
    { "pvt2-b4", "PVTv2", .also = "pvt_v2_b4 PVTv2-B4", .params = 62.6e6, .flops = 10.1e9,
      CFG(TP_PVT2, 224, WIDE, DEPTHS(3, 8, 27, 3), R8, M8) },
    { "pvt2-b5", "PVTv2", .also = "pvt_v2_b5 PVTv2-B5", .params = 82.0e6, .flops = 11.8e9,
      CFG(TP_PVT2, 224, WIDE, DEPTHS(3, 6, 40, 3), R8, M4) },
    { "pvt-mini", "PVT", CFG(TP_PVT, 64, MINI, DEPTHS(2, 2, 3, 2), R4, M8) },
    { "pvt2-mini", "PVTv2", CFG(TP_PVT2, 64, MINI, DEPTHS(2, 2, 2, 2), R4, M8) },
    { 0 },
};

/* ---- members: keys as in the reference cases; lists have one value per stage ---- */

static const char *const kinds[] = { "pvt", "pvt2", "pvt2-linear", NULL };

#define AT(member) offsetof(tp_pvt_cfg, member)
static const tp_model_member members[] = {
    { "pvt_kind", TP_MEMBER_WORD, .at = AT(kind), .words = kinds },
    { "image", TP_MEMBER_SIDES, .at = AT(image), .common = TP_COMMON_IMAGE, .least = 1,
      .most = MAX_SIDE },
    { "num_classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS, .least = 0,
      .most = MAX_SIZE },
    { "dims", TP_MEMBER_INT64S, .at = AT(dim), .count = STAGES, .least = 1, .most = MAX_SIZE },
    { "heads", TP_MEMBER_INTS, .at = AT(heads), .count = STAGES, .least = 1, .most = MAX_SIZE },
    { "depths", TP_MEMBER_INTS, .at = AT(blocks), .count = STAGES, .least = 1,
      .most = TP_PVT_MAX_BLOCKS },
    { "sr_ratios", TP_MEMBER_INT64S, .at = AT(reduction), .count = STAGES, .least = 1,
      .most = MAX_REDUCTION },
    { "mlp_ratios", TP_MEMBER_INT64S, .at = AT(mlp_ratio), .count = STAGES, .least = 1,
      .most = MAX_RATIO },
    { "pool_size", TP_MEMBER_INT64, .at = AT(pool), .least = 0, .most = MAX_POOL },
    { "drop_path", TP_MEMBER_RATE, .at = AT(drop_path), .common = TP_COMMON_DROP_PATH },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};

/* ---- sizes and checks ---- */

/* Kernel, stride and padding of a stage's patches. */
static tp_conv_cfg patches_of(const tp_pvt_cfg *cfg, int stage, int64_t *kernel)
{
    const int64_t stride = stage == 0 ? 4 : 2, pad = cfg->kind == TP_PVT ? 0 : stride - 1;
    *kernel = cfg->kind == TP_PVT ? stride : 2 * stride - 1;
    return (tp_conv_cfg){ .stride = { stride, stride }, .pad = { pad, pad } };
}

/* Replaces a stage's input map size by the size after its patches. */
static void shrink(const tp_pvt_cfg *cfg, int stage, int64_t map[2])
{
    int64_t kernel;
    const tp_conv_cfg conv = patches_of(cfg, stage, &kernel);
    for (int i = 0; i < 2; i++) {
        const int64_t span = map[i] + 2 * conv.pad[i] - kernel;
        map[i] = span < 0 ? 0 : span / conv.stride[i] + 1;
    }
}

static void check_stage(const tp_pvt_cfg *c, int s, char *why, size_t size)
{
    const long long D = (long long)c->dim[s], R = (long long)c->reduction[s];
    const bool alone = c->kind == TP_PVT && s == STAGES - 1 && c->classes > 0;
    if (D % c->heads[s])
        snprintf(why, size, "the width %lld of stage %d does not divide into %d heads", D, s,
                 c->heads[s]);
    else if (c->kind == TP_PVT2_LINEAR && R > 1)
        snprintf(why, size, "stage %d has the reduction %lld, but a model that pools has none", s,
                 R);
    else if (alone && R > 1)
        snprintf(why, size, "the last stage has a class token and the reduction %lld, not 1", R);
}

/* Position tables need rows. */
static void check_map(const tp_pvt_cfg *c, char *why, size_t size)
{
    int64_t map[2] = { c->image[0], c->image[1] };
    for (int s = 0; s < STAGES; s++) {
        shrink(c, s, map);
        if (!why[0] && (map[0] < c->reduction[s] || map[1] < c->reduction[s]))
            snprintf(why, size,
                     "images of %lld x %lld pixels give stage %d a map of %lld x "
                     "%lld, below %lld",
                     (long long)c->image[0], (long long)c->image[1], s, (long long)map[0],
                     (long long)map[1], (long long)c->reduction[s]);
    }
}

/* Also for backbones, without classes. */
static bool check(const tp_pvt_cfg *c, char *why, size_t size)
{
    int blocks = 0;
    if (!tp__check_members(members, c, why, size)) return false;
    for (int s = 0; s < STAGES && !why[0]; s++) {
        check_stage(c, s, why, size);
        blocks += why[0] ? 0 : c->blocks[s];
    }
    if (why[0]) return false;
    if (blocks > TP_PVT_MAX_BLOCKS)
        snprintf(why, size, "the model has %d blocks, not at most %d", blocks, TP_PVT_MAX_BLOCKS);
    else if ((c->kind == TP_PVT2_LINEAR) != (c->pool > 0))
        snprintf(why, size, "the map for keys and values is pooled to a side of %lld",
                 (long long)c->pool);
    else
        check_map(c, why, size);
    return !why[0];
}

/* Models in the table are classifiers. */
static bool model_check(const void *cfg, char *why, size_t size)
{
    const tp_pvt_cfg *c = cfg;
    if (c->classes != 0) return check(c, why, size);
    snprintf(why, size, "there are no classes");
    return false;
}

static tp_conv_cfg square(int64_t stride, int64_t pad, int64_t groups)
{
    return (tp_conv_cfg){ { stride, stride }, { pad, pad }, { 1, 1 }, groups };
}

/* [B,H,W,D] -> [B,H*W,D] */
static tp_tensor rows(tp_tape *T, tp_tensor x)
{
    return tp_reshape(T, x, TP_SHAPE(tp_dim(x, 0), tp_dim(x, 1) * tp_dim(x, 2), tp_dim(x, 3)));
}

/* ---- attention ---- */

static void attn_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_pvt_attn *m = module;
    const tp_pvt_block_cfg *b = cfg;
    const tp_pvt_cfg *c = b->model;
    const int64_t D = c->dim[b->stage], R = c->reduction[b->stage];
    *m = (tp_pvt_attn){ .path = tp_push(P, name), .heads = c->heads[b->stage] };
    if (c->kind == TP_PVT2_LINEAR) m->pool = c->pool;
    tp_linear_init(P, &m->q, "q", D, D, true);
    tp_linear_init(P, &m->kv, "kv", D, 2 * D, true);
    tp_linear_init(P, &m->proj, "proj", D, D, true);
    if (m->pool > 0 || R > 1) {
        const int64_t kernel = m->pool > 0 ? 1 : R;
        tp_conv2d_init(P, &m->sr, "sr", D, D, kernel, true, square(kernel, 0, 1));
        tp_layernorm_init(P, &m->norm, "norm", D, 1e-5);
    }
    tp_pop(P);
}

/* Source tokens of keys and values, [B,S,D]. */
static tp_tensor reduced(tp_tape *T, const tp_pvt_attn *m, tp_tensor x)
{
    if (!tp_given(m->sr.weight)) return rows(T, x);
    if (m->pool > 0) x = tp_adaptive_avg_pool2d(T, x, m->pool, m->pool);
    const tp_tensor y = tp_layernorm_forward(T, &m->norm, rows(T, tp_conv2d_forward(T, &m->sr, x)));
    return m->pool > 0 ? tp_gelu(T, y) : y;
}

static tp_tensor attn_forward(tp_tape *T, const void *module, void *with, tp_tensor x)
{
    const tp_pvt_attn *m = module;
    const tp_tensor residual = with ? *(tp_tensor *)with : TP_NONE;
    const tp_attn_cfg cfg = { .heads = m->heads };
    tp_enter(T, m->path);
    const tp_tensor q = tp_linear_forward(T, &m->q, rows(T, x)), z = reduced(T, m, x);
    const tp_tensor k = tp_linear_part(T, &m->kv, z, 0, 2), v = tp_linear_part(T, &m->kv, z, 1, 2);
    const tp_tensor y = tp_attention(T, q, k, v, TP_NONE, TP_NONE, cfg);
    const tp_tensor map = tp_reshape(T, y, tp_shape_of(x));
    return tp_leave(T, tp__linear_add(T, &m->proj, map, residual, 0.0));
}

/* ---- block ---- */

static void block_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_pvt_block *m = module;
    const tp_pvt_block_cfg *b = cfg;
    const tp_pvt_cfg *c = b->model;
    const int64_t D = c->dim[b->stage], wide = c->mlp_ratio[b->stage] * D;
    *m = (tp_pvt_block){ .path = tp_push(P, name),
                         .kind = c->kind,
                         .drop_path = b->drop_path,
                         .recompute = c->recompute };
    tp_layernorm_init(P, &m->norm1, "norm1", D, 1e-6);
    attn_init(P, &m->attn, "attn", b);
    tp_layernorm_init(P, &m->norm2, "norm2", D, 1e-6);
    tp_mlp_init(P, &m->mlp, "mlp.fc1", "mlp.fc2", D, wide, TP_ACT_GELU, 0.0);
    if (c->kind != TP_PVT)
        tp_conv2d_init(P, &m->dwconv, "mlp.dwconv.dwconv", wide, wide, 3, true, square(1, 1, wide));
    tp_pop(P);
}

/* x + attn(norm1(x)) */
static tp_tensor attend(tp_tape *T, const void *self, tp_tensor x)
{
    const tp_pvt_block *m = self;
    const tp_tensor u = tp_layernorm_forward(T, &m->norm1, x);
    tp_tensor to = tp__residual(T, x, m->drop_path);
    return tp__add_branch(T, x, attn_forward(T, &m->attn, &to, u), m->drop_path);
}

/* x + mlp(norm2(x)) with the depthwise convolution. */
static tp_tensor convolved_mlp(tp_tape *T, const tp_pvt_block *m, tp_tensor x)
{
    const tp_act act = m->kind == TP_PVT2_LINEAR ? TP_ACT_RELU : TP_ACT_NONE;
    const tp_tensor u = tp_layernorm_forward(T, &m->norm2, x);
    const tp_tensor wide = tp_conv2d_forward(T, &m->dwconv, tp_linear_act(T, &m->mlp.fc1, u, act));
    const tp_tensor to = tp__residual(T, x, m->drop_path);
    return tp__add_branch(T, x, tp__linear_add(T, &m->mlp.fc2, tp_gelu(T, wide), to, 0.0),
                          m->drop_path);
}

static tp_tensor run_block(tp_tape *T, const void *self, tp_tensor x)
{
    const tp_pvt_block *m = self;
    tp_enter(T, m->path);
    x = m->recompute == TP_RECOMPUTE_ATTENTION ? tp_checkpoint(T, attend, m, x) : attend(T, m, x);
    return tp_leave(T, m->kind == TP_PVT ? tp__feed_forward(T, &m->norm2, &m->mlp, x, m->drop_path)
                                         : convolved_mlp(T, m, x));
}

static tp_tensor block_forward(tp_tape *T, const void *module, void *with, tp_tensor x)
{
    const tp_pvt_block *m = module;
    (void)with;
    if (tp_ok(T) && tp_ndim(x) != 4)
        return tp_raise(T, TP_E_SHAPE, "x must be a map [batch,height,width,channels]");
    return m->recompute == TP_RECOMPUTE_BLOCK ? tp_checkpoint(T, run_block, m, x)
                                              : run_block(T, m, x);
}

static tp__table table_of(const tp_pvt *m, int stage)
{
    static const char *const names[] = { "pos_embed1", "pos_embed2", "pos_embed3", "pos_embed4" };
    tp__table t = { .name = names[stage],
                    .table = m->stage[stage].pos_embed,
                    .extra = stage == STAGES - 1,
                    .grid = { m->cfg.image[0], m->cfg.image[1] },
                    .mode = TP_INTERPOLATE_BILINEAR };
    for (int s = 0; s <= stage; s++) shrink(&m->cfg, s, t.grid);
    return t;
}

/* ---- parameters ---- */

static const tp_init normal = { TP_INIT_NORMAL, 0.02, 0.0 };

/* Linear layers of both; in PVTv2 also convolutions, of which depthwise ones have fan-out 9. */
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
    const tp_conv_cfg conv = patches_of(c, s, &kernel);
    snprintf(name, sizeof name, "patch_embed%d", s + 1);
    tp_push(P, name);
    tp_conv2d_init(P, &stage->proj, "proj", s ? c->dim[s - 1] : 3, c->dim[s], kernel, true, conv);
    tp_layernorm_init(P, &stage->patch_norm, "norm", c->dim[s], 1e-5);
    tp_pop(P);
    if (c->kind == TP_PVT) {
        const tp__table t = table_of(m, s);
        const tp_shape shape = TP_SHAPE(1, t.extra + t.grid[0] * t.grid[1], c->dim[s]);
        stage->pos_embed = tp_param(P, t.name, shape, normal, 0);
    }
}

/* Declares stage s, starting at block i of n in the model. */
static void init_stage(tp_params *P, tp_pvt *m, int s, int i, int n)
{
    const tp_pvt_cfg *c = &m->cfg;
    char name[32];
    init_patches(P, m, s);
    m->stage[s].first = i;
    for (int b = 0; b < c->blocks[s]; b++, i++) {
        snprintf(name, sizeof name, "block%d.%d", s + 1, b);
        const tp_pvt_block_cfg block = { c, s, tp__drop_rate(c->drop_path, i, n) };
        block_init(P, &m->block[i], name, &block);
    }
    snprintf(name, sizeof name, "norm%d", s + 1);
    if (c->kind != TP_PVT) tp_layernorm_init(P, &m->stage[s].norm, name, c->dim[s], 1e-6);
}

static void model_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_pvt *m = module;
    const tp_pvt_cfg *c = cfg;
    const int64_t D = c->dim[STAGES - 1];
    char why[256];
    int n = 0;
    *m = (tp_pvt){ .params = P, .cfg = *c };
    if (!check(c, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "PVT: %s", why);
        return;
    }
    m->path = tp_push(P, name);
    tp_params_init_rule(P, init_rule, &m->cfg.kind);
    for (int s = 0; s < STAGES; s++) n += c->blocks[s];
    for (int s = 0, i = 0; s < STAGES; i += c->blocks[s++]) init_stage(P, m, s, i, n);
    if (c->kind == TP_PVT && c->classes > 0) {
        m->cls_token = tp_param(P, "cls_token", TP_SHAPE(1, 1, D), normal, 0);
        tp_layernorm_init(P, &m->norm, "norm", D, 1e-6);
    }
    if (c->classes > 0) tp_linear_init(P, &m->head, "head", D, c->classes, true);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

/* ---- forward ---- */

/* map [B,H,W,D] plus positions; with a leading class token, one row [B,1,1+H*W,D]. */
static tp_tensor add_positions(tp_tape *T, const tp_pvt *m, int s, tp_tensor map, bool class_token)
{
    const int64_t B = tp_dim(map, 0), H = tp_dim(map, 1), W = tp_dim(map, 2), D = tp_dim(map, 3);
    const tp__table t = table_of(m, s);
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
        map = block_forward(T, &m->block[stage->first + b], NULL, map);
    return m->cfg.kind == TP_PVT ? map : tp_layernorm_forward(T, &stage->norm, map);
}

/* Results of the four stages, without PVT's class token. PVTv2's sizes are rounded up; its maps are
 * normalised. */
static void features(tp_tape *T, const void *module, tp_tensor images, tp_tensor maps[STAGES])
{
    const tp_pvt *m = module;
    for (int s = 0; s < STAGES; s++) maps[s] = TP_NONE;
    tp_enter(T, m->path);
    tp__check_images(T, m->params, images);
    for (int s = 0; s < STAGES && tp_ok(T); s++)
        maps[s] = run_stage(T, m, s, s ? maps[s - 1] : images, false);
    tp_leave_n(T, STAGES, maps);
}

/* The last stage's result -> [B,D] */
static tp_tensor pool(tp_tape *T, const tp_pvt *m, tp_tensor x)
{
    const tp_shape s = TP_SHAPE(tp_dim(x, 0), tp_dim(x, 3));
    if (m->cfg.kind != TP_PVT) return tp_mean(T, tp_mean(T, x, 1), 1);
    return tp_layernorm_forward(T, &m->norm, tp_reshape(T, tp_slice(T, x, 2, 0, 1), s));
}

static tp_tensor model_forward(tp_tape *T, const void *module, void *state, tp_tensor images)
{
    const tp_pvt *m = module;
    (void)state;
    if (tp_params_ok(m->params) && !tp_given(m->head.weight))
        return tp_raise(T, TP_E_STATE, "this PVT is a backbone without a head");
    tp_tensor x = images;
    tp_enter(T, m->path);
    tp__check_images(T, m->params, images);
    for (int s = 0; s < STAGES && tp_ok(T); s++)
        x = run_stage(T, m, s, x, s == STAGES - 1 && m->cfg.kind == TP_PVT);
    return tp_leave(T, tp_linear_forward(T, &m->head, pool(T, m, x)));
}

/* ---- weights for another image size, and the constant ---- */

/* Head counts do not affect parameter shapes. */
static bool model_same(const void *one, const void *other)
{
    const tp_pvt_cfg *a = one, *b = other;
    return a->kind == b->kind && a->pool == b->pool && memcmp(a->dim, b->dim, sizeof a->dim) == 0 &&
           memcmp(a->heads, b->heads, sizeof a->heads) == 0 &&
           memcmp(a->blocks, b->blocks, sizeof a->blocks) == 0 &&
           memcmp(a->reduction, b->reduction, sizeof a->reduction) == 0 &&
           memcmp(a->mlp_ratio, b->mlp_ratio, sizeof a->mlp_ratio) == 0;
}

static bool model_resizes(const char *name, const tp_shape *here, const tp_shape *there)
{
    return strstr(name, "pos_embed") && tp__table_resizes(here, there);
}

static bool model_load(tp_params *P, const void *module, tp_file *F)
{
    const tp_load_opts o = { .convert = true, .resizes = model_resizes };
    const tp_pvt *m = module;
    bool ok = true;
    for (int s = 0; ok && s < STAGES && m->cfg.kind == TP_PVT; s++) {
        const tp__table table = table_of(m, s);
        ok = tp__check_table(P, F, &table);
    }
    ok = ok && tp_params_read(P, F, "", &o);
    for (int s = 0; ok && s < STAGES && m->cfg.kind == TP_PVT; s++) {
        const tp__table table = table_of(m, s);
        ok = tp__load_table(P, F, &table);
    }
    return ok;
}

/* We use the official code's names; these are timm's for PVTv2 since 0.9. */
static const tp_spelling spellings[] = {
    { "patch_embed.", "patch_embed1." },
    { "stages.1.downsample.", "patch_embed2." },
    { "stages.2.downsample.", "patch_embed3." },
    { "stages.3.downsample.", "patch_embed4." },
    { "stages.0.blocks.", "block1." },
    { "stages.1.blocks.", "block2." },
    { "stages.2.blocks.", "block3." },
    { "stages.3.blocks.", "block4." },
    { "stages.0.norm.", "norm1." },
    { "stages.1.norm.", "norm2." },
    { "stages.2.norm.", "norm3." },
    { "stages.3.norm.", "norm4." },
    { ".mlp.dwconv.weight", ".mlp.dwconv.dwconv.weight" },
    { ".mlp.dwconv.bias", ".mlp.dwconv.dwconv.bias" },
    { 0 },
};

/* ---- detector backbones, by their names in the model table ---- */

static const char *const names[] = { "pvt-mini",  "pvt-tiny", "pvt-small", "pvt-medium",
                                     "pvt-large", "pvt2-b0",  "pvt2-b1",   "pvt2-b2",
                                     "pvt2-b3",   "pvt2-b4",  "pvt2-b5",   "pvt2-b2-li",
                                     NULL };

static bool backbone_preset(void *cfg, int *frozen, const char *name, tp_detection_profile profile)
{
    tp_model_cfg model;
    char why[256];
    (void)frozen;
    (void)profile;
    if (strncmp(name, "pvt", 3) != 0 || !tp_model_preset(&model, name, why, sizeof why) ||
        model.model != &tp_model_pvt)
        return false;
    memcpy(cfg, &model.at, sizeof(tp_pvt_cfg));
    return true;
}

static bool maps(const void *cfg, int64_t channels[TP_BACKBONE_STAGES], char *why, size_t size)
{
    const tp_pvt_cfg *c = cfg;
    if (!check(c, why, size)) return false;
    memcpy(channels, c->dim, sizeof c->dim);
    return true;
}

static const tp_backbone_kind backbone = {
    .names = names, .preset = backbone_preset, .maps = maps, .features = features
};

/* ---- the model ---- */

static const tp_model_part parts[] = {
    { "attn", sizeof(tp_pvt_attn), attn_init, attn_forward },
    { "block", sizeof(tp_pvt_block), block_init, block_forward },
    { 0 },
};

const tp_model tp_model_pvt = {
    .name = "pvt",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_pvt_cfg),
    .size = sizeof(tp_pvt),
    .presets = presets,
    .sided = true,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .same = model_same,
    .load = model_load,
    .resizes = "PVT's tables of positions are resized",
    .resizes_to = model_resizes,
    .head = "head.weight",
    .spellings = spellings,
    .parts = parts,
    .backbone = &backbone,
};
