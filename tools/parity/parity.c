/* parity.c - runs one case: finds its kind, runs it, and checks that all of the file was used. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "parity_case.h"

static const par_kind *const tables[] = {
    par_lm_kinds,      par_lsla_kinds,      par_cvt_kinds,      par_vil_kinds,
    par_lra_kinds,     par_optim_kinds,     par_baseline_kinds, par_window_kinds,
    par_roberta_kinds, par_detection_kinds, par_select_kinds,   par_scene_kinds,
    par_pyramid_kinds, par_retinanet_kinds, par_rcnn_kinds,
};

const par_kind *par_kind_at(int i)
{
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const par_kind *k = tables[t]; k->kind; k++)
            if (i-- == 0) return k;
    return NULL;
}

static const par_kind *find_kind(const char *name)
{
    const par_kind *k = NULL;
    for (int i = 0; name && (k = par_kind_at(i)) && strcmp(k->kind, name) != 0;) i++;
    return k;
}

/* ---- failures ---- */

static void fail(parity *p, bool illegal, const char *fmt, va_list ap)
{
    if (p->failed) return;
    p->failed = true;
    p->r->illegal = illegal;
    vsnprintf(p->r->why, sizeof p->r->why, fmt, ap);
}

void par_fail(parity *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fail(p, false, fmt, ap);
    va_end(ap);
}

void par_illegal(parity *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fail(p, true, fmt, ap);
    va_end(ap);
}

void par_params(parity *p, bool done)
{
    if (!done) par_fail(p, "%s", tp_params_why(p->P));
}

bool par_ok(parity *p)
{
    if (!tp_file_ok(p->F)) par_fail(p, "%s", tp_file_why(p->F));
    if (p->P && !tp_params_ok(p->P)) par_illegal(p, "%s", tp_params_why(p->P));
    if (p->T && !tp_ok(p->T)) par_illegal(p, "%s", tp_why(p->T));
    return !p->failed;
}

/* ---- memory of the case ---- */

typedef struct par_block {
    struct par_block *next;
    max_align_t data[];
} par_block;

void *par_alloc(parity *p, int64_t n, size_t size)
{
    const size_t most = (SIZE_MAX - sizeof(par_block)) / (size ? size : 1);
    par_block *b = NULL;

    if (n >= 0 && (uint64_t)n < most) b = calloc(1, sizeof *b + (size_t)n * size + 1);
    if (!b) {
        par_fail(p, "out of memory for %lld elements", (long long)n);
        return NULL;
    }
    b->next = p->heap;
    p->heap = b;
    return b->data;
}

const char *par_name(parity *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *name = n < 0 ? NULL : par_alloc(p, n + 1, 1);
    if (!name) return "";
    va_start(ap, fmt);
    vsnprintf(name, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return name;
}

const char *par_nth(parity *p, const char *stem, int64_t number)
{
    return par_name(p, "%s%lld", stem, (long long)number);
}

/* ---- accounting ---- */

/* Reads the metadata and applies o->change. */
static void read_metadata(parity *p)
{
    const parity_change *c = p->o->change;
    const char *key, *value;
    int n = 0, added = c ? 1 : 0;

    while (tp_file_meta_at(p->F, n, &key, &value)) n++;
    p->key = par_alloc(p, n + added, sizeof *p->key);
    for (int i = 0; p->key && tp_file_meta_at(p->F, i, &key, &value); i++) {
        const bool changed = c && strcmp(c->key, key) == 0;
        if (changed) {
            value = c->value;
            added = 0;
        }
        if (value) p->key[p->keys++] = (par_key){ .key = key, .value = value };
    }
    if (p->key && added && c->value)
        p->key[p->keys++] = (par_key){ .key = c->key, .value = c->value };
}

/* Parameters of zero global tokens are stored as empty tensors, or not at all. */
static bool is_empty_parameter(const tp_file_tensor *t)
{
    return t->numel == 0 &&
           (strncmp(t->name, "param.", 6) == 0 || strncmp(t->name, "grad.", 5) == 0);
}

static void check_account(parity *p)
{
    for (int i = 0; i < tp_file_count(p->F); i++) {
        const tp_file_tensor *t = tp_file_at(p->F, i);
        if (!p->seen[i] && !is_empty_parameter(t))
            par_fail(p, "%s was not compared with anything", t->name);
    }
    for (int i = 0; i < p->keys; i++)
        if (!p->key[i].read && !par_is_prose(p, p->key[i].key))
            par_fail(p, "metadata %s = '%.80s': this kind does not read it", p->key[i].key,
                     p->key[i].value);
    const char *key, *member;
    json_t *object, *value;
    json_object_foreach(p->json, key, object) json_object_foreach(object, member, value)
        par_fail(p, "metadata %s: this kind does not read '%.40s'", key, member);
    if (p->compared == 0) par_fail(p, "the case has nothing to compare");
}

static int run_kind(parity *p)
{
    const char *name = par_text(p, "kind");

    p->kind = find_kind(name);
    if (!p->kind) {
        par_fail(p, name ? "unknown kind of case '%s'" : "the metadata lack 'kind'", name);
        return 1;
    }
    if (p->kind->large && !p->o->large) return -1;
    if (p->o->compute == TP_BF16 &&
        (p->kind->no_bf16 || (p->kind->too_coarse && p->kind->too_coarse(p))))
        return -1;
    if (p->kind->run)
        p->kind->run(p);
    else
        par_run_module(p);
    if (par_ok(p)) check_account(p);
    return p->failed ? 1 : 0;
}

int par_run(parity *p, const char *path, const parity_opts *o, parity_result *r)
{
    *r = (parity_result){ 0 };
    *p = (parity){ .o = o, .r = r, .F = tp_file_open(path), .suffix = "" };
    p->real = o->compute == TP_F64 ? TP_F64 : TP_F32;
    if (!par_ok(p)) return 1;
    read_metadata(p);
    p->seen = par_alloc(p, tp_file_count(p->F), sizeof *p->seen);
    return p->failed ? 1 : run_kind(p);
}

void par_release(parity *p)
{
    tp_tape_free(p->T);
    tp_params_free(p->P);
    p->T = NULL;
    p->P = NULL;
}

void par_close(parity *p)
{
    par_release(p);
    while (p->heap) {
        par_block *next = p->heap->next;
        free(p->heap);
        p->heap = next;
    }
    json_decref(p->json);
    tp_file_close(p->F);
}

int parity_run(parity_result *r, const char *path, const parity_opts *o)
{
    parity p;
    if (par_is_table(path)) return par_run_rows(r, path, o);
    const int result = par_run(&p, path, o, r);
    par_close(&p);
    return result;
}
