/* config.c - presets, checks and members of Swin. */
#include <stdio.h>

#include "inner.h"

/* MAX_WIDTH also limits classes, so that products fit. */
enum { MAX_SIDE = 1 << 16, MAX_WINDOW = 128, MAX_WIDTH = 1 << 24 };

/* Tables 1 and 7 of the paper, Table 1 of ViT-LSLA for 102 classes, then a small one for images of 64 x 64. */
/* clang-format off */
#define CFG(side, w, width, n, ratio, rate, ...) \
    .cfg = &(const tp_swin_cfg){ .image = { side, side }, .classes = 1000, .dim = width, .stages = n, __VA_ARGS__, \
                                 .window = w, .mlp_ratio = ratio, .drop_path = rate }
#define DEPTHS(...) .depths = { __VA_ARGS__ }
#define HEADS(...)  .heads = { __VA_ARGS__ }
const tp_model_row tp__swin_presets[] = {
    { "swin-t", "Swin", .also = "swin-tiny swin_t Swin-T", .params = 28e6, .flops = 4.5e9, .norm_cost = 5,
      CFG(224, 7, 96, 4, 4, 0.2, DEPTHS(2, 2, 6, 2), HEADS(3, 6, 12, 24)) },
    { "swin-s", "Swin", .also = "swin-small swin_s Swin-S", .params = 50e6, .flops = 8.7e9, .norm_cost = 5,
      CFG(224, 7, 96, 4, 4, 0.3, DEPTHS(2, 2, 18, 2), HEADS(3, 6, 12, 24)) },
    { "swin-b", "Swin", .also = "swin-base swin_b Swin-B", .params = 88e6, .flops = 15.4e9, .norm_cost = 5,
      CFG(224, 7, 128, 4, 4, 0.5, DEPTHS(2, 2, 18, 2), HEADS(4, 8, 16, 32)) },
    { "swin-b-384", "Swin", .params = 88e6, .flops = 47.0e9, .norm_cost = 5,
      CFG(384, 12, 128, 4, 4, 0.5, DEPTHS(2, 2, 18, 2), HEADS(4, 8, 16, 32)) },
    { "swin-t-ip102", "Swin", .params = 27.6e6, .flops = 4.5e9, .norm_cost = 5 },
    { "swin-mini", "Swin", .norm_cost = 5,
      CFG(64, 4, 64, 3, 3, 0.1, DEPTHS(2, 2, 2), HEADS(2, 4, 8)) },
    { 0 },
};
/* clang-format on */

/* ---- checks ---- */

static void check_sizes(const tp_swin_cfg *c, char *buf, size_t size)
{
    if (!tp__in_range(c->image[0], 4, MAX_SIDE) || !tp__in_range(c->image[1], 4, MAX_SIDE) ||
        c->image[0] % 4 || c->image[1] % 4)
        snprintf(buf, size, "images are %lld x %lld pixels: sides must be multiples of 4 up to %d",
                 (long long)c->image[0], (long long)c->image[1], MAX_SIDE);
    else if (!tp__in_range(c->stages, 1, TP_SWIN_MAX_STAGES))
        snprintf(buf, size, "the model has %d stages, not 1 to %d", c->stages, TP_SWIN_MAX_STAGES);
    else if (!tp__in_range(c->dim, 1, MAX_WIDTH >> c->stages))
        snprintf(buf, size, "the width is %lld, not 1 to %d", (long long)c->dim,
                 MAX_WIDTH >> c->stages);
    else if (!tp__in_range(c->classes, 1, MAX_WIDTH))
        snprintf(buf, size, "there are %lld classes, not 1 to %d", (long long)c->classes,
                 MAX_WIDTH);
    else if (!tp__in_range(c->window, 1, MAX_WINDOW))
        snprintf(buf, size, "the window is %lld, not 1 to %d", (long long)c->window, MAX_WINDOW);
    else if (!tp__is_rate(c->drop_path))
        snprintf(buf, size, "drop_path must be in [0,1), not %g", c->drop_path);
}

static void check_stage(const tp_swin_cfg *c, int i, char *buf, size_t size)
{
    const tp_swin_stage s = tp__swin_stage(c, i);
    const long long H = s.map[0], W = s.map[1];
    if (!tp__in_range(c->depths[i], 1, TP_SWIN_MAX_BLOCKS) ||
        tp__swin_blocks(c) > TP_SWIN_MAX_BLOCKS)
        snprintf(buf, size,
                 "stage %d has %d blocks: it needs at least 1, all stages together at most %d", i,
                 c->depths[i], TP_SWIN_MAX_BLOCKS);
    else if (c->heads[i] < 1 || s.dim % c->heads[i])
        snprintf(buf, size, "stage %d: the width %lld does not divide into %d heads", i,
                 (long long)s.dim, c->heads[i]);
    else if (!tp__is_ratio(c->mlp_ratio, s.dim, MAX_WIDTH))
        snprintf(buf, size, "stage %d: an MLP ratio of %g gives a hidden width of %g", i,
                 c->mlp_ratio, c->mlp_ratio * (double)s.dim);
    else if (s.window < 1 || H % s.window || W % s.window)
        snprintf(buf, size,
                 "stage %d: a map of %lld x %lld does not divide into windows of %lld: choose "
                 "another image size or window",
                 i, H, W, (long long)s.window);
    else if (i + 1 < c->stages && (H % 2 || W % 2))
        snprintf(buf, size,
                 "stage %d: a map of %lld x %lld does not divide into cells of 2 x 2: choose "
                 "another image size",
                 i, H, W);
}

bool tp__swin_check(const void *cfg, char *why, size_t size)
{
    const tp_swin_cfg *c = cfg;
    why[0] = '\0';
    check_sizes(c, why, size);
    if (why[0]) return false;
    for (int i = 0; i < c->stages && !why[0]; i++) check_stage(c, i, why, size);
    return !why[0];
}

/* ---- members ---- */

#define AT(member) offsetof(tp_swin_cfg, member)
const tp_model_member tp__swin_members[] = {
    { "image", TP_MEMBER_SIDES, .at = AT(image), .common = TP_COMMON_IMAGE },
    { "depths", TP_MEMBER_INTS, .at = AT(depths), .count = TP_SWIN_MAX_STAGES,
      .length = AT(stages) },
    { "heads", TP_MEMBER_INTS, .at = AT(heads), .count = TP_SWIN_MAX_STAGES, .length = AT(stages) },
    { "classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS },
    { "dim", TP_MEMBER_INT64, .at = AT(dim) },
    { "window", TP_MEMBER_INT64, .at = AT(window) },
    { "mlp_ratio", TP_MEMBER_REAL, .at = AT(mlp_ratio) },
    { "drop_path", TP_MEMBER_REAL, .at = AT(drop_path), .common = TP_COMMON_DROP_PATH },
    { "ape", TP_MEMBER_FLAG, .at = AT(ape) },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};
