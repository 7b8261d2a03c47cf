/* json_walk.c - reads a JSON text one element of its outer arrays at a time. */
#include "json_walk.h"

#include <stdio.h>
#include <string.h>
#include <tapegrad/file.h>

/* ---- failures ---- */

int64_t tp__line_of(const char *bytes, const char *at)
{
    int64_t line = 1;
    for (const char *p = bytes; (p = memchr(p, '\n', (size_t)(at - p))) != NULL; p++) line++;
    return line;
}

static bool fail(tp_json_walk *w, const char *at, const char *what, const char *fmt, va_list ap)
{
    char reason[400];
    if (w->why[0]) return false;
    vsnprintf(reason, sizeof reason, fmt, ap);
    snprintf(w->why, w->size, "%.400s: %s%sat byte %lld (line %lld): %s", w->name, what,
             what[0] ? ", " : "", (long long)(w->offset + (at - w->bytes)),
             (long long)(w->lines + tp__line_of(w->bytes, at)), reason);
    return false;
}

bool tp__json_fail(tp_json_walk *w, const char *at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fail(w, at, "", fmt, ap);
    va_end(ap);
    return false;
}

bool tp__item_fail(tp_json_item *i, const char *fmt, ...)
{
    char what[100];
    const json_t *id = json_object_get(i->value, "id");
    va_list ap;
    va_start(ap, fmt);
    int n = snprintf(what, sizeof what, "%s %lld", i->kind, (long long)i->index);
    if (json_is_integer(id))
        snprintf(what + n, sizeof what - (size_t)n, " (id %lld)",
                 (long long)json_integer_value(id));
    fail(i->walk, i->at, what, fmt, ap);
    va_end(ap);
    return false;
}

/* ---- the text ---- */

/* Returns the next byte that is not white space, or 0 at the end. */
static char peek(tp_json_walk *w)
{
    while (w->at < w->end && (*w->at == ' ' || *w->at == '\n' || *w->at == '\r' || *w->at == '\t'))
        w->at++;
    return w->at < w->end ? *w->at : '\0';
}

static bool expect(tp_json_walk *w, char c)
{
    if (peek(w) == c) {
        w->at++;
        return true;
    }
    if (w->at == w->end) return tp__json_fail(w, w->at, "the file ends where '%c' should be", c);
    return tp__json_fail(w, w->at, "'%c' is expected", c);
}

bool tp__json_begin(tp_json_walk *w)
{
    char reason[200];
    size_t n = (size_t)(w->end - w->at);
    if (tp_skip_bom(&w->at, &n, reason, sizeof reason)) return true;
    if (!w->why[0]) snprintf(w->why, w->size, "%.400s %s", w->name, reason);
    return false;
}

json_t *tp__json_value(tp_json_walk *w)
{
    json_error_t error;
    bool starved;
    if (peek(w) == '\0' && w->at == w->end) {
        tp__json_fail(w, w->at, "the file ends where a value should be");
        return NULL;
    }
    json_t *v = tp_json_parse(w->at, (size_t)(w->end - w->at),
                              JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY, &error, &starved);
    if (starved) {
        tp__json_fail(w, w->at, "out of memory");
        return NULL;
    }
    if (!v) tp__json_fail(w, w->at + error.position, "%s", tp_json_reason(error.text));
    if (v) w->at += error.position;
    return v;
}

bool tp__json_array(tp_json_walk *w, const char *kind, bool (*f)(void *env, tp_json_item *item),
                    void *env)
{
    tp_json_item item = { .walk = w, .kind = kind };
    if (!expect(w, '[')) return false;
    if (peek(w) == ']') return expect(w, ']');
    for (;;) {
        peek(w);
        item.at = w->at;
        item.index++;
        item.value = tp__json_value(w);
        if (!item.value) return false;
        bool done = true;
        if (f && !json_is_object(item.value))
            done = tp__item_fail(&item, "it is not an object");
        else if (f)
            done = f(env, &item);
        json_decref(item.value);
        if (!done) return false;
        if (peek(w) != ',') return expect(w, ']');
        w->at++;
    }
}

bool tp__json_object(tp_json_walk *w, bool (*f)(void *env, tp_json_walk *w, const char *key),
                     void *env)
{
    if (!expect(w, '{')) return false;
    if (peek(w) == '}') return expect(w, '}');
    for (;;) {
        json_t *key = peek(w) == '"' ? tp__json_value(w) : NULL;
        bool done = key || tp__json_fail(w, w->at, "the name of a member is expected");
        done = done && expect(w, ':') && f(env, w, json_string_value(key));
        json_decref(key);
        if (!done) return false;
        if (peek(w) != ',') return expect(w, '}');
        w->at++;
    }
}

bool tp__json_skip(tp_json_walk *w)
{
    if (peek(w) == '[') return tp__json_array(w, "element", NULL, NULL);
    json_t *v = tp__json_value(w);
    json_decref(v);
    return v != NULL;
}

bool tp__json_end(tp_json_walk *w)
{
    peek(w);
    return w->at == w->end || tp__json_fail(w, w->at, "there is more after the end");
}

/* ---- members ---- */

bool tp__item_int(tp_json_item *i, const char *key, bool optional, int64_t *x)
{
    const json_t *v = json_object_get(i->value, key);
    if (optional && (!v || json_is_null(v))) return true;
    if (!v) return tp__item_fail(i, "'%s' is missing", key);
    if (!json_is_integer(v)) return tp__item_fail(i, "'%s' is not an integer", key);
    *x = json_integer_value(v);
    return true;
}

bool tp__item_flag(tp_json_item *i, const char *key, bool *x)
{
    const json_t *v = json_object_get(i->value, key);
    const json_int_t n = json_is_integer(v) ? json_integer_value(v) : -1;
    if (!v || json_is_null(v)) return true;
    if (!json_is_boolean(v) && n != 0 && n != 1)
        return tp__item_fail(i, "'%s' is neither 0 nor 1", key);
    *x = json_is_true(v) || n == 1;
    return true;
}

bool tp__item_number(tp_json_item *i, const char *key, double *x)
{
    const json_t *v = json_object_get(i->value, key);
    if (!v) return tp__item_fail(i, "'%s' is missing", key);
    if (!json_is_number(v)) return tp__item_fail(i, "'%s' is not a number", key);
    *x = json_number_value(v);
    return true;
}

bool tp__item_numbers(tp_json_item *i, const char *key, double *x, size_t n)
{
    const json_t *v = json_object_get(i->value, key);
    if (!v) return tp__item_fail(i, "'%s' is missing", key);
    if (json_array_size(v) != n)
        return tp__item_fail(i, "'%s' is not a list of %zu numbers", key, n);
    for (size_t k = 0; k < n; k++) {
        const json_t *number = json_array_get(v, k);
        if (!json_is_number(number))
            return tp__item_fail(i, "number %zu of '%s' is not a number", k + 1, key);
        x[k] = json_number_value(number);
    }
    return true;
}

const char *tp__item_text(const tp_json_item *i, const char *key)
{
    const char *text = json_string_value(json_object_get(i->value, key));
    return text ? text : "";
}
