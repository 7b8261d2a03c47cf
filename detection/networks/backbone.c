/* backbone.c - models as backbones of detectors: presets, checks, a common interface, and the
 * weights of a classifier.
 *
 * tp_model_adopt renames the tensors of a classifier's file. Parameters of the backbone with other
 * names or shapes are found by the model (tp_backbone_kind.source). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/detection/pyramid.h>

#include "inner.h"

enum { STAGES = TP_BACKBONE_STAGES, UNIT = 32 };

/* Returns the backbone functions of a configuration's model, or NULL. */
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
    if (!c)
        return tp__refuse(why, size, "backbone_preset: NULL was given in place of a configuration");
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
    return tp__refuse(why, size, "no backbone of detectors is called '%.80s'", name);
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
    if (!c)
        return tp__refuse(why, size, "backbone_check: NULL was given in place of a configuration");
    const tp_backbone_kind *kind = kind_of(c);
    int64_t channels[STAGES];
    if (!kind)
        return tp__refuse(why, size, "%s cannot be a backbone of detectors",
                          c->model.model ? c->model.model->name : "no model");
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
    m->module = tp_params_alloc(P, model->size);
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

enum { LONGEST = 512 };

typedef struct loader {
    tp_params *P;
    const tp_backbone *m;
    const tp_model *model;
    tp_file *F;
    bool *used; /* of each tensor of F */
} loader;

/* ---- weights of a classifier: names ---- */

/* Returns a parameter's name without the backbone's path; NULL: not of the backbone. */
static const char *name_of(const loader *l, const char *name)
{
    const size_t n = strlen(l->m->path);
    if (strncmp(name, l->m->path, n) != 0 || (n > 0 && name[n] != '.')) return NULL;
    return name + n + (n > 0);
}

/* Finds a tensor by this name, or by the classifier's name for it. */
static const tp_file_tensor *tensor_of(const loader *l, const char *name)
{
    const tp_file_tensor *t = tp_file_find(l->F, name);
    char own[LONGEST], rest[LONGEST];
    snprintf(own, sizeof own, "%s", name);
    for (const tp_spelling *s = l->model->spellings; !t && s && s->theirs; s++) {
        char *at = s->ours ? strstr(own, s->theirs) : NULL;
        if (!at) continue;
        snprintf(rest, sizeof rest, "%s", at + strlen(s->theirs));
        snprintf(at, (size_t)(own + LONGEST - at), "%s%s", s->ours, rest);
    }
    return t ? t : tp_file_find(l->F, own);
}

/* Is it a weight of classifiers that backbones do not have? */
static bool is_dispensable(const loader *l, const char *name)
{
    static const char *const first[] = { "norm.",      "head.",  "fc.",  "cls_token", "aux_",
                                         "head_dist.", "optim.", "ema.", "state." };
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        if (strncmp(name, first[i], strlen(first[i])) == 0) return true;
    for (const char *const *end = l->model->backbone->spare; end && *end; end++)
        if (tp_ends_in(name, *end)) return true;
    return tp_ends_in(name, "num_batches_tracked");
}

/* ---- sources of parameters ---- */

static bool same_shape(const tp_shape *a, const tp_shape *b)
{
    return a->ndim == b->ndim && memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim) == 0;
}

static void copy(const tp_backbone_source *s, const tp_shape *here, const double *x, double *y)
{
    (void)here;
    memcpy(y, x, (size_t)s->tensor->numel * sizeof *y);
}

/* Like tp_backbone_kind.source. */
static bool find(const loader *l, tp_backbone_source *s, const tp_param_info *it)
{
    const char *name = name_of(l, it->name);
    const tp_backbone_kind *kind = l->model->backbone;
    *s = (tp_backbone_source){ .tensor = tensor_of(l, name) };
    if (it->alias_of || !tp_is_float(it->dtype)) return true;
    if (s->tensor && same_shape(&s->tensor->shape, &it->shape)) {
        s->make = copy;
        return true;
    }
    return kind->source && kind->source(s, it, name, l->F);
}

/* ---- checking the file ---- */

static void mark(loader *l, const tp_file_tensor *t)
{
    for (int i = 0; i < tp_file_count(l->F); i++)
        if (tp_file_at(l->F, i) == t) l->used[i] = true;
}

/* Returns false and makes P refuse if the parameter has no source. any: set if the file has it. */
static bool check_one(loader *l, const tp_param_info *it, bool *any)
{
    tp_backbone_source s;
    const char *name = name_of(l, it->name), *path = tp_file_path(l->F);
    const bool found = find(l, &s, it);
    if (s.tensor) mark(l, s.tensor);
    if (s.tensor && s.tensor->code != TP_OK && (s.make || !found)) {
        tp_params_raise(l->P, s.tensor->code, "%s: tensor '%s' %s", path, name, s.tensor->why);
        return false;
    }
    *any |= s.make != NULL;
    if (!found)
        return tp_params_refuse(
            l->P, s.tensor ? TP_E_SHAPE : TP_E_VALUE,
            "%s: %s for %s of the backbone; the file must hold a classifier of its kind", path,
            s.tensor ? "the tensor has another shape" : "there is no tensor", name);
    return true;
}

/* Finds a source for every parameter and a use for every tensor. */
static bool check(loader *l)
{
    bool any = false;
    for (tp_param_info it = { 0 }; tp_next_param(l->P, &it);)
        if (name_of(l, it.name) && !check_one(l, &it, &any)) return false;
    for (int i = 0; i < tp_file_count(l->F); i++) {
        const char *name = tp_file_at(l->F, i)->name;
        char shown[400];
        if (l->used[i] || is_dispensable(l, name)) continue;
        return tp_params_refuse(
            l->P, TP_E_VALUE,
            "%s: %s has no place in the backbone; the file must hold a classifier of its "
            "kind",
            tp_file_path(l->F), tp_plain(name, shown, sizeof shown));
    }
    return any || tp_params_refuse(l->P, TP_E_STATE, "the backbone is not among these parameters");
}

/* ---- values ---- */

static bool load_one(loader *l, const tp_param_info *it)
{
    tp_backbone_source s;
    if (!find(l, &s, it) || !s.make) return true;
    const size_t n = (size_t)tp_numel(it->tensor), old = (size_t)s.tensor->numel;
    double *x = malloc((n + old + 1) * sizeof *x);
    if (!x)
        tp_params_raise(l->P, TP_E_MEMORY, "%s: out of host memory", it->name);
    else if (!tp_file_read(l->F, s.tensor, TP_F64, x))
        tp_params_raise(l->P, TP_E_IO, "%s", tp_file_why(l->F));
    else {
        s.make(&s, &it->shape, x, x + old);
        if (!tp_param_set(l->P, it->tensor, TP_F64, x + old, n * sizeof *x))
            tp_params_raise(l->P, TP_E_VALUE, "%s", tp_params_why(l->P));
    }
    free(x);
    return tp_params_ok(l->P);
}

/* ---- the file ---- */

bool tp_backbone_load(tp_params *P, const tp_backbone *m, tp_file *F)
{
    if (!tp_params_want_module(P, m, "backbone") || !tp_params_ok(P)) return false;
    tp_model_cfg classifier = m->cfg.model;
    loader l = { .P = P, .m = m, .model = classifier.model, .F = F };
    if (l.model->backbone->classifier) l.model->backbone->classifier(&classifier.at);
    if (!tp_model_adopt(&classifier, F, NULL, 0))
        return tp_params_refuse(P, TP_E_IO, "%s", tp_file_why(F));
    if (!tp_file_verify(F)) return tp_params_refuse(P, TP_E_IO, "%s", tp_file_why(F));
    l.used = calloc((size_t)tp_file_count(F) + 1, sizeof *l.used);
    bool ok = l.used != NULL;
    if (!ok) tp_params_refuse(P, TP_E_MEMORY, "%s: out of host memory", tp_file_path(F));
    ok = ok && check(&l);
    for (tp_param_info it = { 0 }; ok && tp_next_param(P, &it);)
        if (name_of(&l, it.name)) ok = load_one(&l, &it);
    free(l.used);
    return ok;
}
