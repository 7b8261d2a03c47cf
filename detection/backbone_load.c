/* backbone_load.c - the weights of a classifier for a backbone.
 *
 * The file gets the names of the classifier first (tp_model_adopt), those of the backbone's parameters are translated
 * to them. A Vision Longformer differs in more than names: detectors have windows where classifiers have full attention,
 * whose queries, keys and values are one matrix, and its tables have other sizes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/detection/pyramid.h>

enum { LONGEST = 512 };

/* How a parameter is made from a tensor of the file. */
typedef enum how {
    KEEP,   /* it keeps its value, or that of another name          */
    COPY,   /* it has the same shape                                */
    ROWS,   /* some rows of it                                      */
    TABLE,  /* [a^2,heads] is resized to [b^2,heads]                */
    LINE,   /* [1,a,d] is resized to [1,b,d]                        */
    REPEAT, /* the tokens of [1,a,d] are repeated until there are b */
    MISSING
} how;

typedef struct source {
    how how;
    const tp_file_tensor *t;
    int64_t first; /* ROWS */
} source;

typedef struct loader {
    tp_params *P;
    const tp_backbone *m;
    tp_file *F;
    bool *used;         /* of each tensor of F */
    const char *path;   /* of the backbone     */
    char name[LONGEST]; /* of the parameter in the file */
} loader;

/* ---- names ---- */

static void replace(char name[LONGEST], const char *theirs, const char *ours)
{
    char rest[LONGEST];
    char *at = strstr(name, theirs);
    if (!at) return;
    snprintf(rest, sizeof rest, "%s", at + strlen(theirs));
    snprintf(at, (size_t)(name + LONGEST - at), "%s%s", ours, rest);
}

/* The name of a backbone's parameter in the file, in l->name. False: it belongs to something else. */
static bool name_of(loader *l, const char *name)
{
    const size_t n = strlen(l->path);
    if (strncmp(name, l->path, n) != 0 || (n > 0 && name[n] != '.')) return false;
    snprintf(l->name, sizeof l->name, "%s", name + n + (n > 0));
    const tp_spelling *s = l->m->cfg.kind == TP_BACKBONE_RESNET ? tp_model_resnet.spellings : NULL;
    for (; s && s->theirs; s++)
        if (s->ours) replace(l->name, s->theirs, s->ours);
    return true;
}

/* Weights of classifiers that backbones do not have. */
static bool is_dispensable(const char *name)
{
    static const char *const first[] = { "norm.",      "head.",  "fc.",  "cls_token", "aux_",
                                         "head_dist.", "optim.", "ema.", "state." };
    static const char *const last[] = { ".cls_token", ".cls_pos_embed", "num_batches_tracked",
                                        "g2l_relative_position_bias",
                                        "g2g_relative_position_bias" };
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        if (strncmp(name, first[i], strlen(first[i])) == 0) return true;
    for (size_t i = 0; i < sizeof last / sizeof *last; i++)
        if (tp_ends_in(name, last[i])) return true;
    return false;
}

/* ---- where parameters come from ---- */

static int64_t root(int64_t n)
{
    const int64_t r = llround(sqrt((double)n));
    return r * r == n ? r : 0;
}

static bool same_shape(const tp_shape *a, const tp_shape *b)
{
    return a->ndim == b->ndim && memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim) == 0;
}

/* Queries, or keys and values, of the matrix of a full attention. */
static source rows_of(const loader *l, const tp_param_info *it)
{
    const bool query = strstr(l->name, "attn.query.") != NULL;
    source s = { .how = MISSING };
    char name[LONGEST];
    if (!query && !strstr(l->name, "attn.kv.")) return s;
    snprintf(name, sizeof name, "%s", l->name);
    replace(name, query ? "attn.query." : "attn.kv.", "attn.qkv.");
    const tp_file_tensor *t = tp_file_find(l->F, name);
    const int64_t d = it->shape.dim[0] / (query ? 1 : 2);
    if (!t || t->shape.ndim != it->shape.ndim || t->shape.dim[0] != 3 * d) return s;
    if (t->shape.ndim == 2 && t->shape.dim[1] != it->shape.dim[1]) return s;
    return (source){ .how = ROWS, .t = t, .first = query ? 0 : d };
}

/* A tensor of another shape. */
static source resized(const loader *l, const tp_param_info *it, const tp_file_tensor *t)
{
    const tp_shape *here = &it->shape, *there = &t->shape;
    const int last = here->ndim - 1;
    source s = { .how = MISSING, .t = t };
    if (tp_ends_in(l->name, "g2l_relative_position_bias") ||
        tp_ends_in(l->name, "g2g_relative_position_bias"))
        s.how = KEEP;
    if (there->ndim != here->ndim || last < 1 || here->dim[last] != there->dim[last]) return s;
    if (tp_ends_in(l->name, "local_relative_position_bias_table") && root(here->dim[0]) &&
        root(there->dim[0]))
        s.how = TABLE;
    else if (tp_ends_in(l->name, "x_pos_embed") || tp_ends_in(l->name, "y_pos_embed"))
        s.how = there->ndim == 3 && there->dim[0] == 1 && there->dim[1] > 0 ? LINE : MISSING;
    else if (tp_ends_in(l->name, "cls_token") || tp_ends_in(l->name, "cls_pos_embed"))
        s.how = there->ndim == 3 && there->dim[0] == 1 && there->dim[1] > 0 ? REPEAT : MISSING;
    return s;
}

static source find(loader *l, const tp_param_info *it)
{
    const tp_file_tensor *t = tp_file_find(l->F, l->name);
    const bool vil = l->m->cfg.kind == TP_BACKBONE_VIL;
    if (it->alias_of || !tp_is_float(it->dtype)) return (source){ .how = KEEP, .t = t };
    if (t && same_shape(&t->shape, &it->shape)) return (source){ .how = COPY, .t = t };
    if (vil && t) return resized(l, it, t);
    if (vil && (tp_ends_in(l->name, "g2l_relative_position_bias") ||
                tp_ends_in(l->name, "g2g_relative_position_bias")))
        return (source){ .how = KEEP };
    return vil ? rows_of(l, it) : (source){ .how = MISSING, .t = t };
}

/* ---- checks ---- */

static void mark(loader *l, const tp_file_tensor *t)
{
    for (int i = 0; i < tp_file_count(l->F); i++)
        if (tp_file_at(l->F, i) == t) l->used[i] = true;
}

/* Finds a source for every parameter and a use for every tensor. */
static bool check(loader *l)
{
    bool any = false;
    for (tp_param_info it = { 0 }; tp_next_param(l->P, &it);) {
        if (!name_of(l, it.name)) continue;
        const source s = find(l, &it);
        if (s.t) mark(l, s.t);
        any |= s.how != KEEP && s.how != MISSING;
        if (s.t && s.t->code != TP_OK && s.how != KEEP) {
            tp_params_raise(l->P, s.t->code, "%s: tensor '%s' %s", tp_file_path(l->F), l->name,
                            s.t->why);
            return false;
        }
        if (s.how != MISSING) continue;
        return tp_params_refuse(
            l->P, s.t ? TP_E_SHAPE : TP_E_VALUE,
            "%s: %s for %s of the backbone; the file must hold a classifier of its kind",
            tp_file_path(l->F), s.t ? "the tensor has another shape" : "there is no tensor",
            l->name);
    }
    for (int i = 0; i < tp_file_count(l->F); i++) {
        const char *name = tp_file_at(l->F, i)->name;
        char shown[400];
        if (l->used[i] || is_dispensable(name)) continue;
        return tp_params_refuse(
            l->P, TP_E_VALUE,
            "%s: %s has no place in the backbone; the file must hold a classifier of its "
            "kind",
            tp_file_path(l->F), tp_plain(name, shown, sizeof shown));
    }
    return any || tp_params_refuse(l->P, TP_E_STATE, "the backbone is not among these parameters");
}

/* ---- values ---- */

/* x: the tensor of the file; y: the parameter. */
static void convert(const source *s, const tp_param_info *it, const double *x, double *y)
{
    const tp_shape *here = &it->shape, *there = &s->t->shape;
    const int64_t n = tp_numel(it->tensor), last = here->ndim ? here->dim[here->ndim - 1] : 1;
    const int64_t a = s->how == TABLE  ? root(there->dim[0])
                      : s->how == LINE ? there->dim[1]
                                       : 1,
                  b = s->how == TABLE  ? root(here->dim[0])
                      : s->how == LINE ? here->dim[1]
                                       : 1;
    const int64_t skip = here->ndim ? s->first * (n / here->dim[0]) : 0;
    switch (s->how) {
    case TABLE: tp_vil_resize(x, (int64_t[]){ a, a }, y, (int64_t[]){ b, b }, last); break;
    case LINE: tp_vil_resize(x, (int64_t[]){ a, 1 }, y, (int64_t[]){ b, 1 }, last); break;
    case REPEAT:
        for (int64_t i = 0; i < n; i++) y[i] = x[i % s->t->numel];
        break;
    default: memcpy(y, x + skip, (size_t)n * sizeof *y);
    }
}

static bool load_one(loader *l, const tp_param_info *it)
{
    const source s = find(l, it);
    if (s.how == KEEP || !s.t) return true;
    const size_t n = (size_t)tp_numel(it->tensor), old = (size_t)s.t->numel;
    double *x = malloc((n + old + 1) * sizeof *x);
    if (!x)
        tp_params_raise(l->P, TP_E_MEMORY, "%s: out of host memory", l->name);
    else if (!tp_file_read(l->F, s.t, TP_F64, x))
        tp_params_raise(l->P, TP_E_IO, "%s", tp_file_why(l->F));
    else {
        convert(&s, it, x, x + old);
        if (!tp_param_set(l->P, it->tensor, TP_F64, x + old, n * sizeof *x))
            tp_params_raise(l->P, TP_E_VALUE, "%s", tp_params_why(l->P));
    }
    free(x);
    return tp_params_ok(l->P);
}

/* ---- the file ---- */

/* The classifier that the backbone comes from, which has the names that the file gets. */
static tp_model_cfg classifier(const tp_backbone_cfg *c)
{
    static const tp_model *const models[] = { &tp_model_vil, &tp_model_resnet, &tp_model_pvt };
    tp_model_cfg model = { .model = models[c->kind] };
    tp_resnet_cfg *r = (tp_resnet_cfg *)(void *)model.at.bytes;
    memcpy(model.at.bytes, &c->of, model.model->cfg_size);
    if (c->kind == TP_BACKBONE_RESNET) r->detectron = false;
    return model;
}

static const char *path_of(const tp_backbone *m)
{
    switch (m->cfg.kind) {
    case TP_BACKBONE_VIL: return m->of.vil.path;
    case TP_BACKBONE_RESNET: return m->of.resnet.path;
    case TP_BACKBONE_PVT: return m->of.pvt.path;
    }
    return "";
}

bool tp_backbone_load(tp_params *P, const tp_backbone *m, tp_file *F)
{
    if (!tp_params_want_module(P, m, "backbone") || !tp_params_ok(P)) return false;
    tp_model_cfg model = classifier(&m->cfg);
    loader l = { .P = P, .m = m, .F = F, .path = path_of(m) };
    if (!tp_model_adopt(&model, F, NULL, 0))
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
