/* documents.c - a labelled set of documents in memory, the ids one after another. Texts and images
 * become documents byte by byte. */
#include "documents.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/listops.h>
#include <tapegrad/random.h>

TP_FAILS(tp_documents, no_documents, "documents: out of memory",
         "documents: NULL was given in place of documents")

tp_documents *tp_documents_new(int documents, int classes)
{
    tp_documents *X = calloc(1, sizeof *X);
    if (!X) return &no_documents;
    X->documents = documents;
    X->classes = classes;
    X->hash = TP_HASH;
    if (documents < 1 || documents > 2)
        tp__fail(X, "documents: %d per example are not 1 or 2", documents);
    else if (classes < 1)
        tp__fail(X, "documents: %d classes are not at least 1", classes);
    return X;
}

void tp_documents_close(tp_documents *X)
{
    if (!X || X == &no_documents) return;
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
    return tp__fail(X, "documents: out of memory after %lld examples", (long long)X->count);
}

void tp__documents_from(tp_documents *X, const char *path)
{
    if (tp_documents_ok(X)) snprintf(X->from, sizeof X->from, "%s", path);
}

uint16_t *tp__documents_room(tp_documents *X, int64_t n)
{
    if (X->why[0]) return NULL;
    if (n >= 0 && tp_reserve(&X->ids, &X->ids_room, (size_t)X->used, (size_t)n, sizeof *X->ids))
        return X->ids + X->used;
    out_of_memory(X);
    return NULL;
}

static bool grow(tp_documents *X)
{
    const size_t n = (size_t)X->count, ends = (size_t)X->documents * sizeof *X->end;
    return (tp_reserve(&X->label, &X->label_room, n, 1, sizeof *X->label) &&
            tp_reserve(&X->end, &X->end_room, n, 1, ends) &&
            tp_reserve(&X->name, &X->name_room, n, 1, sizeof *X->name)) ||
           out_of_memory(X);
}

bool tp__documents_end(tp_documents *X, int64_t n)
{
    if (X->why[0] || !grow(X)) return false;
    if (n < 1 || X->open == X->documents)
        return tp__fail(X, "documents: example %lld has an empty document", (long long)X->count);
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
        return tp__fail(X, "documents: example %lld has %d of %d documents", (long long)X->count,
                        X->open, X->documents);
    if (label < -1 || label >= X->classes)
        return tp__fail(X, "documents: example %lld has the label %d, not 0 to %d",
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
    if (!tp_reserve(&X->names, &X->names_room, used, n, 1)) return out_of_memory(X);
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

int64_t tp_documents_count(const tp_documents *X)
{
    if (!X) return 0;
    return X->why[0] ? 0 : X->count;
}
int tp_documents_per_example(const tp_documents *X)
{
    return X ? X->documents : 0;
}
int tp_documents_classes(const tp_documents *X)
{
    return X ? X->classes : 0;
}
int64_t tp_documents_longest(const tp_documents *X)
{
    return X ? X->longest : 0;
}
int32_t tp_documents_label(const tp_documents *X, int64_t i)
{
    return X ? X->label[i] : 0;
}
const int32_t *tp_documents_labels(const tp_documents *X)
{
    return tp_documents_ok(X) ? X->label : NULL;
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
    return X ? X->hash : 0;
}

const uint16_t *tp_documents_ids(const tp_documents *X, int64_t i, int k, int64_t *n)
{
    if (!X) return NULL;
    const int64_t at = i * X->documents + k, begin = at ? X->end[at - 1] : 0;
    *n = X->end[at] - begin;
    return X->ids + begin;
}

/* ---- texts and images as documents: a byte is an id ---- */

enum { MARKS = 10 };

bool tp__documents_damage(tp_documents *X, tp_part part, const tp_documents_opts *o)
{
    if (o->damage == TP_DAMAGE_NONE || part != TP_TRAIN) return !X->why[0];
    return tp__fail(X, "documents: damage is for test sets, not for training");
}

bool tp__documents_text(tp_documents *X, int k, const uint8_t *text, size_t n, int64_t longest,
                        const tp_documents_opts *o)
{
    uint8_t *damaged = NULL;
    if (o->damage != TP_DAMAGE_NONE) {
        damaged = malloc(n + MARKS);
        if (!damaged) return tp__fail(X, "documents: out of memory for a text of %zu bytes", n);
        n = o->damage == TP_DAMAGE_DELETE
                ? tp_delete_marks(text, n, damaged)
                : tp_insert_marks(text, n, X->count, k, o->whole, damaged);
        text = damaged;
    }
    if (n > (size_t)longest) n = (size_t)longest;
    uint16_t *ids = tp__documents_room(X, n ? (int64_t)n : 1);
    for (size_t i = 0; ids && i < n; i++) ids[i] = (uint16_t)(text[i] + 1);
    if (ids && n == 0) ids[0] = TP_BLANK;
    free(damaged);
    return ids && tp__documents_end(X, n ? (int64_t)n : 1);
}

bool tp__documents_pixels(tp_documents *X, const uint8_t *pixels, int64_t n, int32_t label,
                          const tp_documents_opts *o)
{
    enum { MOST = 0x8000 };
    if (o->pixel_offset < 0 || o->pixel_offset > MOST)
        return tp__fail(X, "documents: the pixel offset %d is not 0 to %d", o->pixel_offset, MOST);
    if (o->longest > 0 && n > o->longest) n = o->longest;
    uint16_t *ids = tp__documents_room(X, n);
    for (int64_t i = 0; ids && i < n; i++) ids[i] = (uint16_t)(pixels[i] + o->pixel_offset);
    return ids && tp__documents_end(X, n) && tp__documents_label(X, label);
}

/* ---- the tasks of Long Range Arena, with the published sizes ---- */

static const tp_task tasks[] = {
    { "listops", 1, 10, TP_LISTOPS_IDS, 2000, 2048, tp_documents_listops },
    { "text", 1, 2, 257, 4000, 4096, tp_documents_reviews },
    { "retrieval", 2, 2, 257, 4096, 4096, tp_documents_pairs },
    { "image", 1, 10, 257, 1024, 1024, tp_documents_cifar10 },
    { "pathfinder", 1, 2, 257, 1024, 1024, tp_documents_pathfinder },
};
enum { TASKS = sizeof tasks / sizeof tasks[0] };

const tp_task *tp_task_at(int i)
{
    return i >= 0 && i < TASKS ? &tasks[i] : NULL;
}

const tp_task *tp_task_find(const char *name)
{
    if (!name) return NULL;
    for (int i = 0; i < TASKS; i++)
        if (strcmp(tasks[i].name, name) == 0) return &tasks[i];
    return NULL;
}
