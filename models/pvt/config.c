/* config.c - presets, checks and members of PVT and PVTv2. */
#include <stdio.h>

#include "inner.h"

#define STAGES TP_PVT_STAGES
enum {
    MAX_SIZE = 1 << 20,
    MAX_SIDE = 1 << 16,
    MAX_RATIO = 64,
    MAX_REDUCTION = 256
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
    .cfg = &(const tp_pvt_cfg){ .kind = which, .image = { side, side }, .classes = 1000, __VA_ARGS__ }
const tp_model_row tp__pvt_presets[] = {
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
/* clang-format on */

/* ---- checks ---- */

static void check_stage(const tp_pvt_cfg *c, int s, char *why, size_t size)
{
    const long long D = (long long)c->dim[s], R = (long long)c->reduction[s];
    const bool alone = c->kind == TP_PVT && s == STAGES - 1 && c->classes > 0;
    if (!tp__in_range(D, 1, MAX_SIZE))
        snprintf(why, size, "the width of stage %d is %lld, not 1 to %d", s, D, MAX_SIZE);
    else if (c->heads[s] < 1 || D % c->heads[s])
        snprintf(why, size, "the width %lld of stage %d does not divide into %d heads", D, s,
                 c->heads[s]);
    else if (!tp__in_range(c->blocks[s], 1, TP_PVT_MAX_BLOCKS))
        snprintf(why, size, "stage %d has %d blocks, not 1 to %d", s, c->blocks[s],
                 TP_PVT_MAX_BLOCKS);
    else if (!tp__in_range(c->mlp_ratio[s], 1, MAX_RATIO))
        snprintf(why, size,
                 "the feed-forward networks of stage %d are %lld times as wide, "
                 "not 1 to %d times",
                 s, (long long)c->mlp_ratio[s], MAX_RATIO);
    else if (!tp__in_range(R, 1, MAX_REDUCTION))
        snprintf(why, size, "the reduction of stage %d is %lld, not 1 to %d", s, R, MAX_REDUCTION);
    else if (c->kind == TP_PVT2_LINEAR && R > 1)
        snprintf(why, size, "stage %d has the reduction %lld, but a model that pools has none", s,
                 R);
    else if (alone && R > 1)
        snprintf(why, size, "the last stage has a class token and the reduction %lld, not 1", R);
}

/* A table of positions has rows. */
static void check_map(const tp_pvt_cfg *c, char *why, size_t size)
{
    int64_t map[2] = { c->image[0], c->image[1] };
    for (int s = 0; s < STAGES; s++) {
        tp__pvt_shrink(c, s, map);
        if (!why[0] && (map[0] < c->reduction[s] || map[1] < c->reduction[s]))
            snprintf(why, size,
                     "images of %lld x %lld pixels give stage %d a map of %lld x "
                     "%lld, below %lld",
                     (long long)c->image[0], (long long)c->image[1], s, (long long)map[0],
                     (long long)map[1], (long long)c->reduction[s]);
    }
}

bool tp_pvt_cfg_check(const tp_pvt_cfg *c, char *why, size_t size)
{
    if (!c) {
        if (why) snprintf(why, size, "pvt_cfg_check: NULL was given in place of a configuration");
        return false;
    }
    int blocks = 0;
    why[0] = '\0';
    if (c->kind < TP_PVT || c->kind > TP_PVT2_LINEAR)
        snprintf(why, size, "there is no kind %d of PVT", (int)c->kind);
    for (int s = 0; s < STAGES && !why[0]; s++) {
        check_stage(c, s, why, size);
        blocks += why[0] ? 0 : c->blocks[s];
    }
    if (why[0]) return false;
    if (blocks > TP_PVT_MAX_BLOCKS)
        snprintf(why, size, "the model has %d blocks, not at most %d", blocks, TP_PVT_MAX_BLOCKS);
    else if (!tp__in_range(c->classes, 0, MAX_SIZE))
        snprintf(why, size, "there are %lld classes, not 0 to %d", (long long)c->classes, MAX_SIZE);
    else if (c->kind == TP_PVT2_LINEAR ? !tp__in_range(c->pool, 1, 1 << 10) : c->pool != 0)
        snprintf(why, size, "the map for keys and values is pooled to a side of %lld",
                 (long long)c->pool);
    else if (!tp__in_range(c->image[0], 1, MAX_SIDE) || !tp__in_range(c->image[1], 1, MAX_SIDE))
        snprintf(why, size, "images are %lld x %lld pixels: sides must be 1 to %d",
                 (long long)c->image[0], (long long)c->image[1], MAX_SIDE);
    else if (!tp__is_rate(c->drop_path))
        snprintf(why, size, "drop path must be in [0,1), not %g", c->drop_path);
    else
        check_map(c, why, size);
    return !why[0];
}

/* A model of the table is a classifier. */
bool tp__pvt_check(const void *cfg, char *why, size_t size)
{
    const tp_pvt_cfg *c = cfg;
    if (c->classes != 0) return tp_pvt_cfg_check(c, why, size);
    snprintf(why, size, "there are no classes");
    return false;
}

/* ---- members: keys as in the reference cases; lists have one value per stage ---- */

static const char *const kinds[] = { "pvt", "pvt2", "pvt2-linear", NULL };

#define AT(member) offsetof(tp_pvt_cfg, member)
const tp_model_member tp__pvt_members[] = {
    { "pvt_kind", TP_MEMBER_WORD, .at = AT(kind), .words = kinds },
    { "image", TP_MEMBER_SIDES, .at = AT(image), .common = TP_COMMON_IMAGE },
    { "num_classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS },
    { "dims", TP_MEMBER_INT64S, .at = AT(dim), .count = STAGES },
    { "heads", TP_MEMBER_INTS, .at = AT(heads), .count = STAGES },
    { "depths", TP_MEMBER_INTS, .at = AT(blocks), .count = STAGES },
    { "sr_ratios", TP_MEMBER_INT64S, .at = AT(reduction), .count = STAGES },
    { "mlp_ratios", TP_MEMBER_INT64S, .at = AT(mlp_ratio), .count = STAGES },
    { "pool_size", TP_MEMBER_INT64, .at = AT(pool) },
    { "drop_path", TP_MEMBER_REAL, .at = AT(drop_path), .common = TP_COMMON_DROP_PATH },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};
