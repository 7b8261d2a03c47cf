/* config.c - presets, checks and members of ViT-LSLA. */
#include <stdio.h>

#include "inner.h"

/* MAX_WIDTH also limits classes, so that products fit. */
enum { MAX_SIDE = 1 << 16, MAX_WINDOW = 128, MAX_WIDTH = 1 << 24 };

enum { IP102 = 102, FOOD101 = 101, MINI_IMAGENET = 100 }; /* classes of the paper's data sets */

/* Tables 1, 4 and 5 of the paper, then small ones for images of 64 x 64. lsla-mini has as many parameters as the
 * small models of other families. With MAX_WINDOW the window is the whole map for images up to 512 x 512: full
 * attention with a relative bias. */
/* clang-format off */
#define PAPER(labels, ...) \
    .norm_cost = 5, \
    .cfg = &(const tp_vit_lsla_cfg){ .image = { 224, 224 }, .classes = labels, .dim = 96, .stages = 4, \
                                     .depths = { 2, 4, 8, 2 }, .heads = { 3, 6, 12, 24 }, .window = 7, \
                                     .mlp_ratio = 2.0, .drop_path = 0.2, .attn = { __VA_ARGS__ } }
#define SMALL(w, a, b, c, ...) \
    .norm_cost = 5, \
    .cfg = &(const tp_vit_lsla_cfg){ .image = { 64, 64 }, .classes = 1000, .dim = 64, .stages = 3, \
                                     .depths = { a, b, c }, .heads = { 2, 4, 8 }, .window = w, .mlp_ratio = 2.0, \
                                     .attn = { __VA_ARGS__ } }
const tp_model_row tp__vit_lsla_presets[] = {
    { "vit_lsla-ip102", "ViT-LSLA", .also = "vit_lsla vit-lsla ViT-LSLA", .params = 18.9e6, .flops = 3.5e9,
      PAPER(IP102, 0) },
    { "vit_lsla-food101", "ViT-LSLA", .params = 18.9e6, .flops = 3.5e9, PAPER(FOOD101, 0) },
    { "vit_lsla-mini", "ViT-LSLA", .params = 18.9e6, .flops = 3.5e9, PAPER(MINI_IMAGENET, 0) },
    { "vit_lsla-qxx_np", "ViT-LSLA", .params = 16.4e6, .flops = 3.1e9, PAPER(IP102, .variant = TP_LSLA_QXX_NP) },
    { "vit_lsla-qxv", "ViT-LSLA", .params = 18.9e6, .flops = 3.5e9, PAPER(IP102, .variant = TP_LSLA_QXV) },
    { "vit_lsla-qkv", "ViT-LSLA", .params = 24.0e6, .flops = 4.4e9, PAPER(IP102, .variant = TP_LSLA_QKV) },
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
      SMALL(MAX_WINDOW, 2, 2, 1, .variant = TP_LSLA_QKV, .fixed_scale = true, .raw_weights = true) },
    { 0 },
};
/* clang-format on */

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

bool tp__vit_lsla_check(const void *cfg, char *why, size_t size)
{
    const tp_vit_lsla_cfg *c = cfg;
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
const tp_model_member tp__vit_lsla_members[] = {
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
