/* loader.c - loaders of examples that a function makes of rows. Each call has a row of its own, so
 * workers share nothing but the set, which does not change. */
#include <stdlib.h>
#include <string.h>

#include "dataset/dataset.h"
#include "example_loader.h"

enum { NOT_PADDED = -1, BAD_ROW = -2 };

/* What a loader keeps. */
typedef struct maker {
    const tp_dataset *X;
    tp_row_source s;
    int32_t *length; /* [count,columns]; or NOT_PADDED; while rows are read also BAD_ROW */
} maker;

/* Copies the outcome of a row to the loader. */
static tp_example_state outcome(tp_row *r, char *why)
{
    if (r->state != TP_EXAMPLE_MADE) snprintf(why, TP_EXAMPLE_WHY, "%s", r->why);
    tp__row_end(r);
    free(r->bytes);
    free(r->cell);
    return r->state;
}

static tp_example_state make(void *env, const tp_loader_example *e, void *const value[], char *why)
{
    const maker *m = env;
    tp_row r = { 0 };
    if (tp__row_begin(&r, m->X, e->number) && !m->s.make(m->s.env, &r, e, value))
        tp_row_fail(&r, "the program refuses it without a reason");
    return outcome(&r, why);
}

static const char *name_of(void *env, int64_t number, char *buf, size_t size)
{
    return tp__row_name(((const maker *)env)->X, number, buf, size);
}

static int64_t length_of(void *env, int64_t number, int c)
{
    const maker *m = env;
    return m->length[number * m->s.columns + c];
}

/* ---- opening ---- */

/* Asks for the lengths of a row. False: L has failed. */
static bool measure(tp_loader *L, maker *m, int64_t number, tp_row *r)
{
    char name[600];
    int32_t *to = m->length + number * m->s.columns;
    const bool begun = tp__row_begin(r, m->X, number);
    for (int c = 0; c < m->s.columns; c++) {
        const int64_t n = begun ? m->s.length(m->s.env, r, c) : 0;
        to[c] = n > INT32_MAX ? INT32_MAX : n < 0 ? NOT_PADDED : (int32_t)n;
    }
    tp__row_end(r);
    if (r->state == TP_EXAMPLE_BAD)
        for (int c = 0; c < m->s.columns; c++) to[c] = BAD_ROW;
    if (r->state == TP_EXAMPLE_MADE || r->state == TP_EXAMPLE_BAD) return true;
    return tp_loader_fail(L, r->state == TP_EXAMPLE_NO_MEMORY ? TP_E_MEMORY : TP_E_IO, "%s: %s",
                          tp__row_name(m->X, number, name, sizeof name), r->why);
}

/* Gives bad rows no part of a column: length 0, or none if good rows say that it is not padded. */
static void settle(maker *m, int c)
{
    bool padded = false;
    for (int64_t i = 0; i < m->X->count; i++) padded = padded || length_of(m, i, c) >= 0;
    for (int64_t i = 0; i < m->X->count; i++) {
        int32_t *to = &m->length[i * m->s.columns + c];
        if (*to == BAD_ROW) *to = padded ? 0 : NOT_PADDED;
    }
}

static void measure_all(tp_loader *L, maker *m)
{
    tp_row r = { 0 };
    m->length = tp_loader_alloc(L, m->X->count * m->s.columns, sizeof *m->length);
    for (int64_t i = 0; m->length && i < m->X->count; i++)
        if (!measure(L, m, i, &r)) break;
    for (int c = 0; m->length && tp_loader_ok(L) && c < m->s.columns; c++) settle(m, c);
    free(r.bytes);
    free(r.cell);
}

static void open_loader(tp_loader *L, const tp_loader_kind *kind, const tp_dataset *X,
                        const tp_row_source *s, const tp_loader_opts *o)
{
    maker *m = tp_loader_alloc(L, 1, sizeof *m);
    if (!m) return;
    *m = (maker){ .X = X, .s = *s };
    if (s->length && s->columns > 0 && s->columns <= TP_MAX_COLUMNS) measure_all(L, m);
    const tp_example_source from = { .count = X->count,
                                     .columns = s->columns,
                                     .column = s->column,
                                     .make = make,
                                     .name = name_of,
                                     .env = m,
                                     .length = s->length ? length_of : NULL,
                                     .pad = s->pad };
    if (tp_loader_ok(L)) tp__examples_open(L, kind, &from, o);
}

tp_loader *tp_row_loader_new(const tp_dataset *X, const tp_row_source *s, const tp_loader_opts *o)
{
    if (!s || !o || !X) return NULL;
    const tp_loader_kind *kind = s->length ? &tp__padded_examples : &tp__made_examples;
    tp_loader *L = tp_loader_new(kind);
    if (!tp_dataset_ok(X))
        tp_loader_fail(L, tp_dataset_code(X), "%s", tp_dataset_why(X));
    else if (!s->make || !s->column)
        tp_loader_fail(L, TP_E_STATE,
                       "dataset %s: NULL was given in place of the columns of an "
                       "example or of the function that makes it",
                       X->name);
    else
        open_loader(L, kind, X, s, o);
    return L;
}
