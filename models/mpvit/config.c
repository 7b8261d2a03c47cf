/* config.c - presets, checks and members of MPViT. */
#include <stdio.h>

#include "coat/inner.h"
#include "inner.h"

/* MAX_WIDTH also limits classes, so that products fit. */
enum { MAX_SIDE = 1 << 16, MAX_WIDTH = 1 << 20, MAX_CLASSES = 1 << 24, MAX_RATIO = 64 };

/* Table 1 of the paper, Table 1 of ViT-LSLA for 102 classes, then a small one for images of 64 x 64. */
/* clang-format off */
#define FOUR(a, b, c, d) { a, b, c, d }
#define CFG(side, widths, depths, r, rate) \
    .cfg = &(const tp_mpvit_cfg){ .image = { side, side }, .classes = 1000, .dim = widths, .paths = { 2, 3, 3, 3 }, \
                                  .layers = depths, .mlp_ratio = { r, r, r, r }, .heads = 8, \
                                  .kernels = TP_COAT_PUBLISHED, .drop_path = rate }
const tp_model_row tp__mpvit_presets[] = {
    { "mpvit-t", "MPViT", .also = "mpvit-tiny mpvit_t MPViT-T", .params = 5.8e6, .flops = 1.6e9, .norm_cost = 5,
      CFG(224, FOUR(64, 96, 176, 216), FOUR(1, 2, 4, 1), 2, 0) },
    { "mpvit-xs", "MPViT", .also = "mpvit-xsmall mpvit_xs MPViT-XS", .params = 10.5e6, .flops = 2.9e9, .norm_cost = 5,
      CFG(224, FOUR(64, 128, 192, 256), FOUR(1, 2, 4, 1), 4, 0) },
    { "mpvit-s", "MPViT", .also = "mpvit-small mpvit_s MPViT-S", .params = 22.8e6, .flops = 4.7e9, .norm_cost = 5,
      CFG(224, FOUR(64, 128, 216, 288), FOUR(1, 3, 6, 3), 4, 0.05) },
    { "mpvit-b", "MPViT", .also = "mpvit-base mpvit_b MPViT-B", .params = 74.8e6, .flops = 16.4e9, .norm_cost = 5,
      CFG(224, FOUR(128, 224, 368, 480), FOUR(1, 3, 8, 3), 4, 0.3) },
    { "mpvit-s-ip102", "MPViT", .params = 22.6e6, .flops = 4.8e9, .norm_cost = 5 },
    { "mpvit-mini", "MPViT", .norm_cost = 5,
      CFG(64, FOUR(32, 64, 112, 160), FOUR(1, 2, 2, 1), 3, 0.05) },
    { 0 },
};
/* clang-format on */

/* ---- checks ---- */

static void check_sizes(const tp_mpvit_cfg *c, char *buf, size_t size)
{
    if (!tp__in_range(c->image[0], 1, MAX_SIDE) || !tp__in_range(c->image[1], 1, MAX_SIDE))
        snprintf(buf, size, "images are %lld x %lld pixels: sides must be 1 to %d",
                 (long long)c->image[0], (long long)c->image[1], MAX_SIDE);
    else if (!tp__in_range(c->classes, 1, MAX_CLASSES))
        snprintf(buf, size, "there are %lld classes, not 1 to %d", (long long)c->classes,
                 MAX_CLASSES);
    else if (!tp__in_range(c->heads, 1, MAX_WIDTH))
        snprintf(buf, size, "there are %d heads, not 1 to %d", c->heads, MAX_WIDTH);
    else if (!tp__is_rate(c->drop_path))
        snprintf(buf, size, "drop_path must be in [0,1), not %g", c->drop_path);
    else if (c->dim[0] % 2)
        snprintf(buf, size, "the width %lld of stage 0 is odd: the stem needs half of it",
                 (long long)c->dim[0]);
    else
        tp__coat_kernels(&c->kernels, c->heads, buf, size);
}

static void check_stage(const tp_mpvit_cfg *c, int s, char *buf, size_t size)
{
    if (!tp__in_range(c->paths[s], 1, TP_MPVIT_PATHS))
        snprintf(buf, size, "stage %d has %d paths, not 1 to %d", s, c->paths[s], TP_MPVIT_PATHS);
    else if (!tp__in_range(c->layers[s], 1, TP_MPVIT_MAX_LAYERS))
        snprintf(buf, size, "stage %d has %d layers, not 1 to %d", s, c->layers[s],
                 TP_MPVIT_MAX_LAYERS);
    else if (!tp__in_range(c->dim[s], 1, MAX_WIDTH) || c->dim[s] % c->heads)
        snprintf(buf, size, "stage %d: the width %lld, up to %d, does not divide into %d heads", s,
                 (long long)c->dim[s], MAX_WIDTH, c->heads);
    else if (!tp__in_range(c->mlp_ratio[s], 1, MAX_RATIO))
        snprintf(buf, size, "stage %d: the MLP ratio is %d, not 1 to %d", s, c->mlp_ratio[s],
                 MAX_RATIO);
}

bool tp__mpvit_check(const void *cfg, char *why, size_t size)
{
    const tp_mpvit_cfg *c = cfg;
    why[0] = '\0';
    check_sizes(c, why, size);
    for (int s = 0; s < TP_MPVIT_STAGES && !why[0]; s++) check_stage(c, s, why, size);
    return !why[0];
}

/* ---- members ---- */

#define AT(member) offsetof(tp_mpvit_cfg, member)
const tp_model_member tp__mpvit_members[] = {
    { "image", TP_MEMBER_SIDES, .at = AT(image), .common = TP_COMMON_IMAGE },
    { "dims", TP_MEMBER_INT64S, .at = AT(dim), .count = TP_MPVIT_STAGES },
    { "paths", TP_MEMBER_INTS, .at = AT(paths), .count = TP_MPVIT_STAGES },
    { "layers", TP_MEMBER_INTS, .at = AT(layers), .count = TP_MPVIT_STAGES },
    { "mlp_ratios", TP_MEMBER_INTS, .at = AT(mlp_ratio), .count = TP_MPVIT_STAGES },
    { "heads", TP_MEMBER_INT, .at = AT(heads) },
    { "kernels", TP_MEMBER_INTS, .at = AT(kernels.kernel), .count = TP_COAT_KERNELS,
      .length = AT(kernels.n) },
    { "kernel_heads", TP_MEMBER_INTS, .at = AT(kernels.heads), .count = TP_COAT_KERNELS,
      .length = AT(kernels.n) },
    { "classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS },
    { "drop_path", TP_MEMBER_REAL, .at = AT(drop_path), .common = TP_COMMON_DROP_PATH },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};
