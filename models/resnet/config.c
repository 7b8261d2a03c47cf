/* config.c - presets, checks, members and costs of ResNet and ResNeXt, and their constant. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <tapegrad/resnet.h>

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

/* ---- costs ---- */

/* A walk through the net: the size of the map, its channels, and the sums so far. */
typedef struct walk {
    double height, width, channels;
    double macs, norms, saved; /* multiply-adds; elements of batch norms; values for backward */
} walk;

static void shrink(walk *w, double stride)
{
    w->height = (double)(int64_t)((w->height + stride - 1.0) / stride);
    w->width = (double)(int64_t)((w->width + stride - 1.0) / stride);
}

/* A convolution with its norm, which saves its input. */
static void convolve(walk *w, double kernel, double stride, double out, double groups)
{
    const double in = w->channels;
    shrink(w, stride);
    w->channels = out;
    w->macs += w->height * w->width * kernel * kernel * in * out / groups;
    w->norms += w->height * w->width * out;
    w->saved += w->height * w->width * out;
}

/* ReLU saves its result, which the next convolution reads. */
static void activate(walk *w)
{
    w->saved += w->height * w->width * w->channels;
}

static void walk_block(walk *w, const tp_resnet_cfg *c, int stage, double stride)
{
    const walk before = *w;
    int64_t within, result;
    tp_resnet_widths(c, stage, &within, &result);
    const double inner = (double)within, out = (double)result;
    const double first = c->early_stride ? stride : 1.0;
    if (c->bottleneck) {
        convolve(w, 1.0, first, inner, 1.0);
        activate(w);
        convolve(w, 3.0, stride / first, inner, (double)c->groups);
        activate(w);
        convolve(w, 1.0, 1.0, out, 1.0);
    } else {
        convolve(w, 3.0, stride, out, 1.0);
        activate(w);
        convolve(w, 3.0, 1.0, out, 1.0);
    }
    if (stride > 1.0 || before.channels != out) {
        walk down = before;
        down.macs = down.norms = down.saved = 0.0;
        convolve(&down, 1.0, stride, out, 1.0);
        w->macs += down.macs;
        w->norms += down.norms;
        w->saved += down.saved;
    }
    activate(w);
    if (c->recompute == TP_RECOMPUTE_BLOCK)
        w->saved = before.saved + w->height * w->width * w->channels;
}

static walk walk_net(const tp_resnet_cfg *c)
{
    walk w = { .height = (double)c->image[0], .width = (double)c->image[1], .channels = 3.0 };
    w.saved = 3.0 * w.height * w.width;
    convolve(&w, 7.0, 2.0, (double)c->base, 1.0);
    activate(&w);
    shrink(&w, 2.0);
    w.saved += 2.0 * w.height * w.width * w.channels; /* results and places of the maxima */
    for (int s = 0; s < STAGES; s++)
        for (int b = 0; b < c->blocks[s]; b++) walk_block(&w, c, s, s > 0 && b == 0 ? 2.0 : 1.0);
    w.macs += w.channels * (double)c->classes;
    return w;
}

tp_flops tp_resnet_flops(const tp_resnet_cfg *c)
{
    if (!c) return (tp_flops){ 0 };
    const walk w = walk_net(c);
    return (tp_flops){ .macs = w.macs, .paper = w.macs, .batchnorm = w.norms };
}

double tp_resnet_activations(const tp_resnet_cfg *c)
{
    if (!c) return 0;
    return 4.0 * walk_net(c).saved;
}

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

static tp_flops model_flops(const void *cfg, int64_t tokens, int64_t cache)
{
    (void)tokens;
    (void)cache;
    return tp_resnet_flops(cfg);
}

static double model_activations(const void *cfg, int64_t tokens, int64_t cache)
{
    (void)tokens;
    (void)cache;
    return tp_resnet_activations(cfg);
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
    .flops = model_flops,
    .activations = model_activations,
};
