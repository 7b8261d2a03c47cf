/* config.c - presets, checks and members of CvT, CvT* and CvT*-LS. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inner.h"

#define STAGES   TP_CVT_STAGES
#define MAX_SIZE (1 << 20) /* of widths, ranks, windows, classes, images, so that products fit */

/* ---- presets ---- */

typedef enum name { CVT_13, CVT_21, CVT_W24, STAR_13, STAR_21, LS_13, LS_17, LS_21, LS_21S } name;

/* The published models: name without the size of images, widths, heads, blocks. */
static const struct size {
    const char *name;
    int64_t dim[STAGES];
    int heads[STAGES], blocks[STAGES];
} sizes[] = {
    [CVT_13] = { "cvt-13", { 64, 192, 384 }, { 1, 3, 6 }, { 1, 2, 10 } },
    [CVT_21] = { "cvt-21", { 64, 192, 384 }, { 1, 3, 6 }, { 1, 4, 16 } },
    [CVT_W24] = { "cvt-w24", { 192, 768, 1024 }, { 3, 12, 16 }, { 2, 2, 20 } },
    [STAR_13] = { "cvt_star-13", { 64, 192, 384 }, { 1, 3, 6 }, { 1, 2, 10 } },
    [STAR_21] = { "cvt_star-21", { 64, 192, 384 }, { 1, 3, 6 }, { 1, 4, 16 } },
    [LS_13] = { "cvt_ls-13", { 64, 192, 384 }, { 1, 3, 6 }, { 1, 2, 10 } },
    [LS_17] = { "cvt_ls-17", { 128, 256, 384 }, { 2, 4, 6 }, { 3, 4, 10 } },
    [LS_21] = { "cvt_ls-21", { 64, 192, 384 }, { 1, 3, 6 }, { 1, 4, 16 } },
    [LS_21S] = { "cvt_ls-21s", { 128, 256, 384 }, { 2, 4, 6 }, { 3, 4, 14 } },
};

/* 224, 384 and 448 differ in ranks and windows; other sizes use those of the next smaller one. */
static void set_long_short(tp_cvt_cfg *c, int64_t size)
{
    for (int s = 0; s < STAGES; s++) {
        c->rank[s] = (size < 448 ? 64 : 128) >> 2 * s;
        c->window[s] = (size < 384 ? 8 : size < 448 ? 12 : 16) >> s;
    }
    c->long_short = true;
}

/* With drop path 0.1 where the papers train with it. */
static tp_cvt_cfg published(name which, int64_t size)
{
    const struct size *z = &sizes[which];
    tp_cvt_cfg c = { .image = { size, size },
                     .classes = 1000,
                     .kv_stride = 1,
                     .class_std = 0.02,
                     .drop_path = 0.1 };

    memcpy(c.dim, z->dim, sizeof c.dim);
    memcpy(c.heads, z->heads, sizeof c.heads);
    memcpy(c.blocks, z->blocks, sizeof c.blocks);
    if (which <= CVT_W24) {
        c.kv_stride = 2;
        c.wide_scale = c.quick_gelu = c.single_proj = c.drop_last_stage = true;
        if (which == CVT_W24) c.drop_path = 0.3;
        return c;
    }
    c.conv_bias = true;
    if (which >= LS_13) {
        set_long_short(&c, size);
    } else {
        c.raw_class = true;
        c.class_std = 1.0;
        c.drop_path = 0.0;
    }
    return c;
}

/* The rest of text after the prefix `start`, or NULL if it lacks the prefix; '-' equals '_'. */
static const char *rest_of(const char *text, const char *start)
{
    for (; *start; text++, start++)
        if (*text != *start && !(*text == '-' && *start == '_')) return NULL;
    return text;
}

/* Parses the name of a published model, "-" and the side of images: "cvt_ls-13-224". */
bool tp__cvt_preset(void *cfg, const char *text, char *why, size_t size)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *rest = rest_of(text, sizes[i].name);
        if (!rest || rest[0] != '-' || rest[1] < '1' || rest[1] > '9') continue;
        char *end;
        const long side = strtol(rest + 1, &end, 10);
        if (*end || side > MAX_SIZE) continue;
        *(tp_cvt_cfg *)cfg = published((name)i, side);
        return true;
    }
    snprintf(why, size, "no CvT is called '%.80s'", text);
    return false;
}

/* Table 5 of Transformer-LS, then small ones. */
/* clang-format off */
#define SMALL \
    .image = { 64, 64 }, .classes = 1000, .kv_stride = 1, .dim = { 48, 96, 192 }, .heads = { 1, 2, 4 }, \
    .blocks = { 1, 2, 4 }, .conv_bias = true, .class_std = 0.02
const tp_model_row tp__cvt_presets[] = {
    { "cvt-13-224", "CvT", .also = "cvt-13 CvT-13", .params = 20e6, .flops = 4.5e9 },
    { "cvt-13-384", "CvT", .params = 20e6, .flops = 16.3e9 },
    { "cvt-21-224", "CvT", .also = "cvt-21 CvT-21", .params = 32e6, .flops = 7.1e9 },
    { "cvt-21-384", "CvT", .params = 32e6, .flops = 24.9e9 },
    { "cvt-w24-224", "CvT", .also = "cvt-w24", .params = 277e6 },
    { "cvt-w24-384", "CvT", .also = "CvT-W24", .params = 277e6, .flops = 193.2e9 },
    { "cvt_star-13-224", "CvT*", .also = "cvt-star-13 CvT*-13", .flops = 6.7e9, .norm_cost = 5 },
    { "cvt_star-13-384", "CvT*", .flops = 31.9e9, .norm_cost = 5 },
    { "cvt_star-21-224", "CvT*", .also = "cvt-star-21 CvT*-21", .flops = 10.1e9, .norm_cost = 5 },
    { "cvt_star-21-384", "CvT*", .flops = 45.0e9, .norm_cost = 5 },
    { "cvt_ls-13-224", "CvT*-LS", .also = "cvt-ls-13 CvT*-LS-13", .params = 20.3e6, .flops = 4.9e9, .norm_cost = 5 },
    { "cvt_ls-13-384", "CvT*-LS", .params = 20.3e6, .norm_cost = 5 },
    { "cvt_ls-17-224", "CvT*-LS", .also = "cvt-ls-17 CvT*-LS-17", .params = 23.7e6, .flops = 9.8e9, .norm_cost = 5 },
    { "cvt_ls-21-224", "CvT*-LS", .also = "cvt-ls-21 CvT*-LS-21", .params = 32.1e6, .flops = 7.9e9, .norm_cost = 5 },
    { "cvt_ls-21s-224", "CvT*-LS", .also = "cvt-ls-21s CvT*-LS-21S", .params = 30.1e6, .flops = 11.3e9, .norm_cost = 5 },
    { "cvt_ls-21-384", "CvT*-LS", .params = 32.1e6, .flops = 23.9e9, .norm_cost = 5 },
    { "cvt_ls-21-448", "CvT*-LS", .params = 32.1e6, .flops = 34.2e9, .norm_cost = 5 },
    /* Three stages of 48 to 192 channels, with windows and ranks for images of 64 x 64. */
    { "cvt-small", "CvT*", .norm_cost = 5, .cfg = &(const tp_cvt_cfg){ SMALL } },
    { "cvt-ls-small", "CvT*-LS", .norm_cost = 5,
      .cfg = &(const tp_cvt_cfg){ SMALL, .long_short = true, .rank = { 16, 8, 4 }, .window = { 4, 2, 2 } } },
    { 0 },
};
/* clang-format on */

/* ---- checks ---- */

static bool is_size(int64_t n)
{
    return tp__in_range(n, 1, MAX_SIZE);
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
        snprintf(buf, size,
                 "stage %d has a window of %lld and %d heads of rank %lld: sizes must be 1 to %d",
                 s, w, c->heads[s], r, MAX_SIZE);
}

bool tp__cvt_check(const void *cfg, char *why, size_t size)
{
    const tp_cvt_cfg *c = cfg;
    int blocks = 0;

    why[0] = '\0';
    for (int s = 0; s < STAGES && !why[0]; s++) {
        check_stage(c, s, why, size);
        blocks += why[0] ? 0 : c->blocks[s];
    }
    if (why[0]) return false;
    if (blocks > TP_CVT_MAX_BLOCKS)
        snprintf(why, size, "the model has %d blocks, not at most %d", blocks, TP_CVT_MAX_BLOCKS);
    else if (!is_size(c->classes))
        snprintf(why, size, "there are %lld classes, not 1 to %d", (long long)c->classes, MAX_SIZE);
    else if (!is_size(c->image[0]) || !is_size(c->image[1]))
        snprintf(why, size, "images are %lld x %lld pixels: sides must be 1 to %d",
                 (long long)c->image[0], (long long)c->image[1], MAX_SIZE);
    else if (c->kv_stride < 1 || c->kv_stride > MAX_SIZE || (c->long_short && c->kv_stride > 1))
        snprintf(why, size, "the stride of keys and values is %lld%s", (long long)c->kv_stride,
                 c->long_short ? ", but long-short attention needs all of them" : "");
    else if (!tp__is_rate(c->drop_path))
        snprintf(why, size, "drop path must be in [0,1), not %g", c->drop_path);
    else if (!(c->class_std >= 0.0 && c->class_std <= MAX_SIZE))
        snprintf(why, size, "the class token has the standard deviation %g, not 0 to %d",
                 c->class_std, MAX_SIZE);
    return !why[0];
}

/* ---- members: keys as in the reference cases; lists have one value per stage ---- */

#define AT(member) offsetof(tp_cvt_cfg, member)
const tp_model_member tp__cvt_members[] = {
    { "num_classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS },
    { "stride_kv", TP_MEMBER_INT64, .at = AT(kv_stride) },
    { "dims", TP_MEMBER_INT64S, .at = AT(dim), .count = STAGES },
    { "heads", TP_MEMBER_INTS, .at = AT(heads), .count = STAGES },
    { "depth", TP_MEMBER_INTS, .at = AT(blocks), .count = STAGES },
    { "long_short", TP_MEMBER_FLAG, .at = AT(long_short) },
    { "r", TP_MEMBER_INT64S, .at = AT(rank), .count = STAGES },
    { "w", TP_MEMBER_INT64S, .at = AT(window), .count = STAGES },
    { "conv_bias", TP_MEMBER_FLAG, .at = AT(conv_bias) },
    { "wide_scale", TP_MEMBER_FLAG, .at = AT(wide_scale) },
    { "quick_gelu", TP_MEMBER_FLAG, .at = AT(quick_gelu) },
    { "raw_class", TP_MEMBER_FLAG, .at = AT(raw_class) },
    { "single_proj", TP_MEMBER_FLAG, .at = AT(single_proj) },
    { "no_dual_ln", TP_MEMBER_FLAG, .at = AT(raw_kv) },
    { "biased_ws", TP_MEMBER_FLAG, .at = AT(biased_ws) },
    { "mean_pool", TP_MEMBER_FLAG, .at = AT(mean_pool) },
    { "class_std", TP_MEMBER_REAL, .at = AT(class_std) },
    { "drop_path", TP_MEMBER_REAL, .at = AT(drop_path), .common = TP_COMMON_DROP_PATH },
    { "drop_last_stage", TP_MEMBER_FLAG, .at = AT(drop_last_stage) },
    { "image", TP_MEMBER_SIDES, .at = AT(image), .common = TP_COMMON_IMAGE,
      .older = "classifier_size", .otherwise = 224 },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};
