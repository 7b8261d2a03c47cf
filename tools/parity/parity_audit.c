/* parity_audit.c - checks that a case's metadata determine what is run. It changes every value that
 * was read, one at a time, and each change must be refused or make the case disagree.
 *
 * The changes depend on how a key was read. Numbers: plus and minus one, doubled, negated, and, if
 * not whole, times and divided by ten. Lists: shortened and lengthened. Flags: flipped. Words: every
 * other legal word. Names: removed and added. And nonsense for all. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "parity_audit.h"
#include "parity_tables.h"

typedef struct audit {
    parity_audit *result;
    const char *path;
    const parity_opts *o;
    parity *p;        /* the unchanged case, after its run */
    const par_key *k; /* the key that is being changed     */
    bool all, f64;    /* f64: the device supports it       */
    FILE *out;
} audit;

/* ---- one change ---- */

/* '*' in a pattern, such as "lm.*trace", matches any characters. */
static bool matches(const char *pattern, const char *kind)
{
    const size_t n = strcspn(pattern, "*"), all = strlen(kind);
    if (strncmp(pattern, kind, n) != 0) return false;
    if (!pattern[n]) return all == n;
    const size_t end = strlen(pattern + n + 1);
    return all >= n + end && strcmp(kind + all - end, pattern + n + 1) == 0;
}

static const char *reason_of(const audit *a, const char *to)
{
    static const par_exception *const tables[] = { par_exceptions,         par_lm_exceptions,
                                                   par_vil_exceptions,     par_cvt_exceptions,
                                                   par_lsla_exceptions,    par_lra_exceptions,
                                                   par_roberta_exceptions, par_image_exceptions,
                                                   par_window_exceptions,  par_detection_exceptions,
                                                   par_rcnn_exceptions,    par_retinanet_exceptions,
                                                   par_pyramid_exceptions };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const par_exception *e = tables[i]; e->kind; e++)
            if (matches(e->kind, a->p->kind->kind) && matches(e->key, a->k->key) &&
                (!e->same || e->same(a->p, a->k->value, to)))
                return e->reason;
    return NULL;
}

/* True if the case also agrees with that value. A change that goes unnoticed in f32 is retried in
 * f64. */
static bool agrees_with(const audit *a, const char *to)
{
    const parity_change change = { a->k->key, to };
    parity_opts o = *a->o;
    parity_result r;

    o.large = true;
    o.change = &change;
    if (parity_run(&r, a->path, &o) > 0) return false;
    if (o.compute == TP_F64 || !a->f64 || reason_of(a, to)) return true;
    o.compute = TP_F64;
    return parity_run(&r, a->path, &o) <= 0;
}

static void try(audit *a, const char *to)
{
    if (strcmp(to, a->k->value) == 0) return;
    a->result->changes++;
    if (!agrees_with(a, to)) return;
    const char *reason = reason_of(a, to);
    if (reason)
        a->result->excepted++;
    else
        a->result->unnoticed++;
    if (!reason || a->all)
        fprintf(a->out, "     %s: '%s' -> '%s' makes no difference%s%s\n", a->k->key, a->k->value,
                to, reason ? ": " : "", reason ? reason : "");
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
        if (row->model == own->model && row != own) try(a, row->name);
}

/* ---- all changes of a case ---- */

static void try_key(audit *a)
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

bool parity_audit_run(parity_audit *result, const char *path, tp_device *D, bool all, FILE *out)
{
    parity p;
    parity_result r;
    parity_opts o = { .D = D };
    if (par_is_table(path)) { /* without metadata: there is nothing to change */
        const bool same = par_run_rows(&r, path, &o) == 0;
        *result = (parity_audit){ 0 };
        snprintf(result->why, sizeof result->why, "%s", r.why);
        return same;
    }
    const bool f64 = has_f64(D), agrees = run_unchanged(&p, path, f64, &o, &r) == 0;
    audit a = { result, path, &o, &p, NULL, all, f64, out };

    *result = (parity_audit){ 0 };
    par_release(&p);
    for (int i = 0; agrees && i < p.keys; i++) {
        a.k = &p.key[i];
        if (strcmp(a.k->key, "kind") == 0)
            try_kinds(&a);
        else if (a.k->read)
            try_key(&a);
    }
    snprintf(result->why, sizeof result->why, "%s", r.why);
    par_close(&p);
    return agrees;
}
