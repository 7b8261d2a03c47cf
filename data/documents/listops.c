/* listops.c - expressions of ListOps: their tokens, values and files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/listops.h>

#include "documents.h"

static const char *const operators[] = { "[MIN", "[MAX", "[MED", "[SM" };

/* Returns the id of a word of n bytes, or 0. */
static uint16_t id_of(const char *word, size_t n)
{
    if (n == 1 && word[0] >= '0' && word[0] <= '9')
        return (uint16_t)(TP_LISTOPS_DIGIT + word[0] - '0');
    if (n == 1 && word[0] == ']') return TP_LISTOPS_CLOSE;
    for (int k = 0; k < 4; k++)
        if (strlen(operators[k]) == n && memcmp(operators[k], word, n) == 0)
            return (uint16_t)(TP_LISTOPS_MIN + k);
    return 0;
}

static bool separates(char c)
{
    return c == ' ' || c == '(' || c == ')';
}

int64_t tp_listops_read(const char *text, size_t n, uint16_t *ids, char *why, size_t size)
{
    if (!text) {
        if (why) snprintf(why, size, "listops_read: NULL was given in place of a text");
        return 0;
    }
    int64_t count = 0;
    for (size_t i = 0; i < n;) {
        if (separates(text[i])) {
            i++;
            continue;
        }
        size_t k = i;
        while (k < n && !separates(text[k])) k++;
        const uint16_t id = id_of(text + i, k - i);
        if (!id) {
            snprintf(why, size,
                     "'%.*s' at byte %zu is not a token (0 to 9, [MIN, [MAX, [MED, [SM, ])",
                     (int)(k - i < 20 ? k - i : 20), text + i, i + 1);
            return -1;
        }
        ids[count++] = id;
        i = k;
    }
    return count;
}

/* ---- values ---- */

/* Applies an operator; times[v] counts its arguments with value v. */
static int8_t apply(int op, const int64_t times[10], int64_t n)
{
    int64_t sum = 0, below = 0;
    int least = 9, most = 0, middle[2] = { 0, 0 };
    for (int v = 0; v < 10; v++) {
        if (!times[v]) continue;
        if (v < least) least = v;
        if (v > most) most = v;
        sum += v * times[v];
        for (int k = 0; k < 2; k++) /* the middle two positions; the same if n is odd */
            if (below <= (n - 1 + k) / 2 && (n - 1 + k) / 2 < below + times[v]) middle[k] = v;
        below += times[v];
    }
    switch (op) {
    case TP_LISTOPS_MIN: return (int8_t)least;
    case TP_LISTOPS_MAX: return (int8_t)most;
    case TP_LISTOPS_MED: return (int8_t)((middle[0] + middle[1]) / 2);
    default: return (int8_t)(sum % 10);
    }
}

/* Replaces the topmost operator of the stack and its arguments with their value. False without an
 * operator or an argument. */
static bool reduce(int8_t *stack, int64_t *top)
{
    int64_t times[10] = { 0 }, n = 0;
    int64_t at = *top;
    for (; at > 0 && stack[at - 1] >= 0; n++) times[stack[--at]]++;
    if (at == 0 || n == 0) return false;
    stack[at - 1] = apply(-stack[at - 1], times, n);
    *top = at;
    return true;
}

bool tp_listops_evaluate(const uint16_t *ids, int64_t n, tp_listops_value *value, char *why,
                         size_t size)
{
    if (!ids) {
        if (why) snprintf(why, size, "listops_evaluate: NULL was given in place of tokens");
        return false;
    }
    const char *wrong = NULL;
    int64_t top = 0, i = 0;
    int depth = 0;
    int8_t *stack = n > 0 ? malloc((size_t)n) : NULL; /* values; operators are negative */
    *value = (tp_listops_value){ 0 };
    if (n > 0 && !stack) wrong = "out of memory";
    for (; !wrong && i < n; i++) {
        const int id = ids[i];
        if (i > 0 && depth == 0) {
            wrong = "the expression has ended before";
        } else if (id >= TP_LISTOPS_MIN && id <= TP_LISTOPS_SM) {
            stack[top++] = (int8_t)-id;
            if (++depth > value->depth) value->depth = depth;
        } else if (id >= TP_LISTOPS_DIGIT && id < TP_LISTOPS_MIN) {
            stack[top++] = (int8_t)(id - TP_LISTOPS_DIGIT);
        } else if (id != TP_LISTOPS_CLOSE) {
            wrong = "this is not a token";
        } else if (!reduce(stack, &top)) {
            wrong = "a bracket closes nothing, or an operator without arguments";
        } else {
            depth--;
        }
    }
    if (wrong)
        snprintf(why, size, "token %lld: %s", (long long)i, wrong);
    else if (n < 1 || depth)
        snprintf(why, size, n < 1 ? "there are no tokens" : "%d brackets are not closed", depth);
    else
        value->answer = (uint8_t)stack[0];
    free(stack);
    return !wrong && n > 0 && !depth;
}

/* ---- files: an expression and its answer on each line ---- */

enum { LONGEST = 2000, WHY = 256 };

typedef struct reader {
    const tp_documents_opts *o;
    uint16_t *ids; /* of a line */
    size_t room;
} reader;

/* Adds the ids that the model sees: cut, and without brackets unless they are kept. */
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

/* Reads the line into r->ids and checks it; false with the reason in why. */
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
    if (!tp_reserve(&r->ids, &r->room, 0, sources / 2 + 1, sizeof *r->ids)) {
        snprintf(why, WHY, "out of memory for %zu bytes", sources);
        return false;
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
        tp__fail(X, "%.600s: the first line is not 'Source', a tab and 'Target'", where);
        return;
    }
    while (!X->why[0] && (r->o->limit <= 0 || X->count < r->o->limit) && tp__next_line(&L)) {
        int64_t length;
        int answer;
        if (!read_line(r, &L, &length, &answer, why))
            tp__fail(X, "%.600s: line %lld: %s", where, (long long)L.number, why);
        else
            add(X, r->ids, length, r->o, answer);
    }
    if (X->count == 0) tp__fail(X, "%.600s: has no expressions", where);
}

tp_documents *tp_documents_listops(const char *path, tp_part part, const tp_documents_opts *o)
{
    if (!path) path = "";
    static const tp_documents_opts defaults = { 0 };
    static const char *const names[] = { "basic_train.tsv", "basic_val.tsv", "basic_test.tsv" };
    reader r = { .o = o ? o : &defaults };
    tp_documents *X = tp_documents_new(1, 10);
    if (r.o->damage != TP_DAMAGE_NONE) tp__fail(X, "documents: expressions cannot be damaged");
    if (tp_documents_ok(X)) tp__table_visit(X, path, names[part], read_table, &r);
    free(r.ids);
    return X;
}
