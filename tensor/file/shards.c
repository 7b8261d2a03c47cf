/* shards.c - the index of weights saved as several files:
 *
 *     { "metadata": { ... }, "weight_map": { "NAME": "model-00001-of-00002.safetensors", ... } }
 *
 * The files are in the folder of the index and may have any format except an index. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/file/open.h"

#define OTHER "; give a safetensors file, one of PyTorch, or the index of several (*.index.json)"

enum { MOST_BYTES = TP_FILE_HEADER_MAX, MOST_SHARDS = 4096 };

static json_t *parse_index(tp_file *F)
{
    json_error_t e = { 0 };
    char why[256];
    if (F->size > MOST_BYTES) {
        tp__file_fail(F, TP_E_IO, "has %zu bytes, too many for an index of files" OTHER, F->size);
        return NULL;
    }
    char *text = malloc(F->size);
    if (!text) {
        tp__file_fail(F, TP_E_MEMORY, "out of memory for the %zu bytes of the index", F->size);
        return NULL;
    }
    const char *json = text;
    size_t n = F->size;
    json_t *j = NULL;
    if (tp__file_at(F, 0, text, n) && !tp_skip_bom(&json, &n, why, sizeof why))
        tp__file_fail(F, TP_E_IO, "%s", why);
    if (tp_file_ok(F)) j = tp__file_json(F, json, n, JSON_REJECT_DUPLICATES, &e);
    if (!j)
        tp__file_fail(F, TP_E_IO, "is not valid JSON at offset %d: %s" OTHER,
                      e.position + (int)(json - text), tp_json_reason(e.text));
    free(text);
    return j;
}

/* The path of a file in the index's folder; NULL without memory. */
static char *beside(const tp_file *F, const char *name)
{
    const char *path = tp_file_path(F), *slash = strrchr(path, '/');
    const size_t folder = slash ? (size_t)(slash + 1 - path) : 0, size = folder + strlen(name) + 1;
    char *made = malloc(size);
    if (made) snprintf(made, size, "%.*s%s", (int)folder, path, name);
    return made;
}

static bool is_plain(const char *name)
{
    return *name && *name != '.' && !strchr(name, '/');
}

static tp_file *open_shard(tp_file *F, const char *name)
{
    const size_t n = (size_t)F->nshards;
    const bool fits =
        F->nshards < MOST_SHARDS && tp_reserve(&F->shards, &F->shard_room, n, 1, sizeof(tp_file *));
    char *path = fits ? beside(F, name) : NULL;
    if (!path) {
        tp__file_fail(F, TP_E_MEMORY, "out of memory for %d files", F->nshards + 1);
        return NULL;
    }
    tp_file *S = F->shards[F->nshards++] = tp__file_open(path, false);
    free(path);
    if (!tp_file_ok(S)) tp__file_fail(F, S->err.code, "%s", tp_file_why(S));
    return tp_file_ok(F) ? S : NULL;
}

/* Returns a shard, opening it if `numbers` does not have it yet. NULL with F failed. */
static tp_file *find_shard(tp_file *F, json_t *numbers, const char *name)
{
    const json_t *number = json_object_get(numbers, name);
    if (number) return F->shards[json_integer_value(number)];
    tp_file *S = open_shard(F, name);
    if (S && json_object_set_new(numbers, name, json_integer(F->nshards - 1)) != 0)
        tp__file_fail(F, TP_E_MEMORY, "out of memory for %d files", F->nshards);
    return tp_file_ok(F) ? S : NULL;
}

static void add(tp_file *F, json_t *numbers, const char *name, const char *file)
{
    tp_file *S = find_shard(F, numbers, file);
    const tp_file_tensor *t = S ? tp_file_find(S, name) : NULL;
    if (S && !t)
        tp__file_fail(F, TP_E_IO, "tensor '%.200s' is not in '%.200s'; download both files again",
                      name, file);
    if (!t) return;
    tp_file_slot *slot = tp__file_append(F, name, true);
    if (!slot) return;
    slot->tensor = *t; /* texts live as long as the shard */
    slot->tensor.name = slot->name;
    slot->tensor.offset = 0;
    slot->shard = S;
    slot->there = t;
}

void tp__file_shards(tp_file *F)
{
    const char *name;
    json_t *j, *index = parse_index(F), *map = json_object_get(index, "weight_map");
    json_t *numbers = json_object();
    if (index && !json_is_object(map))
        tp__file_fail(F, TP_E_IO, "is JSON without a 'weight_map'" OTHER);
    json_object_foreach(map, name, j)
    {
        const char *file = json_string_value(j);
        if (!file || !is_plain(file))
            tp__file_fail(F, TP_E_IO,
                          "tensor '%.200s' is not given the name of a file in the same folder",
                          name);
        else if (tp_file_ok(F))
            add(F, numbers, name, file);
    }
    json_decref(numbers);
    json_decref(index);
}
