/* dataset.c - data sets: the object, parts of one, and reading its rows one after another. */
#include <stdlib.h>
#include <string.h>

#include "dataset/dataset.h"

tp_dataset tp__no_dataset = { .code = TP_E_MEMORY,
                              .why = "dataset: out of memory; close other programs" };

bool tp__dataset_fail(tp_dataset *X, tp_code code, const char *format, ...)
{
    va_list args;
    if (X->why[0]) return false;
    va_start(args, format);
    vsnprintf(X->why, sizeof X->why, format, args);
    va_end(args);
    X->code = code;
    return false;
}

tp_dataset *tp__dataset_new(const tp_dataset_kind *kind, const char *name)
{
    tp_dataset *X = calloc(1, sizeof *X);
    if (!X) return NULL;
    X->kind = kind;
    pthread_mutex_init(&X->lock, NULL);
    snprintf(X->name, sizeof X->name, "%s", name ? name : "");
    if (!name)
        tp__dataset_fail(X, TP_E_STATE, "dataset: NULL was given in place of the path of a file");
    return X;
}

static void free_classes(tp_dataset *X)
{
    for (size_t i = 0; i < X->nclasses; i++) {
        tp_classes *K = &X->classes[i];
        for (int32_t k = 0; K->name && k < K->n; k++) free(K->name[k]);
        free(K->name);
        free(K->label);
        free(K->field);
    }
    free(X->classes);
}

void tp_dataset_free(tp_dataset *X)
{
    if (!X || X == &tp__no_dataset) return;
    free_classes(X);
    free(X->number);
    tp__text_index_free(X->text);
    free(X->missing);
    free(X->header);
    free(X->field);
    for (int i = 0; i < X->arrays; i++) {
        free(X->array[i].name);
        free(X->array[i].own);
    }
    tp_file_close(X->file);
    pthread_mutex_destroy(&X->lock);
    free(X);
}

/* ---- queries ---- */

bool tp_dataset_ok(const tp_dataset *X)
{
    return X && !X->why[0];
}

tp_code tp_dataset_code(const tp_dataset *X)
{
    return X ? X->code : TP_E_STATE;
}

const char *tp_dataset_why(const tp_dataset *X)
{
    return X ? X->why : "dataset: NULL was given in place of a data set";
}

int64_t tp_dataset_count(const tp_dataset *X)
{
    return tp_dataset_ok(X) ? X->count : 0;
}

const char *tp_dataset_field(const tp_dataset *X, int i)
{
    if (!tp_dataset_ok(X) || i < 0) return NULL;
    if (X->whole) X = X->whole;
    if (i < X->arrays) return X->array[i].name;
    return i < X->fields ? X->field[i] : NULL;
}

int tp__field_at(const tp_dataset *X, const char *field)
{
    for (int i = 0; field && i < X->arrays; i++)
        if (strcmp(X->array[i].name, field) == 0) return i;
    for (int i = 0; field && i < X->fields; i++)
        if (strcmp(X->field[i], field) == 0) return i;
    return -1;
}

/* ---- parts ---- */

/* A part has the labels of its rows; the names are those of the whole. */
static bool choose_classes(tp_dataset *P, const tp_dataset *X)
{
    P->classes = calloc(X->nclasses + 1, sizeof *P->classes);
    if (!P->classes) return false;
    for (size_t i = 0; i < X->nclasses; i++) {
        const tp_classes *from = &X->classes[i];
        tp_classes *K = &P->classes[P->nclasses++];
        K->field = strdup(from->field);
        K->name = calloc((size_t)from->n, sizeof *K->name);
        K->label = malloc((size_t)P->count * sizeof *K->label);
        if (!K->field || !K->name || !K->label) return false;
        for (int64_t n = 0; n < P->count; n++) K->label[n] = from->label[P->number[n]];
        for (; K->n < from->n; K->n++)
            if (!(K->name[K->n] = strdup(from->name[K->n]))) return false;
    }
    return true;
}

/* Gives P the numbers of its rows in X. False, with P failed. */
static bool take_numbers(tp_dataset *P, const tp_dataset *X, const int64_t *number, int64_t n)
{
    if (!X || !tp_dataset_ok(X))
        return tp__dataset_fail(P, tp_dataset_code(X), "%s", tp_dataset_why(X));
    if (n < 1 || !number)
        return tp__dataset_fail(P, TP_E_VALUE, "dataset %s: a part needs at least one row",
                                X->name);
    if (!(P->number = malloc((size_t)n * sizeof *P->number)))
        return tp__dataset_fail(P, TP_E_MEMORY, "dataset %s: out of memory for a part of %lld rows",
                                X->name, (long long)n);
    for (int64_t i = 0; i < n; i++) {
        if (number[i] < 0 || number[i] >= X->count)
            return tp__dataset_fail(P, TP_E_VALUE,
                                    "dataset %s: a part has row %lld, which is not from 0 to %lld",
                                    X->name, (long long)number[i], (long long)X->count - 1);
        P->number[i] = number[i];
    }
    return true;
}

tp_dataset *tp_dataset_choose(const tp_dataset *X, const int64_t *number, int64_t n)
{
    tp_dataset *P = tp__dataset_new(X ? X->kind : NULL, X ? X->name : "");
    if (!P) return &tp__no_dataset;
    if (!take_numbers(P, X, number, n) || !X) return P;
    P->count = n;
    P->whole = X->whole ? X->whole : X;
    if (!choose_classes(P, X))
        tp__dataset_fail(P, TP_E_MEMORY, "dataset %s: out of memory for the classes of %lld rows",
                         X->name, (long long)n);
    for (int64_t i = 0; X->whole && i < n; i++) P->number[i] = X->number[P->number[i]];
    return P;
}

/* ---- rows ---- */

const char *tp__row_name(const tp_dataset *X, int64_t number, char *buf, size_t size)
{
    if (X->whole) number = X->number[number], X = X->whole;
    if (X->kind->row)
        snprintf(buf, size, "%s, line %lld", X->name,
                 (long long)tp__text_index_line(X->text, number + X->first));
    else
        snprintf(buf, size, "%s%srow %lld", X->name, *X->name ? ", " : "", (long long)number);
    return buf;
}

bool tp__row_begin(tp_row *r, const tp_dataset *X, int64_t number)
{
    r->X = X->whole ? X->whole : X;
    r->number = X->whole ? X->number[number] : number;
    r->state = TP_EXAMPLE_MADE;
    r->why[0] = '\0';
    return r->X->kind->load(r);
}

void tp__row_end(tp_row *r)
{
    if (r->X) r->X->kind->unload(r);
}

bool tp_dataset_each(const tp_dataset *X, bool (*f)(void *env, tp_row *r), void *env, char *why,
                     size_t size)
{
    char name[600];
    tp_row r = { 0 };
    bool done = tp_dataset_ok(X) && f;
    if (size) *why = '\0';
    if (!done && size)
        snprintf(why, size, "%s", f ? tp_dataset_why(X) : "dataset: there is no function to call");
    for (int64_t i = 0; done && i < X->count; i++) {
        done = tp__row_begin(&r, X, i) && f(env, &r) && r.state == TP_EXAMPLE_MADE;
        tp__row_end(&r);
        if (done) continue;
        if (!r.why[0]) tp_row_fail(&r, "the function has stopped here");
        if (size) snprintf(why, size, "%s: %s", tp__row_name(X, i, name, sizeof name), r.why);
    }
    free(r.bytes);
    free(r.cell);
    return done;
}
