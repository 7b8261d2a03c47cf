/* options.c - the rows of an option table, converting one value to and from text, and all values as
 * metadata.
 *
 * The settings own their texts, which may come from argv, a preset or a checkpoint. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>
#include <tapegrad/nearest.h>

#include "options_inner.h"

/* ---- rows ---- */

bool tp__option_is_flag(const tp_option *o)
{
    return o->kind != TP_OPTION_HEADING && o->kind != TP_OPTION_WORDS && o->kind != TP_OPTION_HELP;
}

static bool is_listed(const tp_option *const *row, int n, const tp_option *o)
{
    for (int i = 0; i < n; i++)
        if (tp__option_is_flag(row[i]) && strcmp(row[i]->name, o->name) == 0) return true;
    return false;
}

static int list(const tp_option *table, const tp_option **row, int n)
{
    for (const tp_option *o = table; o->kind != TP_OPTION_END && n < TP_MAX_OPTIONS; o++) {
        if (o->kind == TP_OPTION_ROWS || o->kind == TP_OPTION_MADE)
            n = list(o->make ? o->make() : o->rows, row, n);
        else if (!tp__option_is_flag(o) || !is_listed(row, n, o))
            row[n++] = o;
    }
    return n;
}

int tp_options_list(const tp_option *table, const tp_option *row[TP_MAX_OPTIONS])
{
    if (!table) return 0;
    return list(table, row, 0);
}

const tp_option *tp_option_find(const tp_option *table, const char *name)
{
    if (!table) return NULL;
    const tp_option *row[TP_MAX_OPTIONS];
    const int n = tp_options_list(table, row);
    for (int i = 0; i < n; i++)
        if (tp__option_is_flag(row[i]) && strcmp(row[i]->name, name) == 0) return row[i];
    return NULL;
}

bool tp_was_given(const tp_given_flags *g, const char *name)
{
    if (!g) return false;
    for (int i = 0; i < g->n; i++)
        if (strcmp(g->name[i], name) == 0) return true;
    return false;
}

void *tp__option_member(const tp_option *o, void *settings)
{
    return (char *)settings + o->at;
}

const void *tp__option_value(const tp_option *o, const void *settings)
{
    return (const char *)settings + o->at;
}

/* ---- one value ---- */

void tp__option_range(const tp_option *o, char *text, size_t size)
{
    if (o->max >= TP_BIG)
        snprintf(text, size, "at least %.10g", o->min);
    else
        snprintf(text, size, "%.10g to %.10g", o->min, o->max);
}

static bool check_range(const tp_option *o, double x, const char *text, char *why, size_t size)
{
    char range[80];
    if (x >= o->min && x <= o->max) return true;
    tp__option_range(o, range, sizeof range);
    snprintf(why, size, "%s is out of range (%s)", text, range);
    return false;
}

static bool set_int(const tp_option *o, int64_t *at, const char *text, char *why, size_t size)
{
    char *end;
    errno = 0;
    const long long x = strtoll(text, &end, 10);
    if (end == text || *end || isspace((unsigned char)*text)) {
        snprintf(why, size, "'%s' is not a whole number", text);
        return false;
    }
    if (!check_range(o, errno == ERANGE ? HUGE_VAL : (double)x, text, why, size)) return false;
    *at = x;
    return true;
}

static bool set_num(const tp_option *o, double *at, const char *text, char *why, size_t size)
{
    char *end;
    const double x = tp_number_read(text, &end);
    if (end == text || *end || isspace((unsigned char)*text)) {
        snprintf(why, size, "'%s' is not a number", text);
        return false;
    }
    if (!check_range(o, x, text, why, size)) return false;
    *at = x;
    return true;
}

static bool set_choice(const tp_option *o, int *at, const char *text, char *why, size_t size)
{
    const size_t n = strlen(text);
    int i = 0;
    for (const char *s = o->value; s; s = strchr(s, '|') ? strchr(s, '|') + 1 : NULL, i++)
        if (n > 0 && strncmp(s, text, n) == 0 && (s[n] == '|' || s[n] == '\0')) {
            *at = i;
            return true;
        }
    tp_nearest near = tp_nearest_to(text);
    tp_nearest_try(&near, o->value);
    if (near.name[0])
        snprintf(why, size, "'%s' is not one of %s; did you mean '%s'?", text, o->value, near.name);
    else
        snprintf(why, size, "'%s' is not one of %s", text, o->value);
    return false;
}

static bool set_text(char **at, const char *text, char *why, size_t size)
{
    char *copy = strdup(text);
    if (!copy) {
        snprintf(why, size, "out of memory");
        return false;
    }
    free(*at);
    *at = copy;
    return true;
}

bool tp_option_set(const tp_option *o, void *settings, const char *text, char *why, size_t size)
{
    if (!o) {
        if (why) snprintf(why, size, "option_set: NULL was given in place of options");
        return false;
    }
    void *at = tp__option_member(o, settings);
    switch (o->kind) {
    case TP_OPTION_BOOL:
        if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0) {
            snprintf(why, size, "'%s' is neither 0 nor 1", text);
            return false;
        }
        *(bool *)at = *text == '1';
        return true;
    case TP_OPTION_INT: return set_int(o, at, text, why, size);
    case TP_OPTION_NUM: return set_num(o, at, text, why, size);
    case TP_OPTION_CHOICE: return set_choice(o, at, text, why, size);
    case TP_OPTION_TEXT: return set_text(at, text, why, size);
    case TP_OPTION_END:
    case TP_OPTION_HEADING:
    case TP_OPTION_ROWS:
    case TP_OPTION_MADE:
    case TP_OPTION_WORDS:
    case TP_OPTION_HELP: break;
    }
    return true;
}

void tp_option_get(const tp_option *o, const void *settings, char *text, size_t size)
{
    if (!o) return;
    const void *at = tp__option_value(o, settings);
    const char *s = o->value;
    text[0] = '\0';
    switch (o->kind) {
    case TP_OPTION_BOOL: snprintf(text, size, "%d", *(const bool *)at); break;
    case TP_OPTION_INT: snprintf(text, size, "%lld", (long long)*(const int64_t *)at); break;
    case TP_OPTION_NUM: tp_number_write(text, size, *(const double *)at, 6); break;
    case TP_OPTION_CHOICE:
        for (int i = *(const int *)at; i > 0; i--) s = strchr(s, '|') + 1;
        snprintf(text, size, "%.*s", (int)strcspn(s, "|"), s);
        break;
    case TP_OPTION_TEXT:
        s = *(char *const *)at;
        snprintf(text, size, "%s", s ? s : "");
        break;
    case TP_OPTION_END:
    case TP_OPTION_HEADING:
    case TP_OPTION_ROWS:
    case TP_OPTION_MADE:
    case TP_OPTION_WORDS:
    case TP_OPTION_HELP: break;
    }
}

/* ---- as metadata ---- */

void tp_options_copy(const tp_option *table, void *to, const void *from)
{
    if (!table) return;
    const tp_option *row[TP_MAX_OPTIONS];
    const int n = tp_options_list(table, row);
    for (int i = 0; i < n; i++)
        if (row[i]->kind == TP_OPTION_TEXT) {
            const char *s = *(char *const *)tp__option_value(row[i], from);
            *(char **)tp__option_member(row[i], to) = s ? strdup(s) : NULL;
        }
}

void tp_options_free(const tp_option *table, void *settings)
{
    if (!table) return;
    const tp_option *row[TP_MAX_OPTIONS];
    const int n = tp_options_list(table, row);
    for (int i = 0; i < n; i++)
        if (row[i]->kind == TP_OPTION_TEXT) {
            char **text = tp__option_member(row[i], settings);
            free(*text);
            *text = NULL;
        }
}

/* ---- checkpoints ---- */

/* An unset text is stored as an empty string. */
bool tp__option_restore(const tp_option *o, void *settings, const char *value, char *why,
                        size_t size)
{
    if (o->kind != TP_OPTION_TEXT || *value) return tp_option_set(o, settings, value, why, size);
    char **text = tp__option_member(o, settings);
    free(*text);
    *text = NULL;
    return true;
}

static const char *key_of(const tp_option *o, char key[80])
{
    snprintf(key, 80, "train.%s", o->name);
    return key;
}

const tp_option *tp__options_unfit(const tp_option *table, const void *settings)
{
    const tp_option *row[TP_MAX_OPTIONS];
    const int n = tp_options_list(table, row);
    for (int i = 0; i < n; i++) {
        if (!row[i]->tags || row[i]->kind != TP_OPTION_TEXT) continue;
        const char *text = *(char *const *)tp__option_value(row[i], settings);
        if (text && !tp_is_utf8(text)) return row[i];
    }
    return NULL;
}

void tp_options_write(const tp_option *table, const void *settings, tp_writer *W)
{
    if (!table) return;
    const tp_option *row[TP_MAX_OPTIONS];
    const int n = tp_options_list(table, row);
    for (int i = 0; i < n; i++) {
        char key[80], value[TP_OPTION_ROOM];
        if (!row[i]->tags) continue;
        tp_option_get(row[i], settings, value, sizeof value);
        tp_writer_meta(W, key_of(row[i], key), value);
    }
}

bool tp_options_read(const tp_option *table, void *settings, const tp_file *F, char *why,
                     size_t size)
{
    if (!table) {
        if (why) snprintf(why, size, "options_read: NULL was given in place of options");
        return false;
    }
    const tp_option *row[TP_MAX_OPTIONS], *lacking = NULL;
    const int n = tp_options_list(table, row);
    bool any = false;
    for (int i = 0; i < n; i++) {
        char key[80], reason[256];
        if (!row[i]->tags) continue;
        const char *value = tp_file_meta(F, key_of(row[i], key));
        any = any || value;
        if (!value) {
            if (!lacking) lacking = row[i];
        } else if (!tp__option_restore(row[i], settings, value, reason, sizeof reason)) {
            snprintf(why, size, "%s: '%s': %s", tp_file_path(F), key, reason);
            return false;
        }
    }
    if (any || !lacking) return true;
    snprintf(why, size, "%s is not a training checkpoint: it lacks 'train.%s'", tp_file_path(F),
             lacking->name);
    return false;
}

bool tp_options_differ(const tp_option *table, const void *a, const void *b, unsigned tags,
                       const tp_given_flags *given, char *text, size_t size)
{
    if (!table) return false;
    const tp_option *row[TP_MAX_OPTIONS];
    const int n = tp_options_list(table, row);
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        char here[TP_OPTION_ROOM], there[TP_OPTION_ROOM];
        if (!(row[i]->tags & tags) || (given && !tp_was_given(given, row[i]->name))) continue;
        tp_option_get(row[i], a, here, sizeof here);
        tp_option_get(row[i], b, there, sizeof there);
        if (strcmp(here, there) == 0 || used >= size) continue;
        const int k = snprintf(text + used, size - used, "%s--%s %s (checkpoint: %s)",
                               used ? ", " : "", row[i]->name, here, there);
        used += k > 0 ? (size_t)k : 0;
    }
    return used > 0;
}

/* ---- config.json ---- */

static json_t *json_value(const tp_option *o, const void *settings)
{
    const void *at = tp__option_value(o, settings);
    char text[64];
    switch (o->kind) {
    case TP_OPTION_BOOL: return json_boolean(*(const bool *)at);
    case TP_OPTION_INT: return json_integer(*(const int64_t *)at);
    case TP_OPTION_NUM: return json_real(*(const double *)at);
    case TP_OPTION_TEXT: return *(char *const *)at ? json_string(*(char *const *)at) : json_null();
    default: tp_option_get(o, settings, text, sizeof text); return json_string(text);
    }
}

json_t *tp__options_json(const tp_option *table, const void *settings)
{
    const tp_option *row[TP_MAX_OPTIONS];
    const int n = tp_options_list(table, row);
    json_t *all = json_object();
    for (int i = 0; i < n; i++)
        if (tp__option_is_flag(row[i]))
            json_object_set_new(all, row[i]->name, json_value(row[i], settings));
    return all;
}
