/* parity_audit.c - which settings of a case have an effect. It changes every value that was read,
 * one at a time, and looks whether the case still agrees.
 *
 * The changes depend on how a key was read. Numbers: plus and minus one, doubled, negated, and, if
 * not whole, times and divided by ten. Lists: shortened and lengthened. Flags: flipped. Words:
 * every other legal word. Names: removed and added. And nonsense for all. Impossible values say
 * nothing about the case. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "parity_case.h"

#define INERT "inert"

typedef struct audit {
    parity_audit *result;
    const char *path;
    const parity_opts *o;
    parity *p;          /* the unchanged case, after its run                    */
    const par_key *k;   /* the key that is being changed                        */
    const char *effect; /* its first value that makes a difference; NULL: none  */
    bool same;          /* a legal value makes none                             */
    bool verbose, f64;  /* f64: the device supports it                          */
    FILE *out;
} audit;

/* ---- one change ---- */

typedef enum verdict { AGREES, DIFFERS, ILLEGAL } verdict;

/* The case with another value. A change that goes unnoticed in f32 is retried in f64. */
static verdict judge(const audit *a, const char *to)
{
    const parity_change change = { a->k->key, to };
    parity_opts o = *a->o;
    parity_result r;

    o.large = true;
    o.change = &change;
    int status = parity_run(&r, a->path, &o);
    if (status <= 0 && o.compute != TP_F64 && a->f64) {
        o.compute = TP_F64;
        status = parity_run(&r, a->path, &o);
    }
    return status <= 0 ? AGREES : r.illegal ? ILLEGAL : DIFFERS;
}

/* Once a change has made a difference, only a verbose audit looks for others that make none. */
static void try(audit *a, const char *to)
{
    if (strcmp(to, a->k->value) == 0 || (a->effect && !a->verbose)) return;
    const verdict v = judge(a, to);
    a->result->changes++;
    a->same |= v == AGREES;
    if (v == DIFFERS && !a->effect) a->effect = to;
    if (v == AGREES && a->verbose)
        fprintf(a->out, "     %s: '%s' -> '%s' makes no difference\n", a->k->key, a->k->value, to);
}

/* Tries the value with its characters from..to replaced by part. */
static void try_with(audit *a, const char *from, const char *to, const char *part)
{
    const char *value = a->k->value;
    const int before = (int)(from - value);
    try(a, par_name(a->p, "%.*s%s%s", before, value, part, to));
}

/* ---- numbers ---- */

static void try_number(audit *a, const char *from, const char *to)
{
    const bool whole = strcspn(from, ".eE") >= (size_t)(to - from);
    const double x = strtod(from, NULL);
    const double changed[] = { x, x + 1, x - 1, 2 * x, -x, whole ? x : 10 * x, whole ? x : x / 10 };

    for (int i = 1; i < (int)(sizeof changed / sizeof *changed); i++) {
        int k = 0;
        while (changed[k] != changed[i]) k++; /* try equal numbers only once */
        if (k == i) try_with(a, from, to, par_name(a->p, "%.12g", changed[i]));
    }
}

/* The end of the number that begins at s, or s if there is none. */
static const char *number_at(const char *s)
{
    const char *digits = s + (*s == '-');
    char *end;

    if (!isdigit((unsigned char)*digits)) return s;
    strtod(s, &end);
    return end;
}

static void try_numbers(audit *a)
{
    const char *value = a->k->value, *last = strrchr(value, ',');

    for (const char *s = value; *s;) {
        const char *end = number_at(s);
        if (end > s) try_number(a, s, end);
        s = end > s ? end : s + 1;
    }
    if (!last) return;
    try_with(a, last, value + strlen(value), "");
    try(a, par_name(a->p, "%s%s", value, last));
}

/* ---- names ---- */

/* The first parameter that has a gradient in the file and is not in the list. */
static const char *another_name(const audit *a)
{
    for (int i = 0; i < tp_file_count(a->p->F); i++) {
        const char *name = tp_file_at(a->p->F, i)->name, *dot = strchr(name, '.');
        if (strncmp(name, "grad", 4) == 0 && dot && !par_names(a->p, a->k->key, dot + 1))
            return dot + 1;
    }
    return NULL;
}

static void try_names(audit *a)
{
    const char *value = a->k->value, *first = value + strcspn(value, " ");
    const char *other = another_name(a);

    try_with(a, value, first + strspn(first, " "), "");
    try(a, par_name(a->p, "%s nonsense", value));
    if (other) try(a, par_name(a->p, "%s %s", value, other));
}

/* Tries the other rows of the model table for the same model. */
static void try_models(audit *a)
{
    const tp_model_row *own = tp_model_find(a->k->value), *row;

    for (int i = 0; own && (row = tp_model_at(i)); i++)
        if (tp_model_of(row) == tp_model_of(own) && row != own) try(a, row->name);
}

/* ---- all changes of a case ---- */

static void try_values(audit *a)
{
    const par_key *k = a->k;

    switch (k->form) {
    case PAR_FLAG:
        try(a, k->value[0] == '1' ? "0" : "1");
        try(a, "2");
        break;
    case PAR_WORD:
        for (int i = 0; k->words[i]; i++) try(a, k->words[i]);
        break;
    case PAR_NAMES: try_names(a); return; /* it has tried nonsense as a name */
    case PAR_MODEL: try_models(a); break;
    case PAR_JSON:
        if (k->value[0] == '{') try_with(a, k->value, k->value + 1, "{\"nonsense\": 1, ");
        try_numbers(a);
        break;
    default: try_numbers(a);
    }
    try(a, "nonsense");
}

/* Tries the other kinds of the same area, and an unknown kind. */
static void try_kinds(audit *a)
{
    const par_kind *kind;
    const size_t area = strcspn(a->k->value, ".") + 1;

    for (int i = 0; (kind = par_kind_at(i)); i++)
        if (strncmp(kind->kind, a->k->value, area) == 0) try(a, kind->kind);
    try(a, "nonsense");
}

/* Finds out whether the key has an effect, and compares with the list of those without. Nothing is
 * known of a key of which every other value is impossible: it may be listed or not. */
static void audit_key(audit *a)
{
    const bool has_list = par_given(a->p, INERT), listed = par_names(a->p, INERT, a->k->key);
    const char *key = a->k->key, *value = a->k->value;

    a->effect = NULL;
    a->same = false;
    if (strcmp(key, "kind") == 0)
        try_kinds(a);
    else
        try_values(a);
    const bool inert = a->same && !a->effect;
    a->result->inert += inert;
    a->result->wrong += has_list && (listed ? a->effect != NULL : inert);
    if (listed && a->effect)
        fprintf(a->out, "     %s: " INERT " lists it, but '%s' -> '%s' is noticed\n", key, value,
                a->effect);
    else if (!listed && inert)
        fprintf(a->out, "     %s: no change of '%s' makes a difference%s\n", key, value,
                has_list ? ", but " INERT " lacks it" : "");
}

/* ---- all keys of a case ---- */

/* False if the list of keys without effect has a name that is not a setting of the case. */
static bool check_list(parity *p)
{
    const char *at = NULL, *name;

    while ((name = par_next_name(p, INERT, &at))) {
        int i = 0;
        while (i < p->keys && strcmp(p->key[i].key, name) != 0) i++;
        if (i == p->keys || !p->key[i].read || strcmp(name, INERT) == 0)
            par_fail(p, "metadata " INERT " names '%.80s', which is not a setting of the case",
                     name);
    }
    return !p->failed;
}

static bool has_f64(tp_device *D)
{
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = TP_F64 });
    const bool has = tp_ok(T);
    tp_tape_free(T);
    return has;
}

/* Runs the unchanged case in the precision of the audit. Returns the result of par_run. */
static int run_unchanged(parity *p, const char *path, bool f64, parity_opts *o, parity_result *r)
{
    o->compute = f64 ? TP_F64 : TP_F32;
    const int status = par_run(p, path, o, r);
    if (status >= 0) return status;
    par_close(p);
    o->large = true;
    o->compute = TP_F32;
    return par_run(p, path, o, r);
}

bool parity_audit_run(parity_audit *result, const char *path, tp_device *D, bool verbose, FILE *out)
{
    parity p;
    parity_result r;
    parity_opts o = { .D = D };
    *result = (parity_audit){ 0 };
    if (par_is_table(path)) { /* without metadata: there is nothing to change */
        const bool same = par_run_rows(&r, path, &o) == 0;
        snprintf(result->why, sizeof result->why, "%s", r.why);
        return same;
    }
    const bool f64 = has_f64(D), good = run_unchanged(&p, path, f64, &o, &r) == 0 && check_list(&p);
    audit a = {
        .result = result, .path = path, .o = &o, .p = &p, .verbose = verbose, .f64 = f64, .out = out
    };

    par_release(&p);
    for (int i = 0; good && i < p.keys; i++) {
        a.k = &p.key[i];
        if (a.k->read && strcmp(a.k->key, INERT) != 0) audit_key(&a);
    }
    snprintf(result->why, sizeof result->why, "%s", r.why);
    par_close(&p);
    return good;
}
