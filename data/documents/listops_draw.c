/* listops_draw.c - random expressions of ListOps.
 *
 * Every draw has its own stream, so one that becomes too long can be given up at once without
 * changing later ones. A 128-bit hash recognises repeated expressions. */
#include <stdio.h>
#include <stdlib.h>
#include <tapegrad/listops.h>

#include "documents.h"

enum { DEEPEST = 64, MOST_ARGS = 64, CUT = 2000, PATIENCE = 1000000 };

typedef struct draw {
    tp_random *r;
    int64_t longest, n; /* n: tokens so far */
    int depth, args;
    uint16_t *ids;
} draw;

static bool put(draw *d, int64_t id)
{
    if (d->n >= d->longest) return false;
    d->ids[d->n++] = (uint16_t)id;
    return true;
}

/* Insertion sort: there are six values on average. */
static void sort(int *value, int n)
{
    for (int i = 1; i < n; i++) {
        const int v = value[i];
        int k = i;
        for (; k > 0 && value[k - 1] > v; k--) value[k] = value[k - 1];
        value[k] = v;
    }
}

static int apply(int64_t op, int *value, int n)
{
    int sum = 0;
    sort(value, n);
    for (int i = 0; i < n; i++) sum += value[i];
    switch (op) {
    case 0: return value[0];
    case 1: return value[n - 1];
    case 2: return (value[(n - 1) / 2] + value[n / 2]) / 2;
    default: return sum % 10;
    }
}

/* Draws an expression and returns its value; -1: too long. Draws the operator after its arguments.
 * NOLINTNEXTLINE(misc-no-recursion): DEEPEST levels at most */
static int expression(draw *d, int depth)
{
    const double u = depth < d->depth ? tp_random_uniform(d->r) : 1;
    int value[MOST_ARGS];
    if (u > 0.25) {
        const int digit = (int)tp_random_below(d->r, 10);
        return put(d, TP_LISTOPS_DIGIT + digit) ? digit : -1;
    }
    const int n = 2 + (int)tp_random_below(d->r, d->args - 1);
    const int64_t at = d->n;
    if (!put(d, 0)) return -1;
    for (int i = 0; i < n; i++)
        if ((value[i] = expression(d, depth + 1)) < 0) return -1;
    const int64_t op = tp_random_below(d->r, 4);
    d->ids[at] = (uint16_t)(TP_LISTOPS_MIN + op);
    return put(d, TP_LISTOPS_CLOSE) ? apply(op, value, n) : -1;
}

static tp_listops_opts completed(const tp_listops_opts *given)
{
    tp_listops_opts o = given ? *given : (tp_listops_opts){ 0 };
    if (!o.shortest && !o.longest) o.shortest = 501;
    if (!o.longest) o.longest = 1999;
    if (!o.depth) o.depth = 10;
    if (!o.args) o.args = 10;
    if (!o.cut) o.cut = CUT;
    if (!o.train && !o.valid && !o.test) {
        o.train = 96000;
        o.valid = o.test = 2000;
    }
    return o;
}

int64_t tp_listops_draw(tp_random *r, const tp_listops_opts *given, uint16_t *ids, int *answer)
{
    if (!r) return 0;
    const tp_listops_opts o = completed(given);
    draw d = { .r = r, .longest = o.longest, .depth = o.depth, .args = o.args, .ids = ids };
    *answer = expression(&d, 1);
    return *answer < 0 ? -1 : d.n;
}

/* ---- sets ---- */

typedef struct seen {
    uint64_t (*at)[2]; /* [room]: open addressing; 0, 0: free */
    size_t room, used;
} seen;

static void fingerprint(const uint16_t *ids, int64_t n, uint64_t h[2])
{
    h[0] = TP_HASH;
    h[1] = 0x9e3779b97f4a7c15u;
    for (int64_t i = 0; i < n; i++) {
        h[0] = tp_hash(h[0], ids[i]);
        h[1] = (h[1] ^ (h[1] >> 29) ^ ids[i]) * 0xbf58476d1ce4e5b9u;
    }
    h[1] |= 1;
}

static size_t place_of(const seen *s, const uint64_t h[2])
{
    size_t i = (size_t)(h[0] ^ h[0] >> 32) & (s->room - 1);
    while (s->at[i][1] && (s->at[i][0] != h[0] || s->at[i][1] != h[1])) i = (i + 1) & (s->room - 1);
    return i;
}

static bool grow(seen *s)
{
    seen more = { .room = s->room ? 2 * s->room : 1024 };
    more.at = calloc(more.room, sizeof *more.at);
    if (!more.at) return false;
    for (size_t i = 0; i < s->room; i++) {
        if (!s->at[i][1]) continue;
        uint64_t *to = more.at[place_of(&more, s->at[i])];
        to[0] = s->at[i][0];
        to[1] = s->at[i][1];
    }
    more.used = s->used;
    free(s->at);
    *s = more;
    return true;
}

/* Returns 1 for a new expression, now known; 0: known before; -1: out of memory. */
static int note(seen *s, const uint16_t *ids, int64_t n)
{
    uint64_t h[2];
    if (2 * s->used >= s->room && !grow(s)) return -1;
    fingerprint(ids, n, h);
    uint64_t *at = s->at[place_of(s, h)];
    if (at[1]) return 0;
    at[0] = h[0];
    at[1] = h[1];
    s->used++;
    return 1;
}

static bool possible(tp_documents *X, const tp_listops_opts *o)
{
    enum { LONGEST = 1 << 24 };
    if (o->shortest < 0 || o->longest < o->shortest || o->longest > LONGEST)
        return tp__fail(X, "listops: lengths of %lld to %lld are not in 1 to %d",
                        (long long)o->shortest, (long long)o->longest, LONGEST);
    if (o->depth < 1 || o->depth > DEEPEST || o->args < 2 || o->args > MOST_ARGS)
        return tp__fail(X, "listops: depth %d is not 1 to %d, or args %d not 2 to %d", o->depth,
                        DEEPEST, o->args, MOST_ARGS);
    if (o->train < 0 || o->valid < 0 || o->test < 0 || o->cut < 1)
        return tp__fail(X, "listops: a number of expressions or a cut is negative");
    return true;
}

static void keep(tp_documents *X, const tp_listops_opts *o, const uint16_t *ids, int64_t n,
                 int answer)
{
    uint16_t *to = tp__documents_room(X, n < o->cut ? n : o->cut);
    int64_t kept = 0;
    for (int64_t i = 0; to && i < n && kept < o->cut; i++)
        if (o->brackets == TP_BRACKETS_KEEP || ids[i] != TP_LISTOPS_CLOSE) to[kept++] = ids[i];
    if (to && tp__documents_end(X, kept)) tp__documents_label(X, answer);
}

static void draw_part(tp_documents *X, tp_part part, const tp_listops_opts *o, uint16_t *ids,
                      seen *s)
{
    const int64_t first = part == TP_TRAIN ? 0 : o->train + (part == TP_TEST ? o->valid : 0);
    const int64_t count = part == TP_TRAIN ? o->train : part == TP_VALID ? o->valid : o->test;
    int64_t found = 0, idle = 0;
    for (uint64_t i = 0; !X->why[0] && found < first + count; i++) {
        tp_random r = tp_random_stream(o->seed, "listops", i, 0);
        int answer;
        const int64_t n = tp_listops_draw(&r, o, ids, &answer);
        const int fresh = n >= o->shortest && n > 0 ? note(s, ids, n) : 0;
        idle = fresh ? 0 : idle + 1;
        if (fresh < 0)
            tp__fail(X, "listops: out of memory after %lld expressions", (long long)found);
        else if (idle == PATIENCE)
            tp__fail(X,
                     "listops: %d draws after %lld expressions gave no new one of %lld "
                     "to %lld tokens; ask for fewer, or for a wider range of lengths",
                     PATIENCE, (long long)found, (long long)o->shortest, (long long)o->longest);
        if (fresh == 1 && found++ >= first) keep(X, o, ids, n, answer);
    }
}

tp_documents *tp_documents_listops_drawn(tp_part part, const tp_listops_opts *given)
{
    const tp_listops_opts o = completed(given);
    tp_documents *X = tp_documents_new(1, 10);
    seen s = { 0 };
    if (!tp_documents_ok(X) || !possible(X, &o)) return X;
    uint16_t *ids = malloc((size_t)o.longest * sizeof *ids + 1);
    if (ids)
        draw_part(X, part, &o, ids, &s);
    else
        tp__fail(X, "listops: out of memory for %lld tokens", (long long)o.longest);
    free(ids);
    free(s.at);
    return X;
}
