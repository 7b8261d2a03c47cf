/* published_config.c - see the header. */
#include "published_config.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 20 };

/* Reads an object; NULL with the reason in why. */
static json_t *read_object(int fd, int64_t bytes, const char *path, char *why, size_t size)
{
    json_error_t e = { 0 };
    char *text = bytes <= MOST_BYTES ? malloc((size_t)bytes + 1) : NULL, wrong[200];
    const size_t n = text ? tp_file_bytes(fd, 0, text, (size_t)bytes) : 0;
    const char *begin = text;
    size_t left = n;
    const bool whole = text && n == (size_t)bytes,
               is_text = whole && tp_file_text(&begin, &left, wrong, sizeof wrong);
    json_t *all = is_text ? json_loadb(begin, left, 0, &e) : NULL;
    if (bytes > MOST_BYTES)
        snprintf(why, size, "%s: %lld bytes are too many for the configuration of a model", path,
                 (long long)bytes);
    else if (!text)
        snprintf(why, size, "%s: out of memory", path);
    else if (n < (size_t)bytes)
        snprintf(why, size, "%s cannot be read: %s", path, strerror(errno));
    else if (!is_text)
        snprintf(why, size, "%s %s", path, wrong);
    else if (!all)
        snprintf(why, size, "%s, line %d, column %d: %s; replace it, or remove it and give --heads",
                 path, e.line, e.column, tp_json_reason(e.text));
    free(text);
    return all;
}

/* The object in the file; NULL with the reason in why, which is empty if there is no such file. */
static json_t *open_object(const char *path, char *why, size_t size)
{
    int64_t bytes;
    const char *kind;
    const int fd = tp_file_regular(path, &bytes, &kind);
    why[0] = '\0';
    if (fd < 0) {
        if (kind)
            snprintf(why, size, "%s is %s; a regular file is wanted", path, kind);
        else if (errno != ENOENT)
            snprintf(why, size, "%s cannot be opened: %s", path, strerror(errno));
        return NULL;
    }
    json_t *all = read_object(fd, bytes, path, why, size);
    close(fd);
    return all;
}

/* A number, or the first of a list with one for each layer. */
static int64_t number(const json_t *all, const char *key)
{
    const json_t *x = json_object_get(all, key);
    if (json_is_array(x)) x = json_array_get(x, 0);
    return json_is_integer(x) ? json_integer_value(x) : 0;
}

/* All models of text compute the exact GELU. */
static bool check_activation(const json_t *all, const char *path, char *why, size_t size)
{
    const char *name = json_string_value(json_object_get(all, "hidden_act"));
    if (!name || strcmp(name, "gelu") == 0) return true;
    snprintf(why, size, "%s: hidden_act '%.40s' is not supported, only 'gelu'", path, name);
    return false;
}

/* The path of the config.json in the folder of a file. */
static void beside(const char *file, char *path, size_t size)
{
    const char *slash = strrchr(file, '/');
    snprintf(path, size, "%.*sconfig.json", slash ? (int)(slash - file) + 1 : 0, file);
}

bool published_config(tp_roberta_cfg *c, const tp_file *F, char *why, size_t size)
{
    char path[4400];
    beside(tp_file_path(F), path, sizeof path);
    json_t *all = open_object(path, why, size);
    if (!all) return !why[0];
    const int64_t heads = number(all, "num_attention_heads"), dim = number(all, "hidden_size");
    const int64_t window = number(all, "attention_window");
    const bool fits = dim != c->dim || check_activation(all, path, why, size);
    json_decref(all);
    if (!fits) return false;
    if (dim != c->dim) return true; /* of another model */
    if (heads < 0 || heads > c->dim || (heads > 0 && c->dim % heads)) {
        snprintf(why, size, "%s: %lld heads do not divide the width %lld", path, (long long)heads,
                 (long long)c->dim);
        return false;
    }
    if (heads > 0) {
        c->rank = c->rank * c->heads / heads;
        c->heads = (int)heads;
    }
    if (c->kind == TP_ROBERTA_LONGFORMER && window > 0) c->window = window;
    return true;
}

static const json_t *class_name(const json_t *names, int64_t i)
{
    char key[32];
    snprintf(key, sizeof key, "%lld", (long long)i);
    return json_object_get(names, key);
}

static bool is_placeholder(const char *name, int64_t i)
{
    char text[32];
    snprintf(text, sizeof text, "LABEL_%lld", (long long)i);
    return strcmp(name, text) == 0;
}

/* Are there different names for the classes "0" to "n - 1", and no others? */
static bool are_names(const json_t *names, int64_t n)
{
    json_t *seen = json_object();
    int64_t placeholders = 0;
    bool done = (int64_t)json_object_size(names) == n;
    for (int64_t i = 0; i < n && done; i++) {
        const char *name = json_string_value(class_name(names, i));
        done = name && json_object_set_new(seen, name, json_true()) == 0;
        placeholders += name && is_placeholder(name, i);
    }
    done = done && (int64_t)json_object_size(seen) == n && placeholders < n;
    json_decref(seen);
    return done;
}

static bool copy_names(class_list *l, const json_t *names, int64_t n)
{
    l->name = calloc((size_t)n, sizeof *l->name);
    bool done = l->name != NULL;
    for (int64_t i = 0; i < n && done; i++) {
        l->name[i] = strdup(json_string_value(class_name(names, i)));
        done = l->name[i] != NULL;
        l->n += done;
    }
    return done;
}

static bool published_classes(class_list *l, const tp_roberta_cfg *c, const char *file, char *why,
                              size_t size)
{
    char path[4400];
    beside(file, path, sizeof path);
    json_t *all = open_object(path, why, size);
    if (!all) return !why[0];
    const json_t *names = json_object_get(all, "id2label");
    const bool wanted = number(all, "hidden_size") == c->dim && are_names(names, c->classes);
    const bool done = !wanted || copy_names(l, names, c->classes);
    json_decref(all);
    if (!done) snprintf(why, size, "%s: out of memory", path);
    return done;
}

bool model_classes(class_list *l, const tp_roberta_cfg *c, tp_file *F, char *why, size_t size)
{
    *l = (class_list){ 0 };
    if (tp_file_meta(F, "model")) return class_list_read(l, F, why, size);
    return c->head != TP_ROBERTA_CLS || published_classes(l, c, tp_file_path(F), why, size);
}
