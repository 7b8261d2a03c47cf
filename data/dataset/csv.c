/* csv.c - rows of a CSV file: cut into cells and unquoted in place. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/dataset.h"

enum { MOST_CELLS = 1 << 14 };

/* ---- cells ---- */

/* Unquotes the cell that begins at *at, and moves *at behind its end. False: r has failed. */
static bool take_quoted(tp_row *r, char **at, char separator, char quote)
{
    const char *from = *at + 1;
    char *to = *at;
    for (; *from != quote || from[1] == quote; from++) {
        if (!*from) return tp_row_fail(r, "a '%c' is not closed", quote);
        if (*from == quote) from++;
        *to++ = *from;
    }
    from++;
    if (*from && *from != separator)
        return tp_row_fail(r,
                           "there is text after the closing '%c': double one that is part of "
                           "the cell",
                           quote);
    *to = '\0';
    *at += from - *at;
    return true;
}

/* Finds the end of a cell without quotes. */
static bool take_plain(tp_row *r, char **at, char separator, char quote)
{
    for (; **at && **at != separator; (*at)++)
        if (quote && **at == quote)
            return tp_row_fail(r,
                               "a cell has a '%c' but does not begin with it: quote the cell and "
                               "double the '%c', or read the file without quotes",
                               quote, quote);
    return true;
}

/* Cuts a row into cells. Returns their number; 0: r has failed. */
static int cut(tp_row *r, char *text, char separator, char quote)
{
    int n = 0;
    for (char *at = text;; at++) {
        if (n == MOST_CELLS ||
            !tp_reserve(&r->cell, &r->cells_room, (size_t)n, 1, sizeof *r->cell)) {
            tp__row_broken(
                r, n == MOST_CELLS ? TP_EXAMPLE_BAD : TP_EXAMPLE_NO_MEMORY,
                n == MOST_CELLS ? "it has more than %d cells" : "out of memory for %d cells", n);
            return 0;
        }
        r->cell[n++] = at;
        const bool quoted = quote && *at == quote;
        if (!(quoted ? take_quoted : take_plain)(r, &at, separator, quote)) return 0;
        const char end = *at;
        *at = '\0';
        if (!end) return n;
    }
}

static bool read_row(tp_row *r, int64_t number)
{
    const tp_dataset *X = r->X;
    const int64_t n = tp__text_index_row(X->text, number, &r->bytes, &r->room);
    if (n < 0 && errno == ENOMEM)
        return tp__row_broken(r, TP_EXAMPLE_NO_MEMORY, "out of memory for a row");
    if (n < 0)
        return tp__row_broken(r, TP_EXAMPLE_FAILED, "cannot be read: %s",
                              errno ? strerror(errno) : "the file became shorter");
    return !memchr(r->bytes, 0, (size_t)n) || tp_row_fail(r, "it has a zero byte");
}

static bool load(tp_row *r)
{
    const tp_dataset *X = r->X;
    if (!read_row(r, r->number + X->first)) return false;
    const int n = cut(r, r->bytes, X->separator, X->quote);
    if (n == 0) return false;
    return n == X->fields || tp_row_fail(r, "it has %d cell%s, the first row has %d", n,
                                         n == 1 ? "" : "s", X->fields);
}

static void unload(tp_row *r)
{
    (void)r; /* the buffers serve the next row */
}

/* ---- fields ---- */

/* The column of a field; -1: r has failed. */
static int column_of(tp_row *r, const char *field)
{
    const tp_dataset *X = r->X;
    const int at = tp__field_at(X, field);
    if (at < 0)
        tp__row_broken(r, TP_EXAMPLE_FAILED,
                       "there is no column '%s'; the first is '%s', the last '%s'", field,
                       X->field[0], X->field[X->fields - 1]);
    return at;
}

static bool is_blank(const tp_dataset *X, const char *cell)
{
    if (X->missing && strcmp(cell, X->missing) == 0) return true;
    while (tp__is_white(*cell)) cell++;
    return !*cell;
}

static bool is_empty(tp_row *r, const char *field)
{
    const int at = column_of(r, field);
    return at >= 0 && is_blank(r->X, r->cell[at]);
}

static const char *text(tp_row *r, const char *field)
{
    const int at = column_of(r, field);
    return at < 0 ? NULL : r->cell[at];
}

static int64_t length(tp_row *r, const char *field)
{
    const int at = column_of(r, field);
    return at < 0 ? -1 : r->X->fields - at;
}

/* Is there nothing but blanks? */
static bool ends(const char *at)
{
    while (tp__is_white(*at)) at++;
    return !*at;
}

static bool read_cell(tp_row *r, int column, tp_dtype dt, void *to, int64_t i)
{
    const char *cell = r->cell[column];
    char what[200], shown[100], *end;
    snprintf(what, sizeof what, "column '%.150s'", r->X->field[column]);
    if (is_blank(r->X, cell))
        return tp_row_fail(r, "%s is empty; ask tp_row_is_empty first where that is allowed", what);
    errno = 0;
    if (!tp_is_float(dt)) {
        const long long x = strtoll(cell, &end, 10);
        if (end > cell && ends(end) && errno == 0) return tp__row_store_int(r, what, dt, to, i, x);
    }
    const double x = tp_number_read(cell, &end);
    if (end > cell && ends(end) && (tp_is_float(dt) ? isfinite(x) : tp__is_int64(x)))
        return tp__row_store(r, what, dt, to, i, x);
    return tp_row_fail(r, "%s has '%s', which is not %s", what, tp_plain(cell, shown, sizeof shown),
                       tp_is_float(dt) ? "a finite number" : "an integer of 64 bits");
}

static bool read_cells(tp_row *r, const char *field, int64_t n, tp_dtype dt, void *to)
{
    const int at = column_of(r, field);
    if (at < 0) return false;
    if (n > r->X->fields - at)
        return tp__row_broken(r, TP_EXAMPLE_FAILED,
                              "there are %d columns from '%s' on, %lld were asked for",
                              r->X->fields - at, field, (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (!read_cell(r, at + (int)i, dt, to, i)) return false;
    return true;
}

static const tp_dataset_kind csv = { .row = "line",
                                     .load = load,
                                     .unload = unload,
                                     .read = read_cells,
                                     .length = length,
                                     .text = text,
                                     .is_empty = is_empty };

/* ---- opening ---- */

/* Names column i: by the first row, or by its number. False: X has failed. */
static bool name_column(tp_dataset *X, int i, char *cell, char **room, size_t *left)
{
    char shown[100];
    for (int k = 0; *cell && k < i; k++)
        if (strcmp(X->field[k], cell) == 0)
            return tp__dataset_fail(
                X, TP_E_IO,
                "dataset %s, line %lld: columns %d and %d are both named '%s'; rename one, or say "
                "that the file has no header",
                X->name, (long long)tp__text_index_line(X->text, 0), k + 1, i + 1,
                tp_plain(cell, shown, sizeof shown));
    X->field[i] = *room;
    const int n = *cell ? snprintf(*room, *left, "%s", cell) : snprintf(*room, *left, "%d", i + 1);
    *room += n + 1;
    *left -= (size_t)n + 1;
    return true;
}

/* Names the columns after the first row, of n cells. */
static bool name_columns(tp_dataset *X, const tp_row *r, int n, bool header)
{
    size_t bytes = 0;
    for (int i = 0; i < n; i++) bytes += (header ? strlen(r->cell[i]) : 0) + 8;
    X->header = malloc(bytes);
    X->field = malloc((size_t)n * sizeof *X->field);
    if (!X->header || !X->field)
        return tp__dataset_fail(X, TP_E_MEMORY, "dataset %s: out of memory for %d columns", X->name,
                                n);
    char *room = X->header, none[] = "";
    X->fields = n;
    for (int i = 0; i < n; i++)
        if (!name_column(X, i, header ? r->cell[i] : none, &room, &bytes)) return false;
    return true;
}

static bool read_header(tp_dataset *X, bool header)
{
    tp_row r = { .X = X };
    if (tp__text_index_rows(X->text) < 1)
        return tp__dataset_fail(X, TP_E_IO, "dataset %s: has no rows", X->name);
    const int n = read_row(&r, 0) ? cut(&r, r.bytes, X->separator, X->quote) : 0;
    const bool done = n > 0 ? name_columns(X, &r, n, header)
                            : tp__dataset_fail(X, TP_E_IO, "dataset %s, line %lld: %s", X->name,
                                               (long long)tp__text_index_line(X->text, 0), r.why);
    free(r.bytes);
    free(r.cell);
    return done;
}

static bool open_csv(tp_dataset *X, const char *path, const tp_dataset_opts *o)
{
    char why[600];
    bool starved;
    X->separator = o->separator ? o->separator : ',';
    X->quote = o->no_quotes ? '\0' : '"';
    X->comment = o->comment;
    if (X->separator == '\n' || X->separator == '\r' || X->separator == '"' || X->comment == '\n' ||
        X->comment == '\r' || X->separator == X->comment)
        return tp__dataset_fail(X, TP_E_VALUE,
                                "dataset %s: byte %d cannot separate cells and byte %d begin "
                                "comments; take ',', ';' or a tab, and '#'",
                                X->name, X->separator, X->comment);
    if (o->missing && !(X->missing = strdup(o->missing)))
        return tp__dataset_fail(X, TP_E_MEMORY, "dataset %s: out of memory", X->name);
    const tp_text_cut cut = { X->separator, X->quote, X->comment, false };
    X->text = tp__text_index_open(path, &cut, o->memory, why, sizeof why, &starved);
    if (!X->text)
        return tp__dataset_fail(X, starved ? TP_E_MEMORY : TP_E_IO, "dataset %s%s", X->name, why);
    return read_header(X, !o->no_header);
}

tp_dataset *tp_dataset_csv(const char *path, const tp_dataset_opts *o)
{
    static const tp_dataset_opts defaults = { 0 };
    tp_dataset *X = tp__dataset_new(&csv, path);
    if (!X) return &tp__no_dataset;
    if (X->why[0] || !open_csv(X, path, o ? o : &defaults)) return X;
    X->first = !(o && o->no_header);
    X->count = tp__text_index_rows(X->text) - X->first;
    if (X->count < 1)
        tp__dataset_fail(X, TP_E_IO, "dataset %s: has no rows after the one that names the columns",
                         X->name);
    return X;
}
