/* config.c - presets, checks, members and costs of MPViT, and its constant. */
#include <stdio.h>
#include <string.h>

#include "coat/inner.h"
#include "inner.h"
#include "model_inner.h"

/* MAX_WIDTH also limits classes, so that products fit. */
enum { MAX_SIDE = 1 << 16, MAX_WIDTH = 1 << 20, MAX_CLASSES = 1 << 24, MAX_RATIO = 64 };

/* Table 1 of the paper, then a small one for images of 64 x 64. All have 2, 3, 3, 3 paths. */
static const struct {
    const char *name;
    int64_t side, dim[TP_MPVIT_STAGES];
    int layers[TP_MPVIT_STAGES], mlp_ratio;
    double drop_path;
} presets[] = {
    { "mpvit-t", 224, { 64, 96, 176, 216 }, { 1, 2, 4, 1 }, 2, 0 },
    { "mpvit-xs", 224, { 64, 128, 192, 256 }, { 1, 2, 4, 1 }, 4, 0 },
    { "mpvit-s", 224, { 64, 128, 216, 288 }, { 1, 3, 6, 3 }, 4, 0.05 },
    { "mpvit-b", 224, { 128, 224, 368, 480 }, { 1, 3, 8, 3 }, 4, 0.3 },
    { "mpvit-mini", 64, { 32, 64, 112, 160 }, { 1, 2, 2, 1 }, 3, 0.05 },
};

static bool model_preset(void *cfg, const char *name, char *why, size_t size)
{
    tp_mpvit_cfg *c = cfg;
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        const int r = presets[i].mlp_ratio;
        if (strcmp(name, presets[i].name) != 0) continue;
        *c = (tp_mpvit_cfg){ .image = { presets[i].side, presets[i].side },
                             .classes = 1000,
                             .paths = { 2, 3, 3, 3 },
                             .mlp_ratio = { r, r, r, r },
                             .heads = 8,
                             .kernels = tp_coat_published,
                             .drop_path = presets[i].drop_path };
        memcpy(c->dim, presets[i].dim, sizeof c->dim);
        memcpy(c->layers, presets[i].layers, sizeof c->layers);
        return true;
    }
    snprintf(why, size, "no MPViT is called '%.80s'", name);
    return false;
}

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

bool tp_mpvit_cfg_check(const tp_mpvit_cfg *c, char *why, size_t size)
{
    if (!c) {
        if (why) snprintf(why, size, "mpvit_cfg_check: NULL was given in place of a configuration");
        return false;
    }
    why[0] = '\0';
    check_sizes(c, why, size);
    for (int s = 0; s < TP_MPVIT_STAGES && !why[0]; s++) check_stage(c, s, why, size);
    return !why[0];
}

/* ---- members ---- */

#define AT(member) offsetof(tp_mpvit_cfg, member)
static const tp_model_member members[] = {
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

/* ---- the model ---- */

static bool model_check(const void *cfg, char *why, size_t size)
{
    return tp_mpvit_cfg_check(cfg, why, size);
}

static void model_init(tp_params *P, void *m, const char *name, const void *cfg)
{
    tp_mpvit_init(P, m, name, *(const tp_mpvit_cfg *)cfg);
}

static tp_tensor model_forward(tp_tape *T, const void *m, void *state, tp_tensor x)
{
    (void)state;
    return tp_mpvit_forward(T, m, x);
}

/* The paper's counter also counts the last map once, for its mean. */
static void model_paper(const void *cfg, int64_t tokens, tp_cost *cost)
{
    const tp_mpvit_cfg *c = cfg;
    int64_t map[2];
    (void)tokens;
    tp__mpvit_map(c, TP_MPVIT_STAGES + 1, map);
    cost->paper += (double)(map[0] * map[1] * c->dim[TP_MPVIT_STAGES - 1]);
}

const tp_model tp_model_mpvit = {
    .name = "mpvit",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_mpvit_cfg),
    .size = sizeof(tp_mpvit),
    .preset = model_preset,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .paper = model_paper,
    .head = "cls_head.cls.weight",
};
