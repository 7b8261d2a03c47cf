/* config.c - presets, checks and members of ViT and DeiT. */
#include <stdio.h>

#include "inner.h"

enum { MAX_SIZE = 1 << 20, MAX_SIDE = 1 << 16, MAX_RATIO = 64 }; /* so that products fit */

/* ---- presets ---- */

/* The image baselines of the papers, then small ones. */
/* clang-format off */
#define CFG(side, p, width, h, n, dist) \
    .cfg = &(const tp_vit_cfg){ .image = { side, side }, .classes = 1000, .patch = p, .dim = width, .heads = h, \
                                .blocks = n, .mlp_ratio = 4, .distilled = dist }
const tp_model_row tp__vit_presets[] = {
    { "deit-t", "DeiT", .also = "deit-tiny deit_t DeiT-T DeiT-T/16", .params = 5.7e6, .flops = 1.3e9,
      CFG(224, 16, 192, 3, 12, false) },
    { "deit-s", "DeiT", .also = "deit-small deit_s DeiT-S DeiT-S/16", .params = 22.1e6, .flops = 4.6e9,
      CFG(224, 16, 384, 6, 12, false) },
    { "deit-b", "DeiT", .also = "deit-base deit_b DeiT-B DeiT-B/16", .params = 86.6e6, .flops = 17.6e9,
      CFG(224, 16, 768, 12, 12, false) },
    { "deit-b-384", "DeiT", .also = "deit-base-384", .params = 86.9e6, .flops = 55.5e9 },
    { "deit-t-distilled", "DeiT", .also = "deit-tiny-distilled deit_t_distilled DeiT-T-distilled",
      CFG(224, 16, 192, 3, 12, true) },
    { "deit-s-distilled", "DeiT", .also = "deit-small-distilled deit_s_distilled DeiT-S-distilled",
      CFG(224, 16, 384, 6, 12, true) },
    { "deit-b-distilled", "DeiT", .also = "deit-base-distilled deit_b_distilled DeiT-B-distilled",
      CFG(224, 16, 768, 12, 12, true) },
    { "vit-b", "ViT", .also = "vit-base vit_b ViT-B ViT-B/16", .params = 86.6e6, .flops = 17.6e9,
      CFG(224, 16, 768, 12, 12, false) },
    { "vit-l", "ViT", .also = "vit-large vit_l ViT-L ViT-L/16", .params = 307e6, .flops = 61.6e9,
      CFG(224, 16, 1024, 16, 24, false) },
    { "vit-b-384", "ViT", .also = "vit-base-384", .params = 86.9e6, .flops = 55.5e9 },
    { "vit-l-384", "ViT", .also = "vit-large-384", .params = 307e6, .flops = 191.1e9 },
    { "deit-mini", "DeiT", CFG(64, 8, 128, 4, 9, false) },
    { "deit-mini-distilled", "DeiT", CFG(64, 8, 128, 4, 9, true) },
    { 0 },
};
/* clang-format on */

/* ---- checks ---- */

bool tp__vit_check(const void *cfg, char *why, size_t size)
{
    const tp_vit_cfg *c = cfg;
    const long long D = (long long)c->dim, H = (long long)c->image[0], W = (long long)c->image[1];
    why[0] = '\0';
    if (!tp__in_range(c->dim, 1, MAX_SIZE))
        snprintf(why, size, "the width is %lld, not 1 to %d", D, MAX_SIZE);
    else if (c->heads < 1 || D % c->heads)
        snprintf(why, size, "the width %lld does not divide into %d heads", D, c->heads);
    else if (!tp__in_range(c->blocks, 1, TP_VIT_BLOCKS))
        snprintf(why, size, "the model has %d blocks, not 1 to %d", c->blocks, TP_VIT_BLOCKS);
    else if (!tp__in_range(c->mlp_ratio, 1, MAX_RATIO))
        snprintf(why, size, "the feed-forward networks are %lld times as wide, not 1 to %d times",
                 (long long)c->mlp_ratio, MAX_RATIO);
    else if (!tp__in_range(c->classes, 1, MAX_SIZE))
        snprintf(why, size, "there are %lld classes, not 1 to %d", (long long)c->classes, MAX_SIZE);
    else if (!tp__in_range(H, 1, MAX_SIDE) || !tp__in_range(W, 1, MAX_SIDE) ||
             !tp__in_range(c->patch, 1, H < W ? H : W))
        snprintf(why, size, "patches of side %lld leave nothing of %lld x %lld pixels",
                 (long long)c->patch, H, W);
    else if (!tp__is_rate(c->drop_path) || !tp__is_rate(c->dropout))
        snprintf(why, size, "dropout and drop path must be in [0,1), not %g and %g", c->dropout,
                 c->drop_path);
    return !why[0];
}

/* ---- members ---- */

#define AT(member) offsetof(tp_vit_cfg, member)
const tp_model_member tp__vit_members[] = {
    { "image", TP_MEMBER_SIDES, .at = AT(image), .common = TP_COMMON_IMAGE },
    { "num_classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS },
    { "patch", TP_MEMBER_INT64, .at = AT(patch) },
    { "dim", TP_MEMBER_INT64, .at = AT(dim) },
    { "heads", TP_MEMBER_INT, .at = AT(heads) },
    { "depth", TP_MEMBER_INT, .at = AT(blocks) },
    { "mlp_ratio", TP_MEMBER_INT64, .at = AT(mlp_ratio) },
    { "distilled", TP_MEMBER_FLAG, .at = AT(distilled) },
    { "dropout", TP_MEMBER_REAL, .at = AT(dropout), .common = TP_COMMON_DROPOUT },
    { "drop_path", TP_MEMBER_REAL, .at = AT(drop_path), .common = TP_COMMON_DROP_PATH },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};
