/* model.c - Vision Longformer as one constant: its configuration as checkpoint metadata, under
 * the names of the official code's options, and what the table of models wants of it. */
#include <stdio.h>
#include <string.h>

#include "inner.h"
#include "model_inner.h"

/* ---- metadata ---- */

static const char *const kinds[] = { "longformer", "global",    "full", "linformer",
                                     "srformer",   "performer", "ls",   NULL };
static const char *const edges[] = { "mask", "exact", "cyclic", NULL };

#define AT(member) offsetof(tp_vil_cfg, member)
static const tp__member members[] = {
    { .key = "attn_type", .kind = MEMBER_WORD, .at = AT(kind), .words = kinds },
    { .key = "edge", .kind = MEMBER_WORD, .at = AT(edge), .words = edges },
    { .key = "mode", .kind = MEMBER_INT, .at = AT(shift) },
    { .key = "image_height", .kind = MEMBER_INT64, .at = AT(image[0]) },
    { .key = "image_width", .kind = MEMBER_INT64, .at = AT(image[1]) },
    { .key = "num_classes", .kind = MEMBER_INT64, .at = AT(classes) },
    { .key = "drop_path", .kind = MEMBER_REAL, .at = AT(drop_path) },
    { .key = "avg_pool", .kind = MEMBER_FLAG, .at = AT(avg_pool) },
    { .key = "mask_wrapped", .kind = MEMBER_FLAG, .at = AT(mask_wrapped) },
    { .key = "share_w", .kind = MEMBER_NOT, .at = AT(separate_global) },
    { .key = "share_kv", .kind = MEMBER_NOT, .at = AT(separate_kv) },
    { .key = "norm_embed", .kind = MEMBER_NOT, .at = AT(raw_embed) },
    { .key = "qkv_bias", .kind = MEMBER_NOT, .at = AT(linear_qkv) },
    { .key = "distinct_bias", .kind = MEMBER_FLAG, .at = AT(distinct_bias) },
    { .key = NULL },
};

void tp_vil_cfg_write(const tp_vil_cfg *c, tp_writer *W)
{
    char arch[512];
    tp_vil_notation(c, arch, sizeof arch);
    tp_writer_meta(W, "model", tp_model_vil.name);
    tp_writer_meta(W, "arch", arch);
    tp__members_write(members, c, W);
}

bool tp_vil_cfg_read(tp_vil_cfg *cfg, tp_file *F, char *why, size_t size)
{
    *cfg = (tp_vil_cfg){ 0 };
    if (!tp__members_read(members, tp_model_vil.name, cfg, F, why, size)) return false;
    const char *arch = tp_file_meta(F, "arch");
    if (!arch) {
        snprintf(why, size, "the configuration lacks 'arch'");
        return false;
    }
    return tp_vil_parse(cfg, arch, why, size) && tp_vil_cfg_check(cfg, why, size);
}

/* ---- the model ---- */

static bool model_preset(void *cfg, const char *name, char *why, size_t size)
{
    return tp_vil_preset(cfg, name, why, size);
}

static bool model_check(const void *cfg, char *why, size_t size)
{
    return tp_vil_cfg_check(cfg, why, size);
}

static void model_write(const void *cfg, tp_writer *W)
{
    tp_vil_cfg_write(cfg, W);
}

static bool model_read(void *cfg, tp_file *F, char *why, size_t size)
{
    return tp_vil_cfg_read(cfg, F, why, size);
}

static tp_common_cfg model_get(const void *cfg)
{
    const tp_vil_cfg *c = cfg;
    return (tp_common_cfg){ .image = { c->image[0], c->image[1] },
                            .outputs = c->classes,
                            .drop_path = c->drop_path,
                            .recompute = c->recompute };
}

static void model_set(void *cfg, const tp_common_cfg *o)
{
    tp_vil_cfg *c = cfg;
    memcpy(c->image, o->image, sizeof c->image);
    c->classes = o->outputs;
    c->drop_path = o->drop_path;
    c->recompute = o->recompute;
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

/* Windows and numbers of global tokens may differ: loading resizes their tables. */
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

static bool model_load(tp_params *P, const void *m, const char *path)
{
    return tp_vil_load(P, m, path);
}

/* Linformer mixes the tokens of one size: its mixtures begin anew. */
static bool model_all_resized(const void *cfg)
{
    return ((const tp_vil_cfg *)cfg)->kind != TP_VIL_LINFORMER;
}

static tp_flops model_flops(const void *cfg, int64_t tokens, int64_t cache)
{
    (void)tokens;
    (void)cache;
    return tp_vil_flops(cfg);
}

static double model_activations(const void *cfg, int64_t tokens, int64_t cache)
{
    (void)tokens;
    (void)cache;
    return tp_vil_activations(cfg);
}

static void model_set_shift(void *m, int shift)
{
    tp_vil_set_shift(m, shift);
}

static bool model_redraw(tp_params *P, const void *m, uint64_t seed, uint64_t draw)
{
    return tp_vil_redraw(P, m, seed, draw);
}

const tp_model tp_model_vil = {
    .name = "vision-longformer",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_vil_cfg),
    .size = sizeof(tp_vil),
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
    .resizes = "tables of positions are resized",
    .all_resized = model_all_resized,
    .flops = model_flops,
    .activations = model_activations,
    .set_shift = model_set_shift,
    .redraw = model_redraw,
};
