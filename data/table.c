/* table.c - text files of rows and cells: one copy of the bytes, with zeros in place of separators,
 * and a pointer to each cell. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit.h"
#include "load.h"
#include <tapegrad/data.h>
#include <tapegrad/file.h>

enum { MAX_CELLS = 4096 };

/* The labels of a column. */
typedef struct labels {
    int count;
    int32_t *of; /* [rows] */
    char **name; /* [count] */
} labels;

struct tp_table {
    char *text;
    int64_t rows;
    int columns;
    bool header;
    char **cell; /* [rows + header,columns] */
    labels *labels;
    char why[TP_WHY];
};

TP_FAILS(tp_table, no_table, "table: out of memory", "table: NULL was given in place of a table")

/* ---- rows ---- */

/* Finds the next non-empty line from *at on; false if there are no more. */
static bool next_line(char **at, char *end, char **line, char **line_end, int64_t *number)
{
    while (*at < end) {
        char *stop = memchr(*at, '\n', (size_t)(end - *at));
        *line = *at;
        *line_end = stop ? stop : end;
        *at = stop ? stop + 1 : end;
        ++*number;
        if (*line_end > *line && (*line_end)[-1] == '\r') --*line_end;
        if (*line_end > *line) return true;
    }
    return false;
}

/* Stops counting at MAX_CELLS + 1. */
static int count_cells(const char *line, const char *end, char separator)
{
    int n = 1;
    for (; line < end && n <= MAX_CELLS; line++) n += *line == separator;
    return n;
}

/* Splits a line with at least `columns` cells; the last cell takes the rest of the line. */
static void split(char **cell, int columns, char *line, char *end, char separator)
{
    for (int c = 0; c < columns; c++) {
        char *stop = c < columns - 1 ? memchr(line, separator, (size_t)(end - line)) : end;
        cell[c] = line;
        *stop = 0;
        line = stop + 1;
    }
}

static const char *separator_name(char separator, char buf[4])
{
    snprintf(buf, 4, "'%c'", separator);
    return separator == '\t' ? "tabs" : buf;
}

/* Counts rows and columns. */
static void measure(tp_table *X, const char *name, char *end, const tp_table_opts *o,
                    char separator)
{
    char own[4], *at = X->text, *line = NULL, *stop = NULL;
    int64_t number = 0;
    X->columns = o->columns;
    for (; next_line(&at, end, &line, &stop, &number); X->rows++) {
        const int n = count_cells(line, stop, separator);
        if (X->columns == 0) X->columns = n;
        if (n < X->columns || (n > X->columns && o->columns == 0))
            tp__fail(X, "table %.480s: line %lld has %d cell%s instead of %d, separated by %s",
                     name, (long long)number, n, n == 1 ? "" : "s", X->columns,
                     separator_name(separator, own));
        else if (X->columns > MAX_CELLS)
            tp__fail(X, "table %.480s: line %lld has more than %d cells", name, (long long)number,
                     MAX_CELLS);
        if (X->why[0]) return;
    }
    X->rows -= X->header;
    if (X->rows < 1) tp__fail(X, "table %.480s: has no rows", name);
}

static void fill(tp_table *X, const char *name, const char *bytes, size_t n, const tp_table_opts *o)
{
    const char separator = o->separator ? o->separator : '\t';
    char *line = NULL, *stop = NULL, reason[200];
    int64_t number = 0;
    if (o->columns < 0 || o->columns > MAX_CELLS) {
        tp__fail(X, "table %.480s: %d columns are out of range", name, o->columns);
        return;
    }
    if (!tp_skip_bom(&bytes, &n, reason, sizeof reason)) {
        tp__fail(X, "table %.480s %s", name, reason);
        return;
    }
    X->text = malloc(n + 1);
    X->header = o->header;
    if (X->text) {
        memcpy(X->text, bytes, n);
        measure(X, name, X->text + n, o, separator);
        if (X->why[0]) return;
        X->cell = calloc((size_t)(X->rows + X->header) * (size_t)X->columns, sizeof *X->cell);
        X->labels = calloc((size_t)X->columns, sizeof *X->labels);
    }
    if (!X->cell || !X->labels) {
        tp__fail(X, "table %.480s: out of memory for %zu bytes", name, n);
        return;
    }
    char **cell = X->cell, *at = X->text;
    for (; next_line(&at, X->text + n, &line, &stop, &number); cell += X->columns)
        split(cell, X->columns, line, stop, separator);
}

/* ---- labels ---- */

static int by_bytes(const void *a, const void *b)
{
    return strcmp(**(char **const *)a, **(char **const *)b);
}

/* Sorts the cells of a column by their bytes; equal cells get the same number. */
static bool number_cells(const tp_table *X, int column, labels *L)
{
    char ***order = malloc((size_t)X->rows * sizeof *order), **first = X->cell + column;
    if (X->header) first += X->columns;
    L->of = malloc((size_t)X->rows * sizeof *L->of);
    L->name = malloc((size_t)X->rows * sizeof *L->name);
    const bool done = order && L->of && L->name;
    for (int64_t i = 0; done && i < X->rows; i++) order[i] = first + i * X->columns;
    if (done) qsort(order, (size_t)X->rows, sizeof *order, by_bytes);
    for (int64_t i = 0; done && i < X->rows; i++) {
        if (i == 0 || strcmp(*order[i], *order[i - 1]) != 0) L->name[L->count++] = *order[i];
        L->of[(order[i] - first) / X->columns] = L->count - 1;
    }
    free(order);
    return done;
}

/* Numbers the column on the first call. NULL: X has failed. */
static const labels *labels_of(tp_table *X, int column)
{
    if (!tp_table_ok(X)) return NULL;
    labels *L = &X->labels[column];
    if (L->count || number_cells(X, column, L)) return L;
    tp__fail(X, "table: out of memory for the labels of %lld rows", (long long)X->rows);
    return NULL;
}

int tp_table_labels(tp_table *X, int column)
{
    if (!X) return 0;
    const labels *L = labels_of(X, column);
    return L ? L->count : 0;
}

int32_t tp_table_label(tp_table *X, int64_t row, int column)
{
    if (!X) return 0;
    const labels *L = labels_of(X, column);
    return L ? L->of[row] : 0;
}

const char *tp_table_label_name(tp_table *X, int column, int label)
{
    if (!X) return NULL;
    const labels *L = labels_of(X, column);
    return L ? L->name[label] : "";
}

/* ---- the object ---- */

tp_table *tp_table_open(const char *path, const tp_table_opts *o)
{
    static const tp_table_opts defaults = { 0 };
    tp_table *X = calloc(1, sizeof *X);
    tp_blob b;
    char why[TP_WHY / 2];
    if (!X) return &no_table;
    if (!o) o = &defaults;
    if (tp__blob_load(&b, path, o->limit > 0 ? (size_t)o->limit : 0, why, sizeof why))
        fill(X, path, (const char *)b.bytes, b.size, o);
    else
        tp__fail(X, "table %.480s: %s", path, why);
    tp__blob_free(&b);
    return X;
}

tp_table *tp_table_from(const char *bytes, size_t n, const tp_table_opts *o)
{
    if (!bytes) n = 0;
    static const tp_table_opts defaults = { 0 };
    tp_table *X = calloc(1, sizeof *X);
    if (!X) return &no_table;
    if (!o) o = &defaults;
    fill(X, "in memory", bytes, o->limit > 0 && n > (size_t)o->limit ? (size_t)o->limit : n, o);
    return X;
}

void tp_table_close(tp_table *X)
{
    if (!X || X == &no_table) return;
    for (int c = 0; X->labels && c < X->columns; c++) {
        free(X->labels[c].of);
        free(X->labels[c].name);
    }
    free(X->labels);
    free(X->cell);
    free(X->text);
    free(X);
}

int64_t tp_table_rows(const tp_table *X)
{
    if (!X) return 0;
    return tp_table_ok(X) ? X->rows : 0;
}
int tp_table_columns(const tp_table *X)
{
    return X ? X->columns : 0;
}

const char *tp_table_cell(const tp_table *X, int64_t row, int column)
{
    if (!X) return NULL;
    return tp_table_ok(X) ? X->cell[(row + X->header) * X->columns + column] : "";
}

const char *tp_table_heading(const tp_table *X, int column)
{
    if (!X) return NULL;
    return X->header && tp_table_ok(X) ? X->cell[column] : NULL;
}
