/* labelled_items.c - collects the texts and the classes of a labelled set. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>

#include "files.h"
#include "labelled.h"

static bool no_memory(tp_text_reader *r)
{
    return tp__fail(r->X, "%.700s: out of memory after %zu texts", r->path, r->count);
}

/* ---- classes ---- */

/* The position of a name in r->class. */
static int place_of(const tp_text_reader *r, const char *name, bool *found)
{
    int low = 0, high = r->classes;
    *found = false;
    while (low < high) {
        const int mid = low + (high - low) / 2, order = strcmp(r->class[mid] -> name, name);
        if (order == 0) *found = true;
        if (order >= 0) high = mid;
        if (order < 0) low = mid + 1;
    }
    return low;
}

/* Lists the first few classes, as "neg, pos". */
static void list(const tp_text_reader *r, char *to, size_t size)
{
    size_t n = 0;
    to[0] = '\0';
    for (int k = 0; k < r->classes && n < size; k++) {
        const bool more = k == 8;
        n += (size_t)snprintf(to + n, size - n, "%s%.60s", k ? ", " : "",
                              more ? "..." : r->class[k] -> name);
        if (more) return;
    }
}

static tp_text_class *unknown(tp_text_reader *r, const char *where, const char *name)
{
    char known[600];
    list(r, known, sizeof known);
    tp__fail(r->X, "%.250s: the label '%.60s' is not a class of the %s: %s", where, name,
             r->o.classes > 0 ? "model" : "training part", known);
    return NULL;
}

static tp_text_class *create(tp_text_reader *r, int place, const char *name)
{
    size_t room = (size_t)r->class_room;
    tp_text_class *c = calloc(1, sizeof *c);
    if (c) c->name = strdup(name);
    if (!c || !c->name ||
        !tp_reserve(&r->class, &room, (size_t)r->classes, 1, sizeof(tp_text_class *))) {
        if (c) free(c->name);
        free(c);
        no_memory(r);
        return NULL;
    }
    r->class_room = (int)room;
    memmove(r->class + place + 1, r->class + place,
            (size_t)(r->classes - place) * sizeof(tp_text_class *));
    r->class[place] = c;
    c->index = r->classes++;
    return c;
}

tp_text_class *tp__text_class(tp_text_reader *r, const char *where, const char *name, size_t n)
{
    char copy[TP_LABEL_BYTES + 1];
    bool found;
    if (r->X->why[0]) return NULL;
    memcpy(copy, name, n <= TP_LABEL_BYTES ? n : 0);
    copy[n <= TP_LABEL_BYTES ? n : 0] = '\0';
    if (n < 1 || n > TP_LABEL_BYTES || strlen(copy) != n || !tp_is_utf8(copy)) {
        tp__fail(r->X, "%.700s: a label is 1 to %d bytes of UTF-8 without zeros; this one is %s",
                 where, TP_LABEL_BYTES,
                 n < 1                ? "empty"
                 : n > TP_LABEL_BYTES ? "longer"
                                      : "not");
        return NULL;
    }
    const int place = place_of(r, copy, &found);
    if (found) return r->class[place];
    if (r->closed) return unknown(r, where, copy);
    if (r->classes == TP_MOST_CLASSES) {
        tp__fail(r->X, "%.700s: more than %d different labels; is '%.100s' the right column?",
                 where, TP_MOST_CLASSES, r->o.label);
        return NULL;
    }
    return create(r, place, copy);
}

tp_text_class *tp__text_value(tp_text_reader *r, const char *where, const char *name, size_t n)
{
    const size_t sign = n > 0 && *name == '-';
    size_t digits = sign, zeros;
    bool found = false;
    char copy[TP_LABEL_BYTES + 1] = "";
    while (digits < n && name[digits] >= '0' && name[digits] <= '9') digits++;
    for (zeros = digits + 1; zeros < n && name[zeros] == '0';) zeros++;
    const bool whole = digits > sign && digits + 1 < n && name[digits] == '.' && zeros == n;
    if (whole && n <= TP_LABEL_BYTES) { /* a model may have a class with this name */
        memcpy(copy, name, n);
        place_of(r, copy, &found);
    }
    if (!whole || (found && r->o.classes > 0)) return tp__text_class(r, where, name, n);
    const bool zero = sign && strspn(name + 1, "0") >= digits - 1;
    return tp__text_class(r, where, name + zero, digits - zero);
}

static int by_value(const void *a, const void *b)
{
    return tp__by_value(*(tp_text_class *const *)a, *(tp_text_class *const *)b); /* their names */
}

void tp__text_classes_end(tp_text_reader *r, uint8_t parts)
{
    int kept = 0;
    bool integers = true;
    if (r->closed) return;
    for (int k = 0; k < r->classes; k++) {
        tp_text_class *c = r->class[k];
        if (!parts || c->parts & parts) {
            integers = integers && tp__is_whole(c->name);
            c->index = kept;
            r->class[kept++] = c;
        } else {
            free(c->name);
            free(c);
        }
    }
    r->classes = kept;
    r->closed = true;
    tp_text_class **order =
        integers && kept > 1 ? malloc((size_t)kept * sizeof(tp_text_class *)) : NULL;
    if (integers && kept > 1 && !order) no_memory(r);
    if (!order) return;
    memcpy(order, r->class, (size_t)kept * sizeof(tp_text_class *));
    qsort(order, (size_t)kept, sizeof(tp_text_class *), by_value);
    for (int k = 0; k < kept; k++) order[k]->index = k;
    free(order);
}

/* ---- texts ---- */

int64_t tp__text_ids(tp_bpe_coder *C, const tp_labelled_opts *o, const char *text, size_t n,
                     uint16_t *to, bool *cut)
{
    const tp_bpe *X = tp_bpe_coder_vocabulary(C);
    int64_t count, k = 0;
    for (; n > 0 && tp__is_white(*text); n--) text++;
    while (n > 0 && tp__is_white(text[n - 1])) n--;
    const int32_t *ids = tp_bpe_encode(C, text, n, &count);
    if (!ids) return -1;
    const int64_t most = o->longest - 2, kept = count < most ? count : most;
    const int64_t head = count > most ? most - o->tail : count;
    *cut = count > most;
    to[k++] = (uint16_t)tp_bpe_special_id(X, TP_BPE_BEGIN);
    for (int64_t i = 0; i < head; i++) to[k++] = (uint16_t)ids[i];
    for (int64_t i = head; i < kept; i++) to[k++] = (uint16_t)ids[count - kept + i];
    to[k++] = (uint16_t)tp_bpe_special_id(X, TP_BPE_END);
    return k;
}

bool tp__text_add(tp_text_reader *r, const char *name, tp_text_class *class, const char *text,
                  size_t n)
{
    const size_t letters = strlen(name) + 1, most = (size_t)r->o.longest,
                 ids = n + 2 < most ? n + 2 : most;
    bool cut;
    if (r->X->why[0]) return false;
    if (!tp_reserve(&r->names, &r->names_room, r->names_used, letters, 1) ||
        !tp_reserve(&r->ids, &r->ids_room, r->used, ids, sizeof *r->ids) ||
        !tp_reserve(&r->item, &r->room, r->count, 1, sizeof *r->item))
        return no_memory(r);
    const int64_t got = tp__text_ids(r->coder, &r->o, text, n, r->ids + r->used, &cut);
    if (got < 0) return no_memory(r);
    memcpy(r->names + r->names_used, name, letters);
    r->item[r->count++] =
        (tp_text_item){ .name = r->names_used, .class = class, .at = r->used, .n = got };
    r->names_used += letters;
    r->used += (size_t)got;
    r->cut += cut;
    for (const uint16_t *id = r->ids + r->used - got; id < r->ids + r->used; id++)
        r->unknown += *id == tp_bpe_special_id(r->vocabulary, TP_BPE_UNKNOWN);
    return true;
}
