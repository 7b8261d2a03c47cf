/* options_store.c - writes settings to checkpoints and config.json; reads, copies, compares. */
#include "options_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* A text that is not set is stored as an empty string. */
static bool restore(const tp_option *o, void *settings, const char *value, char *why, size_t size)
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
        } else if (!restore(row[i], settings, value, reason, sizeof reason)) {
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
