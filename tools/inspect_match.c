/* inspect_match.c - compares the names and shapes of a file with the parameters of a model, which are
 * declared on a dry device. For one model the values are read, too, and dropped. */
#include "inspect_match.h"

#include <stdio.h>
#include <string.h>
#include <tapegrad/model.h>
#include <tapegrad/options.h>

#include "print_text.h"

typedef struct match {
    tp_model_cfg cfg;
    tp_file *F;
    tp_device *D;
    tp_params *P;
    tp_net *N;
    char prefix[512];
    int64_t outputs; /* of the model as published */
    int all, fit, resized, shape, missing, unreadable, unknown;
    bool print; /* each difference */
} match;

/* ---- differences ---- */

/* The file's tensor of a parameter, which may have any of its names. */
static const tp_file_tensor *found(const match *m, const char *name)
{
    const tp_file_tensor *t = tp_file_find(m->F, name);
    for (tp_param_info it = { 0 }; !t && tp_next_param(m->P, &it);)
        if (it.alias_of && strcmp(it.alias_of, name) == 0) t = tp_file_find(m->F, it.name);
    return t;
}

static void differ(match *m, int *count, const char *what, const char *name, const tp_shape *there,
                   const tp_shape *here)
{
    char a[256] = "", b[256] = "";
    (*count)++;
    if (!m->print) return;
    if (there) shape_text(there, a, sizeof a);
    if (here) shape_text(here, b, sizeof b);
    printf("  %s: ", what);
    print_text(name, 0);
    printf(" %s%s%s%s\n", a, there && here ? " in the file, " : "", b,
           there && here ? " in the model" : "");
}

static void cannot_be_read(match *m, const char *name, const char *why)
{
    m->unreadable++;
    if (!m->print) return;
    printf("  unreadable: ");
    print_text(name, 0);
    printf(" %s\n", why);
}

static void compare(match *m, const tp_param_info *it)
{
    const tp_file_tensor *t = found(m, it->name);
    const tp_model *model = m->cfg.model;
    const tp_shape *here = &it->shape, *there = t ? &t->shape : NULL;
    m->all++;
    if (!t && model->may_lack && model->may_lack(it->name))
        m->all--;
    else if (!t)
        differ(m, &m->missing, "missing", it->name, NULL, here);
    else if (t->code != TP_OK)
        cannot_be_read(m, it->name, t->why);
    else if (there->ndim == here->ndim &&
             memcmp(there->dim, here->dim, (size_t)here->ndim * sizeof here->dim[0]) == 0)
        m->fit++;
    else if (model->resizes_to && model->resizes_to(it->name, here, there))
        differ(m, &m->resized, "resized", it->name, there, here);
    else
        differ(m, &m->shape, "shape", it->name, there, here);
}

/* Is it no weight but another part of a training checkpoint? */
static bool other_part(const char *name)
{
    return strncmp(name, "optim.", 6) == 0 || strncmp(name, "ema.", 4) == 0 ||
           strncmp(name, "state.", 6) == 0;
}

static void compare_all(match *m)
{
    for (tp_param_info it = { 0 }; tp_next_param(m->P, &it);)
        if (!it.alias_of) compare(m, &it);
    for (int i = 0; i < tp_file_count(m->F); i++) {
        const tp_file_tensor *t = tp_file_at(m->F, i);
        if (!other_part(t->name) && !tp_given(tp_find(m->P, t->name)))
            differ(m, &m->unknown, "unknown", t->name, &t->shape, NULL);
    }
}

/* ---- one model ---- */

static bool can_load(const match *m)
{
    return m->all > 0 && m->shape + m->missing + m->unreadable + m->unknown == 0;
}

/* Opens file and model; close in either case. False with the reason in why. */
static bool open_match(match *m, const char *model, const char *path, char *why, size_t size)
{
    m->F = tp_file_open(path);
    if (!tp_model_preset(&m->cfg, model, why, size)) return false;
    m->outputs = tp_model_get(&m->cfg).outputs;
    tp_model_adopt(&m->cfg, m->F, m->prefix, sizeof m->prefix);
    m->D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1, .dry = true });
    m->P = tp_params_new(m->D, NULL);
    m->N = tp_net_new(m->P, "", &m->cfg);
    snprintf(why, size, "%s", tp_file_ok(m->F) ? tp_params_why(m->P) : tp_file_why(m->F));
    return tp_file_ok(m->F) && tp_params_ok(m->P);
}

static void close_match(match *m)
{
    tp_net_free(m->N);
    tp_params_free(m->P);
    tp_device_close(m->D);
    tp_file_close(m->F);
}

static void print_verdict(const match *m)
{
    const int64_t outputs = tp_model_get(&m->cfg).outputs;
    const tp_model_input input = m->cfg.model->input;
    printf("  %d of %d tensors fit", m->fit, m->all);
    if (m->resized) printf(", %d can be resized", m->resized);
    if (m->shape) printf(", %d have another shape", m->shape);
    if (m->missing) printf(", %d are missing", m->missing);
    if (m->unreadable) printf(", %d cannot be read", m->unreadable);
    if (m->unknown) printf("; %d are not of this model", m->unknown);
    printf("\n");
    if (outputs != m->outputs)
        printf("  it has %lld %s where the published model has %lld%s\n", (long long)outputs,
               input == TP_TOKENS ? "tokens" : "classes", (long long)m->outputs,
               input == TP_IMAGES ? "; to train with others: --head new or slice" : "");
    if (!can_load(m) || !m->resized) return;
    if (input == TP_IMAGES)
        printf("  it is for another image size: give --size, or --resize to train from it\n");
    else
        printf("  %s has another length: the model can be trained from it\n",
               m->cfg.model->resizes);
}

/* Reads all values as a program does. */
static bool load(match *m)
{
    if (tp_net_load(m->P, m->N, m->F, m->resized > 0)) return true;
    tp_command_complain("tp-inspect", tp_params_why(m->P));
    return false;
}

bool inspect_match(const char *model, const char *path)
{
    match m = { .print = true };
    char why[2048];
    bool fits = open_match(&m, model, path, why, sizeof why);
    if (!fits) {
        tp_command_complain("tp-inspect", why);
    } else {
        print_text(path, 0);
        printf(": %s%s", model, *m.prefix ? " under '" : "");
        print_text(m.prefix, 0);
        printf("%s\n", *m.prefix ? "'" : "");
        compare_all(&m);
        print_verdict(&m);
        fits = can_load(&m) && load(&m);
        printf("  %s\n", fits ? "all weights can be loaded" : "these weights cannot be loaded");
    }
    close_match(&m);
    return fits;
}

/* ---- any model ---- */

bool inspect_match_any(const char *path)
{
    const tp_model_row *row, *nearest = NULL;
    char why[2048] = "";
    int models = 0, most = 0, of = 0;
    bool opened = true;
    for (int i = 0; opened && (row = tp_model_at(i)); i++) {
        match m = { 0 };
        opened = open_match(&m, row->name, path, why, sizeof why);
        if (opened) compare_all(&m);
        if (opened && can_load(&m)) {
            printf("%-24s %-18s %s\n", row->name, row->family,
                   m.resized ? "can be loaded for another image size" : "fits");
            models++;
        } else if (m.fit > most) {
            nearest = row;
            most = m.fit;
            of = m.all;
        }
        close_match(&m);
    }
    if (!opened) tp_command_complain("tp-inspect", why);
    if (!opened || models > 0) return opened;
    print_text(path, 0);
    printf(": no model fits");
    if (nearest) printf("; the nearest is %s, with %d of its %d tensors", nearest->name, most, of);
    printf("\n");
    return false;
}
