/* config.c - presets, checks, members, costs and weights of other sizes of ViT and DeiT, and their
 * constant. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/vit.h>

#include "inner.h"
#include "model_inner.h"

enum { MAX_SIZE = 1 << 20, MAX_SIDE = 1 << 16, MAX_RATIO = 64 }; /* so that products fit */

/* ---- presets ---- */

/* A name may be followed by "-" and the side of images: "deit-b-384". */
static const struct {
    const char *name;
    int64_t side, patch, dim;
    int heads, blocks;
    bool distilled;
} presets[] = {
    { "deit-t", 224, 16, 192, 3, 12, false },  { "deit-t-distilled", 224, 16, 192, 3, 12, true },
    { "deit-s", 224, 16, 384, 6, 12, false },  { "deit-s-distilled", 224, 16, 384, 6, 12, true },
    { "deit-b", 224, 16, 768, 12, 12, false }, { "deit-b-distilled", 224, 16, 768, 12, 12, true },
    { "vit-b", 224, 16, 768, 12, 12, false },  { "vit-l", 224, 16, 1024, 16, 24, false },
    { "deit-mini", 64, 8, 128, 4, 9, false },  { "deit-mini-distilled", 64, 8, 128, 4, 9, true },
};

static bool model_preset(void *cfg, const char *name, char *why, size_t size)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        const size_t n = strlen(presets[i].name);
        int64_t side = presets[i].side;
        if (strncmp(name, presets[i].name, n) != 0) continue;
        if (name[n] && !tp__side_of(name + n, MAX_SIDE, &side)) continue;
        *(tp_vit_cfg *)cfg = (tp_vit_cfg){ .image = { side, side },
                                           .classes = 1000,
                                           .patch = presets[i].patch,
                                           .dim = presets[i].dim,
                                           .heads = presets[i].heads,
                                           .blocks = presets[i].blocks,
                                           .mlp_ratio = 4,
                                           .distilled = presets[i].distilled };
        return true;
    }
    snprintf(why, size, "no ViT is called '%.80s'", name);
    return false;
}

/* ---- checks ---- */

bool tp_vit_cfg_check(const tp_vit_cfg *c, char *why, size_t size)
{
    if (!c) {
        if (why) snprintf(why, size, "vit_cfg_check: NULL was given in place of a configuration");
        return false;
    }
    const long long D = (long long)c->dim, H = (long long)c->image[0], W = (long long)c->image[1];
    why[0] = '\0';
    if (!tp__in_range(c->dim, 1, MAX_SIZE))
        snprintf(why, size, "the width is %lld, not 1 to %d", D, MAX_SIZE);
    else if (c->heads < 1 || D % c->heads)
        snprintf(why, size, "the width %lld does not divide into %d heads", D, c->heads);
    else if (!tp__in_range(c->blocks, 1, TP_VIT_BLOCKS))
        snprintf(why, size, "the model has %d blocks, not 1 to %d", c->blocks, TP_VIT_BLOCKS);
    else if (!tp__in_range(c->mlp_ratio, 1, MAX_RATIO))
        snprintf(why, size, "the feed-forward networks are %lld times as wide, not 1 to %d times",
                 (long long)c->mlp_ratio, MAX_RATIO);
    else if (!tp__in_range(c->classes, 1, MAX_SIZE))
        snprintf(why, size, "there are %lld classes, not 1 to %d", (long long)c->classes, MAX_SIZE);
    else if (!tp__in_range(H, 1, MAX_SIDE) || !tp__in_range(W, 1, MAX_SIDE) ||
             !tp__in_range(c->patch, 1, H < W ? H : W))
        snprintf(why, size, "patches of side %lld leave nothing of %lld x %lld pixels",
                 (long long)c->patch, H, W);
    else if (!tp__is_rate(c->drop_path) || !tp__is_rate(c->dropout))
        snprintf(why, size, "dropout and drop path must be in [0,1), not %g and %g", c->dropout,
                 c->drop_path);
    return !why[0];
}

static bool model_check(const void *cfg, char *why, size_t size)
{
    return tp_vit_cfg_check(cfg, why, size);
}

/* ---- members ---- */

#define AT(member) offsetof(tp_vit_cfg, member)
static const tp_model_member members[] = {
    { "image", TP_MEMBER_SIDES, .at = AT(image), .common = TP_COMMON_IMAGE },
    { "num_classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS },
    { "patch", TP_MEMBER_INT64, .at = AT(patch) },
    { "dim", TP_MEMBER_INT64, .at = AT(dim) },
    { "heads", TP_MEMBER_INT, .at = AT(heads) },
    { "depth", TP_MEMBER_INT, .at = AT(blocks) },
    { "mlp_ratio", TP_MEMBER_INT64, .at = AT(mlp_ratio) },
    { "distilled", TP_MEMBER_FLAG, .at = AT(distilled) },
    { "dropout", TP_MEMBER_REAL, .at = AT(dropout), .common = TP_COMMON_DROPOUT },
    { "drop_path", TP_MEMBER_REAL, .at = AT(drop_path), .common = TP_COMMON_DROP_PATH },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};

/* ---- the model ---- */

static void model_init(tp_params *P, void *m, const char *name, const void *cfg)
{
    tp_vit_init(P, m, name, *(const tp_vit_cfg *)cfg);
}

static tp_tensor model_forward(tp_tape *T, const void *m, void *state, tp_tensor x)
{
    (void)state;
    return tp_vit_forward(T, m, x);
}

static tp_tensor model_heads(tp_tape *T, const void *m, tp_tensor x, tp_tensor *dist)
{
    return tp_vit_heads(T, m, x, dist);
}

static bool model_same(const void *one, const void *other)
{
    const tp_vit_cfg *a = one, *b = other;
    return a->patch == b->patch && a->dim == b->dim && a->heads == b->heads &&
           a->blocks == b->blocks && a->mlp_ratio == b->mlp_ratio && a->distilled == b->distilled;
}

static bool model_resizes(const char *name, const tp_shape *here, const tp_shape *there)
{
    return tp_ends_in(name, "pos_embed") && tp__table_resizes(here, there);
}

static bool model_load(tp_params *P, const void *module, tp_file *F)
{
    const tp_vit *m = module;
    const tp_load_opts o = { .convert = true, .resizes = model_resizes };
    const tp__table table = tp__vit_table(m);
    return tp__check_table(P, F, &table) && tp_params_read(P, F, "", &o) &&
           tp__load_table(P, F, &table);
}

/* DeiT's and timm's names are ours; these are torchvision's. */
static const tp_spelling spellings[] = {
    { "class_token", "cls_token" },
    { "conv_proj.", "patch_embed.proj." },
    { "encoder.pos_embedding", "pos_embed" },
    { "encoder.layers.encoder_layer_", "blocks." },
    { ".ln_1.", ".norm1." },
    { ".ln_2.", ".norm2." },
    { ".self_attention.in_proj_", ".attn.qkv." },
    { ".self_attention.out_proj.", ".attn.proj." },
    { ".mlp.linear_1.", ".mlp.fc1." },
    { ".mlp.linear_2.", ".mlp.fc2." },
    { ".mlp.0.", ".mlp.fc1." },
    { ".mlp.3.", ".mlp.fc2." },
    { "encoder.ln.", "norm." },
    { "heads.head.", "head." },
    { 0 },
};

const tp_model tp_model_vit = {
    .name = "vit",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_vit_cfg),
    .size = sizeof(tp_vit),
    .preset = model_preset,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .heads = model_heads,
    .same = model_same,
    .load = model_load,
    .resizes = "the table of positions is resized",
    .resizes_to = model_resizes,
    .head = "head.weight",
    .spellings = spellings,
};
