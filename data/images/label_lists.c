/* label_lists.c - reads a JSON array of arrays of class numbers: the labels of images that may have several
 * classes, or none. Everything else is refused with the offset of the byte that does not belong there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/file.h>
#include <tapegrad/test_sets.h>

#include "load.h"

enum { MOST_BYTES = 1 << 28 };

typedef struct reader {
    const char *name, *text;
    size_t at, n;
    int64_t classes, room, labels, label_room;
    tp_label_lists *l;
} reader;

static bool fail(reader *r, const char *wanted)
{
    if (r->at < r->n)
        snprintf(r->l->why, sizeof r->l->why, "%.300s, byte %lld: %s is wanted, not '%.1s'",
                 r->name, (long long)r->at, wanted,
                 (unsigned char)r->text[r->at] - 32u < 95u ? r->text + r->at : "?");
    else
        snprintf(r->l->why, sizeof r->l->why, "%.300s ends at byte %lld: %s is wanted", r->name,
                 (long long)r->at, wanted);
    return false;
}

static void skip_blanks(reader *r)
{
    while (r->at < r->n && r->text[r->at] && strchr(" \t\r\n", r->text[r->at])) r->at++;
}

/* The next byte that is no white space is c, and is passed. */
static bool take(reader *r, char c)
{
    skip_blanks(r);
    if (r->at == r->n || r->text[r->at] != c) return false;
    r->at++;
    return true;
}

/* Room for one more value of that size. */
static bool grow(reader *r, int64_t **at, int64_t used, int64_t *room)
{
    if (used < *room) return true;
    const int64_t more = *room ? 2 * *room : 1024;
    int64_t *p = realloc(*at, (size_t)more * sizeof *p);
    if (!p) {
        snprintf(r->l->why, sizeof r->l->why, "%.300s: out of memory", r->name);
        return false;
    }
    *at = p;
    *room = more;
    return true;
}

static bool read_label(reader *r)
{
    int64_t x = 0;
    const size_t from = r->at;
    for (; r->at < r->n && r->at - from < 10; r->at++) {
        const char c = r->text[r->at];
        if (c < '0' || c > '9') break;
        x = 10 * x + (c - '0');
    }
    if (r->at == from) return fail(r, "a class number");
    if (x >= r->classes) {
        snprintf(r->l->why, sizeof r->l->why,
                 "%.300s, byte %lld: image %lld has the class %lld; there are %lld", r->name,
                 (long long)from, (long long)r->l->count, (long long)x, (long long)r->classes);
        return false;
    }
    if (!grow(r, &r->l->label, r->labels, &r->label_room)) return false;
    r->l->label[r->labels++] = x;
    return true;
}

/* The numbers after a '[', and the ']'. */
static bool read_list(reader *r)
{
    if (take(r, ']')) return true;
    do {
        skip_blanks(r);
        if (!read_label(r)) return false;
    } while (take(r, ','));
    return take(r, ']') || fail(r, "',' or ']'");
}

static bool read_lists(reader *r)
{
    tp_label_lists *l = r->l;
    if (!take(r, '[')) return fail(r, "'[', the start of an array of arrays");
    bool more = !take(r, ']');
    while (more) {
        if (!take(r, '[')) return fail(r, "'[', the start of an image's classes");
        if (!read_list(r) || !grow(r, &l->from, l->count + 1, &r->room)) return false;
        l->from[++l->count] = r->labels;
        more = take(r, ',');
        if (!more && !take(r, ']')) return fail(r, "',' or ']'");
    }
    skip_blanks(r);
    return r->at == r->n || fail(r, "the end of the file");
}

bool tp_label_lists_parse(tp_label_lists *l, const char *name, const char *text, size_t n,
                          int64_t classes)
{
    if (!l) return false;
    reader r = { .name = name, .text = text, .n = n, .classes = classes, .l = l };
    *l = (tp_label_lists){ 0 };
    if (grow(&r, &l->from, 0, &r.room)) l->from[0] = 0;
    const bool done = l->from && read_lists(&r);
    if (!done) l->count = 0;
    return done;
}

bool tp_label_lists_read(tp_label_lists *l, const char *path, int64_t classes)
{
    if (!l) return false;
    tp_blob b = { 0 };
    char why[300];
    bool done = tp__blob_read(&b, path, MOST_BYTES, why, sizeof why);
    const char *text = (const char *)b.bytes;
    size_t n = b.size;
    *l = (tp_label_lists){ 0 };
    done = done && (n == 0 || tp_file_text(&text, &n, why, sizeof why));
    if (done)
        done = tp_label_lists_parse(l, path, text, n, classes);
    else
        snprintf(l->why, sizeof l->why, "%.300s: %.200s", path, why);
    tp__blob_free(&b);
    return done;
}

void tp_label_lists_free(tp_label_lists *l)
{
    if (!l) return;
    free(l->from);
    free(l->label);
    *l = (tp_label_lists){ 0 };
}
