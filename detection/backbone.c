/* backbone.c - ViL, ResNet and PVT as backbones of detectors: presets, checks, one interface. */
#include <stdio.h>
#include <string.h>

#include <tapegrad/detection/pyramid.h>

enum {
    STAGES = TP_BACKBONE_STAGES,
    UNIT = 32,
    LONGEST = 1344 /* 1333, rounded up to whole units */
};

/* ---- presets ---- */

/* Attentions after a size, and their names in classification. The first two have windows in all stages. */
static const struct {
    const char *name, *like;
} attentions[] = {
    { "", "rpb" },
    { "-ape", "ape" },
    { "-partial", "ape" },
    { "-sra64", "sra64" },
    { "-sra32", "sra32" },
    { "-global", "global" },
    { "-performer", "performer" },
    { "-partial-sra32", "partial-sra32" },
    { "-partial-global", "partial-global" },
    { "-partial-performer", "partial-performer" },
};
enum { ATTENTIONS = sizeof attentions / sizeof *attentions, WINDOWS = 2 };

static bool vil_attention(tp_vil_cfg *v, const char *size_name, int attention, char *why,
                          size_t size)
{
    char full[64];
    snprintf(full, sizeof full, "vil-%s-%s", size_name, attentions[attention].like);
    if (!tp_vil_preset(v, full, why, size)) return false;
    for (int k = 0; k < STAGES && attention < WINDOWS; k++) v->stage[k].dense = false;
    /* as the published counts of multiply-adds show, also of partial-global */
    for (int k = 2; k < STAGES; k++)
        if (v->kind != TP_VIL_GLOBAL || v->stage[k].dense) v->stage[k].global = k == 2;
    return true;
}

static bool vil_preset(tp_vil_cfg *v, const char *name, char *why, size_t size)
{
    static const char *const sizes[] = { "tiny", "small", "medium", "base" };
    static const char mini[] = "l1,h1,d32,n1,s1,g1,p4,f4,a0_l2,h2,d64,n1,s1,g1,p2,f4,a0_"
                               "l3,h4,d128,n2,s1,g1,p2,f4,a0_l4,h6,d192,n1,s1,g0,p2,f4,a0";
    char full[64];
    if (strcmp(name, "vil-mini") == 0) {
        *v = (tp_vil_cfg){ .kind = TP_VIL_WINDOW };
        return tp_vil_parse(v, mini, why, size);
    }
    for (int s = 0; s < 4; s++)
        for (int a = 0; a < ATTENTIONS; a++) {
            snprintf(full, sizeof full, "vil-%s%s", sizes[s], attentions[a].name);
            if (strcmp(name, full) == 0) return vil_attention(v, sizes[s], a, why, size);
        }
    return false;
}

/* "resnet50" is "resnet-50" in the table of models. */
static bool resnet_preset(tp_backbone_cfg *c, const char *name, tp_detection_profile profile,
                          tp_model_cfg *model)
{
    char full[64], why[256];
    const char *rest = name + strlen("resnet");
    snprintf(full, sizeof full, "resnet-%.40s", *rest == '-' ? rest + 1 : rest);
    if (!tp_model_preset(model, full, why, sizeof why) || model->model != &tp_model_resnet)
        return false;
    memcpy(&c->of.resnet, &model->at, sizeof c->of.resnet);
    c->of.resnet.classes = 0;
    c->of.resnet.frozen_norm = profile == TP_MMDETECTION;
    c->of.resnet.detectron = profile == TP_DETECTRON2;
    c->frozen = 2;
    return true;
}

static bool pvt_preset(tp_pvt_cfg *c, const char *name, tp_model_cfg *model)
{
    char why[256];
    if (!tp_model_preset(model, name, why, sizeof why) || model->model != &tp_model_pvt)
        return false;
    memcpy(c, &model->at, sizeof *c);
    c->classes = 0;
    return true;
}

bool tp_backbone_preset(tp_backbone_cfg *c, const char *name, tp_detection_profile profile,
                        char *why, size_t size)
{
    if (!c) {
        if (why) snprintf(why, size, "backbone_preset: NULL was given in place of a configuration");
        return false;
    }
    tp_model_cfg model;
    bool ok;
    *c = (tp_backbone_cfg){ 0 };
    if (strncmp(name, "resnet", 6) == 0) {
        c->kind = TP_BACKBONE_RESNET;
        ok = resnet_preset(c, name, profile, &model);
    } else if (strncmp(name, "pvt", 3) == 0) {
        c->kind = TP_BACKBONE_PVT;
        ok = pvt_preset(&c->of.pvt, name, &model);
    } else {
        ok = vil_preset(&c->of.vil, name, why, size);
        c->of.vil.image[0] = c->of.vil.image[1] = LONGEST;
        c->of.vil.classes = 0;
    }
    if (!ok) snprintf(why, size, "no backbone of detectors is called '%.80s'", name);
    return ok;
}

void tp_backbone_set(tp_backbone_cfg *c, double drop_path, tp_recompute recompute)
{
    if (!c) return;
    switch (c->kind) {
    case TP_BACKBONE_VIL:
        c->of.vil.drop_path = drop_path;
        c->of.vil.recompute = recompute;
        break;
    case TP_BACKBONE_RESNET: c->of.resnet.recompute = recompute; break;
    case TP_BACKBONE_PVT:
        c->of.pvt.drop_path = drop_path;
        c->of.pvt.recompute = recompute;
        break;
    }
}

/* ---- checks ---- */

/* Patches of 4, 2, 2 and 2 pixels. */
static bool check_vil(const tp_vil_cfg *v, char *why, size_t size)
{
    if (!tp_vil_cfg_check(v, why, size)) return false;
    for (int k = 0; k < STAGES; k++)
        if (v->stages != STAGES || v->stage[k].patch != (k ? 2 : 4)) {
            snprintf(why, size, "a backbone has four stages with patches of 4, 2, 2 and 2 pixels");
            return false;
        }
    return true;
}

bool tp_backbone_check(const tp_backbone_cfg *c, char *why, size_t size)
{
    if (!c) {
        if (why) snprintf(why, size, "backbone_check: NULL was given in place of a configuration");
        return false;
    }
    int64_t classes = 0;
    bool ok = false;
    snprintf(why, size, "there is no kind %d of backbone", (int)c->kind);
    switch (c->kind) {
    case TP_BACKBONE_VIL:
        ok = check_vil(&c->of.vil, why, size);
        classes = c->of.vil.classes;
        break;
    case TP_BACKBONE_RESNET:
        ok = tp_resnet_cfg_check(&c->of.resnet, why, size);
        classes = c->of.resnet.classes;
        break;
    case TP_BACKBONE_PVT:
        ok = tp_pvt_cfg_check(&c->of.pvt, why, size);
        classes = c->of.pvt.classes;
        break;
    }
    if (!ok) return false;
    const int most = c->kind == TP_BACKBONE_RESNET ? STAGES + 1 : 0;
    if (classes != 0)
        snprintf(why, size, "a backbone has no classes, not %lld", (long long)classes);
    else if (c->frozen < 0 || c->frozen > most)
        snprintf(why, size, "%d frozen stages: 0 to %d are possible", c->frozen, most);
    else
        return true;
    return false;
}

void tp_backbone_channels(const tp_backbone_cfg *c, int64_t channels[TP_BACKBONE_STAGES])
{
    if (!c) return;
    int64_t inner;
    for (int k = 0; k < STAGES; k++) switch (c->kind) {
        case TP_BACKBONE_VIL: channels[k] = c->of.vil.stage[k].dim; break;
        case TP_BACKBONE_RESNET: tp_resnet_widths(&c->of.resnet, k, &inner, &channels[k]); break;
        case TP_BACKBONE_PVT: channels[k] = c->of.pvt.dim[k]; break;
        }
}

/* ---- parameters ---- */

/* Freezes the stem and the first frozen - 1 stages of a ResNet. */
static void freeze(tp_params *P, const char *path, const tp_backbone_cfg *c)
{
    const bool detectron = c->of.resnet.detectron;
    const char *const stem[] = { detectron ? "stem" : "conv1", detectron ? NULL : "bn1" };
    char name[512];
    for (int i = 0; i < 2 && c->frozen > 0; i++) {
        snprintf(name, sizeof name, "%s%s%s", path, *path ? "." : "", stem[i] ? stem[i] : "");
        if (stem[i]) tp_freeze(P, name, true);
    }
    for (int s = 1; s < c->frozen; s++) {
        snprintf(name, sizeof name, "%s%s%s%d", path, *path ? "." : "", detectron ? "res" : "layer",
                 s + detectron);
        tp_freeze(P, name, true);
    }
}

void tp_backbone_init(tp_params *P, tp_backbone *m, const char *name, const tp_backbone_cfg *c)
{
    if (!tp_params_want_module(P, m, "backbone")) return;
    char why[256];
    memset(m, 0, sizeof *m);
    m->cfg = *c;
    m->params = P;
    if (!tp_backbone_check(c, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "backbone: %s", why);
        return;
    }
    switch (c->kind) {
    case TP_BACKBONE_VIL: tp_vil_init(P, &m->of.vil, name, c->of.vil); break;
    case TP_BACKBONE_RESNET:
        tp_resnet_init(P, &m->of.resnet, name, c->of.resnet);
        if (tp_params_ok(P)) freeze(P, m->of.resnet.path, c);
        break;
    case TP_BACKBONE_PVT: tp_pvt_init(P, &m->of.pvt, name, c->of.pvt); break;
    }
}

bool tp_backbone_fuse(tp_params *P, tp_backbone *m)
{
    if (!tp_params_want_module(P, m, "backbone")) return false;
    return m->cfg.kind == TP_BACKBONE_RESNET ? tp_resnet_fuse(P, &m->of.resnet) : tp_params_ok(P);
}

/* ---- forward ---- */

void tp_backbone_forward(tp_tape *T, const tp_backbone *m, tp_tensor images,
                         tp_tensor map[TP_BACKBONE_STAGES])
{
    if (!tp_want(T, map, "backbone", "room for the maps")) return;
    for (int k = 0; k < STAGES; k++) map[k] = TP_NONE;
    if (!tp_want_module(T, m, "backbone")) return;
    if (!tp_params_ok(m->params)) {
        tp_raise(T, TP_E_STATE, "%s", tp_params_why(m->params));
        return;
    }
    if (tp_ok(T) &&
        (tp_ndim(images) != 4 || tp_dim(images, 1) % UNIT != 0 || tp_dim(images, 2) % UNIT != 0)) {
        tp_raise(T, TP_E_SHAPE,
                 "images must be [batch,height,width,3], their sides multiples of %d", UNIT);
        return;
    }
    tp_vil_out out[STAGES];
    switch (m->cfg.kind) {
    case TP_BACKBONE_VIL:
        if (!tp_given(tp_vil_trunk(T, &m->of.vil, images, out))) return;
        for (int k = 0; k < STAGES; k++) map[k] = out[k].map;
        break;
    case TP_BACKBONE_RESNET: tp_resnet_features(T, &m->of.resnet, images, map); break;
    case TP_BACKBONE_PVT: tp_pvt_features(T, &m->of.pvt, images, map); break;
    }
}
