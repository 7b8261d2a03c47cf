/* config.c - presets, checks, members and costs of CoaT-Lite, and its constant. */
#include <stdio.h>
#include <string.h>

#include "inner.h"
#include "model_inner.h"

/* MAX_WIDTH also limits classes, so that products fit. */
enum {
    MAX_SIDE = 1 << 16,
    MAX_WIDTH = 1 << 20,
    MAX_CLASSES = 1 << 24,
    MAX_KERNEL = 31,
    MAX_RATIO = 64
};

/* Table 1 of the paper, then a small one for images of 64 x 64. */
static const struct {
    const char *name;
    int64_t side, dim[TP_COAT_STAGES];
    int depths[TP_COAT_STAGES];
} presets[] = {
    { "coat_lite-tiny", 224, { 64, 128, 256, 320 }, { 2, 2, 2, 2 } },
    { "coat_lite-mini", 224, { 64, 128, 320, 512 }, { 2, 2, 2, 2 } },
    { "coat_lite-small", 224, { 64, 128, 320, 512 }, { 3, 4, 6, 3 } },
    { "coat-mini", 64, { 32, 64, 160, 256 }, { 2, 2, 3, 1 } },
};

static bool model_preset(void *cfg, const char *name, char *why, size_t size)
{
    tp_coat_cfg *c = cfg;
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        if (strcmp(name, presets[i].name) != 0) continue;
        *c = (tp_coat_cfg){ .image = { presets[i].side, presets[i].side },
                            .classes = 1000,
                            .heads = 8,
                            .mlp_ratio = { 8, 8, 4, 4 },
                            .kernels = tp_coat_published };
        memcpy(c->dim, presets[i].dim, sizeof c->dim);
        memcpy(c->depths, presets[i].depths, sizeof c->depths);
        return true;
    }
    snprintf(why, size, "no CoaT-Lite is called '%.80s'", name);
    return false;
}

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

bool tp_coat_cfg_check(const tp_coat_cfg *c, char *why, size_t size)
{
    if (!c) {
        if (why) snprintf(why, size, "coat_cfg_check: NULL was given in place of a configuration");
        return false;
    }
    why[0] = '\0';
    check_sizes(c, why, size);
    for (int s = 0; s < TP_COAT_STAGES && !why[0]; s++) check_stage(c, s, why, size);
    return !why[0];
}

/* ---- members ---- */

#define AT(member) offsetof(tp_coat_cfg, member)
static const tp_model_member members[] = {
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

/* ---- the model ---- */

static bool model_check(const void *cfg, char *why, size_t size)
{
    return tp_coat_cfg_check(cfg, why, size);
}

static void model_init(tp_params *P, void *m, const char *name, const void *cfg)
{
    tp_coat_init(P, m, name, *(const tp_coat_cfg *)cfg);
}

static tp_tensor model_forward(tp_tape *T, const void *m, void *state, tp_tensor x)
{
    (void)state;
    return tp_coat_forward(T, m, x);
}

/* norm1 to norm3 are in the official files but never run, and timm leaves them out. */
/* The class token decides, but the published code applies the last norm to all tokens. */
static void model_paper(const void *cfg, int64_t tokens, tp_cost *cost)
{
    const tp_coat_stage last = tp__coat_stage(cfg, TP_COAT_STAGES - 1);
    (void)tokens;
    cost->norm += (double)(last.map[0] * last.map[1] * last.dim);
}

static bool model_may_lack(const char *name)
{
    return strncmp(name, "norm", 4) == 0 && name[4] >= '1' && name[4] < '4' && name[5] == '.';
}

const tp_model tp_model_coat = {
    .name = "coat",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_coat_cfg),
    .size = sizeof(tp_coat),
    .preset = model_preset,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .paper = model_paper,
    .head = "head.weight",
    .may_lack = model_may_lack,
};
