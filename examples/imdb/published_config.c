/* published_config.c - see the header. */
#include "published_config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 20 };

/* The object in the file; NULL if there is no such file, or it is none. */
static json_t *read_object(const char *path)
{
    int64_t bytes;
    const char *kind;
    const int fd = tp_file_regular(path, &bytes, &kind);
    if (fd < 0) return NULL;
    char *text = bytes <= MOST_BYTES ? malloc((size_t)bytes + 1) : NULL;
    const size_t n = text ? tp_file_bytes(fd, 0, text, (size_t)bytes) : 0;
    json_t *all = text ? json_loadb(text, n, 0, NULL) : NULL;
    free(text);
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

bool published_config(tp_roberta_cfg *c, const tp_file *F, char *why, size_t size)
{
    char path[4400];
    const char *file = tp_file_path(F), *slash = strrchr(file, '/');
    snprintf(path, sizeof path, "%.*sconfig.json", slash ? (int)(slash - file) + 1 : 0, file);
    json_t *all = read_object(path);
    const int64_t heads = number(all, "num_attention_heads"), dim = number(all, "hidden_size");
    const int64_t window = number(all, "attention_window");
    json_decref(all);
    if (dim != c->dim) return true; /* of another model, or none */
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
