/* model.c - the constant of Vision Longformer. Keys of its members are the options of the official
 * code. */
#include <stdio.h>
#include <string.h>

#include "inner.h"
#include "model_inner.h"

/* ---- members ---- */

static const char *const kinds[] = { "longformer", "global",    "full", "linformer",
                                     "srformer",   "performer", "ls",   NULL };
static const char *const edges[] = { "mask", "exact", "cyclic", NULL };

/* Prints the stages in the official notation. */
static void print_stages(const void *cfg, char *buf, size_t size)
{
    tp_vil_notation(cfg, buf, size);
}

static bool parse_stages(void *cfg, const char *text, char *why, size_t size)
{
    return tp_vil_parse(cfg, text, why, size);
}

#define AT(member) offsetof(tp_vil_cfg, member)
static const tp_model_member members[] = {
    { "arch", TP_MEMBER_TEXT, .print = print_stages, .parse = parse_stages },
    { "attn_type", TP_MEMBER_WORD, .at = AT(kind), .words = kinds },
    { "edge", TP_MEMBER_WORD, .at = AT(edge), .words = edges },
    { "mode", TP_MEMBER_INT, .at = AT(shift) },
    { "image_height", TP_MEMBER_INT64, .at = AT(image[0]), .common = TP_COMMON_IMAGE },
    { "image_width", TP_MEMBER_INT64, .at = AT(image[1]) },
    { "num_classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS },
    { "drop_path", TP_MEMBER_REAL, .at = AT(drop_path), .common = TP_COMMON_DROP_PATH },
    { "avg_pool", TP_MEMBER_FLAG, .at = AT(avg_pool) },
    { "mask_wrapped", TP_MEMBER_FLAG, .at = AT(mask_wrapped) },
    { "share_w", TP_MEMBER_NOT, .at = AT(separate_global) },
    { "share_kv", TP_MEMBER_NOT, .at = AT(separate_kv) },
    { "norm_embed", TP_MEMBER_NOT, .at = AT(raw_embed) },
    { "qkv_bias", TP_MEMBER_NOT, .at = AT(linear_qkv) },
    { "distinct_bias", TP_MEMBER_FLAG, .at = AT(distinct_bias) },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};

/* ---- the model ---- */

static bool model_preset(void *cfg, const char *name, char *why, size_t size)
{
    return tp_vil_preset(cfg, name, why, size);
}

/* A model of the table is a classifier. */
static bool model_check(const void *cfg, char *why, size_t size)
{
    const tp_vil_cfg *c = cfg;
    if (c->classes != 0) return tp_vil_cfg_check(c, why, size);
    snprintf(why, size, "there are no classes");
    return false;
}

static void model_init(tp_params *P, void *m, const char *name, const void *cfg)
{
    tp_vil_init(P, m, name, *(const tp_vil_cfg *)cfg);
}

static tp_tensor model_forward(tp_tape *T, const void *m, void *state, tp_tensor x)
{
    (void)state;
    return tp_vil_forward(T, m, x);
}

/* Windows and numbers of global tokens may differ, since loading resizes their tables. */
static bool model_same(const void *one, const void *other)
{
    const tp_vil_cfg *a = one, *b = other;
    bool same = a->kind == b->kind && a->stages == b->stages;
    for (int i = 0; i < a->stages && same; i++) {
        const tp_vil_stage *x = &a->stage[i], *y = &b->stage[i];
        same = x->dim == y->dim && x->heads == y->heads && x->blocks == y->blocks &&
               x->patch == y->patch && x->dense == y->dense && x->absolute == y->absolute;
    }
    return same;
}

static bool model_load(tp_params *P, const void *m, tp_file *F)
{
    return tp__vil_load(P, m, F);
}

/* Linformer's mixtures fit one size of map only; for another they keep their initial values. */
static bool model_all_resized(const void *cfg)
{
    return ((const tp_vil_cfg *)cfg)->kind != TP_VIL_LINFORMER;
}

static void model_set_shift(void *m, int shift)
{
    tp_vil_set_shift(m, shift);
}

static bool model_redraw(tp_params *P, const void *m, uint64_t seed, uint64_t draw)
{
    return tp_vil_redraw(P, m, seed, draw);
}

static const tp_spelling spellings[] = {
    { "calls_since_last_redraw", NULL }, /* Performer's */
    { 0 },
};

const tp_model tp_model_vil = {
    .name = "vision-longformer",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_vil_cfg),
    .size = sizeof(tp_vil),
    .preset = model_preset,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .paper = tp__vil_paper,
    .same = model_same,
    .load = model_load,
    .resizes = "tables of positions are resized",
    .all_resized = model_all_resized,
    .resizes_to = tp__vil_resizes,
    .head = "head.weight",
    .spellings = spellings,
    .set_shift = model_set_shift,
    .redraw = model_redraw,
    .backbone = &tp__vil_backbone,
};
