/* records.c - streams labelled texts from CSV (RFC 4180), the same with tabs (.tsv), and JSON
 * lines, with one record in memory at a time.
 *
 *     text,label            the heading names the columns
 *     "She said ""no"".
 *     Twice.",1             quoted cells may contain commas, doubled quotes and line ends
 *
 * A quote inside an unquoted cell and text after a closing quote are errors: whatever they mean,
 * they put the following cells at risk. Cells between tabs may contain quotes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>

#include "json_walk.h"
#include "labelled.h"
#include "load.h"

enum { MOST_RECORD = 8 << 20, MOST_CELLS = 4096, WHERE = 512 };

typedef enum place { CELL_BEGIN, PLAIN, QUOTED, QUOTE /* in a quoted cell */, LINE_END } place;

typedef struct records {
    tp_text_reader *r;
    const char *path;
    char *bytes; /* the record: its cells one after another, or its line */
    size_t n, room;
    int64_t line, begin; /* the current line and the record's first line, from 1 */
    int64_t offset;      /* of the record in the file */
    int64_t count;
    int64_t taken;  /* bytes of the file so far */
    char separator; /* of cells */
    place place;
    size_t *end; /* [cells]: the end of each cell in bytes */
    size_t cells, cell_room;
    bool quoted;  /* the record has a quoted cell */
    bool heading; /* has been read                */
    size_t columns, text, label;
} records;

static bool fail_at(records *s, int64_t line, const char *what)
{
    return tp__fail(s->r->X, "%.500s, line %lld: %s", s->path, (long long)line, what);
}

static bool append(records *s, const char *bytes, size_t n)
{
    if (n == 0) return true;
    if (s->n + n > MOST_RECORD)
        return fail_at(s, s->begin,
                       "a record of more than 8 MiB begins here; is a quote not closed?");
    if (!tp_reserve(&s->bytes, &s->room, s->n, n, 1)) return fail_at(s, s->begin, "out of memory");
    memcpy(s->bytes + s->n, bytes, n);
    s->n += n;
    return true;
}

/* Have all requested texts been read? */
static bool is_full(const records *s)
{
    return s->r->o.limit > 0 && s->count >= s->r->o.limit;
}

/* Adds a text of n bytes; label may be NULL. The text's name has the file without its folder. */
static bool add(records *s, const char *text, size_t n, const char *label, size_t label_bytes)
{
    char where[WHERE], name[WHERE];
    const char *slash = strrchr(s->path, '/');
    tp_text_class *class = NULL;
    snprintf(where, sizeof where, "%.400s:%lld", s->path, (long long)s->begin);
    if (label && !(class = tp__text_value(s->r, where, label, label_bytes))) return false;
    if (is_full(s)) return true;
    s->count++;
    snprintf(name, sizeof name, "%.400s:%lld", slash ? slash + 1 : s->path, (long long)s->begin);
    return s->r->names_only || tp__text_add(s->r, name, class, text, n);
}

/* Can reading stop? Even after the last requested text, records still contribute classes. */
static bool enough(const records *s)
{
    return is_full(s) && (s->r->closed || s->r->o.unlabelled);
}

/* ---- CSV ---- */

static const char *cell(const records *s, size_t k, size_t *n)
{
    const size_t begin = k ? s->end[k - 1] : 0;
    *n = s->end[k] - begin;
    return s->bytes + begin;
}

/* Fails: the heading has no column of this name. */
static bool no_column(records *s, const char *name)
{
    static const struct {
        char c;
        const char *name;
    } others[] = { { ';', "semicolons" },
                   { '\t', "tabs; name such a file .tsv" },
                   { ',', "commas" } };
    for (size_t k = 0; s->cells == 1 && k < sizeof others / sizeof *others; k++)
        if (memchr(s->bytes, others[k].c, s->n))
            return tp__fail(s->r->X,
                            "%.500s, line %lld: the heading has one cell; are its cells "
                            "separated by %s?",
                            s->path, (long long)s->begin, others[k].name);
    return tp__fail(s->r->X,
                    "%.500s, line %lld: the heading has no column '%.100s'; the first line "
                    "names the columns: name those of text and label as it does",
                    s->path, (long long)s->begin, name);
}

/* Finds a column by name; false: there is none, or there are two. */
static bool find(records *s, const char *name, size_t *column)
{
    size_t n, found = 0;
    for (size_t k = 0; k < s->cells; k++) {
        const char *at = cell(s, k, &n);
        if (n != strlen(name) || memcmp(at, name, n) != 0) continue;
        if (found++ == 0) *column = k;
    }
    if (found == 0) return no_column(s, name);
    return found == 1 ||
           tp__fail(s->r->X,
                    "%.500s, line %lld: the heading has %zu columns '%.100s'; rename all "
                    "but one",
                    s->path, (long long)s->begin, found, name);
}

static bool read_heading(records *s)
{
    s->heading = true;
    s->columns = s->cells;
    return find(s, s->r->o.text, &s->text) &&
           (s->r->o.unlabelled || find(s, s->r->o.label, &s->label));
}

static bool read_row(records *s)
{
    size_t n, label_bytes = 0;
    const char *label = NULL;
    if (s->cells != s->columns) {
        char what[200];
        snprintf(what, sizeof what,
                 "the row has %zu cells, the heading %zu; put cells with %s into quotes", s->cells,
                 s->columns, s->separator == '\t' ? "tabs" : "commas");
        return fail_at(s, s->begin, what);
    }
    if (!s->r->o.unlabelled) label = cell(s, s->label, &label_bytes);
    const char *text = cell(s, s->text, &n);
    return add(s, text, n, label, label_bytes);
}

static bool end_cell(records *s)
{
    if (s->cells == MOST_CELLS) return fail_at(s, s->begin, "a row has more than 4096 cells");
    if (!tp_reserve(&s->end, &s->cell_room, s->cells, 1, sizeof *s->end))
        return fail_at(s, s->begin, "out of memory");
    s->end[s->cells++] = s->n;
    s->place = CELL_BEGIN;
    return true;
}

/* Ends the row; ignores an empty line. */
static bool end_row(records *s)
{
    const bool empty = s->n == 0 && s->cells == 0 && !s->quoted;
    const bool done = empty || (end_cell(s) && (s->heading ? read_row(s) : read_heading(s)));
    s->n = s->cells = 0;
    s->quoted = false;
    s->place = CELL_BEGIN;
    s->begin = s->line + 1;
    return done;
}

/* Counts the ordinary bytes from `at`, to be copied at once: in quotes all up to a quote, elsewhere
 * all up to a separator, quote or line end. */
static size_t ordinary(const records *s, const char *at, const char *end)
{
    const char *p = at;
    if (s->place == QUOTED) {
        for (; p < end && *p != '"'; p++) {
        }
        return (size_t)(p - at);
    }
    while (p < end && *p != s->separator && *p != '"' && *p != '\n' && *p != '\r') p++;
    return (size_t)(p - at);
}

/* Takes a separator, quote or line end. */
static bool special(records *s, char c)
{
    const bool quoted = s->place == QUOTED;
    if (c == '"') {
        if (s->place == PLAIN && s->separator == '\t') return append(s, "\"", 1);
        if (s->place == PLAIN)
            return fail_at(s, s->line,
                           "a quote inside an unquoted cell; put the cell into quotes and double "
                           "the quotes in it");
        if (s->place == QUOTE && !append(s, "\"", 1)) return false;
        s->quoted = true;
        s->place = quoted ? QUOTE : QUOTED;
        return true;
    }
    if (c == s->separator) return end_cell(s);
    if (c == '\r' && s->place != LINE_END) {
        s->place = LINE_END;
        return true;
    }
    if (c == '\n') {
        const bool done = end_row(s);
        s->line++;
        return done;
    }
    return true;
}

static int64_t lines_in(const char *at, size_t n)
{
    int64_t lines = 0;
    for (const char *end = at + n; (at = memchr(at, '\n', (size_t)(end - at))) != NULL; at++)
        lines++;
    return lines;
}

static bool csv(void *env, const char *bytes, size_t n)
{
    records *s = env;
    const char *at = bytes, *end = bytes + n;
    while (at < end && !enough(s)) {
        const size_t k = ordinary(s, at, end);
        if (s->place == LINE_END && (k > 0 || *at != '\n'))
            return fail_at(s, s->line,
                           "a carriage return without a line feed; end lines with "
                           "either a line feed or both");
        if (k > 0 && s->place == QUOTE)
            return fail_at(s, s->line,
                           "text behind a closing quote; double the quotes inside a cell");
        if (!append(s, at, k)) return false;
        if (k > 0 && s->place == QUOTED) s->line += lines_in(at, k);
        if (k > 0 && s->place == CELL_BEGIN) s->place = PLAIN;
        at += k;
        if (at < end && !special(s, *at++)) return false;
    }
    return !enough(s);
}

static bool end_csv(records *s)
{
    if (enough(s)) return true;
    if (s->place == QUOTED) return fail_at(s, s->begin, "a quote of this row is never closed");
    if ((s->n || s->cells || s->quoted || s->place != CELL_BEGIN) && !end_row(s)) return false;
    return s->heading || fail_at(s, 1, "the heading is missing");
}

/* ---- JSON lines ---- */

/* The relevant members of a line, as references. */
typedef struct members {
    records *s;
    json_t *text, *label;
} members;

static bool member(void *env, tp_json_walk *w, const char *key)
{
    members *m = env;
    const tp_labelled_opts *o = &m->s->r->o;
    json_t **to = strcmp(key, o->text) == 0                      ? &m->text
                  : !o->unlabelled && strcmp(key, o->label) == 0 ? &m->label
                                                                 : NULL;
    if (!to) return tp__json_skip(w);
    if (*to) return tp__json_fail(w, w->at, "'%.100s' occurs twice", key);
    *to = tp__json_value(w);
    return *to != NULL;
}

static bool is_class(const json_t *label)
{
    const double x = json_real_value(label);
    return json_is_string(label) || json_is_integer(label) || json_is_boolean(label) ||
           (json_is_real(label) && x == floor(x));
}

static bool add_members(tp_json_walk *w, members *m)
{
    const tp_labelled_opts *o = &m->s->r->o;
    const bool given = m->label && !json_is_null(m->label) && !o->unlabelled;
    if (!json_is_string(m->text))
        return tp__json_fail(w, w->bytes, "'%.100s' is %s", o->text,
                             m->text ? "not a string" : "missing");
    if (!o->unlabelled && (!given || !is_class(m->label)))
        return tp__json_fail(w, w->bytes, "'%.100s' is %s", o->label,
                             !given ? "missing"
                                    : "neither a string, a whole number, true nor false");
    char *scalar = given && !json_is_string(m->label)
                       ? json_dumps(m->label, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15))
                       : NULL;
    if (given && !json_is_string(m->label) && !scalar)
        return tp__json_fail(w, w->bytes, "out of memory");
    const bool done = add(m->s, json_string_value(m->text), json_string_length(m->text),
                          scalar ? scalar : json_string_value(m->label),
                          scalar ? strlen(scalar) : json_string_length(m->label));
    free(scalar);
    return done;
}

static bool read_line(records *s)
{
    members m = { .s = s };
    char why[TP_WHY] = "";
    tp_json_walk w = { .name = s->path,
                       .bytes = s->bytes,
                       .at = s->bytes,
                       .end = s->bytes + s->n,
                       .why = why,
                       .size = sizeof why,
                       .lines = s->line - 1,
                       .offset = s->offset };
    size_t k = 0;
    s->begin = s->line;
    while (k < s->n && (s->bytes[k] == ' ' || s->bytes[k] == '\t' || s->bytes[k] == '\r')) k++;
    if (k == s->n) return true;
    if (s->bytes[k] == '[')
        return fail_at(s, s->line,
                       "a list; JSON lines have an object on each line, as jq -c '.[]' FILE "
                       "writes them");
    const bool done = tp__json_object(&w, member, &m) && tp__json_end(&w) && add_members(&w, &m);
    if (why[0]) tp__fail(s->r->X, "%s", why);
    json_decref(m.text);
    json_decref(m.label);
    return done;
}

static bool json_lines(void *env, const char *bytes, size_t n)
{
    records *s = env;
    for (const char *at = bytes, *end = bytes + n; at < end && !enough(s);) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!append(s, at, (size_t)((stop ? stop : end) - at))) return false;
        if (!stop) return true;
        if (!read_line(s)) return false;
        s->offset += (int64_t)s->n + 1;
        s->n = 0;
        s->begin = ++s->line;
        at = stop + 1;
    }
    return !enough(s);
}

/* ---- both ---- */

static bool is_json(const char *path)
{
    return tp__is_named(path, ".jsonl") || tp__is_named(path, ".ndjson") ||
           tp__is_named(path, ".json");
}

static bool is_tabbed(const char *path)
{
    return tp__is_named(path, ".tsv");
}

bool tp__are_records(const char *path)
{
    return is_json(path) || is_tabbed(path) || tp__is_named(path, ".csv");
}

/* Skips an initial byte order mark and refuses anything but text. False: read no further. */
static bool begin(records *s, const char **bytes, size_t *n)
{
    char why[200];
    const char *text = *bytes, *zero;
    if (!s->taken && !tp_skip_bom(bytes, n, why, sizeof why)) {
        tp__fail(s->r->X, "%.700s %s", s->path, why);
    } else if (s->taken && (zero = memchr(text, 0, *n)) != NULL) {
        tp__fail(s->r->X, "%.700s has a zero byte at offset %lld: it is not text in UTF-8", s->path,
                 (long long)(s->taken + (zero - text)));
    }
    if (!s->taken) s->offset = *bytes - text;
    s->taken += *bytes - text + (int64_t)*n;
    return !s->r->X->why[0] && *n > 0;
}

static bool take_csv(void *env, const char *bytes, size_t n)
{
    records *s = env;
    return begin(s, &bytes, &n) ? csv(s, bytes, n) : !s->r->X->why[0];
}

static bool take_json(void *env, const char *bytes, size_t n)
{
    records *s = env;
    return begin(s, &bytes, &n) ? json_lines(s, bytes, n) : !s->r->X->why[0];
}

bool tp__read_records(tp_text_reader *r, const char *path)
{
    records s = {
        .r = r, .path = path, .line = 1, .begin = 1, .separator = is_tabbed(path) ? '\t' : ','
    };
    const bool json = is_json(path);
    char why[256] = "";
    if (!tp_reserve(&s.bytes, &s.room, 0, 1, 1))
        tp__fail(r->X, "%.700s: out of memory", path);
    else if (!tp__load_pieces(path, json ? take_json : take_csv, &s, why, sizeof why))
        tp__fail(r->X, "%.700s %s", path, why);
    else if (!r->X->why[0] && !json)
        end_csv(&s);
    else if (!r->X->why[0] && s.n > 0 && !enough(&s))
        read_line(&s);
    free(s.bytes);
    free(s.end);
    return !r->X->why[0];
}
