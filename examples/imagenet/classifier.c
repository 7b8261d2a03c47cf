/* classifier.c - one switch for each question that the program asks a model. */
#include "classifier.h"

#include <stdio.h>
#include <string.h>

static const char *const families[] = { "convnet", "cvt", "vit-lsla", "vil" };
enum { FAMILIES = sizeof families / sizeof families[0] };

const char *classifier_family(const classifier_cfg *c)
{
    return families[c->kind];
}

void classifier_fit(classifier_cfg *c, int64_t size, int64_t classes)
{
    c->size = size;
    c->classes = classes;
    c->convnet.classes = c->cvt.classes = c->lsla.classes = c->vil.classes = classes;
    c->lsla.image[0] = c->lsla.image[1] = c->vil.image[0] = c->vil.image[1] = size;
    c->cvt.image[0] = c->cvt.image[1] = c->convnet.image[0] = c->convnet.image[1] = size;
}

void classifier_train_as(classifier_cfg *c, double drop_path, tp_recompute recompute)
{
    c->cvt.drop_path = c->lsla.drop_path = c->vil.drop_path = drop_path;
    c->cvt.recompute = c->lsla.recompute = c->vil.recompute = recompute;
}

bool classifier_check(const classifier_cfg *c, char *why, size_t size)
{
    switch (c->kind) {
    case FAMILY_CVT: return !tp_cvt_cfg_check(&c->cvt, why, size);
    case FAMILY_LSLA: return !tp_vit_lsla_cfg_check(&c->lsla, why, size);
    case FAMILY_VIL: return !tp_vil_cfg_check(&c->vil, why, size);
    case FAMILY_CONVNET: break;
    }
    return !tp_convnet_cfg_check(&c->convnet, why, size);
}

void classifier_write(const classifier_cfg *c, tp_writer *W)
{
    tp_writer_meta(W, "classifier", families[c->kind]);
    tp_writer_meta_int(W, "classifier_size", c->size);
    tp_writer_meta_int(W, "classifier_classes", c->classes);
    switch (c->kind) {
    case FAMILY_CONVNET: tp_model_convnet.write(&c->convnet, W); break;
    case FAMILY_CVT: tp_cvt_cfg_write(&c->cvt, W); break;
    case FAMILY_LSLA: tp_vit_lsla_cfg_write(&c->lsla, W); break;
    case FAMILY_VIL: tp_vil_cfg_write(&c->vil, W); break;
    }
}

static bool read_kind(classifier_cfg *c, tp_file *F, char *why, size_t size)
{
    const char *name = tp_file_meta(F, "classifier");
    for (int i = 0; name && i < FAMILIES; i++)
        if (strcmp(name, families[i]) == 0) {
            c->kind = (family)i;
            return true;
        }
    if (tp_file_ok(F))
        snprintf(why, size, "%s is no checkpoint of imagenet: %s%s", tp_file_path(F),
                 name ? "it holds a model called " : "it lacks 'classifier'", name ? name : "");
    else
        snprintf(why, size, "%s", tp_file_why(F));
    return false;
}

static bool read_cfg(classifier_cfg *c, tp_file *F, char *why, size_t size)
{
    switch (c->kind) {
    case FAMILY_CVT: return tp_cvt_cfg_read(&c->cvt, F, why, size);
    case FAMILY_LSLA: return tp_vit_lsla_cfg_read(&c->lsla, F, why, size);
    case FAMILY_VIL: return tp_vil_cfg_read(&c->vil, F, why, size);
    case FAMILY_CONVNET: break;
    }
    return tp_model_convnet.read(&c->convnet, F, why, size);
}

bool classifier_read(classifier_cfg *c, tp_file *F, char *why, size_t size)
{
    int64_t side = 0, classes = 0;
    char reason[1024];
    *c = (classifier_cfg){ 0 };
    if (!read_kind(c, F, why, size)) return false;
    if (!tp_file_int(F, "classifier_size", &side) ||
        !tp_file_int(F, "classifier_classes", &classes)) {
        snprintf(why, size, "%s", tp_file_why(F));
        return false;
    }
    snprintf(reason, sizeof reason, "pictures of %lld pixels in %lld classes", (long long)side,
             (long long)classes);
    if (side >= 1 && side <= 1 << 14 && classes >= 1 && classes <= 1 << 20 &&
        read_cfg(c, F, reason, sizeof reason)) {
        classifier_fit(c, side, classes);
        if (classifier_check(c, reason, sizeof reason)) return true;
    }
    snprintf(why, size, "%s: %s", tp_file_path(F), reason);
    return false;
}

void classifier_init(tp_params *P, classifier *m, const classifier_cfg *c)
{
    m->cfg = *c;
    switch (c->kind) {
    case FAMILY_CONVNET: tp_convnet_init(P, &m->convnet, "", c->convnet); break;
    case FAMILY_CVT: tp_cvt_init(P, &m->cvt, "", c->cvt); break;
    case FAMILY_LSLA: tp_vit_lsla_init(P, &m->lsla, "", c->lsla); break;
    case FAMILY_VIL: tp_vil_init(P, &m->vil, "", c->vil); break;
    }
}

tp_tensor classifier_forward(tp_tape *T, const classifier *m, tp_tensor images)
{
    switch (m->cfg.kind) {
    case FAMILY_CVT: return tp_cvt_forward(T, &m->cvt, images);
    case FAMILY_LSLA: return tp_vit_lsla_forward(T, &m->lsla, images);
    case FAMILY_VIL: return tp_vil_forward(T, &m->vil, images);
    case FAMILY_CONVNET: break;
    }
    return tp_convnet_forward(T, &m->convnet, images);
}

double classifier_macs(const classifier_cfg *c)
{
    switch (c->kind) {
    case FAMILY_CVT: return tp_cvt_flops(&c->cvt).macs;
    case FAMILY_LSLA: return tp_vit_lsla_flops(&c->lsla).macs;
    case FAMILY_VIL: return tp_vil_flops(&c->vil).macs;
    case FAMILY_CONVNET: break;
    }
    return tp_convnet_flops(&c->convnet).macs;
}

void classifier_random_shift(classifier *m, bool on)
{
    if (m->cfg.kind == FAMILY_VIL) tp_vil_set_shift(&m->vil, on ? TP_VIL_SHIFT_RANDOM : 0);
}

bool classifier_redraw(tp_params *P, const classifier *m, uint64_t seed, uint64_t draw)
{
    return m->cfg.kind == FAMILY_VIL ? tp_vil_redraw(P, &m->vil, seed, draw) : tp_params_ok(P);
}

/* ---- weights ---- */

static bool same_ints(const int *a, const int *b, int n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

static bool same_stages(const tp_vil_cfg *a, const tp_vil_cfg *b)
{
    bool same = a->kind == b->kind && a->stages == b->stages;
    for (int i = 0; i < a->stages && same; i++) {
        const tp_vil_stage *x = &a->stage[i], *y = &b->stage[i];
        same = x->dim == y->dim && x->heads == y->heads && x->blocks == y->blocks &&
               x->patch == y->patch && x->dense == y->dense && x->absolute == y->absolute;
    }
    return same;
}

bool classifier_same(const classifier_cfg *a, const classifier_cfg *b)
{
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case FAMILY_CVT:
        return memcmp(a->cvt.dim, b->cvt.dim, sizeof a->cvt.dim) == 0 &&
               same_ints(a->cvt.blocks, b->cvt.blocks, TP_CVT_STAGES) &&
               same_ints(a->cvt.heads, b->cvt.heads, TP_CVT_STAGES) &&
               a->cvt.long_short == b->cvt.long_short && a->cvt.conv_bias == b->cvt.conv_bias;
    case FAMILY_LSLA:
        return a->lsla.dim == b->lsla.dim && a->lsla.stages == b->lsla.stages &&
               same_ints(a->lsla.depths, b->lsla.depths, TP_VIT_MAX_STAGES) &&
               same_ints(a->lsla.heads, b->lsla.heads, TP_VIT_MAX_STAGES) &&
               a->lsla.attn.variant == b->lsla.attn.variant;
    case FAMILY_VIL: return same_stages(&a->vil, &b->vil);
    case FAMILY_CONVNET: break;
    }
    return a->convnet.width == b->convnet.width;
}

static const char *skip_training_state(const char *name, void *env)
{
    (void)env;
    return strncmp(name, "optim.", 6) == 0 || strncmp(name, "ema.", 4) == 0 ? NULL : name;
}

bool classifier_weights(tp_params *P, tp_file *F)
{
    return tp_params_read(P, F, "",
                          &(tp_load_opts){ .convert = true, .rename = skip_training_state });
}

bool classifier_resizes_all(const classifier_cfg *c)
{
    return c->kind != FAMILY_VIL || c->vil.kind != TP_VIL_LINFORMER;
}

const char *classifier_resizing(const classifier_cfg *c)
{
    switch (c->kind) {
    case FAMILY_CVT: return "projections are repeated where the rank grows with the size";
    case FAMILY_VIL:
        return classifier_resizes_all(c)
                   ? "tables of positions are resized"
                   : "tables of positions are resized, mixtures of tokens begin anew";
    case FAMILY_LSLA: return "tables of positions and scales are resized where windows differ";
    case FAMILY_CONVNET: break;
    }
    return NULL;
}

bool classifier_load_resized(tp_params *P, const classifier *m, tp_file *F)
{
    switch (m->cfg.kind) {
    case FAMILY_VIL: return tp_vil_load(P, &m->vil, tp_file_path(F));
    case FAMILY_CVT: return tp_cvt_load(P, tp_file_path(F));
    case FAMILY_LSLA: return tp_vit_lsla_load(P, tp_file_path(F));
    case FAMILY_CONVNET: break;
    }
    return classifier_weights(P, F);
}
