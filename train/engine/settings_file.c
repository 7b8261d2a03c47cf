/* settings_file.c - reads settings from a config.json:
 *
 *     {"program": "enwik8", "settings": {"preset": "small", "lr": 0.001, "init": null, ...}, ...}
 *
 * A run writes all settings and, beside them, what it trains and where; "version" tells such a file
 * from one that a person wrote, which has what it wants to set and nothing else. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/nearest.h>
#include <unistd.h>

#include "options_inner.h"

/* A file that is being read. */
typedef struct source {
    const char *path;
    char *why;
    size_t size;
} source;

static bool refuse(const source *s, const char *fmt, ...) TP_PRINTF(2, 3);
static bool refuse(const source *s, const char *fmt, ...)
{
    char text[2000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(s->why, s->size, "%s: %s", s->path, text);
    return false;
}

/* ---- one setting ---- */

static const char *kind_of(const json_t *x)
{
    switch (json_typeof(x)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a text";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "true or false";
    case JSON_NULL: return "null";
    }
    return "another value";
}

static const char *kind_wanted(const tp_option *o)
{
    switch (o->kind) {
    case TP_OPTION_BOOL: return "true or false";
    case TP_OPTION_INT: return "a whole number";
    case TP_OPTION_NUM: return "a number";
    case TP_OPTION_TEXT: return "a text or null";
    default: return "one of the texts";
    }
}

/* The value as an option's text. False if it is of another type. */
static bool text_of(const tp_option *o, const json_t *x, char *text, size_t size)
{
    const double number = json_number_value(x);
    const bool whole = json_is_real(x) && floor(number) == number && fabs(number) < 1e15;
    text[0] = '\0';
    if (o->kind == TP_OPTION_BOOL && json_is_boolean(x))
        snprintf(text, size, "%d", json_is_true(x));
    else if (o->kind == TP_OPTION_INT && (json_is_integer(x) || whole))
        snprintf(text, size, "%lld", whole ? (long long)number : (long long)json_integer_value(x));
    else if (o->kind == TP_OPTION_NUM && json_is_number(x))
        tp_number_write(text, size, number, 6);
    else if (o->kind == TP_OPTION_TEXT && json_is_null(x))
        return true;
    else if ((o->kind == TP_OPTION_TEXT || o->kind == TP_OPTION_CHOICE) && json_is_string(x))
        snprintf(text, size, "%s", json_string_value(x));
    else
        return false;
    return true;
}

/* Is it what a command line says about a folder or a file, not about a run? Another run would write
 * over the files of this one. */
static bool is_said_once(const tp_option *o)
{
    static const char *const names[] = { "config", "lr-range",        "overwrite", "plan",
                                         "resume", "tensorboard-dir", "trace" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(o->name, names[i]) == 0) return true;
    return false;
}

static bool take(const source *s, const tp_option *o, const json_t *x, void *settings)
{
    char text[TP_OPTION_ROOM], shown[200], why[600];
    const bool typed = text_of(o, x, text, sizeof text);
    if (!typed && o->kind == TP_OPTION_CHOICE)
        return refuse(s, "settings: '%s' is %s, not one of the texts %s", o->name, kind_of(x),
                      o->value);
    if (!typed)
        return refuse(s, "settings: '%s' is %s, not %s", o->name, kind_of(x), kind_wanted(o));
    if (json_is_string(x) && json_string_length(x) >= sizeof text)
        return refuse(s, "settings: '%s' has more than %zu bytes", o->name, sizeof text - 1);
    if (is_said_once(o) || tp__option_restore(o, settings, text, why, sizeof why)) return true;
    return refuse(s, "settings: '%s': %s", o->name, tp_plain(why, shown, sizeof shown));
}

static bool unknown(const source *s, const tp_option *table, const char *key)
{
    const tp_option *row[TP_MAX_OPTIONS];
    const int n = tp_options_list(table, row);
    char shown[100];
    tp_nearest near = tp_nearest_to(key);
    for (int i = 0; i < n; i++)
        if (tp__option_is_flag(row[i])) tp_nearest_try(&near, row[i]->name);
    return refuse(s, "settings: '%s' is unknown%s%s%s", tp_plain(key, shown, sizeof shown),
                  near.name[0] ? "; did you mean '" : ": its names are those of the flags",
                  near.name, near.name[0] ? "'?" : "");
}

/* ---- the file ---- */

json_t *tp__config_read(const char *path, char *why, size_t size)
{
    enum { MOST = 1 << 20 }; /* bytes */
    char own[8], reason[300];
    const source s = { path, why ? why : own, why ? size : sizeof own };
    const char *kind = NULL;
    int64_t bytes = 0;
    json_error_t e = { .line = 0 };
    const int fd = tp_open_regular(path, &bytes, &kind); /* does not wait for a pipe */
    const int error = errno;
    char *text = fd >= 0 && bytes <= MOST ? malloc((size_t)bytes + 1) : NULL;
    const char *json = text;
    size_t n = text ? tp_read_bytes(fd, 0, text, (size_t)bytes) : 0;
    const bool is_text = text && tp_skip_bom(&json, &n, reason, sizeof reason);
    json_t *config = is_text ? tp_json_parse(json, n, JSON_REJECT_DUPLICATES, &e, NULL) : NULL;
    if (fd < 0 && kind)
        refuse(&s, "is %s, not a regular file", kind);
    else if (fd < 0)
        refuse(&s, "cannot be opened (%s); check the path and its permissions", strerror(error));
    else if (bytes > MOST)
        refuse(&s, "has more than %d bytes: a file of settings was expected", MOST);
    else if (!text)
        refuse(&s, "out of memory");
    else if (!is_text)
        refuse(&s, "%s", reason);
    else if (!config)
        refuse(&s, "line %d, column %d: %s", e.line, e.column,
               e.text[0] ? tp_json_reason(e.text) : "out of memory");
    else if (!json_is_object(config))
        refuse(&s, "is %s: an object such as {\"settings\": {\"lr\": 0.001}} was expected",
               kind_of(config));
    free(text);
    if (fd >= 0) close(fd);
    if (json_is_object(config)) return config;
    json_decref(config);
    return NULL;
}

/* A key outside "settings" of a file that a person wrote would be overlooked. */
static bool check_keys(const source *s, const json_t *root, const tp_option *table)
{
    const char *key;
    char shown[100];
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)root, key, value)
    {
        if (strcmp(key, "program") == 0 || strcmp(key, "settings") == 0) continue;
        return refuse(s, "'%s' is neither 'program' nor 'settings'%s",
                      tp_plain(key, shown, sizeof shown),
                      tp_option_find(table, key) ? ": put it into 'settings'" : "");
    }
    return true;
}

static bool check_program(const source *s, const json_t *root, const char *program)
{
    char shown[100];
    const json_t *named = json_object_get(root, "program");
    const char *name = json_string_value(named);
    if (named && !name) return refuse(s, "'program' is %s, not a text", kind_of(named));
    if (!name || strcmp(name, program) == 0) return true;
    return refuse(s, "the settings are of %s, not of %s", tp_plain(name, shown, sizeof shown),
                  program);
}

static bool take_all(const source *s, const json_t *root, const tp_option *table, void *settings,
                     tp_given_flags *has)
{
    const json_t *all = json_object_get(root, "settings");
    const char *key;
    json_t *value;
    if (!json_is_object(all))
        return refuse(s, "'settings' is %s: an object such as {\"lr\": 0.001} was expected",
                      all ? kind_of(all) : "missing");
    json_object_foreach((json_t *)(uintptr_t)all, key, value)
    {
        const tp_option *o = tp_option_find(table, key);
        if (!o) return unknown(s, table, key);
        if (!take(s, o, value, settings)) return false;
        if (!is_said_once(o)) has->name[has->n++] = o->name;
    }
    return true;
}

bool tp__settings_read(const tp_option *table, const char *program, const char *path,
                       void *settings, tp_given_flags *has, bool *by_hand, char *why, size_t size)
{
    const source s = { path, why, size };
    json_t *root = tp__config_read(path, why, size);
    has->n = 0;
    if (!root) return false;
    *by_hand = !json_object_get(root, "version");
    const bool done = check_program(&s, root, program) &&
                      (!*by_hand || check_keys(&s, root, table)) &&
                      take_all(&s, root, table, settings, has);
    json_decref(root);
    return done;
}
