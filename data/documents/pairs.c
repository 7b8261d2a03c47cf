/* pairs.c - pairs of papers (AAN) as bytes. Each line: a label, two names, two texts. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>

#include "documents.h"

enum { CELLS = 5, LONGEST = 4096, FIRST_CUT = 10000 };

/* The label 0 or 1, written as a number like "0.0"; -1: anything else. */
static int32_t label_of(const char *cell, size_t n)
{
    char text[16], *end;
    if (n == 0 || n >= sizeof text) return -1;
    memcpy(text, cell, n);
    text[n] = '\0';
    const double x = tp_number_read(text, &end);
    return *end == '\0' && (x == 0 || x == 1) ? (int32_t)x : -1;
}

static void add_line(tp_documents *X, const char *where, const tp_lines *L,
                     const tp_documents_opts *o)
{
    const char *at = L->at, *cell[CELLS];
    const int64_t longest = o->longest > 0 && o->longest < FIRST_CUT ? o->longest
                            : o->longest > 0                         ? FIRST_CUT
                                                                     : LONGEST;
    size_t n[CELLS];
    int cells = 0;
    while (cells < CELLS && tp__next_cell(L, &at, &cell[cells], &n[cells])) cells++;
    if (cells < CELLS || at) {
        tp__fail(X,
                 "%.600s: line %lld has %s than the five cells label, two names and "
                 "two texts%s",
                 where, (long long)L->number, at ? "more" : "fewer",
                 cells == 3 ? ": files with names alone need the texts of the corpus" : "");
        return;
    }
    const int32_t label = label_of(cell[0], n[0]);
    if (label < 0) {
        tp__fail(X, "%.600s: line %lld has the label '%.*s', not 0.0 or 1.0", where,
                 (long long)L->number, (int)(n[0] < 20 ? n[0] : 20), cell[0]);
        return;
    }
    for (int k = 0; k < 2; k++)
        tp__documents_text(X, k, (const uint8_t *)cell[3 + k], n[3 + k], longest, o);
    tp__documents_label(X, label);
}

static void read_table(tp_documents *X, const char *where, const char *bytes, size_t n, void *env)
{
    const tp_documents_opts *o = env;
    tp_lines L = { .next = bytes, .end = bytes + n };
    while (!X->why[0] && (o->limit <= 0 || X->count < o->limit) && tp__next_line(&L))
        add_line(X, where, &L, o);
    if (X->count == 0) tp__fail(X, "%.600s: has no pairs", where);
}

tp_documents *tp_documents_pairs(const char *path, tp_part part, const tp_documents_opts *o)
{
    if (!path) path = "";
    static const char *const names[] = { "new_aan_pairs.train.tsv", "new_aan_pairs.eval.tsv",
                                         "new_aan_pairs.test.tsv" };
    tp_documents_opts own = o ? *o : (tp_documents_opts){ 0 };
    tp_documents *X = tp_documents_new(2, 2);
    if (tp_documents_ok(X) && tp__documents_damage(X, part, &own))
        tp__table_visit(X, path, names[part], read_table, &own);
    return X;
}
