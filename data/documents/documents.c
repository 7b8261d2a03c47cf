/* documents.c - a labelled set of documents in memory: the ids of all of them one after another. */
#include "documents.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>

static tp_documents no_memory = { .why = "documents: out of memory" };

tp_documents *tp_documents_new(int documents, int classes)
{
    tp_documents *X = calloc(1, sizeof *X);
    if (!X) return &no_memory;
    X->documents = documents;
    X->classes = classes;
    X->hash = TP_HASH;
    if (documents < 1 || documents > 2)
        tp__documents_fail(X, "documents: %d per example are not 1 or 2", documents);
    else if (classes < 1)
        tp__documents_fail(X, "documents: %d classes are not at least 1", classes);
    return X;
}

void tp_documents_close(tp_documents *X)
{
    if (!X || X == &no_memory) return;
    free(X->label);
    free(X->end);
    free(X->ids);
    free(X->name);
    free(X->names);
    for (int k = 0; X->class_name && k < X->classes; k++) free(X->class_name[k]);
    free(X->class_name);
    free(X);
}

/* ---- adding ---- */

static bool out_of_memory(tp_documents *X)
{
    return tp__documents_fail(X, "documents: out of memory after %lld examples",
                              (long long)X->count);
}

void tp__documents_from(tp_documents *X, const char *path)
{
    if (tp_documents_ok(X)) snprintf(X->from, sizeof X->from, "%s", path);
}

uint16_t *tp__documents_room(tp_documents *X, int64_t n)
{
    if (X->why[0]) return NULL;
    if (n <= X->ids_room - X->used && X->ids) return X->ids + X->used;
    int64_t room = X->ids_room ? X->ids_room : 1024;
    while (room < X->used + n && room < INT64_MAX / 8) room *= 2;
    uint16_t *ids = NULL;
    if (n >= 0 && room >= X->used + n && (uint64_t)room < SIZE_MAX / sizeof *ids)
        ids = realloc(X->ids, (size_t)room * sizeof *ids);
    if (!ids) {
        out_of_memory(X);
        return NULL;
    }
    X->ids = ids;
    X->ids_room = room;
    return X->ids + X->used;
}

static bool grow(tp_documents *X)
{
    const int64_t room = X->room ? 2 * X->room : 64;
    int32_t *label = realloc(X->label, (size_t)room * sizeof *label);
    if (label) X->label = label;
    int64_t *end = realloc(X->end, (size_t)(room * X->documents) * sizeof *end);
    if (end) X->end = end;
    size_t *name = realloc(X->name, (size_t)room * sizeof *name);
    if (name) X->name = name;
    if (!label || !end || !name) return out_of_memory(X);
    X->room = room;
    return true;
}

bool tp__documents_end(tp_documents *X, int64_t n)
{
    if (X->why[0] || (X->count == X->room && !grow(X))) return false;
    if (n < 1 || X->open == X->documents)
        return tp__documents_fail(X, "documents: example %lld has an empty document",
                                  (long long)X->count);
    for (const uint16_t *id = X->ids + X->used, *end = id + n; id < end; id++)
        X->hash = tp_hash(X->hash, *id);
    X->used += n;
    X->end[X->count * X->documents + X->open++] = X->used;
    if (n > X->longest) X->longest = n;
    return true;
}

bool tp__documents_label(tp_documents *X, int32_t label)
{
    if (X->why[0]) return false;
    if (X->open != X->documents)
        return tp__documents_fail(X, "documents: example %lld has %d of %d documents",
                                  (long long)X->count, X->open, X->documents);
    if (label < -1 || label >= X->classes)
        return tp__documents_fail(X, "documents: example %lld has the label %d, not 0 to %d",
                                  (long long)X->count, label, X->classes - 1);
    X->name[X->count] = 0;
    X->label[X->count++] = label;
    X->hash = tp_hash(X->hash, (uint64_t)label + 0x10000);
    X->open = 0;
    return true;
}

bool tp__documents_name(tp_documents *X, const char *name)
{
    const size_t n = strlen(name) + 1, used = X->names_used ? X->names_used : 1;
    if (X->why[0]) return false;
    if (used + n > X->names_room) {
        const size_t room = 2 * (used + n) + 64;
        char *names = realloc(X->names, room);
        if (!names) return out_of_memory(X);
        X->names = names;
        X->names_room = room;
    }
    memcpy(X->names + used, name, n);
    X->name[X->count - 1] = used;
    X->names_used = used + n;
    return true;
}

void tp_documents_add(tp_documents *X, int32_t label, const uint16_t *const ids[],
                      const int64_t length[])
{
    if (!X) return;
    for (int k = 0; !X->why[0] && k < X->documents; k++) {
        const int64_t n = length[k];
        uint16_t *to = tp__documents_room(X, n > 0 ? n : 0);
        if (to && n > 0) memcpy(to, ids[k], (size_t)n * sizeof *to);
        tp__documents_end(X, n);
    }
    tp__documents_label(X, label);
}

/* ---- queries ---- */

bool tp_documents_ok(const tp_documents *X)
{
    if (!X) return false;
    return !X->why[0];
}
const char *tp_documents_why(const tp_documents *X)
{
    if (!X) return "documents: NULL was given in place of documents";
    return X->why;
}
int64_t tp_documents_count(const tp_documents *X)
{
    if (!X) return 0;
    return X->why[0] ? 0 : X->count;
}
int tp_documents_per_example(const tp_documents *X)
{
    if (!X) return 0;
    return X->documents;
}
int tp_documents_classes(const tp_documents *X)
{
    if (!X) return 0;
    return X->classes;
}
int64_t tp_documents_longest(const tp_documents *X)
{
    if (!X) return 0;
    return X->longest;
}
int32_t tp_documents_label(const tp_documents *X, int64_t i)
{
    if (!X) return 0;
    return X->label[i];
}
const char *tp_documents_class(const tp_documents *X, int label)
{
    if (!X) return NULL;
    return X->class_name && label >= 0 && label < X->classes ? X->class_name[label] : NULL;
}
const char *tp_documents_name(const tp_documents *X, int64_t i)
{
    if (!X) return NULL;
    return X->name[i] ? X->names + X->name[i] : NULL;
}
const char *tp_documents_note(const tp_documents *X)
{
    return X->note;
}
uint64_t tp_documents_hash(const tp_documents *X)
{
    if (!X) return 0;
    return X->hash;
}

const uint16_t *tp_documents_ids(const tp_documents *X, int64_t i, int k, int64_t *n)
{
    if (!X) return NULL;
    const int64_t at = i * X->documents + k, begin = at ? X->end[at - 1] : 0;
    *n = X->end[at] - begin;
    return X->ids + begin;
}
