/* config.c - presets, checks, members and costs of ResNet and ResNeXt, and their constant. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "inner.h"
#include "model_inner.h"

#define STAGES TP_RESNET_STAGES
enum { MAX_SIZE = 1 << 20, MAX_BASE = 1 << 12 }; /* so that products fit */

/* ---- presets ---- */

static const struct {
    const char *name;
    int64_t side, base;
    int blocks[STAGES];
    bool bottleneck;
    int64_t groups, width;
} presets[] = {
    { "resnet-18", 224, 64, { 2, 2, 2, 2 }, false, 1, 64 },
    { "resnet-34", 224, 64, { 3, 4, 6, 3 }, false, 1, 64 },
    { "resnet-50", 224, 64, { 3, 4, 6, 3 }, true, 1, 64 },
    { "resnet-101", 224, 64, { 3, 4, 23, 3 }, true, 1, 64 },
    { "resnet-152", 224, 64, { 3, 8, 36, 3 }, true, 1, 64 },
    { "resnext-101-32x4d", 224, 64, { 3, 4, 23, 3 }, true, 32, 4 },
    { "resnext-101-64x4d", 224, 64, { 3, 4, 23, 3 }, true, 64, 4 },
    { "resnet-mini", 64, 32, { 2, 2, 2, 1 }, false, 1, 64 },
};

static bool model_preset(void *cfg, const char *name, char *why, size_t size)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        if (strcmp(presets[i].name, name) != 0) continue;
        tp_resnet_cfg c = { .image = { presets[i].side, presets[i].side },
                            .classes = 1000,
                            .base = presets[i].base,
                            .bottleneck = presets[i].bottleneck,
                            .groups = presets[i].groups,
                            .group_width = presets[i].width };
        memcpy(c.blocks, presets[i].blocks, sizeof c.blocks);
        *(tp_resnet_cfg *)cfg = c;
        return true;
    }
    snprintf(why, size, "no ResNet is called '%.80s'", name);
    return false;
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
static bool model_check(const void *cfg, char *why, size_t size)
{
    const tp_resnet_cfg *c = cfg;
    if (c->classes != 0) return tp_resnet_cfg_check(c, why, size);
    snprintf(why, size, "there are no classes");
    return false;
}

/* ---- members; lists have one value per stage ---- */

#define AT(member) offsetof(tp_resnet_cfg, member)
static const tp_model_member members[] = {
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

/* ---- the model ---- */

static void model_init(tp_params *P, void *m, const char *name, const void *cfg)
{
    tp_resnet_init(P, m, name, *(const tp_resnet_cfg *)cfg);
}

static tp_tensor model_forward(tp_tape *T, const void *m, void *state, tp_tensor x)
{
    (void)state;
    return tp_resnet_forward(T, m, x);
}

/* torchvision's and timm's names are ours; these are those of detectron2 and of Hugging Face's transformers. */
static const tp_spelling spellings[] = {
    { "stem.conv1.norm.", "bn1." },
    { "stem.conv1.", "conv1." },
    { "res2.", "layer1." },
    { "res3.", "layer2." },
    { "res4.", "layer3." },
    { "res5.", "layer4." },
    { ".conv1.norm.", ".bn1." },
    { ".conv2.norm.", ".bn2." },
    { ".conv3.norm.", ".bn3." },
    { ".shortcut.norm.", ".downsample.1." },
    { "resnet.embedder.embedder.convolution.", "conv1." },
    { "resnet.embedder.embedder.normalization.", "bn1." },
    { "resnet.encoder.stages.0.layers.", "layer1." },
    { "resnet.encoder.stages.1.layers.", "layer2." },
    { "resnet.encoder.stages.2.layers.", "layer3." },
    { "resnet.encoder.stages.3.layers.", "layer4." },
    { ".shortcut.convolution.", ".downsample.0." },
    { ".shortcut.normalization.", ".downsample.1." },
    { ".shortcut.", ".downsample.0." },
    { ".layer.0.convolution.", ".conv1." },
    { ".layer.0.normalization.", ".bn1." },
    { ".layer.1.convolution.", ".conv2." },
    { ".layer.1.normalization.", ".bn2." },
    { ".layer.2.convolution.", ".conv3." },
    { ".layer.2.normalization.", ".bn3." },
    { "classifier.1.", "fc." },
    { 0 },
};

const tp_model tp_model_resnet = {
    .name = "resnet",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_resnet_cfg),
    .size = sizeof(tp_resnet),
    .preset = model_preset,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .head = "fc.weight",
    .spellings = spellings,
    .backbone = &tp__resnet_backbone,
};
