/* test_cuts.c - the block of values is cut without gaps, in order, and evenly among processes. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <tapegrad/tapegrad.h>

#include "train/peers/cuts.h"

enum { MOST_RANKS = 9 };

typedef struct set {
    tp_device *D;
    tp_params *P;
} set;

static set begin(void)
{
    set s = { .D = tp_device_open("cpu", NULL) };
    s.P = tp_params_new(s.D, NULL);
    return s;
}

static void end(set *s)
{
    cr_expect(tp_params_ok(s->P), "%s", tp_params_why(s->P));
    tp_params_free(s->P);
    tp_device_close(s->D);
}

static tp_tensor add(set *s, const char *name, int64_t n, int flags)
{
    return tp_param(s->P, name, TP_SHAPE(n), (tp_init){ TP_INIT_ZERO, 0, 0 }, flags);
}

/* Uneven sizes, an empty parameter, a table before the others, a tied name, a frozen parameter and
 * two buffers. */
enum { NUMEL = 20000 + 1 + 4096 + 4097 + 12307 + 10000 + 1002 };

static void declare(set *s)
{
    add(s, "table", 10000, TP_TABLE);
    const tp_tensor a = add(s, "a", 20000, 0);
    add(s, "one", 1, 0);
    add(s, "none", 0, 0);
    add(s, "state", 5000, TP_BUFFER);
    tp_buffer(s->P, "counts", TP_I32, TP_SHAPE(300), NULL);
    add(s, "block", 4096, 0);
    add(s, "more", 4097, 0);
    tp_tie(s->P, "tied", a);
    add(s, "frozen", 12307, TP_FROZEN);
    add(s, "last", 1002, 0);
    cr_assert(tp__params_complete(s->P), "%s", tp_params_why(s->P));
}

/* What holds for all cuts: they cover the block once, in order, in units. */
static void expect_cover(const set *s, const tp_cuts *c, bool whole)
{
    int64_t sum = 0, at = -1, next[16] = { 0 };
    int bucket = 0, owner = 0;
    cr_assert_not_null(c->at);
    for (int i = 0; i < c->n; i++) {
        const tp_cut *x = &c->at[i];
        const tp_entry *e = &s->P->entries[x->entry];
        const int64_t begins = (int64_t)(e->at / sizeof(float)) + x->first;
        cr_assert(tp__in_block(e), "'%s' has no place in the block", e->name);
        cr_expect_gt(begins, at);
        at = begins;
        cr_expect_gt(x->numel, 0);
        cr_expect_eq(x->first, next[x->entry], "'%s': a gap", e->name);
        next[x->entry] += x->numel;
        cr_expect_eq(x->first % TP_BLOCK, 0);
        cr_expect(!whole || x->numel == e->node->view.numel, "'%s' is cut", e->name);
        cr_expect(x->bucket == bucket || x->bucket == bucket + 1);
        if (x->bucket != bucket) owner = 0;
        cr_expect(whole || x->owner >= owner, "cut %d: owner %d after %d", i, x->owner, owner);
        cr_expect_lt(x->owner, c->ranks);
        bucket = x->bucket;
        owner = x->owner;
        sum += x->numel;
    }
    cr_expect_eq(sum, NUMEL);
    cr_expect_eq(c->buckets, bucket + 1);
}

static void expect_even(const tp_cuts *c)
{
    for (int b = 0; b < c->buckets; b++) {
        int64_t load[MOST_RANKS] = { 0 }, all = 0;
        for (int i = 0; i < c->n; i++)
            if (c->at[i].bucket == b) {
                load[c->at[i].owner] += c->at[i].numel;
                all += c->at[i].numel;
            }
        for (int k = 0; k < c->ranks; k++)
            cr_expect_lt(llabs((long long)(load[k] - all / c->ranks)), TP_BLOCK + 1,
                         "bucket %d of %lld: rank %d of %d has %lld", b, (long long)all, k,
                         c->ranks, (long long)load[k]);
    }
}

/* Buckets have at least `bytes`, and less than one unit more, but for the last one. */
static void expect_sizes(const tp_cuts *c, size_t bytes)
{
    int64_t of[64] = { 0 };
    cr_assert_leq(c->buckets, 64);
    for (int i = 0; i < c->n; i++) of[c->at[i].bucket] += c->at[i].numel;
    for (int b = 0; b < c->buckets; b++) {
        const size_t has = (size_t)of[b] * sizeof(float);
        cr_expect(has >= bytes || b == c->buckets - 1, "bucket %d: %zu bytes", b, has);
        cr_expect_lt(has, bytes + TP_BLOCK * sizeof(float));
    }
}

Test(cuts, cover_the_block_evenly)
{
    static const size_t sizes[] = { 1, 16384, 40000, 100000, 4 << 20 };
    set s = begin();
    declare(&s);
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            tp_cuts c = tp__cuts_new(s.P, ranks, sizes[k], false);
            expect_cover(&s, &c, false);
            expect_even(&c);
            expect_sizes(&c, sizes[k]);
            tp__cuts_free(&c);
            cr_expect_null(c.at);
            c = tp__cuts_new(s.P, ranks, sizes[k], true);
            expect_cover(&s, &c, true);
            tp__cuts_free(&c);
        }
    end(&s);
}

/* Neither the number of buckets nor where they begin depends on the number of processes. */
Test(cuts, buckets_are_those_of_any_number_of_processes)
{
    set s = begin();
    declare(&s);
    int64_t first[MOST_RANKS + 1][64] = { { 0 } };
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        tp_cuts c = tp__cuts_new(s.P, ranks, 30000, false);
        cr_assert_leq(c.buckets, 64);
        for (int i = 0; i < c.n; i++) first[ranks][c.at[i].bucket] += c.at[i].numel;
        cr_expect_arr_eq(first[ranks], first[1], sizeof first[1]);
        tp__cuts_free(&c);
    }
    end(&s);
}

/* Equal parameters, each larger than a bucket: all processes own as many. */
Test(cuts, whole_parameters_are_divided_over_the_block)
{
    set s = begin();
    char name[16];
    for (int i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "w%d", i);
        add(&s, name, 9000, 0);
    }
    cr_assert(tp__params_complete(s.P));
    for (int ranks = 1; ranks <= 4; ranks++) {
        tp_cuts c = tp__cuts_new(s.P, ranks, 4096, true);
        int owned[4] = { 0 };
        cr_expect_eq(c.n, 12);
        for (int i = 0; i < c.n; i++) owned[c.at[i].owner]++;
        for (int k = 0; k < ranks; k++) cr_expect_eq(owned[k], 12 / ranks, "rank %d", k);
        tp__cuts_free(&c);
    }
    end(&s);
}

Test(cuts, more_processes_than_blocks_own_nothing)
{
    set s = begin();
    add(&s, "small", 3, 0);
    cr_assert(tp__params_complete(s.P));
    tp_cuts c = tp__cuts_new(s.P, 8, 4 << 20, false);
    cr_expect_eq(c.n, 1);
    cr_expect_eq(c.buckets, 1);
    cr_expect_eq(c.at[0].numel, 3);
    tp__cuts_free(&c);
    end(&s);
}

Test(cuts, an_empty_block_has_none)
{
    set s = begin();
    add(&s, "state", 10, TP_BUFFER);
    cr_assert(tp__params_complete(s.P));
    tp_cuts c = tp__cuts_new(s.P, 2, 4 << 20, false);
    cr_expect_not_null(c.at);
    cr_expect_eq(c.n, 0);
    cr_expect_eq(c.buckets, 0);
    tp__cuts_free(&c);
    end(&s);
}
