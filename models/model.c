/* model.c - finds models and their parts by name, and handles configurations of any model as
 * values. CMake collects the models (cmake/constants.cmake). */
#include <stdio.h>
#include <string.h>
#include <tapegrad/nearest.h>

#include "model_inner.h"
#include "parts.h"

enum { MOST_SIDE = 1 << 16 }; /* of images named in presets */

extern const tp_model *const tp__models[]; /* ends with NULL */

/* ---- rows ---- */

const tp_model_row *tp_model_at(int i)
{
    for (const tp_model *const *m = tp__models; i >= 0 && *m; m++)
        for (const tp_model_row *row = (*m)->presets; row->name; row++)
            if (i-- == 0) return row;
    return NULL;
}

const char *tp_model_name(int i)
{
    const tp_model_row *row = tp_model_at(i);
    return row ? row->name : NULL;
}

const tp_model *tp_model_of(const tp_model_row *row)
{
    for (const tp_model *const *m = tp__models; *m; m++)
        for (const tp_model_row *own = (*m)->presets; own->name; own++)
            if (own == row) return *m;
    return NULL;
}

/* ---- names ---- */

/* Returns the next blank-separated word from *at, or NULL. */
static const char *next_word(const char **at, size_t *length)
{
    const char *word = *at + strspn(*at, " ");
    *length = strcspn(word, " ");
    *at = word + *length;
    return *length ? word : NULL;
}

static bool is_called(const tp_model_row *row, const char *name)
{
    const char *at = row->also ? row->also : "", *word;
    size_t n;
    if (strcmp(row->name, name) == 0) return true;
    while ((word = next_word(&at, &n)))
        if (strlen(name) == n && memcmp(word, name, n) == 0) return true;
    return false;
}

const tp_model_row *tp_model_find(const char *name)
{
    if (!name) return NULL;
    const tp_model_row *row;
    for (int i = 0; (row = tp_model_at(i)); i++)
        if (is_called(row, name)) return row;
    return NULL;
}

static bool unknown(const char *name, char *why, size_t size)
{
    const tp_model_row *row;
    tp_nearest near = tp_nearest_to(name);
    for (int i = 0; (row = tp_model_at(i)); i++) {
        tp_nearest_try(&near, row->name);
        tp_nearest_try(&near, row->also);
    }
    if (near.name[0])
        snprintf(why, size, "no model is called '%.80s'; did you mean '%s'?", name, near.name);
    else
        snprintf(why, size, "no model is called '%.80s'; tp-models lists them all", name);
    return false;
}

/* ---- presets ---- */

/* Takes the preset whose name, "-" and an image side make up `name`. */
static bool take_sided(tp_model_cfg *c, const char *name)
{
    tp_common_cfg o;
    int64_t side;
    for (const tp_model_row *row = c->model->presets; row->name; row++) {
        const size_t n = strlen(row->name);
        if (!row->cfg || strncmp(name, row->name, n) != 0 ||
            !tp__side_of(name + n, MOST_SIDE, &side))
            continue;
        memcpy(&c->at, row->cfg, c->model->cfg_size);
        o = tp_model_get(c);
        o.image[0] = o.image[1] = side;
        tp_model_set(c, &o);
        return true;
    }
    return false;
}

static bool take_named(tp_model_cfg *c, const tp_model *m, const char *name, char *why, size_t size)
{
    memset(c, 0, sizeof *c);
    c->model = m;
    for (const tp_model_row *row = m->presets; row->name; row++)
        if (row->cfg && strcmp(row->name, name) == 0) {
            memcpy(&c->at, row->cfg, m->cfg_size);
            return true;
        }
    if (m->preset && m->preset(&c->at, name, why, size)) return true;
    if (m->sided && take_sided(c, name)) return true;
    c->model = NULL;
    return false;
}

/* Takes the named preset; with the suffix "-ip102", the base preset with 102 classes. */
static bool take_preset(tp_model_cfg *c, const tp_model *m, const char *name, char *why,
                        size_t size)
{
    static const char set[] = "-ip102";
    char bare[128];
    const size_t n = strlen(name), end = sizeof set - 1;
    if (take_named(c, m, name, why, size)) return true;
    if (m->input != TP_IMAGES || n <= end || n - end >= sizeof bare || !tp_ends_in(name, set))
        return false;
    memcpy(bare, name, n - end);
    bare[n - end] = '\0';
    if (!take_named(c, m, bare, why, size)) return false;
    tp_common_cfg o = tp_model_get(c);
    o.outputs = 102;
    tp_model_set(c, &o);
    return true;
}

const tp_model *tp_model_backbone(int i)
{
    for (const tp_model *const *m = tp__models; i >= 0 && *m; m++)
        if ((*m)->backbone && i-- == 0) return *m;
    return NULL;
}

bool tp_model_preset(tp_model_cfg *c, const char *name, char *why, size_t size)
{
    if (!c) {
        if (why) snprintf(why, size, "model_preset: NULL was given in place of a configuration");
        return false;
    }
    const tp_model_row *row = tp_model_find(name);
    if (row) return take_preset(c, tp_model_of(row), row->name, why, size);
    for (const tp_model *const *m = tp__models; *m; m++)
        if (take_preset(c, *m, name, why, size)) return true;
    memset(c, 0, sizeof *c);
    return unknown(name, why, size);
}

/* ---- configurations ---- */

tp_model_cfg tp_model_cfg_of(const tp_model *m, const void *cfg)
{
    tp_model_cfg c = { 0 };
    if (!m || !cfg) return c;
    c.model = m;
    memcpy(&c.at, cfg, m->cfg_size);
    return c;
}

bool tp_model_check(const tp_model_cfg *c, char *why, size_t size)
{
    if (!c) {
        if (why) snprintf(why, size, "model_check: NULL was given in place of a configuration");
        return false;
    }
    if (c->model) return c->model->check(&c->at, why, size);
    snprintf(why, size, "no model has been chosen");
    return false;
}

tp_shape tp_model_input_shape(const tp_model_cfg *c, int64_t batch, int64_t tokens)
{
    if (!c) return (tp_shape){ 0 };
    const tp_common_cfg o = tp_model_get(c);
    const tp_model_input input = c->model ? c->model->input : TP_IMAGES;
    if (input == TP_IMAGES) return TP_SHAPE(batch, o.image[0], o.image[1], 3);
    if (input == TP_TOKENS && o.cache) return TP_SHAPE(batch, tokens ? tokens : o.cache);
    if (o.pair) return TP_SHAPE(batch, 2, tokens ? tokens : o.length);
    return TP_SHAPE(batch, tokens ? tokens : o.length);
}

void tp_model_write(const tp_model_cfg *c, tp_writer *W)
{
    if (!c) return;
    if (c->model) tp_model_write_cfg(c->model, &c->at, W);
}

static const tp_model *model_called(const char *name)
{
    for (const tp_model *const *m = tp__models; *m; m++)
        if (strcmp((*m)->name, name) == 0) return *m;
    return NULL;
}

bool tp_model_read(tp_model_cfg *c, tp_file *F, char *why, size_t size)
{
    if (!c) {
        if (why) snprintf(why, size, "model_read: NULL was given in place of a configuration");
        return false;
    }
    const char *name = tp__model_of(F);
    const tp_model *m = name ? model_called(name) : NULL;
    char reason[512] = "it contains no model configuration: the metadata 'model' is missing; a "
                       "publisher's weights are given by --preset NAME --weights FILE";

    memset(c, 0, sizeof *c);
    if (m && tp_model_read_cfg(m, &c->at, F, reason, sizeof reason)) {
        c->model = m;
        return true;
    }
    if (name && !m)
        snprintf(reason, sizeof reason, "its model is a '%.60s', which this version does not know",
                 name);
    if (tp_file_ok(F))
        snprintf(why, size, "%s: %s", tp_file_path(F), reason);
    else
        snprintf(why, size, "%s", tp_file_why(F));
    return false;
}

/* ---- the same model ---- */

/* Do both declare the same names, shapes and dtypes in the same order? */
static bool lists_agree(const tp_params *P, const tp_params *Q)
{
    tp_param_info there = { 0 };
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        if (!tp_next_param(Q, &there)) return false;
        if (strcmp(it.name, there.name) != 0 || it.buffer != there.buffer ||
            it.dtype != there.dtype || it.shape.ndim != there.shape.ndim ||
            memcmp(it.shape.dim, there.shape.dim, (size_t)it.shape.ndim * sizeof(int64_t)) != 0)
            return false;
    }
    return !tp_next_param(Q, &there);
}

static bool same_parameters(const tp_model_cfg *a, const tp_model_cfg *b)
{
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1, .dry = true });
    tp_params *P = tp_params_new(D, NULL), *Q = tp_params_new(D, NULL);
    tp_net *N = tp_net_new(P, "", a), *M = tp_net_new(Q, "", b);
    const bool same = tp_params_ok(P) && tp_params_ok(Q) && lists_agree(P, Q);
    tp_net_free(M);
    tp_net_free(N);
    tp_params_free(Q);
    tp_params_free(P);
    tp_device_close(D);
    return same;
}

bool tp_model_same(const tp_model_cfg *a, const tp_model_cfg *b)
{
    if (!a) return false;
    tp_model_cfg fitted = *b;
    const tp_common_cfg want = tp_model_get(a);
    tp_common_cfg o = tp_model_get(b);

    if (!a->model || a->model != b->model) return false;
    if (a->model->same) return a->model->same(&a->at, &b->at);
    memcpy(o.image, want.image, sizeof o.image);
    o.cache = want.cache;
    o.outputs = want.outputs;
    tp_model_set(&fitted, &o);
    return same_parameters(a, &fitted);
}

/* ---- parts ---- */

static const tp_model_part *part_called(const tp_model *m, const char *name)
{
    for (const tp_model_part *part = m && name ? m->parts : NULL; part && part->name; part++)
        if (strcmp(part->name, name) == 0) return part;
    return NULL;
}

void tp_part_init(tp_params *P, const tp_model *model, const char *part, void *m, const char *name,
                  const void *cfg)
{
    const tp_model_part *found = part_called(model, part);
    if (found)
        found->init(P, m, name, cfg);
    else
        tp_params_raise(P, TP_E_VALUE, "model %s has no part called '%s'",
                        model ? model->name : "NULL", part ? part : "NULL");
}

tp_tensor tp_part_forward(tp_tape *T, const tp_model *model, const char *part, const void *m,
                          void *with, tp_tensor x)
{
    const tp_model_part *found = part_called(model, part);
    if (found) return found->forward(T, m, with, x);
    return tp_raise(T, TP_E_VALUE, "model %s has no part called '%s'", model ? model->name : "NULL",
                    part ? part : "NULL");
}
