/* parity_tables.c - reference cases that are tables (.tsv), a case on each row: expressions of
 * ListOps, damaged texts, texts with the ids of a vocabulary, classes of characters. The vocabulary
 * is in the folder of the table unless --vocab names another. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/bpe.h>
#include <tapegrad/data.h>
#include <tapegrad/listops.h>

#include "parity_case.h"

/* A table while it runs. */
typedef struct rows {
    parity_result *r;
    const char *path, *vocab;
    tp_table *X;
    int64_t row;
    bool failed;
    tp_bpe *words; /* texts: the vocabulary, opened for the first row */
    tp_bpe_coder *coder;
    uint8_t *classes; /* by character */
} rows;

/* Notes why a row fails; only the first reason counts. */
static void TP_PRINTF(2, 3) row_fails(rows *t, const char *fmt, ...)
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

static void expect_number(rows *t, const char *heading, int64_t ours)
{
    const int c = column_of(t->X, heading);
    const char *cell = c < 0 ? NULL : tp_table_cell(t->X, t->row, c);
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)ours);
    if (cell && strcmp(cell, text) != 0) row_fails(t, "%s is %s, not %.40s", heading, text, cell);
}

static void expect_ids(rows *t, const char *heading, const uint16_t *ids, int64_t n, bool keep)
{
    const int c = column_of(t->X, heading);
    if (c < 0) return;
    const char *at = tp_table_cell(t->X, t->row, c);
    for (int64_t i = 0; i < n; i++) {
        char *end;
        if (!keep && ids[i] == TP_LISTOPS_CLOSE) continue;
        const long wanted = strtol(at, &end, 10);
        if (end == at || wanted != ids[i]) {
            row_fails(t, "%s: token %lld is %d, not '%.10s'", heading, (long long)i + 1, ids[i],
                      at);
            return;
        }
        at = end;
    }
    if (at[strspn(at, " ")]) row_fails(t, "%s: there are more ids: '%.20s'", heading, at);
}

static void run_expression(rows *t)
{
    const char *text = tp_table_cell(t->X, t->row, column_of(t->X, "Source"));
    const size_t n = strlen(text);
    char why[256];
    tp_listops_value v;
    uint16_t *ids = malloc((n / 2 + 1) * sizeof *ids);
    const int64_t tokens = ids ? tp_listops_read(text, n, ids, why, sizeof why) : -1;
    if (!ids) {
        row_fails(t, "out of memory");
    } else if (tokens < 0 || !tp_listops_evaluate(ids, tokens, &v, why, sizeof why)) {
        row_fails(t, "%s", why);
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

/* The bytes of a hexadecimal cell, to be freed, with room for ten more; NULL: t has failed. */
static uint8_t *row_bytes(rows *t, int column, size_t *n)
{
    const char *hex = tp_table_cell(t->X, t->row, column);
    const size_t digits = strlen(hex);
    uint8_t *bytes = malloc(digits / 2 + 11);
    *n = digits / 2;
    for (size_t i = 0; bytes && i < *n; i++) {
        const char pair[] = { hex[2 * i], hex[2 * i + 1], '\0' };
        char *end;
        bytes[i] = (uint8_t)strtoul(pair, &end, 16);
        if (*end) row_fails(t, "'%s' is not a byte in hexadecimal", pair);
    }
    if (!bytes) row_fails(t, "out of memory");
    if (digits % 2) row_fails(t, "half a byte is missing in column %d", column + 1);
    return bytes;
}

static void expect_bytes(rows *t, int column, const uint8_t *ours, size_t n)
{
    size_t wanted;
    uint8_t *bytes = row_bytes(t, column, &wanted);
    const bool blank =
        n == 0 && wanted == 1 && bytes && bytes[0] == ' '; /* as readers replace it */
    if (bytes && !blank && (n != wanted || (n && memcmp(bytes, ours, n) != 0)))
        row_fails(t, "%s: %zu bytes differ from the %zu wanted", tp_table_heading(t->X, column), n,
                  wanted);
    free(bytes);
}

static void run_damage(rows *t)
{
    const long long sample = strtoll(tp_table_cell(t->X, t->row, 0), NULL, 10);
    const int document = (int)strtol(tp_table_cell(t->X, t->row, 1), NULL, 10);
    size_t n;
    uint8_t *text = row_bytes(t, 2, &n), *out = malloc(n + 10);
    if (text && out) {
        expect_bytes(t, 3, out, tp_insert_marks(text, n, sample, document, false, out));
        expect_bytes(t, 4, out, tp_delete_marks(text, n, out));
    } else {
        row_fails(t, "out of memory");
    }
    free(text);
    free(out);
}

/* ---- texts: in hexadecimal, number of ids, ids, as JSON. Encodes, compares, and decodes. ---- */

enum { CHARACTERS = 0x110000 };

static void open_vocabulary(rows *t)
{
    char folder[1200] = ".";
    const char *slash = strrchr(t->path, '/');
    if (slash) snprintf(folder, sizeof folder, "%.*s", (int)(slash - t->path), t->path);
    t->words = tp_bpe_open(t->vocab ? t->vocab : folder);
    t->coder = tp_bpe_coder_new(t->words);
    if (!tp_bpe_ok(t->words)) row_fails(t, "%s", tp_bpe_why(t->words));
    if (!t->coder) row_fails(t, "out of memory");
}

static void expect_text_ids(rows *t, const int32_t *ids, int64_t n)
{
    const char *at = tp_table_cell(t->X, t->row, 2);
    const long long wanted = strtoll(tp_table_cell(t->X, t->row, 1), NULL, 10);
    if (n != wanted) row_fails(t, "%lld ids, not %lld", (long long)n, wanted);
    for (int64_t i = 0; i < n && !t->failed; i++) {
        char *end;
        const long id = strtol(at, &end, 10);
        if (end == at || id != ids[i])
            row_fails(t, "id %lld is %d, not '%.10s'", (long long)i + 1, ids[i], at);
        at = end;
    }
    if (!t->failed && at[strspn(at, " ")]) row_fails(t, "there are more ids: '%.20s'", at);
}

static void run_text(rows *t)
{
    size_t n, bytes;
    int64_t count;
    if (!t->words) open_vocabulary(t);
    char *text = t->failed ? NULL : (char *)row_bytes(t, 0, &n);
    const int32_t *ids = text ? tp_bpe_encode(t->coder, text, n, &count) : NULL;
    if (!ids) {
        row_fails(t, "the text cannot be encoded");
    } else {
        expect_text_ids(t, ids, count);
        const char *back = tp_bpe_decode(t->coder, ids, count, 0, &bytes);
        if (!back || bytes != n || memcmp(back, text, n) != 0)
            row_fails(t, "decoding gives '%.200s'", back ? back : "nothing");
    }
    free(text);
}

/* ---- classes: L, N or S, first and last character. The last row compares all characters. ---- */

static bool count_words(void *env, const char *at, size_t length)
{
    (void)at;
    (void)length;
    ++*(int *)env;
    return true;
}

/* Do the letter `first` and a character make one word? */
static bool joins(char first, const char *character, size_t n)
{
    char text[8] = { first };
    int words = 0;
    memcpy(text + 1, character, n);
    tp_bpe_words(text, n + 1, count_words, &words);
    return words == 1;
}

/* 'L', 'N', 'S' or 0, as the words of texts show it. */
static char class_of(uint32_t c)
{
    const int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    const uint8_t lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    char text[4];
    for (int i = n - 1; i > 0; i--, c >>= 6) text[i] = (char)(0x80 | (c & 0x3f));
    text[0] = (char)(lead[n] | c);
    return joins('a', text, (size_t)n)   ? 'L'
           : joins('1', text, (size_t)n) ? 'N'
           : joins('!', text, (size_t)n) ? 0
                                         : 'S';
}

static void run_class(rows *t)
{
    const char *class = tp_table_cell(t->X, t->row, 0);
    const unsigned long first = strtoul(tp_table_cell(t->X, t->row, 1), NULL, 16),
                        last = strtoul(tp_table_cell(t->X, t->row, 2), NULL, 16);
    if (!t->classes && !(t->classes = calloc(CHARACTERS, 1))) {
        row_fails(t, "out of memory");
        return;
    }
    if (!strchr("LNS", *class) || first > last || last >= CHARACTERS) {
        row_fails(t, "%.20s %lx-%lx is not a class with a range", class, first, last);
        return;
    }
    memset(t->classes + first, *class, last - first + 1);
    if (t->row + 1 < tp_table_rows(t->X)) return;
    for (uint32_t c = 0; c < CHARACTERS; c++)
        if ((c < 0xd800 || c >= 0xe000) && class_of(c) != (char)t->classes[c])
            row_fails(t, "the class of U+%04X is '%c', not '%c'", c, class_of(c), t->classes[c]);
}

static void end_texts(rows *t)
{
    tp_bpe_coder_free(t->coder);
    tp_bpe_close(t->words);
    free(t->classes);
}

/* ---- files ---- */

bool par_is_table(const char *path)
{
    const size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".tsv") == 0;
}

/* How to run a row; NULL: the columns are not those of a known kind of table. */
static void (*runner_of(const tp_table *X))(rows *)
{
    const char *first = tp_table_heading(X, 0);
    const int columns = tp_table_columns(X);
    if (column_of(X, "Source") >= 0 && columns >= 2) return run_expression;
    if (columns == 5 && strcmp(first, "#sample index") == 0) return run_damage;
    if (columns == 4 && strncmp(first, "#text as hex", 12) == 0) return run_text;
    if (columns == 3 && strcmp(first, "#class") == 0) return run_class;
    return NULL;
}

int par_run_rows(parity_result *r, const char *path, const parity_opts *o)
{
    *r = (parity_result){ 0 };
    rows t = { .r = r, .path = path, .vocab = o->vocab };
    t.X = tp_table_open(path, &(tp_table_opts){ .header = true });
    const bool ok = tp_table_ok(t.X);
    void (*run)(rows *) = ok ? runner_of(t.X) : NULL;
    if (!ok) snprintf(r->why, sizeof r->why, "%.900s", tp_table_why(t.X));
    if (ok && !run)
        snprintf(r->why, sizeof r->why, "the columns are not those of a known kind of table");
    for (; run && !r->why[0] && t.row < tp_table_rows(t.X); t.row++) run(&t);
    snprintf(r->worst_name, sizeof r->worst_name, "%lld rows", (long long)tp_table_rows(t.X));
    if (o->log) fprintf(o->log, "  %lld rows compared\n", (long long)t.row);
    end_texts(&t);
    tp_table_close(t.X);
    return r->why[0] ? 1 : 0;
}
