/* report_log.c - thins a log of any length in one pass and bounded memory.
 *
 * The log is split into pieces of equal numbers of lines. A piece keeps its last line and the lines
 * with the smallest and largest value of each key. If there are too many pieces, neighbours are
 * joined: a short log is kept whole, a long one keeps its extremes. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>
#include <unistd.h>

#include "report.h"

enum { KEYS = 32, LINE = 1 << 20, NAME = 64 };

/* A line's numbers; NaN where it has null. */
typedef struct row {
    int64_t line; /* 0: there is none */
    uint32_t has; /* keys */
    double x[KEYS];
} row;

typedef struct piece {
    int64_t lines;
    row last, low[KEYS], high[KEYS];
} piece;

typedef struct curves {
    int keys, score; /* score: its key; -1: not seen */
    char key[KEYS][NAME];
    uint32_t along; /* keys that only grow, such as the step */
    piece *part;
    int parts, most;
    int64_t each; /* lines of a complete piece */
    int64_t lines, read, damaged, first_damaged, validations, nulls;
    bool higher, cut, crowded;
    row last, best;
    json_t *ops;
} curves;

/* ---- pieces ---- */

static bool has(const row *r, int k)
{
    return r->line > 0 && (r->has >> k & 1);
}

static bool beats(const row *a, const row *b, int k, bool higher)
{
    if (!has(a, k) || !isfinite(a->x[k])) return false;
    return !has(b, k) || (higher ? a->x[k] > b->x[k] : a->x[k] < b->x[k]);
}

static void join(piece *into, const piece *from, int keys)
{
    into->lines += from->lines;
    into->last = from->last;
    for (int k = 0; k < keys; k++) {
        if (beats(&from->low[k], &into->low[k], k, false)) into->low[k] = from->low[k];
        if (beats(&from->high[k], &into->high[k], k, true)) into->high[k] = from->high[k];
    }
}

static void halve(curves *c)
{
    for (int i = 0; i < c->parts; i += 2) {
        if (i > 0) c->part[i / 2] = c->part[i];
        if (i + 1 < c->parts) join(&c->part[i / 2], &c->part[i + 1], c->keys);
    }
    c->parts = (c->parts + 1) / 2;
    c->each *= 2;
}

static void add(curves *c, const row *r)
{
    if (c->parts == 0 || c->part[c->parts - 1].lines == c->each) {
        if (c->parts == c->most) halve(c);
        if (c->parts == 0 || c->part[c->parts - 1].lines == c->each)
            memset(&c->part[c->parts++], 0, sizeof *c->part);
    }
    piece *p = &c->part[c->parts - 1];
    p->lines++;
    p->last = *r;
    for (int k = 0; k < c->keys; k++) {
        if (c->along >> k & 1) continue;
        if (beats(r, &p->low[k], k, false)) p->low[k] = *r;
        if (beats(r, &p->high[k], k, true)) p->high[k] = *r;
    }
    c->last = *r;
    if (c->score < 0 || !has(r, c->score)) return;
    c->validations++;
    if (beats(r, &c->best, c->score, c->higher)) c->best = *r;
}

/* ---- lines ---- */

/* A key's index; -1 if the page has no room for it. */
static int key_of(curves *c, const char *name, const char *unit, const char *score)
{
    const char *const along[] = { "step", "epoch", "seconds", unit ? unit : "step" };
    for (int k = 0; k < c->keys; k++)
        if (strcmp(c->key[k], name) == 0) return k;
    if (c->keys == KEYS || strlen(name) >= NAME) {
        c->crowded = true;
        return -1;
    }
    snprintf(c->key[c->keys], NAME, "%s", name);
    for (size_t i = 0; i < sizeof along / sizeof *along; i++)
        if (strcmp(name, along[i]) == 0) c->along |= UINT32_C(1) << c->keys;
    if (score ? strcmp(name, score) == 0
              : strcmp(name, "valid_bpc") == 0 || strcmp(name, "top1") == 0)
        c->score = c->keys;
    return c->keys++;
}

static void take(curves *c, const char *text, size_t n, const char *unit, const char *score)
{
    row r = { .line = ++c->lines };
    const char *key;
    char why[200];
    if (r.line == 1) tp_skip_bom(&text, &n, why, sizeof why); /* skips a byte order mark */
    json_t *value, *line = json_loadb(text, n, 0, NULL);
    if (!json_is_number(json_object_get(line, "step"))) {
        if (c->damaged++ == 0) c->first_damaged = c->lines;
        json_decref(line);
        return;
    }
    json_object_foreach(line, key, value)
    {
        if (strcmp(key, "ops") == 0 && json_is_array(value)) {
            json_decref(c->ops);
            c->ops = json_incref(value);
        }
        if (!json_is_number(value) && !json_is_null(value)) continue;
        const int k = key_of(c, key, unit, score);
        if (k < 0) continue;
        r.has |= UINT32_C(1) << k;
        r.x[k] = json_is_null(value) ? (double)NAN : json_number_value(value);
        c->nulls += json_is_null(value);
    }
    json_decref(line);
    c->read++;
    add(c, &r);
}

/* Passes each line to take(); lines too long for the buffer are damaged. */
static bool read_lines(curves *c, int fd, const char *unit, const char *score)
{
    char *buffer = malloc(LINE);
    size_t held = 0;
    ssize_t got = 0;
    bool skipping = false;
    while (buffer && (got = read(fd, buffer + held, LINE - held)) != 0) {
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) break;
        held += (size_t)got;
        char *line = buffer, *end = buffer + held, *newline;
        while ((newline = memchr(line, '\n', (size_t)(end - line)))) {
            if (newline > line || skipping)
                take(c, line, skipping ? 0 : (size_t)(newline - line), unit, score);
            skipping = false;
            line = newline + 1;
        }
        held = (size_t)(end - line);
        memmove(buffer, line, held);
        if (held < LINE) continue;
        skipping = true;
        held = 0;
    }
    c->cut = held > 0 || skipping;
    if (!buffer) errno = ENOMEM;
    free(buffer);
    return buffer && got == 0;
}

/* ---- JSON for the page ---- */

static json_t *number(double x)
{
    if (!isfinite(x)) return json_null();
    return x == floor(x) && fabs(x) < 9e15 ? json_integer((json_int_t)x) : json_real(x);
}

static json_t *row_json(const curves *c, const row *r)
{
    json_t *all = r->line ? json_object() : json_null();
    for (int k = 0; k < c->keys; k++)
        if (has(r, k)) json_object_set_new(all, c->key[k], number(r->x[k]));
    return all;
}

static int by_line(const void *a, const void *b)
{
    const row *const *x = a, *const *y = b;
    return ((*x)->line > (*y)->line) - ((*x)->line < (*y)->line);
}

/* A piece's distinct rows in log order; returns their number. */
static int rows_of(const piece *p, int keys, const row *list[2 * KEYS + 1])
{
    int n = 0, kept = 0;
    list[n++] = &p->last;
    for (int k = 0; k < keys; k++) {
        if (p->low[k].line) list[n++] = &p->low[k];
        if (p->high[k].line) list[n++] = &p->high[k];
    }
    qsort(list, (size_t)n, sizeof *list, by_line);
    for (int i = 0; i < n; i++)
        if (i == 0 || list[i]->line != list[kept - 1]->line) list[kept++] = list[i];
    return kept;
}

/* values: each key's numbers; at: their rows, for keys not on every row. */
static json_t *columns(const curves *c, json_t *result)
{
    json_t *values = json_object(), *at = json_object();
    int64_t rows = 0;
    for (int k = 0; k < c->keys; k++) {
        json_object_set_new(values, c->key[k], json_array());
        json_object_set_new(at, c->key[k], json_array());
    }
    for (int i = 0; i < c->parts; i++) {
        const row *list[2 * KEYS + 1];
        const int n = rows_of(&c->part[i], c->keys, list);
        for (int j = 0; j < n; j++, rows++)
            for (int k = 0; k < c->keys; k++) {
                if (!has(list[j], k)) continue;
                json_array_append_new(json_object_get(values, c->key[k]), number(list[j]->x[k]));
                json_array_append_new(json_object_get(at, c->key[k]), json_integer(rows));
            }
    }
    for (int k = 0; k < c->keys; k++)
        if ((int64_t)json_array_size(json_object_get(values, c->key[k])) == rows)
            json_object_del(at, c->key[k]);
    json_object_set_new(result, "rows", json_integer(rows));
    json_object_set_new(result, "values", values);
    json_object_set_new(result, "at", at);
    return result;
}

static void say_what_is_damaged(const curves *c, json_t *notes)
{
    if (c->damaged > 0)
        tp__report_note(notes,
                        "%lld of %lld lines of log.jsonl could not be read and are left out; the "
                        "first is line %lld.",
                        (long long)c->damaged, (long long)c->lines, (long long)c->first_damaged);
    if (c->cut)
        tp__report_note(notes, "The last line of log.jsonl is incomplete and is left out: the run "
                               "was writing it, or the file is cut off.");
    if (c->nulls > 0)
        tp__report_note(
            notes, "%lld value%s of log.jsonl %s NaN or infinite: the curves have gaps.",
            (long long)c->nulls, c->nulls == 1 ? "" : "s", c->nulls == 1 ? "is" : "are");
    if (c->crowded)
        tp__report_note(
            notes, "log.jsonl has more than %d kinds of values; the others are left out.", KEYS);
}

static json_t *finish(const curves *c, json_t *notes)
{
    json_t *result = columns(c, json_object());
    json_object_set_new(result, "lines", json_integer(c->read));
    json_object_set_new(result, "validations", json_integer(c->validations));
    json_object_set_new(result, "score",
                        c->score < 0 ? json_null() : json_string(c->key[c->score]));
    json_object_set_new(result, "higher", json_boolean(c->higher));
    json_object_set_new(result, "last", row_json(c, &c->last));
    json_object_set_new(result, "best", row_json(c, &c->best));
    json_object_set(result, "ops", c->ops ? c->ops : json_null());
    say_what_is_damaged(c, notes);
    return result;
}

json_t *tp__report_log(const char *folder, const char *unit, const char *score, bool higher,
                       int most, json_t *notes, char *why, size_t size)
{
    char path[4200];
    const char *kind;
    int64_t bytes;
    json_t *result = NULL;
    curves *c = calloc(1, sizeof *c);
    snprintf(path, sizeof path, "%s/log.jsonl", folder);
    int fd = -1;
    if (tp__report_link(path))
        kind = "a link (none is followed)";
    else
        fd = tp_open_regular(path, &bytes, &kind);
    if (c) *c = (curves){ .score = -1, .most = most, .each = 1, .higher = higher };
    if (c) c->part = calloc((size_t)most, sizeof *c->part);
    if (c) key_of(c, "step", unit, score); /* on every line: it must have room */
    if (fd < 0 && kind)
        snprintf(why, size, "%s is %s, not the log of a run", path, kind);
    else if (fd < 0)
        snprintf(why, size, "%s cannot be read: %s; name the folder of a run (--run-dir)", path,
                 strerror(errno));
    else if (!c || !c->part)
        snprintf(why, size, "%s: out of memory", path);
    else if (!read_lines(c, fd, unit, score))
        snprintf(why, size, "%s cannot be read: %s", path, strerror(errno));
    else
        result = finish(c, notes);
    if (fd >= 0) close(fd);
    if (c) json_decref(c->ops);
    if (c) free(c->part);
    free(c);
    return result;
}
