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

/* A stage's map, its channels, and its parameters' window. */
typedef struct stage {
    int64_t map[2], dim, window;
} stage;

static stage stage_of(const tp_vit_lsla_cfg *c, int i)
{
    stage s = { { c->image[0], c->image[1] }, c->dim << i, c->window };
    for (int axis = 0; axis < 2; axis++) {
        for (int half = 0; half < 2 + i; half++) s.map[axis] = (s.map[axis] + 1) / 2;
        if (s.map[axis] < s.window) s.window = s.map[axis];
    }
    return s;
}

static int blocks_of(const tp_vit_lsla_cfg *c)
{
    int n = 0;
    for (int i = 0; i < c->stages; i++) n += c->depths[i];
    return n;
}

/* MAX_WIDTH also limits classes, so that products fit. */
enum { MAX_SIDE = 1 << 16, MAX_WINDOW = 128, MAX_WIDTH = 1 << 24 };

enum { IP102 = 102, FOOD101 = 101, MINI_IMAGENET = 100 }; /* classes of the paper's data sets */

/* Tables 1, 4 and 5 of the paper, then small ones for images of 64 x 64. lsla-mini matches the
 * parameter count of other families' small models. With MAX_WINDOW, images up to 512 x 512 get full
 * attention with a relative bias. */
/* clang-format off */
#define PAPER(labels, ...) \
    .norm_cost = 5, \
    .cfg = &(const tp_vit_lsla_cfg){ .image = { 224, 224 }, .classes = labels, .dim = 96, \
                                     .stages = 4, .depths = { 2, 4, 8, 2 }, \
                                     .heads = { 3, 6, 12, 24 }, .window = 7, .mlp_ratio = 2.0, \
                                     .drop_path = 0.2, .attn = { __VA_ARGS__ } }
#define SMALL(w, a, b, c, ...) \
    .norm_cost = 5, \
    .cfg = &(const tp_vit_lsla_cfg){ .image = { 64, 64 }, .classes = 1000, .dim = 64, .stages = 3, \
                                     .depths = { a, b, c }, .heads = { 2, 4, 8 }, .window = w, \
                                     .mlp_ratio = 2.0, .attn = { __VA_ARGS__ } }
/* clang-format on */
static const tp_model_row presets[] = {
    { "vit_lsla-ip102", "ViT-LSLA", .also = "vit_lsla vit-lsla ViT-LSLA", .params = 18.9e6,
      .flops = 3.5e9, PAPER(IP102, 0) },
    { "vit_lsla-food101", "ViT-LSLA", .params = 18.9e6, .flops = 3.5e9, PAPER(FOOD101, 0) },
    { "vit_lsla-mini", "ViT-LSLA", .params = 18.9e6, .flops = 3.5e9, PAPER(MINI_IMAGENET, 0) },
    { "vit_lsla-qxx_np", "ViT-LSLA", .params = 16.4e6, .flops = 3.1e9,
      PAPER(IP102, .variant = TP_LSLA_QXX_NP) },
    { "vit_lsla-qxv", "ViT-LSLA", .params = 18.9e6, .flops = 3.5e9,
      PAPER(IP102, .variant = TP_LSLA_QXV) },
    { "vit_lsla-qkv", "ViT-LSLA", .params = 24.0e6, .flops = 4.4e9,
      PAPER(IP102, .variant = TP_LSLA_QKV) },
    { "vit_lsla-fixed_none", "ViT-LSLA",
      PAPER(IP102, .fixed_scale = true, .raw_scores = true, .raw_weights = true) },
    { "vit_lsla-fixed_inner", "ViT-LSLA", PAPER(IP102, .fixed_scale = true, .raw_weights = true) },
    { "vit_lsla-fixed_outer", "ViT-LSLA", PAPER(IP102, .fixed_scale = true, .raw_scores = true) },
    { "vit_lsla-fixed", "ViT-LSLA", PAPER(IP102, .fixed_scale = true) },
    { "vit_lsla-inner", "ViT-LSLA", PAPER(IP102, .raw_weights = true) },
    { "vit_lsla-outer", "ViT-LSLA", PAPER(IP102, .raw_scores = true) },
    { "lsla-small", "ViT-LSLA", SMALL(4, 2, 2, 1, 0) },
    { "lsla-mini", "ViT-LSLA", SMALL(4, 2, 4, 3, 0) },
    { "lsla-qkv-small", "ViT-LSLA", SMALL(4, 2, 2, 1, .variant = TP_LSLA_QKV) },
    { "lsla-inner-small", "ViT-LSLA", SMALL(4, 2, 2, 1, .raw_weights = true) },
    { "lsla-full-small", "ViT-LSLA",
      SMALL(MAX_WINDOW, 2, 2, 1, .variant = TP_LSLA_QKV, .fixed_scale = true,
            .raw_weights = true) },
    { 0 },
};

/* ---- members ---- */

static const char *const variants[] = { "qxx", "qxv", "qkv", "qxx_np", NULL };
static const char *const scales[] = { "dynamic", "fixed", NULL };

#define AT(member) offsetof(tp_vit_lsla_cfg, member)
static const tp_model_member members[] = {
    { "image", TP_MEMBER_SIDES, .at = AT(image), .common = TP_COMMON_IMAGE, .least = 1,
      .most = MAX_SIDE },
    { "depths", TP_MEMBER_INTS, .at = AT(depths), .count = TP_VIT_MAX_STAGES, .length = AT(stages),
      .least = 1, .most = TP_VIT_MAX_BLOCKS },
    { "heads", TP_MEMBER_INTS, .at = AT(heads), .count = TP_VIT_MAX_STAGES, .length = AT(stages),
      .least = 1, .most = MAX_WIDTH },
    { "classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS, .least = 1,
      .most = MAX_WIDTH },
    { "dim", TP_MEMBER_INT64, .at = AT(dim), .least = 2, .most = MAX_WIDTH },
    { "window", TP_MEMBER_INT64, .at = AT(window), .least = 1, .most = MAX_WINDOW },
    { "mlp_ratio", TP_MEMBER_REAL, .at = AT(mlp_ratio) },
    { "drop_path", TP_MEMBER_RATE, .at = AT(drop_path), .common = TP_COMMON_DROP_PATH },
    { "variant", TP_MEMBER_WORD, .at = AT(attn.variant), .words = variants },
    { "scale", TP_MEMBER_CHOICE, .at = AT(attn.fixed_scale), .words = scales },
    { "inner", TP_MEMBER_NOT, .at = AT(attn.raw_scores) },
    { "outer", TP_MEMBER_NOT, .at = AT(attn.raw_weights) },
    { "mask_outer", TP_MEMBER_FLAG, .at = AT(attn.mask_outer) },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};

/* ---- checks ---- */

static void check_sizes(const tp_vit_lsla_cfg *c, char *buf, size_t size)
{
    if (c->dim > MAX_WIDTH >> c->stages || c->dim % 2)
        snprintf(buf, size, "the width %lld is not even and at most %d", (long long)c->dim,
                 MAX_WIDTH >> c->stages);
    else if (blocks_of(c) > TP_VIT_MAX_BLOCKS)
        snprintf(buf, size, "the model has %d blocks, not at most %d", blocks_of(c),
                 TP_VIT_MAX_BLOCKS);
}

static void check_stage(const tp_vit_lsla_cfg *c, int i, char *buf, size_t size)
{
    const stage s = stage_of(c, i);
    if (s.dim % c->heads[i])
        snprintf(buf, size, "stage %d: the width %lld does not divide into %d heads", i,
                 (long long)s.dim, c->heads[i]);
    else if (!tp__is_ratio(c->mlp_ratio, s.dim, MAX_WIDTH))
        snprintf(buf, size, "stage %d: an MLP ratio of %g gives a hidden width of %g", i,
                 c->mlp_ratio, c->mlp_ratio * (double)s.dim);
    else if (s.map[0] % s.window || s.map[1] % s.window)
        snprintf(buf, size,
                 "stage %d: a map of %lld x %lld does not divide into windows of %lld: choose "
                 "another image size or window",
                 i, (long long)s.map[0], (long long)s.map[1], (long long)s.window);
}

static bool model_check(const void *cfg, char *why, size_t size)
{
    const tp_vit_lsla_cfg *c = cfg;
    if (!tp__check_members(members, c, why, size)) return false;
    check_sizes(c, why, size);
    for (int i = 0; i < c->stages && !why[0]; i++) check_stage(c, i, why, size);
    return !why[0];
}

/* ---- stem and downsampling ---- */

static const tp_conv_cfg halving = { .stride = { 2, 2 }, .pad = { 1, 1 } };

void tp__lsla_stem_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_lsla_stem *m = module;
    const int64_t channels = *(const int64_t *)cfg;
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

tp_tensor tp__lsla_stem(tp_tape *T, const void *module, void *with, tp_tensor x)
{
    const tp_lsla_stem *m = module;
    (void)with;
    tp_enter(T, m->path);
    for (int i = 0; i < 2; i++) {
        x = tp_conv2d_forward(T, &m->conv[i], x);
        x = tp_hardswish(T, tp_batchnorm_forward(T, &m->bn[i], x));
    }
    return tp_leave(T, x);
}

static void merge_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_lsla_merge *m = module;
    const int64_t dim = *(const int64_t *)cfg;
    m->path = tp_push(P, name);
    tp_conv2d_init(P, &m->conv, "conv", dim, 2 * dim, 3, true, halving);
    tp_layernorm_init(P, &m->norm, "norm", 2 * dim, 1e-5);
    tp_pop(P);
}

static tp_tensor merge_forward(tp_tape *T, const void *module, void *with, tp_tensor x)
{
    const tp_lsla_merge *m = module;
    (void)with;
    tp_enter(T, m->path);
    return tp_leave(T, tp_layernorm_forward(T, &m->norm, tp_conv2d_forward(T, &m->conv, x)));
}

/* ---- block ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void block_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_lsla_block *m = module;
    const tp_lsla_block_cfg *c = cfg;
    const int64_t window = least(c->window, least(c->map[0], c->map[1]));
    const int64_t hidden = tp__hidden(c->mlp_ratio, c->dim);
    const tp_lsla_part_cfg attn = { c->dim, window, c->heads, c->attn };
    *m = (tp_lsla_block){ .path = tp_push(P, name),
                          .window = c->window,
                          .shift = c->shift,
                          .drop_path = c->drop_path,
                          .recompute = c->recompute };
    tp_layernorm_init(P, &m->norm1, "norm1", c->dim, 1e-5);
    tp__lsla_attn_init(P, &m->attn, "attn", &attn);
    tp_layernorm_init(P, &m->norm2, "norm2", c->dim, 1e-5);
    tp_mlp_init(P, &m->mlp, "mlp.fc1", "mlp.fc2", c->dim, hidden, TP_ACT_GELU, 0.0);
    tp_pop(P);
}

static tp_tensor attend(tp_tape *T, const void *self, tp_tensor x)
{
    const tp_lsla_block *m = self;
    int64_t shift = least(tp_dim(x, 1), tp_dim(x, 2)) > m->attn.window ? m->shift : 0;
    const tp_tensor a = tp_layernorm_forward(T, &m->norm1, x);
    const tp_tensor y = tp__lsla_attn(T, &m->attn, &shift, a);
    return tp_add(T, x, tp_drop_path(T, y, m->drop_path));
}

static tp_tensor run_block(tp_tape *T, const void *self, tp_tensor x)
{
    const tp_lsla_block *m = self;
    tp_enter(T, m->path);
    if (!tp__fits_windows(T, x, m->window, m->attn.window)) return tp_leave(T, TP_NONE);
    const tp_tensor y =
        m->recompute == TP_RECOMPUTE_ATTENTION ? tp_checkpoint(T, attend, m, x) : attend(T, m, x);
    return tp_leave(T, tp__feed_forward(T, &m->norm2, &m->mlp, y, m->drop_path));
}

static tp_tensor block_forward(tp_tape *T, const void *module, void *with, tp_tensor x)
{
    const tp_lsla_block *m = module;
    (void)with;
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
    const stage s = stage_of(c, i);
    char name[32];
    snprintf(name, sizeof name, "layers.%d", i);
    tp_push(P, name);
    for (int j = 0; j < c->depths[i]; j++) {
        const int last = blocks_of(c) - 1;
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
        block_init(P, &m->block[first + j], name, &b);
    }
    if (i + 1 < c->stages) merge_init(P, &m->merge[i], "downsample", &s.dim);
    tp_pop(P);
    return first + c->depths[i];
}

static void model_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_vit_lsla *m = module;
    const tp_vit_lsla_cfg *c = cfg;
    char why[256];
    *m = (tp_vit_lsla){ .params = P, .cfg = *c };
    if (!model_check(c, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "ViT-LSLA: %s", why);
        return;
    }
    const int64_t dim = stage_of(c, c->stages - 1).dim;
    m->path = tp_push(P, name);
    tp_params_init_rule(P, init_rule, NULL);
    tp__lsla_stem_init(P, &m->stem, "stem", &c->dim);
    for (int i = 0, first = 0; i < c->stages; i++) first = init_stage(P, m, i, first);
    tp_layernorm_init(P, &m->norm, "norm", dim, 1e-5);
    tp_linear_init(P, &m->head, "head", dim, c->classes, true);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

static tp_tensor model_forward(tp_tape *T, const void *module, void *state, tp_tensor images)
{
    const tp_vit_lsla *m = module;
    (void)state;
    const tp_vit_lsla_cfg *c = &m->cfg;
    const tp_lsla_block *block = m->block;
    tp_enter(T, m->path);
    tp__check_images(T, m->params, images);
    tp_tensor x = tp__lsla_stem(T, &m->stem, NULL, images);
    for (int i = 0; i < c->stages && tp_ok(T); i++) {
        for (int j = 0; j < c->depths[i] && tp_ok(T); j++) x = block_forward(T, block++, NULL, x);
        if (i + 1 < c->stages) x = merge_forward(T, &m->merge[i], NULL, x);
    }
    x = tp_layernorm_forward(T, &m->norm, x);
    x = tp_mean(T, tp_reshape(T, x, TP_SHAPE(tp_dim(x, 0), -1, tp_dim(x, 3))), 1);
    return tp_leave(T, tp_linear_forward(T, &m->head, x));
}

/* ---- weights for another image size ----
 *
 * Window-dependent parameters are resized over positions: tables [(2w-1)^2,H] over row and column
 * differences, scales [w^2,w^2] over rows and columns of queries and keys. */

/* True for window-dependent parameters, filling p with the positions in the file and here. */
static bool positions(const char *name, const tp_shape *here, const tp_shape *there, tp__grid *p)
{
    if (strstr(name, "relative_position_bias_table")) return tp__relative_table(here, there, p);
    if (!strstr(name, "dynamic_scale") || here->ndim != 2 || there->ndim != 2) return false;
    const int64_t from = tp__root(there->dim[0]), to = tp__root(here->dim[0]);
    *p = (tp__grid){ 4, { from, from, from, from }, { to, to, to, to }, 1 };
    return from > 0 && to > 0 && there->dim[1] == there->dim[0];
}

static bool resizes_to(const char *name, const tp_shape *here, const tp_shape *there)
{
    tp__grid p;
    return positions(name, here, there, &p);
}

static bool model_load(tp_params *P, const void *m, tp_file *F)
{
    (void)m;
    const tp_load_opts o = { .convert = true, .resizes = resizes_to };
    if (!tp_params_read(P, F, "", &o)) return false;
    for (tp_param_info it = { 0 }; tp_params_ok(P) && tp_next_param(P, &it);) {
        const tp_file_tensor *t = tp_file_find(F, it.name);
        tp__grid p;
        if (t && !tp__equal_shapes(&t->shape, &it.shape) &&
            positions(it.name, &it.shape, &t->shape, &p))
            tp__load_positions(P, F, &it, t, &p);
    }
    return tp_params_ok(P);
}

/* ---- the model ---- */

/* Windows may differ, since loading resizes their tables. */
static bool model_same(const void *one, const void *other)
{
    const tp_vit_lsla_cfg *a = one, *b = other;
    return a->dim == b->dim && a->stages == b->stages &&
           memcmp(a->depths, b->depths, sizeof a->depths) == 0 &&
           memcmp(a->heads, b->heads, sizeof a->heads) == 0 && a->attn.variant == b->attn.variant;
}

static const tp_model_part parts[] = {
    { "attn", sizeof(tp_lsla_attn_m), tp__lsla_attn_init, tp__lsla_attn },
    { "stem", sizeof(tp_lsla_stem), tp__lsla_stem_init, tp__lsla_stem },
    { "block", sizeof(tp_lsla_block), block_init, block_forward },
    { "merge", sizeof(tp_lsla_merge), merge_init, merge_forward },
    { 0 },
};

const tp_model tp_model_vit_lsla = {
    .name = "vit-lsla",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_vit_lsla_cfg),
    .size = sizeof(tp_vit_lsla),
    .presets = presets,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .same = model_same,
    .load = model_load,
    .resizes = "tables of positions and scales are resized where windows differ",
    .resizes_to = resizes_to,
    .head = "head.weight",
    .parts = parts,
};
