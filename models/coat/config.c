/* config.c - presets, checks and members of CoaT-Lite. */
#include <stdio.h>

#include "inner.h"

/* MAX_WIDTH also limits classes, so that products fit. */
enum {
    MAX_SIDE = 1 << 16,
    MAX_WIDTH = 1 << 20,
    MAX_CLASSES = 1 << 24,
    MAX_KERNEL = 31,
    MAX_RATIO = 64
};

/* Tables 1 and 2 of the paper, Table 1 of ViT-LSLA for 102 classes, then a small one for images of 64 x 64, which is
 * not the paper's CoaT Mini. */
/* clang-format off */
#define FOUR(a, b, c, d) { a, b, c, d }
#define CFG(side, widths, blocks) \
    .cfg = &(const tp_coat_cfg){ .image = { side, side }, .classes = 1000, .dim = widths, .depths = blocks, \
                                 .mlp_ratio = { 8, 8, 4, 4 }, .heads = 8, .kernels = TP_COAT_PUBLISHED }
const tp_model_row tp__coat_presets[] = {
    { "coat_lite-tiny", "CoaT-Lite", .also = "coat_lite_tiny coat-lite-tiny CoaT-Lite-Tiny",
      .params = 5.7e6, .flops = 1.6e9, .norm_cost = 5, CFG(224, FOUR(64, 128, 256, 320), FOUR(2, 2, 2, 2)) },
    { "coat_lite-mini", "CoaT-Lite", .also = "coat_lite_mini coat-lite-mini CoaT-Lite-Mini",
      .params = 11e6, .flops = 2.0e9, .norm_cost = 5, CFG(224, FOUR(64, 128, 320, 512), FOUR(2, 2, 2, 2)) },
    { "coat_lite-small", "CoaT-Lite", .also = "coat_lite_small coat-lite-small CoaT-Lite-Small",
      .params = 20e6, .flops = 4.0e9, .norm_cost = 5, CFG(224, FOUR(64, 128, 320, 512), FOUR(3, 4, 6, 3)) },
    { "coat_lite-small-ip102", "CoaT-Lite", .params = 19.4e6, .flops = 4.0e9, .norm_cost = 5 },
    { "coat-mini", "CoaT-Lite", .norm_cost = 5, CFG(64, FOUR(32, 64, 160, 256), FOUR(2, 2, 3, 1)) },
    { 0 },
};
/* clang-format on */

/* ---- checks ---- */

bool tp__coat_kernels(const tp_coat_kernels *k, int heads, char *why, size_t size)
{
    int covered = 0;
    why[0] = '\0';
    if (!tp__in_range(k->n, 1, TP_COAT_KERNELS)) {
        snprintf(why, size, "there are %d kernels of relative positions, not 1 to %d", k->n,
                 TP_COAT_KERNELS);
        return false;
    }
    for (int i = 0; i < k->n && !why[0]; i++) {
        if (!tp__in_range(k->kernel[i], 1, MAX_KERNEL) || k->kernel[i] % 2 == 0)
            snprintf(why, size, "a kernel of relative positions is %d, not an odd number up to %d",
                     k->kernel[i], MAX_KERNEL);
        else if (!tp__in_range(k->heads[i], 1, MAX_WIDTH))
            snprintf(why, size, "the kernel %d is for %d heads", k->kernel[i], k->heads[i]);
        covered += k->heads[i];
    }
    if (!why[0] && covered != heads)
        snprintf(why, size, "the kernels of relative positions are for %d heads, not %d", covered,
                 heads);
    return !why[0];
}

static void check_sizes(const tp_coat_cfg *c, char *buf, size_t size)
{
    if (!tp__in_range(c->image[0], 32, MAX_SIDE) || !tp__in_range(c->image[1], 32, MAX_SIDE) ||
        c->image[0] % 32 || c->image[1] % 32)
        snprintf(buf, size, "images are %lld x %lld pixels: sides must be multiples of 32 up to %d",
                 (long long)c->image[0], (long long)c->image[1], MAX_SIDE);
    else if (!tp__in_range(c->classes, 1, MAX_CLASSES))
        snprintf(buf, size, "there are %lld classes, not 1 to %d", (long long)c->classes,
                 MAX_CLASSES);
    else if (!tp__in_range(c->heads, 1, MAX_WIDTH))
        snprintf(buf, size, "there are %d heads, not 1 to %d", c->heads, MAX_WIDTH);
    else if (!tp__is_rate(c->drop_path))
        snprintf(buf, size, "drop_path must be in [0,1), not %g", c->drop_path);
    else
        tp__coat_kernels(&c->kernels, c->heads, buf, size);
}

static void check_stage(const tp_coat_cfg *c, int s, char *buf, size_t size)
{
    int blocks = 0;
    for (int i = 0; i < TP_COAT_STAGES; i++)
        blocks += tp__in_range(c->depths[i], 1, TP_COAT_MAX_BLOCKS) ? c->depths[i] : 0;
    if (!tp__in_range(c->depths[s], 1, TP_COAT_MAX_BLOCKS) || blocks > TP_COAT_MAX_BLOCKS)
        snprintf(buf, size,
                 "stage %d has %d blocks: it needs at least 1, all stages together at most %d", s,
                 c->depths[s], TP_COAT_MAX_BLOCKS);
    else if (!tp__in_range(c->dim[s], 1, MAX_WIDTH) || c->dim[s] % c->heads)
        snprintf(buf, size, "stage %d: the width %lld, up to %d, does not divide into %d heads", s,
                 (long long)c->dim[s], MAX_WIDTH, c->heads);
    else if (!tp__in_range(c->mlp_ratio[s], 1, MAX_RATIO))
        snprintf(buf, size, "stage %d: the MLP ratio is %d, not 1 to %d", s, c->mlp_ratio[s],
                 MAX_RATIO);
}

bool tp__coat_check(const void *cfg, char *why, size_t size)
{
    const tp_coat_cfg *c = cfg;
    why[0] = '\0';
    check_sizes(c, why, size);
    for (int s = 0; s < TP_COAT_STAGES && !why[0]; s++) check_stage(c, s, why, size);
    return !why[0];
}

/* ---- members ---- */

#define AT(member) offsetof(tp_coat_cfg, member)
const tp_model_member tp__coat_members[] = {
    { "image", TP_MEMBER_SIDES, .at = AT(image), .common = TP_COMMON_IMAGE },
    { "dims", TP_MEMBER_INT64S, .at = AT(dim), .count = TP_COAT_STAGES },
    { "depths", TP_MEMBER_INTS, .at = AT(depths), .count = TP_COAT_STAGES },
    { "mlp_ratios", TP_MEMBER_INTS, .at = AT(mlp_ratio), .count = TP_COAT_STAGES },
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
