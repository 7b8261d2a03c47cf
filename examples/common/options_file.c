/* options_file.c - settings in checkpoints: metadata "train.NAME" for every row with a tag. */
#include <stdio.h>
#include <string.h>

#include "options.h"

void options_write(const option *table, const void *settings, tp_writer *W)
{
    for (const option *o = table; o->kind != OPT_END; o++) {
        char key[80], value[4200];
        if (!o->tags) continue;
        snprintf(key, sizeof key, "train.%s", o->name);
        option_get(o, settings, value, sizeof value);
        tp_writer_meta(W, key, value);
    }
}

bool options_read(const option *table, void *settings, const tp_file *F, char *why, size_t size)
{
    for (const option *o = table; o->kind != OPT_END; o++) {
        char key[80], reason[256];
        if (!o->tags) continue;
        snprintf(key, sizeof key, "train.%s", o->name);
        const char *value = tp_file_meta(F, key);
        if (!value) {
            snprintf(why, size, "%s is no training checkpoint: it lacks '%s'", tp_file_path(F),
                     key);
            return false;
        }
        if (!option_set(o, settings, value, reason, sizeof reason)) {
            snprintf(why, size, "%s: '%s': %s", tp_file_path(F), key, reason);
            return false;
        }
    }
    return true;
}

bool options_differ(const option *table, const void *a, const void *b, unsigned tags,
                    const bool *given, char *text, size_t size)
{
    size_t n = 0;
    text[0] = '\0';
    for (const option *o = table; o->kind != OPT_END; o++) {
        char here[512], there[512];
        if (!(o->tags & tags) || (given && !given[o - table])) continue;
        option_get(o, a, here, sizeof here);
        option_get(o, b, there, sizeof there);
        if (strcmp(here, there) == 0 || n >= size) continue;
        const int k = snprintf(text + n, size - n, "%s--%s %s (checkpoint: %s)", n ? ", " : "",
                               o->name, here, there);
        n += k > 0 ? (size_t)k : 0;
    }
    return n > 0;
}
