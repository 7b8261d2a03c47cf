/* text_data.c - labelled texts and the names of their classes. */

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "imdb.h"

#define CLASSES "classes" /* metadata: a JSON array of names */

enum { MOST_CLASSES = 1 << 20 };

/* ---- classes ---- */

static bool make_room(class_list *l, size_t n)
{
    *l = (class_list){ .name = calloc(n + 1, sizeof *l->name) };
    return l->name != NULL;
}

bool class_list_of(class_list *l, const tp_documents *X)
{
    const int n = tp_documents_classes(X);
    bool done = make_room(l, (size_t)n);
    for (int i = 0; i < n && done; i++) {
        const char *name = tp_documents_class(X, i);
        char number[32];
        snprintf(number, sizeof number, "%d", i);
        l->name[i] = strdup(name ? name : number);
        done = l->name[i] != NULL;
        l->n += done;
    }
    return done;
}

bool class_list_read(class_list *l, tp_file *F, char *why, size_t size)
{
    const char *text = tp_file_meta(F, CLASSES);
    *l = (class_list){ 0 };
    if (!text) return true;
    errno = 0; /* jansson does not say why it failed, but malloc sets errno */
    json_t *all = json_loads(text, 0, NULL);
    const size_t n = json_array_size(all);
    bool done = json_is_array(all) && n <= MOST_CLASSES && make_room(l, n);
    for (size_t i = 0; i < n && done; i++) {
        const char *name = json_string_value(json_array_get(all, i));
        l->name[i] = name ? strdup(name) : NULL;
        done = l->name[i] != NULL;
        l->n += done;
    }
    json_decref(all);
    if (!done)
        snprintf(why, size,
                 errno == ENOMEM ? "%s: out of memory" : "%s: '" CLASSES "' is no list of names",
                 tp_file_path(F));
    return done;
}

void class_list_write(const class_list *l, tp_writer *W)
{
    json_t *all = json_array();
    bool whole = all != NULL;
    for (int i = 0; i < l->n && whole; i++)
        whole = json_array_append_new(all, json_string(l->name[i])) == 0;
    char *text = whole ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    tp_writer_meta(W, CLASSES, text); /* without memory the writer fails */
    free(text);
}

const char *class_list_at(const class_list *l, int64_t i, char buf[32])
{
    if (i >= 0 && i < l->n) return l->name[i];
    snprintf(buf, 32, "class %lld", (long long)i);
    return buf;
}

void class_list_free(class_list *l)
{
    for (int i = 0; i < l->n; i++) free(l->name[i]);
    free(l->name);
    *l = (class_list){ 0 };
}

/* ---- opening ---- */

tp_documents *texts_open(const text_data *d, const tp_bpe *vocab, text_view v)
{
    const bool named = v.classes && v.classes->n > 0;
    return tp_documents_labelled(
        d->path, v.part, vocab,
        &(tp_labelled_opts){ .longest = v.length,
                             .tail = d->tail,
                             .text = d->text,
                             .label = d->label,
                             .name = named ? (const char *const *)v.classes->name : NULL,
                             .classes = named ? v.classes->n : 0,
                             .hold_back = d->hold_back,
                             .limit = v.limit });
}

double texts_mean_length(const tp_documents *X, double *deviation)
{
    const int64_t count = tp_documents_count(X);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t n;
        tp_documents_ids(X, i, 0, &n);
        sum += (double)n;
        squares += (double)n * (double)n;
    }
    const double mean = count > 0 ? sum / (double)count : 0;
    if (deviation)
        *deviation = count > 0 ? sqrt(fmax(squares / (double)count - mean * mean, 0)) : 0;
    return mean;
}
