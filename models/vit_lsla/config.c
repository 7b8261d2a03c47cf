/* config.c - presets, checks and members of ViT-LSLA, and its constant. */
#include <stdio.h>
#include <string.h>

#include "inner.h"
#include "model_inner.h"

/* MAX_WIDTH also limits classes, so that products fit. */
enum { MAX_SIDE = 1 << 16, MAX_WINDOW = 128, MAX_WIDTH = 1 << 24 };

tp_vit_lsla_cfg tp_vit_lsla_paper(int64_t classes)
{
    return (tp_vit_lsla_cfg){ .image = { 224, 224 },
                              .classes = classes,
                              .dim = 96,
                              .stages = 4,
                              .depths = { 2, 4, 8, 2 },
                              .heads = { 3, 6, 12, 24 },
                              .window = 7,
                              .mlp_ratio = 2.0,
                              .drop_path = 0.2 };
}

tp_vit_lsla_cfg tp_vit_lsla_tiny(int64_t classes)
{
    return (tp_vit_lsla_cfg){ .image = { 32, 32 },
                              .classes = classes,
                              .dim = 64,
                              .stages = 3,
                              .depths = { 2, 2, 1 },
                              .heads = { 2, 4, 8 },
                              .window = 4,
                              .mlp_ratio = 2.0 };
}

enum { IP102 = 102, FOOD101 = 101, MINI_IMAGENET = 100 }; /* classes of the paper's data sets */

/* Tables 1, 4 and 5. */
static const struct {
    const char *name;
    int64_t classes;
    tp_lsla_cfg attn;
} published[] = {
    { "vit_lsla-ip102", IP102, { 0 } },
    { "vit_lsla-food101", FOOD101, { 0 } },
    { "vit_lsla-mini", MINI_IMAGENET, { 0 } },
    { "vit_lsla-qxx_np", IP102, { .variant = TP_LSLA_QXX_NP } },
    { "vit_lsla-qxv", IP102, { .variant = TP_LSLA_QXV } },
    { "vit_lsla-qkv", IP102, { .variant = TP_LSLA_QKV } },
    { "vit_lsla-fixed_none",
      IP102,
      { .fixed_scale = true, .raw_scores = true, .raw_weights = true } },
    { "vit_lsla-fixed_inner", IP102, { .fixed_scale = true, .raw_weights = true } },
    { "vit_lsla-fixed_outer", IP102, { .fixed_scale = true, .raw_scores = true } },
    { "vit_lsla-fixed", IP102, { .fixed_scale = true } },
    { "vit_lsla-inner", IP102, { .raw_weights = true } },
    { "vit_lsla-outer", IP102, { .raw_scores = true } },
};

/* For images of 64 x 64. lsla-mini has as many parameters as the small models of other families.
 * With MAX_WINDOW the window is the whole map for images up to 512 x 512: full attention with a
 * relative bias. */
static const struct {
    const char *name;
    int64_t window;
    int depths[3];
    tp_lsla_cfg attn;
} small[] = {
    { "lsla-small", 4, { 2, 2, 1 }, { 0 } },
    { "lsla-mini", 4, { 2, 4, 3 }, { 0 } },
    { "lsla-qkv-small", 4, { 2, 2, 1 }, { .variant = TP_LSLA_QKV } },
    { "lsla-inner-small", 4, { 2, 2, 1 }, { .raw_weights = true } },
    { "lsla-full-small",
      MAX_WINDOW,
      { 2, 2, 1 },
      { .variant = TP_LSLA_QKV, .fixed_scale = true, .raw_weights = true } },
};

static bool model_preset(void *cfg, const char *name, char *why, size_t size)
{
    tp_vit_lsla_cfg *c = cfg;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        if (strcmp(name, published[i].name) != 0) continue;
        *c = tp_vit_lsla_paper(published[i].classes);
        c->attn = published[i].attn;
        return true;
    }
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        if (strcmp(name, small[i].name) != 0) continue;
        *c = tp_vit_lsla_tiny(1000);
        c->image[0] = c->image[1] = 64;
        c->window = small[i].window;
        memcpy(c->depths, small[i].depths, sizeof small[i].depths);
        c->attn = small[i].attn;
        return true;
    }
    snprintf(why, size, "no ViT-LSLA is called '%.80s'", name);
    return false;
}

/* ---- checks ---- */

static void check_sizes(const tp_vit_lsla_cfg *c, char *buf, size_t size)
{
    if (!tp__in_range(c->image[0], 1, MAX_SIDE) || !tp__in_range(c->image[1], 1, MAX_SIDE))
        snprintf(buf, size, "images are %lld x %lld pixels: sides must be 1 to %d",
                 (long long)c->image[0], (long long)c->image[1], MAX_SIDE);
    else if (!tp__in_range(c->stages, 1, TP_VIT_MAX_STAGES))
        snprintf(buf, size, "the model has %d stages, not 1 to %d", c->stages, TP_VIT_MAX_STAGES);
    else if (!tp__in_range(c->dim, 2, MAX_WIDTH >> c->stages) || c->dim % 2)
        snprintf(buf, size, "the width %lld is not even and between 2 and %d", (long long)c->dim,
                 MAX_WIDTH >> c->stages);
    else if (!tp__in_range(c->classes, 1, MAX_WIDTH))
        snprintf(buf, size, "there are %lld classes, not 1 to %d", (long long)c->classes,
                 MAX_WIDTH);
    else if (!tp__in_range(c->window, 1, MAX_WINDOW))
        snprintf(buf, size, "the window is %lld, not 1 to %d", (long long)c->window, MAX_WINDOW);
    else if (!tp__in_range((int64_t)c->attn.variant, TP_LSLA_QXX, TP_LSLA_QXX_NP))
        snprintf(buf, size, "no variant has the number %d", (int)c->attn.variant);
    else if (!tp__is_rate(c->drop_path))
        snprintf(buf, size, "drop_path must be in [0,1), not %g", c->drop_path);
}

static void check_stage(const tp_vit_lsla_cfg *c, int i, char *buf, size_t size)
{
    const tp_lsla_stage s = tp__lsla_stage(c, i);
    if (!tp__in_range(c->depths[i], 1, TP_VIT_MAX_BLOCKS) || tp__lsla_blocks(c) > TP_VIT_MAX_BLOCKS)
        snprintf(buf, size,
                 "stage %d has %d blocks: it needs at least 1, all stages together at most %d", i,
                 c->depths[i], TP_VIT_MAX_BLOCKS);
    else if (c->heads[i] < 1 || s.dim % c->heads[i])
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

bool tp_vit_lsla_cfg_check(const tp_vit_lsla_cfg *c, char *why, size_t size)
{
    if (!c) {
        if (why)
            snprintf(why, size, "vit_lsla_cfg_check: NULL was given in place of a configuration");
        return false;
    }
    why[0] = '\0';
    check_sizes(c, why, size);
    if (why[0]) return false;
    for (int i = 0; i < c->stages && !why[0]; i++) check_stage(c, i, why, size);
    return !why[0];
}

/* ---- members ---- */

static const char *const variants[] = { "qxx", "qxv", "qkv", "qxx_np", NULL };
static const char *const scales[] = { "dynamic", "fixed", NULL };

#define AT(member) offsetof(tp_vit_lsla_cfg, member)
static const tp_model_member members[] = {
    { "image", TP_MEMBER_SIDES, .at = AT(image), .common = TP_COMMON_IMAGE },
    { "depths", TP_MEMBER_INTS, .at = AT(depths), .count = TP_VIT_MAX_STAGES,
      .length = AT(stages) },
    { "heads", TP_MEMBER_INTS, .at = AT(heads), .count = TP_VIT_MAX_STAGES, .length = AT(stages) },
    { "classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS },
    { "dim", TP_MEMBER_INT64, .at = AT(dim) },
    { "window", TP_MEMBER_INT64, .at = AT(window) },
    { "mlp_ratio", TP_MEMBER_REAL, .at = AT(mlp_ratio) },
    { "drop_path", TP_MEMBER_REAL, .at = AT(drop_path), .common = TP_COMMON_DROP_PATH },
    { "variant", TP_MEMBER_WORD, .at = AT(attn.variant), .words = variants },
    { "scale", TP_MEMBER_CHOICE, .at = AT(attn.fixed_scale), .words = scales },
    { "inner", TP_MEMBER_NOT, .at = AT(attn.raw_scores) },
    { "outer", TP_MEMBER_NOT, .at = AT(attn.raw_weights) },
    { "mask_outer", TP_MEMBER_FLAG, .at = AT(attn.mask_outer) },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};

/* ---- the model ---- */

static bool model_check(const void *cfg, char *why, size_t size)
{
    return tp_vit_lsla_cfg_check(cfg, why, size);
}

static void model_init(tp_params *P, void *m, const char *name, const void *cfg)
{
    tp_vit_lsla_init(P, m, name, *(const tp_vit_lsla_cfg *)cfg);
}

static tp_tensor model_forward(tp_tape *T, const void *m, void *state, tp_tensor x)
{
    (void)state;
    return tp_vit_lsla_forward(T, m, x);
}

/* Windows may differ, since loading resizes their tables. */
static bool model_same(const void *one, const void *other)
{
    const tp_vit_lsla_cfg *a = one, *b = other;
    return a->dim == b->dim && a->stages == b->stages &&
           memcmp(a->depths, b->depths, sizeof a->depths) == 0 &&
           memcmp(a->heads, b->heads, sizeof a->heads) == 0 && a->attn.variant == b->attn.variant;
}

static bool model_load(tp_params *P, const void *m, tp_file *F)
{
    (void)m;
    return tp__vit_lsla_load(P, F);
}

const tp_model tp_model_vit_lsla = {
    .name = "vit-lsla",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_vit_lsla_cfg),
    .size = sizeof(tp_vit_lsla),
    .preset = model_preset,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .same = model_same,
    .load = model_load,
    .resizes = "tables of positions and scales are resized where windows differ",
    .resizes_to = tp__vit_lsla_resizes,
    .head = "head.weight",
};
