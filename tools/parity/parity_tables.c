/* parity_tables.c - reference cases that are tables: one case on each row. */
#include "parity_tables.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/listops.h>

void par_row_fails(par_rows *t, const char *fmt, ...)
{
    char text[800];
    va_list ap;
    if (t->failed) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    t->failed = true;
    snprintf(t->r->why, sizeof t->r->why, "row %lld: %s", (long long)t->row + 1, text);
}

static int column_of(const tp_table *X, const char *heading)
{
    for (int c = 0; c < tp_table_columns(X); c++)
        if (strcmp(tp_table_heading(X, c), heading) == 0) return c;
    return -1;
}

/* ---- expressions: Source, and any of Target, Tokens, Depth, Ids_keep, Ids_drop ---- */

static void expect_number(par_rows *t, const char *heading, int64_t ours)
{
    const int c = column_of(t->X, heading);
    const char *cell = c < 0 ? NULL : tp_table_cell(t->X, t->row, c);
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)ours);
    if (cell && strcmp(cell, text) != 0)
        par_row_fails(t, "%s is %s, not %.40s", heading, text, cell);
}

static void expect_ids(par_rows *t, const char *heading, const uint16_t *ids, int64_t n, bool keep)
{
    const int c = column_of(t->X, heading);
    if (c < 0) return;
    const char *at = tp_table_cell(t->X, t->row, c);
    for (int64_t i = 0; i < n; i++) {
        char *end;
        if (!keep && ids[i] == TP_LISTOPS_CLOSE) continue;
        const long wanted = strtol(at, &end, 10);
        if (end == at || wanted != ids[i]) {
            par_row_fails(t, "%s: token %lld is %d, not '%.10s'", heading, (long long)i + 1, ids[i],
                          at);
            return;
        }
        at = end;
    }
    if (at[strspn(at, " ")]) par_row_fails(t, "%s: there are more ids: '%.20s'", heading, at);
}

static void run_expression(par_rows *t)
{
    const char *text = tp_table_cell(t->X, t->row, column_of(t->X, "Source"));
    const size_t n = strlen(text);
    char why[256];
    tp_listops_value v;
    uint16_t *ids = malloc((n / 2 + 1) * sizeof *ids);
    const int64_t tokens = ids ? tp_listops_read(text, n, ids, why, sizeof why) : -1;
    if (!ids) {
        par_row_fails(t, "out of memory");
    } else if (tokens < 0 || !tp_listops_evaluate(ids, tokens, &v, why, sizeof why)) {
        par_row_fails(t, "%s", why);
    } else {
        expect_number(t, "Target", v.answer);
        expect_number(t, "Tokens", tokens);
        expect_number(t, "Depth", v.depth);
        expect_ids(t, "Ids_keep", ids, tokens, true);
        expect_ids(t, "Ids_drop", ids, tokens, false);
    }
    free(ids);
}

/* ---- damage: sample, document, a text, after insertion, after deletion, in hexadecimal ---- */

uint8_t *par_row_bytes(par_rows *t, int column, size_t *n)
{
    const char *hex = tp_table_cell(t->X, t->row, column);
    const size_t digits = strlen(hex);
    uint8_t *bytes = malloc(digits / 2 + 11);
    *n = digits / 2;
    for (size_t i = 0; bytes && i < *n; i++) {
        const char pair[] = { hex[2 * i], hex[2 * i + 1], '\0' };
        char *end;
        bytes[i] = (uint8_t)strtoul(pair, &end, 16);
        if (*end) par_row_fails(t, "'%s' is not a byte in hexadecimal", pair);
    }
    if (!bytes) par_row_fails(t, "out of memory");
    if (digits % 2) par_row_fails(t, "half a byte is missing in column %d", column + 1);
    return bytes;
}

static void expect_bytes(par_rows *t, int column, const uint8_t *ours, size_t n)
{
    size_t wanted;
    uint8_t *bytes = par_row_bytes(t, column, &wanted);
    const bool blank =
        n == 0 && wanted == 1 && bytes && bytes[0] == ' '; /* as readers replace it */
    if (bytes && !blank && (n != wanted || (n && memcmp(bytes, ours, n) != 0)))
        par_row_fails(t, "%s: %zu bytes differ from the %zu wanted", tp_table_heading(t->X, column),
                      n, wanted);
    free(bytes);
}

static void run_damage(par_rows *t)
{
    const long long sample = strtoll(tp_table_cell(t->X, t->row, 0), NULL, 10);
    const int document = (int)strtol(tp_table_cell(t->X, t->row, 1), NULL, 10);
    size_t n;
    uint8_t *text = par_row_bytes(t, 2, &n), *out = malloc(n + 10);
    if (text && out) {
        expect_bytes(t, 3, out, tp_insert_marks(text, n, sample, document, false, out));
        expect_bytes(t, 4, out, tp_delete_marks(text, n, out));
    } else {
        par_row_fails(t, "out of memory");
    }
    free(text);
    free(out);
}

/* ---- files ---- */

bool par_is_table(const char *path)
{
    const size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".tsv") == 0;
}

/* How to run a row; NULL: the columns are not those of a known kind of table. */
static void (*runner_of(const tp_table *X))(par_rows *)
{
    const char *first = tp_table_heading(X, 0);
    const int columns = tp_table_columns(X);
    if (column_of(X, "Source") >= 0 && columns >= 2) return run_expression;
    if (columns == 5 && strcmp(first, "#sample index") == 0) return run_damage;
    if (columns == 4 && strncmp(first, "#text as hex", 12) == 0) return par_run_text;
    if (columns == 3 && strcmp(first, "#class") == 0) return par_run_class;
    return NULL;
}

int par_run_rows(parity_result *r, const char *path, const parity_opts *o)
{
    *r = (parity_result){ 0 };
    par_rows t = { .r = r, .path = path, .vocab = o->vocab };
    t.X = tp_table_open(path, &(tp_table_opts){ .header = true });
    const bool ok = tp_table_ok(t.X);
    void (*run)(par_rows *) = ok ? runner_of(t.X) : NULL;
    if (!ok) snprintf(r->why, sizeof r->why, "%.900s", tp_table_why(t.X));
    if (ok && !run)
        snprintf(r->why, sizeof r->why, "the columns are not those of a known kind of table");
    for (; run && !r->why[0] && t.row < tp_table_rows(t.X); t.row++) run(&t);
    snprintf(r->worst_name, sizeof r->worst_name, "%lld rows", (long long)tp_table_rows(t.X));
    if (o->log) fprintf(o->log, "  %lld rows compared\n", (long long)t.row);
    par_end_texts(&t);
    tp_table_close(t.X);
    return r->why[0] ? 1 : 0;
}
