/* config.c - presets, checks and members of ResNet and ResNeXt. */
#include <stdio.h>
#include <string.h>

#include "inner.h"

#define STAGES TP_RESNET_STAGES
enum { MAX_SIZE = 1 << 20, MAX_BASE = 1 << 12 }; /* so that products fit */

/* ---- presets ---- */

/* The image baselines of the papers, then a small one. */
/* clang-format off */
#define CFG(side, width, neck, g, w, ...) \
    .cfg = &(const tp_resnet_cfg){ .image = { side, side }, .classes = 1000, .base = width, .blocks = { __VA_ARGS__ }, \
                                   .bottleneck = neck, .groups = g, .group_width = w }
const tp_model_row tp__resnet_presets[] = {
    { "resnet-18", "ResNet", .also = "resnet18 ResNet-18", .params = 11.7e6, .flops = 1.8e9,
      CFG(224, 64, false, 1, 64, 2, 2, 2, 2) },
    { "resnet-50", "ResNet", .also = "resnet50 ResNet-50", .params = 25.6e6, .flops = 4.1e9,
      CFG(224, 64, true, 1, 64, 3, 4, 6, 3) },
    { "resnet-101", "ResNet", .also = "resnet101 ResNet-101", .params = 44.7e6, .flops = 7.9e9,
      CFG(224, 64, true, 1, 64, 3, 4, 23, 3) },
    { "resnet-152", "ResNet", .also = "resnet152 ResNet-152", .params = 60e6, .flops = 11e9,
      CFG(224, 64, true, 1, 64, 3, 8, 36, 3) },
    { "resnext-101-32x4d", "ResNeXt", .also = "resnext101_32x4d ResNeXt101-32x4d",
      CFG(224, 64, true, 32, 4, 3, 4, 23, 3) },
    { "resnext-101-64x4d", "ResNeXt", .also = "resnext101_64x4d ResNeXt101-64x4d", .params = 83.5e6, .flops = 15.6e9,
      CFG(224, 64, true, 64, 4, 3, 4, 23, 3) },
    { "resnet-mini", "ResNet", CFG(64, 32, false, 1, 64, 2, 2, 2, 1) },
    { 0 },
};
/* clang-format on */

/* ResNet-34 is a backbone of detectors; the papers do not compare with it as a classifier. */
bool tp__resnet_preset(void *cfg, const char *name, char *why, size_t size)
{
    if (strcmp(name, "resnet-34") != 0) {
        snprintf(why, size, "no ResNet is called '%.80s'", name);
        return false;
    }
    *(tp_resnet_cfg *)cfg = (tp_resnet_cfg){ .image = { 224, 224 },
                                             .classes = 1000,
                                             .base = 64,
                                             .blocks = { 3, 4, 6, 3 },
                                             .groups = 1,
                                             .group_width = 64 };
    return true;
}

/* ---- checks ---- */

void tp_resnet_widths(const tp_resnet_cfg *c, int stage, int64_t *inner, int64_t *out)
{
    if (!c) return;
    const int64_t planes = c->base << stage;
    *inner = c->inner[stage] ? c->inner[stage] : planes * c->group_width / 64 * c->groups;
    *out = c->out[stage] ? c->out[stage] : c->bottleneck ? 4 * planes : planes;
}

static void check_groups(const tp_resnet_cfg *c, char *why, size_t size)
{
    if (!tp__in_range(c->groups, 1, MAX_BASE) || !tp__in_range(c->group_width, 1, MAX_BASE))
        snprintf(why, size, "%lld groups of width %lld: both must be 1 to %d", (long long)c->groups,
                 (long long)c->group_width, MAX_BASE);
    else if (!c->bottleneck && (c->groups != 1 || c->group_width != 64))
        snprintf(why, size, "only bottlenecks have groups (%lld) or another width than 64 (%lld)",
                 (long long)c->groups, (long long)c->group_width);
    else if (c->base * c->group_width < 64 && c->inner[0] == 0)
        snprintf(why, size, "groups of width %lld are empty at a base of %lld",
                 (long long)c->group_width, (long long)c->base);
}

bool tp_resnet_cfg_check(const tp_resnet_cfg *c, char *why, size_t size)
{
    if (!c) {
        if (why)
            snprintf(why, size, "resnet_cfg_check: NULL was given in place of a configuration");
        return false;
    }
    int64_t blocks = 0;
    why[0] = '\0';
    for (int s = 0; s < STAGES; s++) {
        if (!why[0] &&
            (!tp__in_range(c->out[s], 0, MAX_SIZE) || !tp__in_range(c->inner[s], 0, MAX_SIZE)))
            snprintf(why, size, "stage %d has %lld and %lld channels, not 0 to %d", s,
                     (long long)c->out[s], (long long)c->inner[s], MAX_SIZE);
        if (!why[0] && !tp__in_range(c->blocks[s], 1, TP_RESNET_MAX_BLOCKS))
            snprintf(why, size, "stage %d has %d blocks, not 1 to %d", s, c->blocks[s],
                     TP_RESNET_MAX_BLOCKS);
        blocks += c->blocks[s];
    }
    if (why[0]) return false;
    if (blocks > TP_RESNET_MAX_BLOCKS)
        snprintf(why, size, "the model has %lld blocks, not at most %d", (long long)blocks,
                 TP_RESNET_MAX_BLOCKS);
    else if (!tp__in_range(c->base, 1, MAX_BASE))
        snprintf(why, size, "the base is %lld, not 1 to %d", (long long)c->base, MAX_BASE);
    else if (!tp__in_range(c->classes, 0, MAX_SIZE))
        snprintf(why, size, "there are %lld classes, not 0 to %d", (long long)c->classes, MAX_SIZE);
    else if (!tp__in_range(c->image[0], 1, MAX_SIZE) || !tp__in_range(c->image[1], 1, MAX_SIZE))
        snprintf(why, size, "images are %lld x %lld pixels: sides must be 1 to %d",
                 (long long)c->image[0], (long long)c->image[1], MAX_SIZE);
    else
        check_groups(c, why, size);
    return !why[0];
}

/* A model of the table is a classifier. */
bool tp__resnet_check(const void *cfg, char *why, size_t size)
{
    const tp_resnet_cfg *c = cfg;
    if (c->classes != 0) return tp_resnet_cfg_check(c, why, size);
    snprintf(why, size, "there are no classes");
    return false;
}

/* ---- members; lists have one value per stage ---- */

#define AT(member) offsetof(tp_resnet_cfg, member)
const tp_model_member tp__resnet_members[] = {
    { "image", TP_MEMBER_SIDES, .at = AT(image), .common = TP_COMMON_IMAGE },
    { "num_classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS },
    { "base", TP_MEMBER_INT64, .at = AT(base) },
    { "layers", TP_MEMBER_INTS, .at = AT(blocks), .count = STAGES },
    { "bottleneck", TP_MEMBER_FLAG, .at = AT(bottleneck) },
    { "groups", TP_MEMBER_INT64, .at = AT(groups) },
    { "width_per_group", TP_MEMBER_INT64, .at = AT(group_width) },
    { "frozen_norm", TP_MEMBER_FLAG, .at = AT(frozen_norm), .optional = true },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};
