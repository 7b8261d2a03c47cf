/* cswin.c - CSWin Transformer: an embedding, four stages of cross-shaped attention, a head.
 *
 *     z  = qkv(norm1(x))                                  channels are split among the branches
 *     x  = x + drop_path(proj([stripes(z_0), stripes(z_1)]))
 *     x  = x + drop_path(mlp(norm2(x)))                   the next stage begins with norm(conv(x))
 *
 * The attention reads stripes in place. The convolution of vertical stripes needs copies of the
 * values, cut into stripes, and of its result; horizontal stripes are views. */
#include <stdio.h>
#include <tapegrad/cswin.h>

#include "model_inner.h"
#include "parts.h"

typedef struct stage {
    int64_t side, dim; /* of the square map */
    int branches;
} stage;

static stage stage_of(const tp_cswin_cfg *c, int i)
{
    stage s = { c->image[0] < 3 ? 0 : (c->image[0] - 3) / 4 + 1, c->dim << i, 2 };
    for (int k = 0; k < i; k++) s.side = (s.side + 1) / 2;
    if (i == TP_CSWIN_STAGES - 1 || s.side == c->split[i]) s.branches = 1;
    return s;
}

static int blocks_of(const tp_cswin_cfg *c)
{
    int n = 0;
    for (int i = 0; i < TP_CSWIN_STAGES; i++) n += c->depths[i];
    return n;
}

/* MAX_WIDTH also limits classes, so that products fit. */
enum { MAX_SIDE = 1 << 16, MAX_WIDTH = 1 << 24 };

/* Tables 1 and 2 of the paper, Table 1 of ViT-LSLA for 102 classes, then a small one for images of
 * 64 x 64. */
/* clang-format off */
#define FOUR(a, b, c, d) { a, b, c, d }
#define CFG(side, width, rate, d, h, s) \
    .cfg = &(const tp_cswin_cfg){ .image = { side, side }, .classes = 1000, .dim = width, \
                                  .mlp_ratio = 4, .depths = d, .heads = h, .split = s, \
                                  .drop_path = rate }
/* clang-format on */
static const tp_model_row presets[] = {
    { "cswin-t", "CSWin", .also = "cswin-tiny cswin_t CSWin-T", .params = 23e6, .flops = 4.3e9,
      .norm_cost = 5, CFG(224, 64, 0.2, FOUR(1, 2, 21, 1), FOUR(2, 4, 8, 16), FOUR(1, 2, 7, 7)) },
    { "cswin-s", "CSWin", .also = "cswin-small cswin_s CSWin-S", .params = 35e6, .flops = 6.9e9,
      .norm_cost = 5, CFG(224, 64, 0.4, FOUR(2, 4, 32, 2), FOUR(2, 4, 8, 16), FOUR(1, 2, 7, 7)) },
    { "cswin-b", "CSWin", .also = "cswin-base cswin_b CSWin-B", .params = 78e6, .flops = 15.0e9,
      .norm_cost = 5, CFG(224, 96, 0.5, FOUR(2, 4, 32, 2), FOUR(4, 8, 16, 32), FOUR(1, 2, 7, 7)) },
    { "cswin-b-384", "CSWin", .params = 78e6, .flops = 47.0e9, .norm_cost = 5,
      CFG(384, 96, 0.5, FOUR(2, 4, 32, 2), FOUR(4, 8, 16, 32), FOUR(1, 2, 12, 12)) },
    { "cswin-t-ip102", "CSWin", .params = 21.9e6, .flops = 4.3e9, .norm_cost = 5 },
    { "cswin-mini", "CSWin", .norm_cost = 5,
      CFG(64, 32, 0.1, FOUR(1, 2, 4, 1), FOUR(2, 2, 4, 8), FOUR(1, 2, 2, 2)) },
    { 0 },
};

/* ---- members ---- */

#define AT(member) offsetof(tp_cswin_cfg, member)
static const tp_model_member members[] = {
    { "image", TP_MEMBER_SIDES, .at = AT(image), .common = TP_COMMON_IMAGE, .least = 3,
      .most = MAX_SIDE },
    { "depths", TP_MEMBER_INTS, .at = AT(depths), .count = TP_CSWIN_STAGES, .least = 1,
      .most = TP_CSWIN_MAX_BLOCKS },
    { "heads", TP_MEMBER_INTS, .at = AT(heads), .count = TP_CSWIN_STAGES, .least = 1,
      .most = MAX_WIDTH },
    { "split", TP_MEMBER_INT64S, .at = AT(split), .count = TP_CSWIN_STAGES, .least = 1,
      .most = MAX_SIDE },
    { "classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS, .least = 1,
      .most = MAX_WIDTH },
    { "dim", TP_MEMBER_INT64, .at = AT(dim), .least = 2, .most = MAX_WIDTH >> TP_CSWIN_STAGES },
    { "mlp_ratio", TP_MEMBER_REAL, .at = AT(mlp_ratio) },
    { "drop_path", TP_MEMBER_RATE, .at = AT(drop_path), .common = TP_COMMON_DROP_PATH },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};

/* ---- checks ---- */

static void check_sizes(const tp_cswin_cfg *c, char *buf, size_t size)
{
    if (c->image[0] != c->image[1])
        snprintf(buf, size, "images are %lld x %lld pixels: they must be squares",
                 (long long)c->image[0], (long long)c->image[1]);
    else if (c->dim % 2)
        snprintf(buf, size, "the width %lld is not even", (long long)c->dim);
    else if (!tp__is_ratio(c->mlp_ratio, c->dim, MAX_WIDTH >> TP_CSWIN_STAGES))
        snprintf(buf, size, "an MLP ratio of %g gives a hidden width of %g", c->mlp_ratio,
                 c->mlp_ratio * (double)c->dim);
    else if (blocks_of(c) > TP_CSWIN_MAX_BLOCKS)
        snprintf(buf, size, "the model has %d blocks, not at most %d", blocks_of(c),
                 TP_CSWIN_MAX_BLOCKS);
}

static void check_stage(const tp_cswin_cfg *c, int i, char *buf, size_t size)
{
    const stage s = stage_of(c, i);
    if (s.dim % c->heads[i] || c->heads[i] % s.branches)
        snprintf(buf, size, "stage %d: the width %lld does not divide into %d heads in %d %s", i,
                 (long long)s.dim, c->heads[i], s.branches,
                 s.branches == 1 ? "branch" : "branches");
    else if (s.branches == 2 && s.side % c->split[i])
        snprintf(buf, size,
                 "stage %d: a map of %lld x %lld does not divide into stripes of %lld: choose "
                 "another image size or split",
                 i, (long long)s.side, (long long)s.side, (long long)c->split[i]);
}

static bool model_check(const void *cfg, char *why, size_t size)
{
    const tp_cswin_cfg *c = cfg;
    if (!tp__check_members(members, c, why, size)) return false;
    check_sizes(c, why, size);
    for (int i = 0; i < TP_CSWIN_STAGES && !why[0]; i++) check_stage(c, i, why, size);
    return !why[0];
}

/* ---- attention in stripes ---- */

static void lepe_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_cswin_lepe *m = module;
    const tp_cswin_lepe_cfg *c = cfg;
    const int64_t dim = c->dim, split = c->split;
    const int heads = c->heads;
    const tp_conv_cfg same = { .pad = { 1, 1 }, .groups = dim };
    if (heads < 1 || dim < 1 || dim % heads || split < 1) {
        tp_params_raise(
            P, TP_E_VALUE,
            "stripes %s: a width of %lld in %d heads with stripes of %lld is impossible", name,
            (long long)dim, heads, (long long)split);
        return;
    }
    *m = (tp_cswin_lepe){
        .path = tp_push(P, name), .heads = heads, .stripes = c->stripes, .split = split
    };
    tp_conv2d_init(P, &m->get_v, "get_v", dim, dim, 3, true, same);
    tp_pop(P);
}

/* The convolution of v [B,R*R,D] inside each stripe. */
static tp_tensor positions(tp_tape *T, const tp_cswin_lepe *m, tp_tensor v, int64_t R)
{
    const tp_shape tokens = tp_shape_of(v);
    const int64_t B = tokens.dim[0], D = tokens.dim[2], s = m->split;
    tp_tensor y;
    switch (m->stripes) {
    case TP_CSWIN_HORIZONTAL:
        y = tp_conv2d_forward(T, &m->get_v, tp_reshape(T, v, TP_SHAPE(B * (R / s), s, R, D)));
        break;
    case TP_CSWIN_VERTICAL:
        y = tp_reshape(T, v, TP_SHAPE(B, R, R / s, s, D));
        y = tp_reshape(T, tp_permute(T, y, TP_SHAPE(0, 2, 1, 3, 4)), TP_SHAPE(-1, R, s, D));
        y = tp_reshape(T, tp_conv2d_forward(T, &m->get_v, y), TP_SHAPE(B, R / s, R, s, D));
        y = tp_permute(T, y, TP_SHAPE(0, 2, 1, 3, 4));
        break;
    default: y = tp_conv2d_forward(T, &m->get_v, tp_reshape(T, v, TP_SHAPE(B, R, R, D)));
    }
    return tp_reshape(T, y, tokens);
}

static tp_tensor attention(tp_tape *T, const tp_cswin_lepe *m, tp_tensor q, tp_tensor k,
                           tp_tensor v, int64_t R)
{
    tp_window_attn_cfg cfg = { .heads = m->heads, .height = R, .width = R, .window = { R, R } };
    if (m->stripes == TP_CSWIN_WHOLE)
        return tp_attention(T, q, k, v, TP_NONE, TP_NONE, (tp_attn_cfg){ .heads = m->heads });
    cfg.window[m->stripes == TP_CSWIN_VERTICAL] = m->split;
    return tp_window_attention_2d(T, (tp_window_in){ .q = q, .k = k, .v = v }, cfg);
}

static tp_tensor lepe_forward(tp_tape *T, const void *module, void *with, tp_tensor q)
{
    const tp_cswin_lepe *m = module;
    const tp_cswin_lepe_in *in = with;
    const int64_t side = in->side;
    tp_enter(T, m->path);
    if (tp_ok(T) && m->stripes != TP_CSWIN_WHOLE && side % m->split)
        tp_raise(T, TP_E_SHAPE,
                 "a map of %lld x %lld does not divide into stripes of %lld: choose another image "
                 "size",
                 (long long)side, (long long)side, (long long)m->split);
    if (!tp_ok(T)) return tp_leave(T, TP_NONE);
    const tp_tensor y = attention(T, m, q, in->k, in->v, side);
    return tp_leave(T, tp_add(T, y, positions(T, m, in->v, side)));
}

/* ---- block ---- */

static void block_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_cswin_block *m = module;
    const tp_cswin_block_cfg *c = cfg;
    const bool whole = c->last || c->side == c->split;
    const int n = whole ? 1 : 2;
    if (c->dim % n || c->heads % n || c->dim < 1) {
        tp_params_raise(P, TP_E_VALUE, "block %s: a width of %lld in %d heads has no halves", name,
                        (long long)c->dim, c->heads);
        return;
    }
    *m = (tp_cswin_block){ .path = tp_push(P, name),
                           .drop_path = c->drop_path,
                           .recompute = c->recompute,
                           .branches = n };
    tp_linear_init(P, &m->qkv, "qkv", c->dim, 3 * c->dim, true);
    tp_layernorm_init(P, &m->norm1, "norm1", c->dim, 1e-5);
    tp_linear_init(P, &m->proj, "proj", c->dim, c->dim, true);
    for (int b = 0; b < n; b++) {
        const tp_cswin_stripes stripes = whole ? TP_CSWIN_WHOLE : (tp_cswin_stripes)b;
        char part[24];
        snprintf(part, sizeof part, "attns.%d", b);
        const tp_cswin_lepe_cfg half = { .dim = c->dim / n,
                                         .split = whole ? c->side : c->split,
                                         .heads = c->heads / n,
                                         .stripes = stripes };
        lepe_init(P, &m->branch[b], part, &half);
    }
    tp_mlp_init(P, &m->mlp, "mlp.fc1", "mlp.fc2", c->dim, tp__hidden(c->mlp_ratio, c->dim),
                TP_ACT_GELU, 0.0);
    tp_layernorm_init(P, &m->norm2, "norm2", c->dim, 1e-5);
    tp_pop(P);
}

static tp_tensor attend(tp_tape *T, const void *self, tp_tensor map)
{
    const tp_cswin_block *m = self;
    const int n = m->branches;
    const tp_tensor x = tp__tokens(T, tp_layernorm_forward(T, &m->norm1, map));
    tp_tensor y[2];
    for (int b = 0; b < n; b++) {
        const tp_tensor q = tp_linear_part(T, &m->qkv, x, b, 3 * n);
        const tp_tensor k = tp_linear_part(T, &m->qkv, x, n + b, 3 * n);
        const tp_tensor v = tp_linear_part(T, &m->qkv, x, 2 * n + b, 3 * n);
        tp_cswin_lepe_in in = { k, v, tp_dim(map, 1) };
        y[b] = lepe_forward(T, &m->branch[b], &in, q);
    }
    const tp_tensor all = n == 1 ? y[0] : tp_concat(T, 2, y[0], y[1]);
    const tp_tensor z = tp_reshape(T, tp_linear_forward(T, &m->proj, all), tp_shape_of(map));
    return tp_add(T, map, tp_drop_path(T, z, m->drop_path));
}

static tp_tensor run_block(tp_tape *T, const void *self, tp_tensor x)
{
    const tp_cswin_block *m = self;
    tp_enter(T, m->path);
    if (tp_ok(T) && (tp_ndim(x) != 4 || tp_dim(x, 1) != tp_dim(x, 2)))
        tp_raise(T, TP_E_SHAPE, "maps must be squares, [B,R,R,D]");
    if (tp_ok(T) && m->branches == 2 && tp_dim(x, 1) == m->branch[0].split)
        tp_raise(T, TP_E_SHAPE,
                 "a map of %lld x %lld is one stripe, but the parameters are for two branches: "
                 "declare the model for this image size",
                 (long long)tp_dim(x, 1), (long long)tp_dim(x, 1));
    if (!tp_ok(T)) return tp_leave(T, TP_NONE);
    const tp_tensor y =
        m->recompute == TP_RECOMPUTE_ATTENTION ? tp_checkpoint(T, attend, m, x) : attend(T, m, x);
    return tp_leave(T, tp__feed_forward(T, &m->norm2, &m->mlp, y, m->drop_path));
}

static tp_tensor block_forward(tp_tape *T, const void *module, void *with, tp_tensor x)
{
    const tp_cswin_block *m = module;
    (void)with;
    return m->recompute == TP_RECOMPUTE_BLOCK ? tp_checkpoint(T, run_block, m, x)
                                              : run_block(T, m, x);
}

/* ---- model ---- */

/* Declares stage i, whose blocks begin at block[first]; returns the first of the next stage. */
static int init_stage(tp_params *P, tp_cswin *m, int i, int first)
{
    const tp_cswin_cfg *c = &m->cfg;
    const stage s = stage_of(c, i);
    char name[32];
    for (int j = 0; j < c->depths[i]; j++) {
        const tp_cswin_block_cfg b = { .side = s.side,
                                       .dim = s.dim,
                                       .split = c->split[i],
                                       .heads = c->heads[i],
                                       .last = i == TP_CSWIN_STAGES - 1,
                                       .mlp_ratio = c->mlp_ratio,
                                       .drop_path =
                                           tp__drop_rate(c->drop_path, first + j, blocks_of(c)),
                                       .recompute = c->recompute };
        snprintf(name, sizeof name, "stage%d.%d", i + 1, j);
        block_init(P, &m->block[first + j], name, &b);
    }
    if (i < TP_CSWIN_STAGES - 1) {
        snprintf(name, sizeof name, "merge%d", i + 1);
        tp_conv_norm_init(P, &m->merge[i], name,
                          (tp_conv_norm_cfg){ .conv = "conv",
                                              .in = s.dim,
                                              .out = 2 * s.dim,
                                              .kernel = 3,
                                              .stride = 2,
                                              .pad = 1 });
    }
    return first + c->depths[i];
}

static void model_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_cswin *m = module;
    const tp_cswin_cfg *c = cfg;
    char why[256];
    bool convolution = false;
    *m = (tp_cswin){ .params = P, .cfg = *c };
    if (!model_check(c, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "CSWin: %s", why);
        return;
    }
    const int64_t dim = stage_of(c, TP_CSWIN_STAGES - 1).dim;
    m->path = tp_push(P, name);
    tp_params_init_rule(P, tp__usual_init, &convolution);
    tp_conv_norm_init(
        P, &m->embed, "stage1_conv_embed",
        (tp_conv_norm_cfg){
            .conv = "0", .norm = "2", .in = 3, .out = c->dim, .kernel = 7, .stride = 4, .pad = 2 });
    for (int i = 0, first = 0; i < TP_CSWIN_STAGES; i++) first = init_stage(P, m, i, first);
    tp_layernorm_init(P, &m->norm, "norm", dim, 1e-5);
    tp_linear_init(P, &m->head, "head", dim, c->classes, true);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

static tp_tensor model_forward(tp_tape *T, const void *module, void *state, tp_tensor images)
{
    const tp_cswin *m = module;
    (void)state;
    const tp_cswin_block *block = m->block;
    tp_enter(T, m->path);
    if (tp__check_images(T, m->params, images) && tp_dim(images, 1) != tp_dim(images, 2))
        tp_raise(T, TP_E_SHAPE, "images must be squares, not %lld x %lld",
                 (long long)tp_dim(images, 1), (long long)tp_dim(images, 2));
    tp_tensor x = tp_conv_norm_forward(T, &m->embed, images);
    for (int i = 0; i < TP_CSWIN_STAGES && tp_ok(T); i++) {
        for (int j = 0; j < m->cfg.depths[i] && tp_ok(T); j++)
            x = block_forward(T, block++, NULL, x);
        if (i < TP_CSWIN_STAGES - 1) x = tp_conv_norm_forward(T, &m->merge[i], x);
    }
    x = tp_mean(T, tp__tokens(T, tp_layernorm_forward(T, &m->norm, x)), 1);
    return tp_leave(T, tp_linear_forward(T, &m->head, x));
}

static const tp_model_part parts[] = {
    { "lepe", sizeof(tp_cswin_lepe), lepe_init, lepe_forward },
    { "block", sizeof(tp_cswin_block), block_init, block_forward },
    { 0 },
};

const tp_model tp_model_cswin = {
    .name = "cswin",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_cswin_cfg),
    .size = sizeof(tp_cswin),
    .presets = presets,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .head = "head.weight",
    .parts = parts,
};
