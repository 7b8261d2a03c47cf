/* backbone.c - models as backbones of detectors: presets, checks, one interface. */
#include <stdio.h>
#include <string.h>

#include <tapegrad/detection/pyramid.h>

enum { STAGES = TP_BACKBONE_STAGES, UNIT = 32 };

/* What makes the model of a configuration a backbone; NULL: nothing does. */
static const tp_backbone_kind *kind_of(const tp_backbone_cfg *c)
{
    return c->model.model ? c->model.model->backbone : NULL;
}

/* ---- presets ---- */

const char *tp_backbone_known(int i)
{
    const tp_model *m;
    for (int k = 0; i >= 0 && (m = tp_model_backbone(k)); k++)
        for (const char *const *name = m->backbone->names; *name; name++)
            if (i-- == 0) return *name;
    return NULL;
}

bool tp_backbone_preset(tp_backbone_cfg *c, const char *name, tp_detection_profile profile,
                        char *why, size_t size)
{
    if (!c) {
        if (why) snprintf(why, size, "backbone_preset: NULL was given in place of a configuration");
        return false;
    }
    const tp_model *m;
    for (int k = 0; (m = tp_model_backbone(k)); k++) {
        *c = (tp_backbone_cfg){ .model.model = m };
        if (!m->backbone->preset(&c->model.at, &c->frozen, name, profile)) continue;
        tp_common_cfg o = tp_model_get(&c->model);
        o.outputs = 0;
        tp_model_set(&c->model, &o);
        return true;
    }
    *c = (tp_backbone_cfg){ 0 };
    snprintf(why, size, "no backbone of detectors is called '%.80s'", name);
    return false;
}

void tp_backbone_set(tp_backbone_cfg *c, double drop_path, tp_recompute recompute)
{
    if (!c) return;
    tp_common_cfg o = tp_model_get(&c->model);
    o.drop_path = drop_path;
    o.recompute = recompute;
    tp_model_set(&c->model, &o);
}

/* ---- checks ---- */

bool tp_backbone_check(const tp_backbone_cfg *c, char *why, size_t size)
{
    if (!c) {
        if (why) snprintf(why, size, "backbone_check: NULL was given in place of a configuration");
        return false;
    }
    const tp_backbone_kind *kind = kind_of(c);
    int64_t channels[STAGES];
    if (!kind) {
        snprintf(why, size, "%s cannot be a backbone of detectors",
                 c->model.model ? c->model.model->name : "no model");
        return false;
    }
    if (!kind->maps(&c->model.at, channels, why, size)) return false;
    const int64_t classes = tp_model_get(&c->model).outputs;
    const int most = kind->freeze ? STAGES + 1 : 0;
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
    char why[256];
    if (c && kind_of(c)) kind_of(c)->maps(&c->model.at, channels, why, sizeof why);
}

/* ---- parameters ---- */

void tp_backbone_init(tp_params *P, tp_backbone *m, const char *name, const tp_backbone_cfg *c)
{
    if (!tp_params_want_module(P, m, "backbone")) return;
    const tp_model *model = c->model.model;
    char why[256];
    *m = (tp_backbone){ .params = P, .cfg = *c };
    if (!tp_backbone_check(c, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "backbone: %s", why);
        return;
    }
    m->module = tp_params_room(P, model->size);
    m->path = tp_push(P, name);
    tp_pop(P);
    if (!m->module) return;
    model->init(P, m->module, name, &c->model.at);
    if (tp_params_ok(P) && c->frozen > 0) model->backbone->freeze(P, m->module, c->frozen);
}

bool tp_backbone_fuse(tp_params *P, tp_backbone *m)
{
    if (!tp_params_want_module(P, m, "backbone") || !tp_params_ok(P)) return false;
    const tp_backbone_kind *kind = kind_of(&m->cfg);
    return !kind || !kind->fuse || kind->fuse(P, m->module);
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
    if (m->module) kind_of(&m->cfg)->features(T, m->module, images, map);
}
