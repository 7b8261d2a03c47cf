/* listops_file.c - the files of ListOps: an expression and its answer on each line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/listops.h>

#include "tables.h"

enum { LONGEST = 2000, WHY = 256 };

typedef struct reader {
    const tp_documents_opts *o;
    uint16_t *ids; /* of a line */
    size_t room;
} reader;

/* Writes the ids that the model sees to the set: without brackets, unless they are kept, and cut. */
static bool add(tp_documents *X, const uint16_t *ids, int64_t n, const tp_documents_opts *o,
                int answer)
{
    const int64_t longest = o->longest > 0 ? o->longest : LONGEST;
    uint16_t *to = tp__documents_room(X, n < longest ? n : longest);
    int64_t kept = 0;
    for (int64_t i = 0; to && i < n && kept < longest; i++)
        if (o->brackets == TP_BRACKETS_KEEP || ids[i] != TP_LISTOPS_CLOSE) to[kept++] = ids[i];
    return to && tp__documents_end(X, kept) && tp__documents_label(X, answer);
}

/* Reads the line into r->ids, and checks it; false with the reason in why. */
static bool read_line(reader *r, const tp_lines *L, int64_t *n, int *answer, char why[WHY])
{
    const char *at = L->at, *source, *target = NULL;
    size_t sources, targets = 0;
    tp_listops_value value;
    tp__next_cell(L, &at, &source, &sources);
    if (!tp__next_cell(L, &at, &target, &targets) || targets != 1 || *target < '0' ||
        *target > '9') {
        snprintf(why, WHY, "has no answer from 0 to 9 in its second cell, after a tab");
        return false;
    }
    *answer = *target - '0';
    if (sources / 2 + 1 > r->room) {
        uint16_t *more = realloc(r->ids, (sources + 1) * sizeof *more);
        if (!more) {
            snprintf(why, WHY, "out of memory for %zu bytes", sources);
            return false;
        }
        r->ids = more;
        r->room = sources + 1;
    }
    *n = tp_listops_read(source, sources, r->ids, why, WHY);
    if (*n < 0) return false;
    if (*n == 0) snprintf(why, WHY, "has no expression");
    if (*n == 0 || r->o->unchecked) return *n > 0;
    if (!tp_listops_evaluate(r->ids, *n, &value, why, WHY)) return false;
    if (value.answer == *answer) return true;
    snprintf(why, WHY, "says that the answer is %d, but it is %d", *answer, value.answer);
    return false;
}

static void read_table(tp_documents *X, const char *where, const char *bytes, size_t n, void *env)
{
    static const char heading[] = "Source\tTarget";
    reader *r = env;
    char why[WHY];
    tp_lines L = { .next = bytes, .end = bytes + n };
    if (!tp__next_line(&L) || L.n < sizeof heading - 1 ||
        memcmp(L.at, heading, sizeof heading - 1) != 0) {
        tp__documents_fail(X, "%.600s: the first line is not 'Source', a tab and 'Target'", where);
        return;
    }
    while (!X->why[0] && (r->o->limit <= 0 || X->count < r->o->limit) && tp__next_line(&L)) {
        int64_t length;
        int answer;
        if (!read_line(r, &L, &length, &answer, why))
            tp__documents_fail(X, "%.600s: line %lld: %s", where, (long long)L.number, why);
        else
            add(X, r->ids, length, r->o, answer);
    }
    if (X->count == 0) tp__documents_fail(X, "%.600s: has no expressions", where);
}

tp_documents *tp_documents_listops(const char *path, tp_part part, const tp_documents_opts *o)
{
    if (!path) path = "";
    static const tp_documents_opts defaults = { 0 };
    static const char *const names[] = { "basic_train.tsv", "basic_val.tsv", "basic_test.tsv" };
    reader r = { .o = o ? o : &defaults };
    tp_documents *X = tp_documents_new(1, 10);
    if (r.o->damage != TP_DAMAGE_NONE)
        tp__documents_fail(X, "documents: expressions cannot be damaged");
    if (tp_documents_ok(X)) tp__table_visit(X, path, names[part], read_table, &r);
    free(r.ids);
    return X;
}
