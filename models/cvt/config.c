/* config.c - presets, checks and members of CvT, CvT* and CvT*-LS, and their constant. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/cvt.h>

#include "model_inner.h"

#define STAGES   TP_CVT_STAGES
#define MAX_SIZE (1 << 20) /* of widths, ranks, windows, classes, images, so that products fit */

/* ---- presets ---- */

/* The published models: name without the size of images, widths, heads, blocks. */
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

/* Three stages of 48 to 192 channels, with windows and ranks for images of 64 x 64. */
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

/* The rest of text after the prefix `start`, or NULL if it lacks the prefix; '-' equals '_'. */
static const char *rest_of(const char *text, const char *start)
{
    for (; *start; text++, start++)
        if (*text != *start && !(*text == '-' && *start == '_')) return NULL;
    return text;
}

/* Parses the name of a published model, "-" and the side of images: "cvt_ls-13-224". */
static bool model_preset(void *cfg, const char *name, char *why, size_t size)
{
    if (strcmp(name, "cvt-small") == 0 || strcmp(name, "cvt-ls-small") == 0) {
        *(tp_cvt_cfg *)cfg = small(strcmp(name, "cvt-ls-small") == 0);
        return true;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *rest = rest_of(name, sizes[i].name);
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

bool tp_cvt_cfg_check(const tp_cvt_cfg *c, char *why, size_t size)
{
    if (!c) {
        if (why) snprintf(why, size, "cvt_cfg_check: NULL was given in place of a configuration");
        return false;
    }
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
static const tp_model_member members[] = {
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

/* ---- the model ---- */

static bool model_check(const void *cfg, char *why, size_t size)
{
    return tp_cvt_cfg_check(cfg, why, size);
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

/* Ranks and windows may differ, since they follow the size of images. */
static bool model_same(const void *one, const void *other)
{
    const tp_cvt_cfg *a = one, *b = other;
    return memcmp(a->dim, b->dim, sizeof a->dim) == 0 &&
           memcmp(a->heads, b->heads, sizeof a->heads) == 0 &&
           memcmp(a->blocks, b->blocks, sizeof a->blocks) == 0 && a->long_short == b->long_short &&
           a->conv_bias == b->conv_bias;
}

static bool model_load(tp_params *P, const void *m, tp_file *F)
{
    (void)m;
    return tp__cvt_load(P, F);
}

/* The names of Hugging Face's transformers. */
/* Like the published code, the paper counts whole windows. */
static void model_paper(const void *cfg, int64_t tokens, tp_cost *cost)
{
    (void)cfg;
    (void)tokens;
    cost->paper += cost->beyond;
}

static const tp_spelling spellings[] = {
    { "cvt.encoder.stages.", "stage" },
    { ".embedding.convolution_embeddings.projection.", ".patch_embed.proj." },
    { ".embedding.convolution_embeddings.normalization.", ".patch_embed.norm." },
    { ".layers.", ".blocks." },
    { ".attention.attention.convolution_projection_", ".attn.conv_proj_" },
    { ".attention.attention.projection_", ".attn.proj_" },
    { "proj_query.", "proj_q." },
    { "proj_key.", "proj_k." },
    { "proj_value.", "proj_v." },
    { ".convolution_projection.convolution.", ".conv." },
    { ".convolution_projection.normalization.", ".bn." },
    { ".attention.output.dense.", ".attn.proj." },
    { ".intermediate.dense.", ".mlp.fc1." },
    { ".output.dense.", ".mlp.fc2." },
    { ".layernorm_before.", ".norm1." },
    { ".layernorm_after.", ".norm2." },
    { "layernorm.", "norm." },
    { "classifier.", "head." },
    { 0 },
};

const tp_model tp_model_cvt = {
    .name = "cvt",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_cvt_cfg),
    .size = sizeof(tp_cvt),
    .preset = model_preset,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .paper = model_paper,
    .same = model_same,
    .load = model_load,
    .resizes = "projections are repeated where the rank grows with the size",
    .resizes_to = tp__cvt_resizes,
    .head = "head.weight",
    .spellings = spellings,
};
