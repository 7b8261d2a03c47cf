/* config.c - presets of CvT, CvT* and CvT*-LS, checks, metadata, and the model as one constant.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/cvt.h>

#include "model_inner.h"

#define STAGES   TP_CVT_STAGES
#define MAX_SIZE (1 << 20) /* of widths, ranks, windows, classes, images: products fit */

/* ---- presets ---- */

/* The published models: what they are called without the size of images, widths, heads, blocks. */
static const struct size {
    const char *name;
    int64_t dim[STAGES];
    int heads[STAGES], blocks[STAGES];
} sizes[] = {
    [TP_CVT_13] = { "cvt-13", { 64, 192, 384 }, { 1, 3, 6 }, { 1, 2, 10 } },
    [TP_CVT_21] = { "cvt-21", { 64, 192, 384 }, { 1, 3, 6 }, { 1, 4, 16 } },
    [TP_CVT_W24] = { "cvt-w24", { 192, 768, 1024 }, { 3, 12, 16 }, { 2, 2, 20 } },
    [TP_CVT_STAR_13] = { "cvt_star-13", { 64, 192, 384 }, { 1, 3, 6 }, { 1, 2, 10 } },
    [TP_CVT_STAR_21] = { "cvt_star-21", { 64, 192, 384 }, { 1, 3, 6 }, { 1, 4, 16 } },
    [TP_CVT_LS_13] = { "cvt_ls-13", { 64, 192, 384 }, { 1, 3, 6 }, { 1, 2, 10 } },
    [TP_CVT_LS_17] = { "cvt_ls-17", { 128, 256, 384 }, { 2, 4, 6 }, { 3, 4, 10 } },
    [TP_CVT_LS_21] = { "cvt_ls-21", { 64, 192, 384 }, { 1, 3, 6 }, { 1, 4, 16 } },
    [TP_CVT_LS_21S] = { "cvt_ls-21s", { 128, 256, 384 }, { 2, 4, 6 }, { 3, 4, 14 } },
};

static void set_long_short(tp_cvt_cfg *c, int64_t size)
{
    for (int s = 0; s < STAGES; s++) {
        c->rank[s] = (size < 448 ? 64 : 128) >> 2 * s;
        c->window[s] = (size < 384 ? 8 : size < 448 ? 12 : 16) >> s;
    }
    c->long_short = true;
}

tp_cvt_cfg tp_cvt_preset(tp_cvt_name name, int64_t size)
{
    const struct size *z = &sizes[name];
    tp_cvt_cfg c = { .image = { size, size },
                     .classes = 1000,
                     .kv_stride = 1,
                     .class_std = 0.02,
                     .drop_path = 0.1 };

    memcpy(c.dim, z->dim, sizeof c.dim);
    memcpy(c.heads, z->heads, sizeof c.heads);
    memcpy(c.blocks, z->blocks, sizeof c.blocks);
    if (name <= TP_CVT_W24) {
        c.kv_stride = 2;
        c.wide_scale = c.quick_gelu = c.single_proj = c.drop_last_stage = true;
        if (name == TP_CVT_W24) c.drop_path = 0.3;
        return c;
    }
    c.conv_bias = true;
    if (name >= TP_CVT_LS_13) {
        set_long_short(&c, size);
    } else {
        c.raw_class = true;
        c.class_std = 1.0;
        c.drop_path = 0.0;
    }
    return c;
}

/* Three stages of 48 to 192 channels, with windows and ranks for maps of 16, 8 and 4 (64 x 64). */
static tp_cvt_cfg small(bool long_short)
{
    return (tp_cvt_cfg){ .image = { 64, 64 },
                         .classes = 1000,
                         .kv_stride = 1,
                         .dim = { 48, 96, 192 },
                         .heads = { 1, 2, 4 },
                         .blocks = { 1, 2, 4 },
                         .long_short = long_short,
                         .rank = { long_short ? 16 : 0, long_short ? 8 : 0, long_short ? 4 : 0 },
                         .window = { long_short ? 4 : 0, long_short ? 2 : 0, long_short ? 2 : 0 },
                         .conv_bias = true,
                         .class_std = 0.02 };
}

/* What follows if text begins with start, '-' being as good as '_'; else NULL. */
static const char *behind(const char *text, const char *start)
{
    for (; *start; text++, start++)
        if (*text != *start && !(*text == '-' && *start == '_')) return NULL;
    return text;
}

/* A published model's name and "-", then the side of images: "cvt_ls-13-224". */
static bool model_preset(void *cfg, const char *name, char *why, size_t size)
{
    if (strcmp(name, "cvt-small") == 0 || strcmp(name, "cvt-ls-small") == 0) {
        *(tp_cvt_cfg *)cfg = small(strcmp(name, "cvt-ls-small") == 0);
        return true;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *rest = behind(name, sizes[i].name);
        if (!rest || rest[0] != '-' || rest[1] < '1' || rest[1] > '9') continue;
        char *end;
        const long side = strtol(rest + 1, &end, 10);
        if (*end || side > MAX_SIZE) continue;
        *(tp_cvt_cfg *)cfg = tp_cvt_preset((tp_cvt_name)i, side);
        return true;
    }
    snprintf(why, size, "no CvT is called '%.80s'", name);
    return false;
}

/* ---- checks ---- */

static bool is_size(int64_t n)
{
    return n >= 1 && n <= MAX_SIZE;
}

static void check_stage(const tp_cvt_cfg *c, int s, char *buf, size_t size)
{
    const long long D = (long long)c->dim[s], r = (long long)c->rank[s],
                    w = (long long)c->window[s];

    if (!is_size(c->dim[s]))
        snprintf(buf, size, "the width of stage %d is %lld", s, D);
    else if (c->heads[s] < 1 || D % c->heads[s])
        snprintf(buf, size, "the width %lld of stage %d does not divide into %d heads", D, s,
                 c->heads[s]);
    else if (c->blocks[s] < 0 || c->blocks[s] > TP_CVT_MAX_BLOCKS)
        snprintf(buf, size, "stage %d has %d blocks", s, c->blocks[s]);
    else if (c->long_short && (!is_size(r) || !is_size(w) || !is_size(r * c->heads[s])))
        snprintf(buf, size, "stage %d: a window of %lld and %d heads of rank %lld", s, w,
                 c->heads[s], r);
}

bool tp_cvt_cfg_check(const tp_cvt_cfg *c, char *why, size_t size)
{
    int blocks = 0;

    why[0] = '\0';
    for (int s = 0; s < STAGES && !why[0]; s++) {
        check_stage(c, s, why, size);
        blocks += why[0] ? 0 : c->blocks[s];
    }
    if (why[0]) return false;
    if (blocks > TP_CVT_MAX_BLOCKS)
        snprintf(why, size, "%d blocks: at most %d are possible", blocks, TP_CVT_MAX_BLOCKS);
    else if (!is_size(c->classes))
        snprintf(why, size, "%lld classes", (long long)c->classes);
    else if (!is_size(c->image[0]) || !is_size(c->image[1]))
        snprintf(why, size, "images of %lld x %lld", (long long)c->image[0],
                 (long long)c->image[1]);
    else if (c->kv_stride < 1 || c->kv_stride > MAX_SIZE || (c->long_short && c->kv_stride > 1))
        snprintf(why, size, "a stride of %lld in front of keys and values%s",
                 (long long)c->kv_stride,
                 c->long_short ? ": the long-short attention wants all of them" : "");
    else if (!(c->drop_path >= 0.0 && c->drop_path < 1.0))
        snprintf(why, size, "drop path must be in [0,1), not %g", c->drop_path);
    else if (!(c->class_std >= 0.0 && c->class_std <= MAX_SIZE))
        snprintf(why, size, "a class token of deviation %g", c->class_std);
    return !why[0];
}

/* ---- metadata: the keys of the reference cases, a list one value a stage ---- */

#define AT(member) offsetof(tp_cvt_cfg, member)
static const tp__member members[] = {
    { .key = "num_classes", .kind = MEMBER_INT64, .at = AT(classes) },
    { .key = "stride_kv", .kind = MEMBER_INT64, .at = AT(kv_stride) },
    { .key = "dims", .kind = MEMBER_INT64S, .at = AT(dim), .count = STAGES },
    { .key = "heads", .kind = MEMBER_INTS, .at = AT(heads), .count = STAGES },
    { .key = "depth", .kind = MEMBER_INTS, .at = AT(blocks), .count = STAGES },
    { .key = "long_short", .kind = MEMBER_FLAG, .at = AT(long_short) },
    { .key = "r", .kind = MEMBER_INT64S, .at = AT(rank), .count = STAGES },
    { .key = "w", .kind = MEMBER_INT64S, .at = AT(window), .count = STAGES },
    { .key = "conv_bias", .kind = MEMBER_FLAG, .at = AT(conv_bias) },
    { .key = "wide_scale", .kind = MEMBER_FLAG, .at = AT(wide_scale) },
    { .key = "quick_gelu", .kind = MEMBER_FLAG, .at = AT(quick_gelu) },
    { .key = "raw_class", .kind = MEMBER_FLAG, .at = AT(raw_class) },
    { .key = "single_proj", .kind = MEMBER_FLAG, .at = AT(single_proj) },
    { .key = "no_dual_ln", .kind = MEMBER_FLAG, .at = AT(raw_kv) },
    { .key = "biased_ws", .kind = MEMBER_FLAG, .at = AT(biased_ws) },
    { .key = "mean_pool", .kind = MEMBER_FLAG, .at = AT(mean_pool) },
    { .key = "class_std", .kind = MEMBER_REAL, .at = AT(class_std) },
    { .key = "drop_path", .kind = MEMBER_REAL, .at = AT(drop_path) },
    { .key = "drop_last_stage", .kind = MEMBER_FLAG, .at = AT(drop_last_stage) },
    { .key = "image",
      .kind = MEMBER_SIDES,
      .at = AT(image),
      .older = "classifier_size",
      .optional = true },
    { .key = NULL },
};

void tp_cvt_cfg_write(const tp_cvt_cfg *cfg, tp_writer *W)
{
    tp_writer_meta(W, "model", tp_model_cvt.name);
    tp__members_write(members, cfg, W);
}

bool tp_cvt_cfg_read(tp_cvt_cfg *cfg, tp_file *F, char *why, size_t size)
{
    *cfg = (tp_cvt_cfg){ .image = { 224, 224 } };
    return tp__members_read(members, tp_model_cvt.name, cfg, F, why, size) &&
           tp_cvt_cfg_check(cfg, why, size);
}

/* ---- the model ---- */

static bool model_check(const void *cfg, char *why, size_t size)
{
    return tp_cvt_cfg_check(cfg, why, size);
}

static void model_write(const void *cfg, tp_writer *W)
{
    tp_cvt_cfg_write(cfg, W);
}

static bool model_read(void *cfg, tp_file *F, char *why, size_t size)
{
    return tp_cvt_cfg_read(cfg, F, why, size);
}

static tp_common_cfg model_get(const void *cfg)
{
    const tp_cvt_cfg *c = cfg;
    return (tp_common_cfg){ .image = { c->image[0], c->image[1] },
                            .outputs = c->classes,
                            .drop_path = c->drop_path,
                            .recompute = c->recompute };
}

static void model_set(void *cfg, const tp_common_cfg *o)
{
    tp_cvt_cfg *c = cfg;
    memcpy(c->image, o->image, sizeof c->image);
    c->classes = o->outputs;
    c->drop_path = o->drop_path;
    c->recompute = o->recompute;
}

static void model_init(tp_params *P, void *m, const char *name, const void *cfg)
{
    tp_cvt_init(P, m, name, *(const tp_cvt_cfg *)cfg);
}

static tp_tensor model_forward(tp_tape *T, const void *m, void *state, tp_tensor x)
{
    (void)state;
    return tp_cvt_forward(T, m, x);
}

/* Ranks and windows may differ: they follow the size of images. */
static bool model_same(const void *one, const void *other)
{
    const tp_cvt_cfg *a = one, *b = other;
    return memcmp(a->dim, b->dim, sizeof a->dim) == 0 &&
           memcmp(a->heads, b->heads, sizeof a->heads) == 0 &&
           memcmp(a->blocks, b->blocks, sizeof a->blocks) == 0 && a->long_short == b->long_short &&
           a->conv_bias == b->conv_bias;
}

static bool model_load(tp_params *P, const void *m, const char *path)
{
    (void)m;
    return tp_cvt_load(P, path);
}

static tp_flops model_flops(const void *cfg, int64_t tokens, int64_t cache)
{
    (void)tokens;
    (void)cache;
    return tp_cvt_flops(cfg);
}

static double model_activations(const void *cfg, int64_t tokens, int64_t cache)
{
    (void)tokens;
    (void)cache;
    return tp_cvt_activations(cfg);
}

const tp_model tp_model_cvt = {
    .name = "cvt",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_cvt_cfg),
    .size = sizeof(tp_cvt),
    .preset = model_preset,
    .check = model_check,
    .write = model_write,
    .read = model_read,
    .get = model_get,
    .set = model_set,
    .init = model_init,
    .forward = model_forward,
    .same = model_same,
    .load = model_load,
    .resizes = "projections are repeated where the rank grows with the size",
    .flops = model_flops,
    .activations = model_activations,
};
