/* config.c - presets, checks, members and costs of CSWin, and its constant. */
#include <stdio.h>
#include <string.h>

#include "inner.h"
#include "model_inner.h"

/* MAX_WIDTH also limits classes, so that products fit. */
enum { MAX_SIDE = 1 << 16, MAX_WIDTH = 1 << 24 };

/* Tables 1 and 2 of the paper, then a small one for images of 64 x 64. */
static const struct {
    const char *name;
    int64_t side, dim;
    int depths[TP_CSWIN_STAGES], heads[TP_CSWIN_STAGES];
    int64_t split[TP_CSWIN_STAGES];
    double drop_path;
} presets[] = {
    { "cswin-t", 224, 64, { 1, 2, 21, 1 }, { 2, 4, 8, 16 }, { 1, 2, 7, 7 }, 0.2 },
    { "cswin-s", 224, 64, { 2, 4, 32, 2 }, { 2, 4, 8, 16 }, { 1, 2, 7, 7 }, 0.4 },
    { "cswin-b", 224, 96, { 2, 4, 32, 2 }, { 4, 8, 16, 32 }, { 1, 2, 7, 7 }, 0.5 },
    { "cswin-b-384", 384, 96, { 2, 4, 32, 2 }, { 4, 8, 16, 32 }, { 1, 2, 12, 12 }, 0.5 },
    { "cswin-mini", 64, 32, { 1, 2, 4, 1 }, { 2, 2, 4, 8 }, { 1, 2, 2, 2 }, 0.1 },
};

static bool model_preset(void *cfg, const char *name, char *why, size_t size)
{
    tp_cswin_cfg *c = cfg;
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        if (strcmp(name, presets[i].name) != 0) continue;
        *c = (tp_cswin_cfg){ .image = { presets[i].side, presets[i].side },
                             .classes = 1000,
                             .dim = presets[i].dim,
                             .mlp_ratio = 4,
                             .drop_path = presets[i].drop_path };
        memcpy(c->depths, presets[i].depths, sizeof c->depths);
        memcpy(c->heads, presets[i].heads, sizeof c->heads);
        memcpy(c->split, presets[i].split, sizeof c->split);
        return true;
    }
    snprintf(why, size, "no CSWin is called '%.80s'", name);
    return false;
}

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

bool tp_cswin_cfg_check(const tp_cswin_cfg *c, char *why, size_t size)
{
    if (!c) {
        if (why) snprintf(why, size, "cswin_cfg_check: NULL was given in place of a configuration");
        return false;
    }
    why[0] = '\0';
    check_sizes(c, why, size);
    if (why[0]) return false;
    for (int i = 0; i < TP_CSWIN_STAGES && !why[0]; i++) check_stage(c, i, why, size);
    return !why[0];
}

/* ---- members ---- */

#define AT(member) offsetof(tp_cswin_cfg, member)
static const tp_model_member members[] = {
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

/* ---- the model ---- */

static bool model_check(const void *cfg, char *why, size_t size)
{
    return tp_cswin_cfg_check(cfg, why, size);
}

static void model_init(tp_params *P, void *m, const char *name, const void *cfg)
{
    tp_cswin_init(P, m, name, *(const tp_cswin_cfg *)cfg);
}

static tp_tensor model_forward(tp_tape *T, const void *m, void *state, tp_tensor x)
{
    (void)state;
    return tp_cswin_forward(T, m, x);
}

const tp_model tp_model_cswin = {
    .name = "cswin",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_cswin_cfg),
    .size = sizeof(tp_cswin),
    .preset = model_preset,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .head = "head.weight",
};
