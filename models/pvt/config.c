/* config.c - presets, checks, members and weights of other sizes of PVT and
 * PVTv2, and their constant. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "inner.h"
#include "model_inner.h"

#define STAGES TP_PVT_STAGES
enum {
    MAX_SIZE = 1 << 20,
    MAX_SIDE = 1 << 16,
    MAX_RATIO = 64,
    MAX_REDUCTION = 256
}; /* so that products fit */

/* ---- presets ---- */

/* Widths, heads, reductions and ratios that several models share. */
#define WIDE                                                                                       \
    { 64, 128, 320, 512 },                                                                         \
    {                                                                                              \
        1, 2, 5, 8                                                                                 \
    }
#define NARROW                                                                                     \
    { 32, 64, 160, 256 },                                                                          \
    {                                                                                              \
        1, 2, 5, 8                                                                                 \
    }
#define MINI                                                                                       \
    { 32, 64, 128, 192 },                                                                          \
    {                                                                                              \
        1, 2, 4, 6                                                                                 \
    }
#define R8                                                                                         \
    {                                                                                              \
        8, 4, 2, 1                                                                                 \
    }
#define R4                                                                                         \
    {                                                                                              \
        4, 2, 1, 1                                                                                 \
    }
#define R1                                                                                         \
    {                                                                                              \
        1, 1, 1, 1                                                                                 \
    }
#define M8                                                                                         \
    {                                                                                              \
        8, 8, 4, 4                                                                                 \
    }
#define M4                                                                                         \
    {                                                                                              \
        4, 4, 4, 4                                                                                 \
    }

/* A name may be followed by "-" and the side of images: "pvt-small-384". */
static const struct {
    const char *name;
    tp_pvt_kind kind;
    int64_t side, dim[STAGES];
    int heads[STAGES], blocks[STAGES];
    int64_t reduction[STAGES], mlp_ratio[STAGES];
} presets[] = {
    { "pvt-tiny", TP_PVT, 224, WIDE, { 2, 2, 2, 2 }, R8, M8 },
    { "pvt-small", TP_PVT, 224, WIDE, { 3, 4, 6, 3 }, R8, M8 },
    { "pvt-medium", TP_PVT, 224, WIDE, { 3, 4, 18, 3 }, R8, M8 },
    { "pvt-large", TP_PVT, 224, WIDE, { 3, 8, 27, 3 }, R8, M8 },
    { "pvt2-b0", TP_PVT2, 224, NARROW, { 2, 2, 2, 2 }, R8, M8 },
    { "pvt2-b1", TP_PVT2, 224, WIDE, { 2, 2, 2, 2 }, R8, M8 },
    { "pvt2-b2-li", TP_PVT2_LINEAR, 224, WIDE, { 3, 4, 6, 3 }, R1, M8 },
    { "pvt2-b2", TP_PVT2, 224, WIDE, { 3, 4, 6, 3 }, R8, M8 },
    { "pvt2-b3", TP_PVT2, 224, WIDE, { 3, 4, 18, 3 }, R8, M8 },
    { "pvt2-b4", TP_PVT2, 224, WIDE, { 3, 8, 27, 3 }, R8, M8 },
    { "pvt2-b5", TP_PVT2, 224, WIDE, { 3, 6, 40, 3 }, R8, M4 },
    { "pvt-mini", TP_PVT, 64, MINI, { 2, 2, 3, 2 }, R4, M8 },
    { "pvt2-mini", TP_PVT2, 64, MINI, { 2, 2, 2, 2 }, R4, M8 },
};

static bool model_preset(void *cfg, const char *name, char *why, size_t size)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        const size_t n = strlen(presets[i].name);
        int64_t side = presets[i].side;
        if (strncmp(name, presets[i].name, n) != 0) continue;
        if (name[n] && !tp__side_of(name + n, MAX_SIDE, &side)) continue;
        tp_pvt_cfg c = { .image = { side, side }, .classes = 1000, .kind = presets[i].kind };
        c.pool = c.kind == TP_PVT2_LINEAR ? 7 : 0;
        memcpy(c.dim, presets[i].dim, sizeof c.dim);
        memcpy(c.heads, presets[i].heads, sizeof c.heads);
        memcpy(c.blocks, presets[i].blocks, sizeof c.blocks);
        memcpy(c.reduction, presets[i].reduction, sizeof c.reduction);
        memcpy(c.mlp_ratio, presets[i].mlp_ratio, sizeof c.mlp_ratio);
        *(tp_pvt_cfg *)cfg = c;
        return true;
    }
    snprintf(why, size, "no PVT is called '%.80s'", name);
    return false;
}

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
static bool model_check(const void *cfg, char *why, size_t size)
{
    const tp_pvt_cfg *c = cfg;
    if (c->classes != 0) return tp_pvt_cfg_check(c, why, size);
    snprintf(why, size, "there are no classes");
    return false;
}

/* ---- members: keys as in the reference cases; lists have one value per stage
 * ---- */

static const char *const kinds[] = { "pvt", "pvt2", "pvt2-linear", NULL };

#define AT(member) offsetof(tp_pvt_cfg, member)
static const tp_model_member members[] = {
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

/* ---- the model ---- */

static void model_init(tp_params *P, void *m, const char *name, const void *cfg)
{
    tp_pvt_init(P, m, name, *(const tp_pvt_cfg *)cfg);
}

static tp_tensor model_forward(tp_tape *T, const void *m, void *state, tp_tensor x)
{
    (void)state;
    return tp_pvt_forward(T, m, x);
}

/* Numbers of heads do not show in the parameters. */
static bool model_same(const void *one, const void *other)
{
    const tp_pvt_cfg *a = one, *b = other;
    return a->kind == b->kind && a->pool == b->pool && memcmp(a->dim, b->dim, sizeof a->dim) == 0 &&
           memcmp(a->heads, b->heads, sizeof a->heads) == 0 &&
           memcmp(a->blocks, b->blocks, sizeof a->blocks) == 0 &&
           memcmp(a->reduction, b->reduction, sizeof a->reduction) == 0 &&
           memcmp(a->mlp_ratio, b->mlp_ratio, sizeof a->mlp_ratio) == 0;
}

static bool model_resizes(const char *name, const tp_shape *here, const tp_shape *there)
{
    return strstr(name, "pos_embed") && tp__table_resizes(here, there);
}

static bool model_load(tp_params *P, const void *module, tp_file *F)
{
    const tp_load_opts o = { .convert = true, .resizes = model_resizes };
    const tp_pvt *m = module;
    bool ok = true;
    for (int s = 0; ok && s < STAGES && m->cfg.kind == TP_PVT; s++) {
        const tp__table table = tp__pvt_table(m, s);
        ok = tp__check_table(P, F, &table);
    }
    ok = ok && tp_params_read(P, F, "", &o);
    for (int s = 0; ok && s < STAGES && m->cfg.kind == TP_PVT; s++) {
        const tp__table table = tp__pvt_table(m, s);
        ok = tp__load_table(P, F, &table);
    }
    return ok;
}

/* The official code's names are ours; these are those of PVTv2 in timm since
 * 0.9. */
static const tp_spelling spellings[] = {
    { "patch_embed.", "patch_embed1." },
    { "stages.1.downsample.", "patch_embed2." },
    { "stages.2.downsample.", "patch_embed3." },
    { "stages.3.downsample.", "patch_embed4." },
    { "stages.0.blocks.", "block1." },
    { "stages.1.blocks.", "block2." },
    { "stages.2.blocks.", "block3." },
    { "stages.3.blocks.", "block4." },
    { "stages.0.norm.", "norm1." },
    { "stages.1.norm.", "norm2." },
    { "stages.2.norm.", "norm3." },
    { "stages.3.norm.", "norm4." },
    { ".mlp.dwconv.weight", ".mlp.dwconv.dwconv.weight" },
    { ".mlp.dwconv.bias", ".mlp.dwconv.dwconv.bias" },
    { 0 },
};

const tp_model tp_model_pvt = {
    .name = "pvt",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_pvt_cfg),
    .size = sizeof(tp_pvt),
    .preset = model_preset,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .same = model_same,
    .load = model_load,
    .resizes = "PVT's tables of positions are resized",
    .resizes_to = model_resizes,
    .head = "head.weight",
    .spellings = spellings,
    .backbone = &tp__pvt_backbone,
};
