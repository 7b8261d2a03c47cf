/* config.c - presets, checks and members of Swin, and its constant. */
#include <stdio.h>
#include <string.h>

#include "inner.h"
#include "model_inner.h"

/* MAX_WIDTH also limits classes, so that products fit. */
enum { MAX_SIDE = 1 << 16, MAX_WINDOW = 128, MAX_WIDTH = 1 << 24 };

/* Tables 1 and 7 of the paper, then a small one for images of 64 x 64. */
static const struct {
    const char *name;
    int64_t side, window, dim;
    int stages, depths[4], heads[4];
    double mlp_ratio, drop_path;
} presets[] = {
    { "swin-t", 224, 7, 96, 4, { 2, 2, 6, 2 }, { 3, 6, 12, 24 }, 4, 0.2 },
    { "swin-s", 224, 7, 96, 4, { 2, 2, 18, 2 }, { 3, 6, 12, 24 }, 4, 0.3 },
    { "swin-b", 224, 7, 128, 4, { 2, 2, 18, 2 }, { 4, 8, 16, 32 }, 4, 0.5 },
    { "swin-b-384", 384, 12, 128, 4, { 2, 2, 18, 2 }, { 4, 8, 16, 32 }, 4, 0.5 },
    { "swin-mini", 64, 4, 64, 3, { 2, 2, 2 }, { 2, 4, 8 }, 3, 0.1 },
};

static bool model_preset(void *cfg, const char *name, char *why, size_t size)
{
    tp_swin_cfg *c = cfg;
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        if (strcmp(name, presets[i].name) != 0) continue;
        *c = (tp_swin_cfg){ .image = { presets[i].side, presets[i].side },
                            .classes = 1000,
                            .dim = presets[i].dim,
                            .stages = presets[i].stages,
                            .window = presets[i].window,
                            .mlp_ratio = presets[i].mlp_ratio,
                            .drop_path = presets[i].drop_path };
        memcpy(c->depths, presets[i].depths, sizeof presets[i].depths);
        memcpy(c->heads, presets[i].heads, sizeof presets[i].heads);
        return true;
    }
    snprintf(why, size, "no Swin is called '%.80s'", name);
    return false;
}

/* ---- checks ---- */

static void check_sizes(const tp_swin_cfg *c, char *buf, size_t size)
{
    if (!tp__in_range(c->image[0], 4, MAX_SIDE) || !tp__in_range(c->image[1], 4, MAX_SIDE) ||
        c->image[0] % 4 || c->image[1] % 4)
        snprintf(buf, size, "images are %lld x %lld pixels: sides must be multiples of 4 up to %d",
                 (long long)c->image[0], (long long)c->image[1], MAX_SIDE);
    else if (!tp__in_range(c->stages, 1, TP_SWIN_MAX_STAGES))
        snprintf(buf, size, "the model has %d stages, not 1 to %d", c->stages, TP_SWIN_MAX_STAGES);
    else if (!tp__in_range(c->dim, 1, MAX_WIDTH >> c->stages))
        snprintf(buf, size, "the width is %lld, not 1 to %d", (long long)c->dim,
                 MAX_WIDTH >> c->stages);
    else if (!tp__in_range(c->classes, 1, MAX_WIDTH))
        snprintf(buf, size, "there are %lld classes, not 1 to %d", (long long)c->classes,
                 MAX_WIDTH);
    else if (!tp__in_range(c->window, 1, MAX_WINDOW))
        snprintf(buf, size, "the window is %lld, not 1 to %d", (long long)c->window, MAX_WINDOW);
    else if (!tp__is_rate(c->drop_path))
        snprintf(buf, size, "drop_path must be in [0,1), not %g", c->drop_path);
}

static void check_stage(const tp_swin_cfg *c, int i, char *buf, size_t size)
{
    const tp_swin_stage s = tp__swin_stage(c, i);
    const long long H = s.map[0], W = s.map[1];
    if (!tp__in_range(c->depths[i], 1, TP_SWIN_MAX_BLOCKS) ||
        tp__swin_blocks(c) > TP_SWIN_MAX_BLOCKS)
        snprintf(buf, size,
                 "stage %d has %d blocks: it needs at least 1, all stages together at most %d", i,
                 c->depths[i], TP_SWIN_MAX_BLOCKS);
    else if (c->heads[i] < 1 || s.dim % c->heads[i])
        snprintf(buf, size, "stage %d: the width %lld does not divide into %d heads", i,
                 (long long)s.dim, c->heads[i]);
    else if (!tp__is_ratio(c->mlp_ratio, s.dim, MAX_WIDTH))
        snprintf(buf, size, "stage %d: an MLP ratio of %g gives a hidden width of %g", i,
                 c->mlp_ratio, c->mlp_ratio * (double)s.dim);
    else if (s.window < 1 || H % s.window || W % s.window)
        snprintf(buf, size,
                 "stage %d: a map of %lld x %lld does not divide into windows of %lld: choose "
                 "another image size or window",
                 i, H, W, (long long)s.window);
    else if (i + 1 < c->stages && (H % 2 || W % 2))
        snprintf(buf, size,
                 "stage %d: a map of %lld x %lld does not divide into cells of 2 x 2: choose "
                 "another image size",
                 i, H, W);
}

bool tp_swin_cfg_check(const tp_swin_cfg *c, char *why, size_t size)
{
    if (!c) {
        if (why) snprintf(why, size, "swin_cfg_check: NULL was given in place of a configuration");
        return false;
    }
    why[0] = '\0';
    check_sizes(c, why, size);
    if (why[0]) return false;
    for (int i = 0; i < c->stages && !why[0]; i++) check_stage(c, i, why, size);
    return !why[0];
}

/* ---- members ---- */

#define AT(member) offsetof(tp_swin_cfg, member)
static const tp_model_member members[] = {
    { "image", TP_MEMBER_SIDES, .at = AT(image), .common = TP_COMMON_IMAGE },
    { "depths", TP_MEMBER_INTS, .at = AT(depths), .count = TP_SWIN_MAX_STAGES,
      .length = AT(stages) },
    { "heads", TP_MEMBER_INTS, .at = AT(heads), .count = TP_SWIN_MAX_STAGES, .length = AT(stages) },
    { "classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS },
    { "dim", TP_MEMBER_INT64, .at = AT(dim) },
    { "window", TP_MEMBER_INT64, .at = AT(window) },
    { "mlp_ratio", TP_MEMBER_REAL, .at = AT(mlp_ratio) },
    { "drop_path", TP_MEMBER_REAL, .at = AT(drop_path), .common = TP_COMMON_DROP_PATH },
    { "ape", TP_MEMBER_FLAG, .at = AT(ape) },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};

/* ---- the model ---- */

static bool model_check(const void *cfg, char *why, size_t size)
{
    return tp_swin_cfg_check(cfg, why, size);
}

static void model_init(tp_params *P, void *m, const char *name, const void *cfg)
{
    tp_swin_init(P, m, name, *(const tp_swin_cfg *)cfg);
}

static tp_tensor model_forward(tp_tape *T, const void *m, void *state, tp_tensor x)
{
    (void)state;
    return tp_swin_forward(T, m, x);
}

/* Windows may differ, since loading resizes their tables. */
static bool model_same(const void *one, const void *other)
{
    const tp_swin_cfg *a = one, *b = other;
    return a->dim == b->dim && a->stages == b->stages && a->mlp_ratio == b->mlp_ratio &&
           memcmp(a->depths, b->depths, sizeof a->depths) == 0 &&
           memcmp(a->heads, b->heads, sizeof a->heads) == 0 && a->ape == b->ape;
}

/* The official code's names are ours; these are torchvision's, whose patch mergings are stages of their own. */
static const tp_spelling spellings[] = {
    { "features.0.0.", "patch_embed.proj." },
    { "features.0.2.", "patch_embed.norm." },
    { "features.1.", "layers.0.blocks." },
    { "features.2.", "layers.0.downsample." },
    { "features.3.", "layers.1.blocks." },
    { "features.4.", "layers.1.downsample." },
    { "features.5.", "layers.2.blocks." },
    { "features.6.", "layers.2.downsample." },
    { "features.7.", "layers.3.blocks." },
    { ".mlp.0.", ".mlp.fc1." },
    { ".mlp.3.", ".mlp.fc2." },
    { 0 },
};

/* timm has merged patches at the beginning of a stage since 0.9, the official code at the end. */
static const tp_spelling timm[] = {
    { "layers.1.downsample.", "layers.0.downsample." },
    { "layers.2.downsample.", "layers.1.downsample." },
    { "layers.3.downsample.", "layers.2.downsample." },
    { "head.fc.", "head." },
    { 0 },
};

const tp_model tp_model_swin = {
    .name = "swin",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_swin_cfg),
    .size = sizeof(tp_swin),
    .preset = model_preset,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .same = model_same,
    .load = tp__swin_load,
    .resizes = "tables of positions are resized where windows differ, and position embeddings",
    .resizes_to = tp__swin_resizes,
    .head = "head.weight",
    .spellings = spellings,
    .dialect = { "layers.3.downsample.norm.weight", timm },
};
