/* config.c - presets, checks and members of CSWin. */
#include <stdio.h>

#include "inner.h"

/* MAX_WIDTH also limits classes, so that products fit. */
enum { MAX_SIDE = 1 << 16, MAX_WIDTH = 1 << 24 };

/* Tables 1 and 2 of the paper, Table 1 of ViT-LSLA for 102 classes, then a small one for images of 64 x 64. */
/* clang-format off */
#define FOUR(a, b, c, d) { a, b, c, d }
#define CFG(side, width, rate, d, h, s) \
    .cfg = &(const tp_cswin_cfg){ .image = { side, side }, .classes = 1000, .dim = width, .mlp_ratio = 4, \
                                  .depths = d, .heads = h, .split = s, .drop_path = rate }
const tp_model_row tp__cswin_presets[] = {
    { "cswin-t", "CSWin", .also = "cswin-tiny cswin_t CSWin-T", .params = 23e6, .flops = 4.3e9, .norm_cost = 5,
      CFG(224, 64, 0.2, FOUR(1, 2, 21, 1), FOUR(2, 4, 8, 16), FOUR(1, 2, 7, 7)) },
    { "cswin-s", "CSWin", .also = "cswin-small cswin_s CSWin-S", .params = 35e6, .flops = 6.9e9, .norm_cost = 5,
      CFG(224, 64, 0.4, FOUR(2, 4, 32, 2), FOUR(2, 4, 8, 16), FOUR(1, 2, 7, 7)) },
    { "cswin-b", "CSWin", .also = "cswin-base cswin_b CSWin-B", .params = 78e6, .flops = 15.0e9, .norm_cost = 5,
      CFG(224, 96, 0.5, FOUR(2, 4, 32, 2), FOUR(4, 8, 16, 32), FOUR(1, 2, 7, 7)) },
    { "cswin-b-384", "CSWin", .params = 78e6, .flops = 47.0e9, .norm_cost = 5,
      CFG(384, 96, 0.5, FOUR(2, 4, 32, 2), FOUR(4, 8, 16, 32), FOUR(1, 2, 12, 12)) },
    { "cswin-t-ip102", "CSWin", .params = 21.9e6, .flops = 4.3e9, .norm_cost = 5 },
    { "cswin-mini", "CSWin", .norm_cost = 5,
      CFG(64, 32, 0.1, FOUR(1, 2, 4, 1), FOUR(2, 2, 4, 8), FOUR(1, 2, 2, 2)) },
    { 0 },
};
/* clang-format on */

/* ---- checks ---- */

static void check_sizes(const tp_cswin_cfg *c, char *buf, size_t size)
{
    if (!tp__in_range(c->image[0], 3, MAX_SIDE) || c->image[0] != c->image[1])
        snprintf(buf, size, "images are %lld x %lld pixels: they must be squares of 3 to %d",
                 (long long)c->image[0], (long long)c->image[1], MAX_SIDE);
    else if (!tp__in_range(c->dim, 2, MAX_WIDTH >> TP_CSWIN_STAGES) || c->dim % 2)
        snprintf(buf, size, "the width %lld is not even and between 2 and %d", (long long)c->dim,
                 MAX_WIDTH >> TP_CSWIN_STAGES);
    else if (!tp__in_range(c->classes, 1, MAX_WIDTH))
        snprintf(buf, size, "there are %lld classes, not 1 to %d", (long long)c->classes,
                 MAX_WIDTH);
    else if (!tp__is_ratio(c->mlp_ratio, c->dim, MAX_WIDTH >> TP_CSWIN_STAGES))
        snprintf(buf, size, "an MLP ratio of %g gives a hidden width of %g", c->mlp_ratio,
                 c->mlp_ratio * (double)c->dim);
    else if (!tp__is_rate(c->drop_path))
        snprintf(buf, size, "drop_path must be in [0,1), not %g", c->drop_path);
}

static void check_stage(const tp_cswin_cfg *c, int i, char *buf, size_t size)
{
    const tp_cswin_stage s = tp__cswin_stage(c, i);
    if (!tp__in_range(c->depths[i], 1, TP_CSWIN_MAX_BLOCKS) ||
        tp__cswin_blocks(c) > TP_CSWIN_MAX_BLOCKS)
        snprintf(buf, size,
                 "stage %d has %d blocks: it needs at least 1, all stages together at most %d", i,
                 c->depths[i], TP_CSWIN_MAX_BLOCKS);
    else if (c->heads[i] < 1 || s.dim % c->heads[i] || c->heads[i] % s.branches)
        snprintf(buf, size, "stage %d: the width %lld does not divide into %d heads in %d %s", i,
                 (long long)s.dim, c->heads[i], s.branches,
                 s.branches == 1 ? "branch" : "branches");
    else if (!tp__in_range(c->split[i], 1, MAX_SIDE))
        snprintf(buf, size, "stage %d: stripes of %lld, not 1 to %d", i, (long long)c->split[i],
                 MAX_SIDE);
    else if (s.branches == 2 && s.side % c->split[i])
        snprintf(buf, size,
                 "stage %d: a map of %lld x %lld does not divide into stripes of %lld: choose "
                 "another image size or split",
                 i, (long long)s.side, (long long)s.side, (long long)c->split[i]);
}

bool tp__cswin_check(const void *cfg, char *why, size_t size)
{
    const tp_cswin_cfg *c = cfg;
    why[0] = '\0';
    check_sizes(c, why, size);
    if (why[0]) return false;
    for (int i = 0; i < TP_CSWIN_STAGES && !why[0]; i++) check_stage(c, i, why, size);
    return !why[0];
}

/* ---- members ---- */

#define AT(member) offsetof(tp_cswin_cfg, member)
const tp_model_member tp__cswin_members[] = {
    { "image", TP_MEMBER_SIDES, .at = AT(image), .common = TP_COMMON_IMAGE },
    { "depths", TP_MEMBER_INTS, .at = AT(depths), .count = TP_CSWIN_STAGES },
    { "heads", TP_MEMBER_INTS, .at = AT(heads), .count = TP_CSWIN_STAGES },
    { "split", TP_MEMBER_INT64S, .at = AT(split), .count = TP_CSWIN_STAGES },
    { "classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS },
    { "dim", TP_MEMBER_INT64, .at = AT(dim) },
    { "mlp_ratio", TP_MEMBER_REAL, .at = AT(mlp_ratio) },
    { "drop_path", TP_MEMBER_REAL, .at = AT(drop_path), .common = TP_COMMON_DROP_PATH },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};
