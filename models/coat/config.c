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

/* ---- costs ---- */

double tp__coat_macs(const tp_coat_size *s)
{
    const double n = s->N + s->c, D = s->D, d = D / s->heads;
    double taps = 9.0 * D;
    for (int i = 0; i < s->kernels->n; i++)
        taps += (double)(s->kernels->kernel[i] * s->kernels->kernel[i] * s->kernels->heads[i]) * d;
    return n * ((4.0 + 2.0 * s->ratio) * D * D + 2.0 * D * d) + s->N * taps;
}

/* Of the map: the input of the position encoding, queries, values cut by kernels and what these give.
 * Of all tokens: the encoded input and its norm, queries by heads, keys, values, the output of the
 * attention; the sum and its norm; input and output of GELU. */
double tp__coat_values(const tp_coat_size *s, tp_recompute recompute)
{
    const double n = s->N + s->c, D = s->D, d = D / s->heads;
    const double attention = 4.0 * s->N * D + 6.0 * n * D + D * d + 2.0 * n;
    const double feed_forward = (2.0 + 2.0 * s->ratio) * n * D + 2.0 * n;
    if (recompute == TP_RECOMPUTE_BLOCK) return n * D;
    return feed_forward + (recompute == TP_RECOMPUTE_NONE ? attention : n * D);
}

static tp_coat_size size_of(const tp_coat_cfg *c, int s)
{
    const tp_coat_stage z = tp__coat_stage(c, s);
    return (tp_coat_size){ .N = (double)z.map[0] * (double)z.map[1],
                           .D = (double)z.dim,
                           .c = 1.0,
                           .ratio = c->mlp_ratio[s],
                           .heads = c->heads,
                           .kernels = &c->kernels };
}

/* The class token decides, but the published code applies the last norm to all tokens. */
tp_flops tp_coat_flops(const tp_coat_cfg *c)
{
    if (!c) return (tp_flops){ 0 };
    tp_flops f = { 0 };
    for (int s = 0; s < TP_COAT_STAGES; s++) {
        const tp_coat_stage z = tp__coat_stage(c, s);
        const tp_coat_size b = size_of(c, s);
        const double n = b.N + 1.0;
        f.macs += b.N * b.D * (double)(z.patch * z.patch * z.in) + c->depths[s] * tp__coat_macs(&b);
        f.norm += b.N * b.D + c->depths[s] * 2.0 * n * b.D;
        if (s < TP_COAT_STAGES - 1) continue;
        f.macs += b.D * (double)c->classes;
        f.norm += n * b.D;
    }
    f.paper = f.macs;
    return f;
}

double tp_coat_activations(const tp_coat_cfg *c)
{
    if (!c) return 0;
    double sum = 3.0 * (double)(c->image[0] * c->image[1]);
    for (int s = 0; s < TP_COAT_STAGES; s++) {
        const tp_coat_size b = size_of(c, s);
        sum += b.N * (b.D + 2.0) + c->depths[s] * tp__coat_values(&b, c->recompute);
        sum += s < TP_COAT_STAGES - 1 ? b.N * b.D : 2.0 * b.D;
    }
    return 4.0 * sum;
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

static tp_flops model_flops(const void *cfg, int64_t tokens, int64_t cache)
{
    (void)tokens;
    (void)cache;
    return tp_coat_flops(cfg);
}

static double model_activations(const void *cfg, int64_t tokens, int64_t cache)
{
    (void)tokens;
    (void)cache;
    return tp_coat_activations(cfg);
}

/* norm1 to norm3 are in the official files but never run, and timm leaves them out. */
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
    .head = "head.weight",
    .may_lack = model_may_lack,
    .flops = model_flops,
    .activations = model_activations,
};
