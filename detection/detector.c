/* detector.c - detectors by name, changes to their members, and a common interface to all. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inner.h"

enum { TEXT = 2048 }; /* bytes of changes */

extern const tp_detector_kind *const tp__detectors[]; /* generated (cmake/constants.cmake) */

const tp_detector_kind *tp_detector_kind_at(int i)
{
    int n = 0;
    while (tp__detectors[n]) n++;
    return i >= 0 && i < n ? tp__detectors[i] : NULL;
}

const tp_detector_kind *tp_detector_kind_of(const char *name)
{
    const tp_detector_kind *kind;
    for (int i = 0; name && (kind = tp_detector_kind_at(i)); i++) {
        const size_t n = strlen(kind->name);
        if (strncmp(name, kind->name, n) == 0 && name[n] == '-') return kind;
    }
    return NULL;
}

/* ---- presets ---- */

bool tp_detector_at(int i, tp_detector_row *row)
{
    const tp_detector_kind *kind;
    const char *backbone;
    for (int k = 0; row && i >= 0 && (kind = tp_detector_kind_at(k)); k++)
        for (int b = 0; (backbone = tp_backbone_known(b)); b++) {
            if (i-- > 0) continue;
            *row = (tp_detector_row){ .kind = kind };
            snprintf(row->name, sizeof row->name, "%s-%s", kind->name, backbone);
            for (const tp_detector_figures *f = kind->figures; f->backbone; f++)
                if (strcmp(f->backbone, backbone) == 0) {
                    row->params = f->params;
                    row->macs = f->macs;
                }
            return true;
        }
    return false;
}

const char *tp_detector_known(int i)
{
    static _Thread_local tp_detector_row row;
    return tp_detector_at(i, &row) ? row.name : NULL;
}

/* Fails, listing "mask-rcnn-BACKBONE" ... */
static bool unknown(const char *name, char *why, size_t size)
{
    char forms[300] = "";
    const tp_detector_kind *kind;
    for (int i = 0; (kind = tp_detector_kind_at(i)); i++) {
        const size_t n = strlen(forms);
        snprintf(forms + n, sizeof forms - n, "%s%s-BACKBONE", i ? " nor " : "", kind->name);
    }
    return tp__refuse(why, size, "'%.60s' is neither %s", name, forms);
}

bool tp_detector_preset(tp_detector_cfg *c, const char *name, int64_t classes,
                        tp_detection_profile profile, char *why, size_t size)
{
    if (!c)
        return tp__refuse(why, size, "detector_preset: NULL was given in place of a configuration");
    tp_backbone_cfg backbone;
    *c = (tp_detector_cfg){ .kind = tp_detector_kind_of(name) };
    if (!c->kind) return unknown(name, why, size);
    const char *base = name + strlen(c->kind->name) + 1;
    if (!tp_backbone_preset(&backbone, base, profile, why, size)) return false;
    const bool mini = strlen(base) > strlen("-mini") && tp_ends_in(base, "-mini");
    c->kind->preset(&c->at, &backbone, classes, profile, mini);
    return tp_detector_check(c, why, size);
}

/* ---- configurations ---- */

bool tp_detector_check(const tp_detector_cfg *c, char *why, size_t size)
{
    if (!c)
        return tp__refuse(why, size, "detector_check: NULL was given in place of a configuration");
    if (c->kind) return c->kind->check(&c->at, why, size);
    return tp__refuse(why, size, "no detector has been chosen");
}

/* Copies the items of the backbone, without prefix, or the others to out, as large as text. */
static void items_of(const char *text, bool backbone, char *out)
{
    const size_t prefix = strlen(TP_BACKBONE_PREFIX);
    bool of_backbone = false; /* also after a comma within a value */
    char *to = out;
    for (const char *at = text; *at;) {
        const size_t n = strcspn(at, ",");
        const bool item = memchr(at, '=', n) != NULL;
        if (item) of_backbone = strncmp(at, TP_BACKBONE_PREFIX, prefix) == 0;
        if (of_backbone == backbone) {
            const size_t skipped = item && backbone ? prefix : 0;
            if (to > out) *to++ = ',';
            memcpy(to, at + skipped, n - skipped);
            to += n - skipped;
        }
        at += n + (at[n] == ',');
    }
    *to = '\0';
}

static void set_outputs(tp_model_cfg *backbone, int64_t n)
{
    tp_common_cfg o = tp_model_get(backbone);
    o.outputs = n;
    tp_model_set(backbone, &o);
}

static bool has_member(const tp_model_member *m, const char *key, size_t n)
{
    for (; m->kind != TP_MEMBER_END; m++)
        if (m->key && strlen(m->key) == n && strncmp(m->key, key, n) == 0) return true;
    return false;
}

/* Changes members of the detector; a refusal says if the backbone has the member. */
static bool change_own(tp_detector_cfg *c, const char *items, char *why, size_t size)
{
    const tp_model_member *own = c->kind->members;
    const tp_model *model = c->kind->parts(&c->at).backbone->model.model;
    for (const char *at = items; *at; at += strcspn(at, ","), at += *at == ',') {
        const size_t n = strcspn(at, "=,");
        if (at[n] == '=' && !has_member(own, at, n) && has_member(model->members, at, n))
            return tp__refuse(why, size, "'%.*s' is no member of %s; did you mean '%s%.*s'?",
                              (int)n, at, c->kind->name, TP_BACKBONE_PREFIX, (int)n, at);
    }
    return tp_members_change(own, &c->at, c->kind->name, items, why, size);
}

/* Changes members of the backbone; as a classifier with one class, its model can check them. */
static bool change_backbone(tp_detector_cfg *c, const char *items,
                            const char *const set_by[TP_COMMON_KINDS], char *why, size_t size)
{
    tp_model_cfg *backbone = &c->kind->parts(&c->at).backbone->model;
    set_outputs(backbone, 1);
    if (!tp_model_change(backbone, items, set_by, why, size)) return false;
    for (const tp_model_member *m = backbone->model->members; m->kind != TP_MEMBER_END; m++) {
        const char *given = m->common == TP_COMMON_OUTPUTS ? strstr(items, m->key) : NULL;
        if (given && given[strlen(m->key)] == '=')
            return tp__refuse(why, size, "a backbone has no classes, not %lld",
                              (long long)tp_model_get(backbone).outputs);
    }
    set_outputs(backbone, 0);
    return true;
}

bool tp_detector_change(tp_detector_cfg *c, const char *text,
                        const char *const set_by[TP_COMMON_KINDS], char *why, size_t size)
{
    char items[TEXT];
    if (!c || !c->kind || !text)
        return tp__refuse(why, size, "detector_change: a configuration and a text are needed");
    if (strlen(text) + 1 >= sizeof items)
        return tp__refuse(why, size, "'%.60s...' is longer than %d letters", text, TEXT - 2);
    if (text[0] == ',' || (*text && text[strlen(text) - 1] == ','))
        return tp__refuse(why, size, "'%.60s' has a comma without KEY=VALUE", text);
    tp_detector_cfg copy = *c;
    items_of(text, false, items);
    if ((items[0] || !*text) && !change_own(&copy, items, why, size)) return false;
    if (c->kind->fit) c->kind->fit(&copy.at);
    items_of(text, true, items);
    if (items[0] && !change_backbone(&copy, items, set_by, why, size)) return false;
    if (!tp_detector_check(&copy, why, size)) return false;
    *c = copy;
    return true;
}

tp_detector_parts tp_detector_parts_of(tp_detector_cfg *c)
{
    return c && c->kind ? c->kind->parts(&c->at) : (tp_detector_parts){ 0 };
}

bool tp_detector_has_masks(const tp_detector_cfg *c)
{
    return c && c->kind && c->kind->masks;
}

void tp_detector_limit(tp_detector_cfg *c, double score, int64_t most)
{
    const tp_detector_parts parts = tp_detector_parts_of(c);
    if (!parts.score) return;
    *parts.score = score;
    *parts.most = most;
}

/* ---- the model ---- */

void tp_detector_init(tp_params *P, tp_detector *m, const char *name, const tp_detector_cfg *c)
{
    if (!m) {
        tp_params_raise(P, TP_E_STATE, "detector_init: NULL was given in place of a detector");
        return;
    }
    *m = (tp_detector){ .kind = c->kind };
    if (!c->kind) tp_params_raise(P, TP_E_VALUE, "no detector has been chosen");
    m->module = c->kind ? tp_params_alloc(P, c->kind->size) : NULL;
    if (m->module) c->kind->init(P, m->module, name, &c->at);
}

bool tp_detector_load_backbone(tp_params *P, const tp_detector *m, const char *path, char *why,
                               size_t size)
{
    if (!m)
        return tp__refuse(why, size,
                          "detector_load_backbone: NULL was given in place of a detector");
    tp_file *F = tp_file_open(path);
    const bool done =
        tp_file_ok(F) && m->module && tp_backbone_load(P, m->kind->backbone(m->module), F);
    if (!done) snprintf(why, size, "%s", tp_file_ok(F) ? tp_params_why(P) : tp_file_why(F));
    tp_file_close(F);
    return done;
}

bool tp_detector_redraw(tp_params *P, const tp_detector *m, uint64_t seed, uint64_t draw)
{
    if (!tp_params_want_module(P, m, "detector") || !m->module) return false;
    const tp_backbone *b = m->kind->backbone(m->module);
    const tp_model *model = b->cfg.model.model;
    return model->redraw ? model->redraw(P, b->module, seed, draw) : tp_params_ok(P);
}

bool tp_detector_fuse(tp_params *P, tp_detector *m)
{
    if (!tp_params_want_module(P, m, "detector") || !m->module) return false;
    return tp_backbone_fuse(P, m->kind->backbone(m->module));
}

/* Returns false and fails T if the detector could not be declared. */
static bool is_there(tp_tape *T, const tp_detector *m)
{
    if (!tp_want_module(T, m, "detector")) return false;
    if (!m->module) tp_raise(T, TP_E_STATE, "the detector could not be created: see its tp_params");
    return m->module != NULL;
}

tp_detection_losses tp_detector_losses(tp_tape *T, tp_detector *m, const tp_detection_in *in)
{
    return is_there(T, m) ? m->kind->losses(T, m->module, in) : (tp_detection_losses){ 0 };
}

bool tp_detector_detect(tp_tape *T, const tp_detector *m, const tp_detection_in *in,
                        tp_detected *out)
{
    return is_there(T, m) && m->kind->detect(T, m->module, in, out);
}

/* ---- anchors ---- */

double tp_detector_matched(const tp_detector_cfg *c, int64_t height, int64_t width,
                           const tp_objects *objects, int64_t images)
{
    if (!c || !c->kind) return 0;
    tp_detector_cfg own = *c;
    const tp_detector_parts parts = c->kind->parts(&own.at);
    const tp_anchor_cfg *a = parts.anchors;
    int64_t size[TP_ANCHOR_LEVELS][2], n = 0, matched = 0;
    for (int l = 0; l < a->levels; l++) {
        size[l][0] = (int64_t)ceil((double)height / a->stride[l]);
        size[l][1] = (int64_t)ceil((double)width / a->stride[l]);
    }
    tp_anchor_list list;
    bool done = tp__anchor_list(&list, a, a->levels, (const int64_t(*)[2])size);
    int64_t *match = malloc((size_t)(list.n + 1) * sizeof *match);
    int *label = malloc((size_t)(list.n + 1) * sizeof *label);
    done = done && match && label;
    for (int64_t i = 0; i < images && done; i++) {
        done = tp_match_boxes(parts.matcher, objects[i].box, objects[i].n, list.box, list.n, match,
                              label);
        for (int64_t k = 0; done && k < list.n; k++) matched += label[k] == 1;
        n += objects[i].n;
    }
    free(list.box);
    free(match);
    free(label);
    return done && n > 0 ? (double)matched / (double)n : (double)NAN;
}
