/* json_lines.c - rows that are JSON objects, each on a line of its own. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "dataset/dataset.h"

static bool load(tp_row *r)
{
    json_error_t e;
    bool starved;
    const int64_t n = tp__text_index_row(r->X->text, r->number, &r->bytes, &r->room);
    if (n < 0 && errno == ENOMEM)
        return tp__row_broken(r, TP_EXAMPLE_NO_MEMORY, "out of memory for a row");
    if (n < 0)
        return tp__row_broken(r, TP_EXAMPLE_FAILED, "cannot be read: %s",
                              errno ? strerror(errno) : "the file became shorter");
    r->json =
        tp_json_parse(r->bytes, (size_t)n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e, &starved);
    if (starved) return tp__row_broken(r, TP_EXAMPLE_NO_MEMORY, "out of memory for a row");
    if (!r->json)
        return tp_row_fail(r, "at byte %d of the line: %s", e.position, tp_json_reason(e.text));
    return json_is_object(r->json) ||
           tp_row_fail(r, "it is not an object; write {\"name\": value, ...}");
}

static void unload(tp_row *r)
{
    json_decref(r->json);
    r->json = NULL;
}

/* NULL: r has failed. */
static const json_t *member(tp_row *r, const char *field)
{
    const json_t *v = json_object_get(r->json, field);
    if (!v) tp_row_fail(r, "there is no member '%.150s'", field);
    return v;
}

static bool is_empty(tp_row *r, const char *field)
{
    const json_t *v = json_object_get(r->json, field);
    const char *blank = r->X->missing, *text = v ? json_string_value(v) : NULL;
    return !v || json_is_null(v) || (blank && text && strcmp(text, blank) == 0);
}

/* ---- numbers ---- */

/* A walk over the values of a list. */
typedef struct walk {
    tp_row *r;
    char what[200];
    int64_t n, at; /* n: wanted; -1: any, to be counted */
    tp_dtype dt;
    void *to;
} walk;

static const char *kind_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "an object";
    case JSON_STRING: return "a string";
    case JSON_NULL: return "null";
    default: return "a list";
    }
}

static bool take(walk *w, const json_t *v)
{
    if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v); i++)
            if (!take(w, json_array_get(v, i))) return false;
        return true;
    }
    const int64_t at = w->at++;
    if (w->n < 0) return true;
    if (at >= w->n) return true; /* too many, which is said at the end */
    if (json_is_integer(v))
        return tp__row_store_int(w->r, w->what, w->dt, w->to, at, json_integer_value(v));
    if (json_is_boolean(v))
        return tp__row_store_int(w->r, w->what, w->dt, w->to, at, json_is_true(v));
    if (json_is_real(v)) return tp__row_store(w->r, w->what, w->dt, w->to, at, json_real_value(v));
    return tp_row_fail(w->r, "%s has %s where a number is expected", w->what, kind_of(v));
}

static bool read_numbers(tp_row *r, const char *field, int64_t n, tp_dtype dt, void *to)
{
    walk w = { .r = r, .n = n, .dt = dt, .to = to };
    const json_t *v = member(r, field);
    snprintf(w.what, sizeof w.what, "member '%.150s'", field);
    if (!v || !take(&w, v)) return false;
    return w.at == n || tp_row_fail(r, "%s has %lld values instead of %lld", w.what,
                                    (long long)w.at, (long long)n);
}

static int64_t length(tp_row *r, const char *field)
{
    walk w = { .r = r, .n = -1 };
    const json_t *v = member(r, field);
    return v && take(&w, v) ? w.at : -1;
}

static const char *text(tp_row *r, const char *field)
{
    const json_t *v = member(r, field);
    if (!v) return NULL;
    if (json_is_string(v)) {
        if (strlen(json_string_value(v)) == json_string_length(v)) return json_string_value(v);
        tp_row_fail(r, "member '%.150s' has a zero character", field);
        return NULL;
    }
    if (json_is_integer(v))
        snprintf(r->shown, sizeof r->shown, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        tp_number_write(r->shown, sizeof r->shown, json_real_value(v), 1);
    else if (json_is_boolean(v))
        snprintf(r->shown, sizeof r->shown, "%s", json_is_true(v) ? "true" : "false");
    else {
        tp_row_fail(r, "member '%.150s' is %s where a text is expected", field, kind_of(v));
        return NULL;
    }
    return r->shown;
}

static const tp_dataset_kind json_lines = { .row = "line",
                                            .load = load,
                                            .unload = unload,
                                            .read = read_numbers,
                                            .length = length,
                                            .text = text,
                                            .is_empty = is_empty };

tp_dataset *tp_dataset_json_lines(const char *path, const tp_dataset_opts *o)
{
    char why[600];
    bool starved;
    tp_dataset *X = tp__dataset_new(&json_lines, path);
    if (!X) return &tp__no_dataset;
    if (X->why[0]) return X;
    if (o && o->missing && !(X->missing = strdup(o->missing))) {
        tp__dataset_fail(X, TP_E_MEMORY, "dataset %s: out of memory", X->name);
        return X;
    }
    const tp_text_cut cut = { .blank = true };
    X->text = tp__text_index_open(path, &cut, o ? o->memory : 0, why, sizeof why, &starved);
    if (!X->text)
        tp__dataset_fail(X, starved ? TP_E_MEMORY : TP_E_IO, "dataset %s%s", X->name, why);
    X->count = tp__text_index_rows(X->text);
    if (X->text && X->count < 1) tp__dataset_fail(X, TP_E_IO, "dataset %s: has no rows", X->name);
    return X;
}
