/* test_sampler.c - orders other than the shuffle: their frequencies, epochs, resuming, messages. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <tapegrad/dataset.h>

enum { COUNT = 30, BATCH = 4, MOST = 4000 };

/* Examples from `*env` on are bad; NULL: none is. */
static tp_example_state make(void *env, const tp_loader_example *e, void *const value[], char *why)
{
    (void)why;
    if (env && e->number >= *(const int *)env) return TP_EXAMPLE_BAD;
    *(float *)value[0] = (float)e->number;
    return TP_EXAMPLE_MADE;
}

static tp_loader *loader_of(const int *good, const tp_example_sampler *s, tp_loader_opts o)
{
    static const tp_column column = { TP_F32, { 0, { 0 } } };
    const tp_example_source source = { .count = COUNT,
                                       .columns = 1,
                                       .column = &column,
                                       .make = make,
                                       .env = (void *)(uintptr_t)good };
    o.sampler = s;
    if (o.batch == 0) o.batch = BATCH;
    return tp_example_loader_new(&source, &o);
}

static tp_loader *loader(const tp_example_sampler *s, tp_loader_opts o)
{
    return loader_of(NULL, s, o);
}

/* Reads n examples; returns how many came. */
static int64_t read(tp_loader *L, int64_t n, int64_t *number)
{
    tp_example_batch b;
    int64_t done = 0;
    while (done < n && tp_example_loader_next(L, &b))
        for (int64_t i = 0; i < b.n && done < n; i++) number[done++] = b.index[i];
    return done;
}

static double weights[COUNT];
static int32_t labels[COUNT];

static void fill(void)
{
    for (int i = 0; i < COUNT; i++) {
        weights[i] = i % 5 == 0 ? 0 : i % 5;
        labels[i] = i == 7 ? -1 : i < 20 ? 0 : i < 28 ? 1 : 3; /* class 2 is empty */
    }
}

/* All numbers of each order come from the seed, the epoch and the place. */
static void expect_resumable(const tp_example_sampler *s, int64_t length, const char *name)
{
    enum { N = 3 * 60 };
    static int64_t whole[N], rest[N];
    const int64_t steps = length / BATCH, skip = steps + 1; /* into the second epoch */
    tp_loader *L = loader(s, (tp_loader_opts){ .train = true, .seed = 3 });
    cr_assert_eq(tp_loader_steps(L), steps, "%s: %s", name, tp_loader_why(L));
    cr_expect_eq(read(L, 2 * steps * BATCH, whole), 2 * steps * BATCH);
    cr_expect(memcmp(whole, whole + steps * BATCH, (size_t)(steps * BATCH) * sizeof *whole) != 0,
              "%s: epochs differ", name);
    for (int threads = 0; threads < 3; threads += 2) {
        const tp_loader_opts o = { .train = true, .seed = 3, .threads = threads };
        tp_loader *again = loader(s, o);
        tp_loader_seek(again, 1, 1);
        const int64_t n = read(again, (steps - 1) * BATCH, rest);
        cr_expect_arr_eq(rest, whole + skip * BATCH, (size_t)n * sizeof *rest, "%s", name);
        tp_loader_free(again);
    }
    tp_loader_free(L);
}

Test(sampler, orders_follow_from_seed_and_epoch)
{
    fill();
    int64_t number[20];
    for (int i = 0; i < 20; i++) number[i] = i;
    const tp_weighted again = { .weight = weights }, once = { .weight = weights, .once = true };
    const tp_balanced balanced = { .label = labels, .classes = 4 };
    const tp_listed listed = { number, 20 };
    expect_resumable(&(tp_example_sampler){ tp_order_weighted, &again, 60 }, 60, "weighted");
    expect_resumable(&(tp_example_sampler){ tp_order_weighted, &once, 20 }, 20, "once");
    expect_resumable(&(tp_example_sampler){ tp_order_balanced, &balanced, 0 }, COUNT, "balanced");
    expect_resumable(&(tp_example_sampler){ tp_order_listed, &listed, 20 }, 20, "listed");
}

Test(sampler, weights_are_probabilities)
{
    static int64_t number[MOST];
    double seen[COUNT] = { 0 };
    fill();
    const tp_weighted by = { .weight = weights };
    const tp_example_sampler s = { tp_order_weighted, &by, MOST };
    tp_loader *L = loader(&s, (tp_loader_opts){ .train = true });
    cr_assert_eq(read(L, MOST, number), MOST, "%s", tp_loader_why(L));
    for (int i = 0; i < MOST; i++) seen[number[i]]++;
    for (int i = 0; i < COUNT; i++) {
        const double p = weights[i] / 60.0; /* 6 times 0 + 1 + 2 + 3 + 4 */
        cr_expect(fabs(seen[i] - MOST * p) <= 5 * sqrt(MOST * p), "%d: %g of %g", i, seen[i],
                  MOST * p);
    }
    tp_loader_free(L);
}

/* Without replacement each comes once; heavier ones come first more often. */
Test(sampler, once_draws_from_those_that_are_left)
{
    enum { EPOCHS = 1500 };
    static int64_t number[EPOCHS * 24];
    double first[COUNT] = { 0 };
    fill();
    const tp_weighted by = { .weight = weights, .once = true };
    const tp_example_sampler s = { tp_order_weighted, &by, 24 };
    tp_loader *L = loader(&s, (tp_loader_opts){ .train = true });
    cr_assert_eq(read(L, EPOCHS * 24, number), EPOCHS * 24, "%s", tp_loader_why(L));
    for (int e = 0; e < EPOCHS; e++) {
        bool have[COUNT] = { false };
        first[number[e * 24]]++;
        for (int i = 0; i < 24; i++) {
            const int64_t k = number[e * 24 + i];
            cr_assert(!have[k] && weights[k] > 0, "epoch %d: %d", e, (int)k);
            have[k] = true;
        }
    }
    for (int i = 0; i < COUNT; i++) {
        const double p = weights[i] / 60.0;
        cr_expect(fabs(first[i] - EPOCHS * p) <= 5 * sqrt(EPOCHS * p), "%d: %g of %g", i, first[i],
                  EPOCHS * p);
    }
    tp_loader_free(L);
}

/* Classes of 19, 8 and 2 examples give 20 each of 60; of a class all come before one again. */
Test(sampler, classes_come_equally_often)
{
    int64_t number[60];
    int seen[COUNT] = { 0 }, of[4] = { 0 };
    fill();
    const tp_balanced by = { .label = labels, .classes = 4 };
    const tp_example_sampler s = { tp_order_balanced, &by, 60 };
    tp_loader *L = loader(&s, (tp_loader_opts){ .train = true });
    cr_assert_eq(read(L, 60, number), 60, "%s", tp_loader_why(L));
    for (int i = 0; i < 60; i++) {
        cr_assert_geq(labels[number[i]], 0);
        seen[number[i]]++;
        of[labels[number[i]]]++;
    }
    cr_expect(of[0] == 20 && of[1] == 20 && of[2] == 0 && of[3] == 20);
    for (int i = 0; i < COUNT; i++) {
        const int turns = labels[i] < 0 ? 0 : labels[i] == 0 ? 1 : labels[i] == 1 ? 2 : 10;
        cr_expect(seen[i] >= turns && seen[i] <= turns + (turns > 0 && turns < 10), "%d: %d", i,
                  seen[i]);
    }
    tp_loader_free(L);
}

Test(sampler, a_fold_of_a_split)
{
    int64_t part[2][COUNT], got[2][COUNT], n[2];
    bool seen[COUNT] = { false };
    char why[200] = "";
    const tp_split_opts o = { .seed = 10, .folds = 4, .fold = 2 };
    for (int i = 0; i < 2; i++) {
        n[i] = tp_split_numbers(COUNT, i ? TP_VALID : TP_TRAIN, &o, part[i], why, sizeof why);
        cr_assert(n[i] > 0, "%s", why);
        const tp_listed list = { part[i], n[i] };
        const tp_example_sampler s = { tp_order_listed, &list, n[i] };
        tp_loader *L = loader(&s, (tp_loader_opts){ .train = i == 0, .batch = i ? 0 : n[i] });
        cr_expect_eq(read(L, n[i], got[i]), n[i], "%s", tp_loader_why(L));
        for (int64_t k = 0; k < n[i]; k++) seen[got[i][k]] = true;
        tp_loader_free(L);
    }
    cr_expect_eq(n[0] + n[1], COUNT);
    for (int i = 0; i < COUNT; i++) cr_expect(seen[i], "%d", i);
    cr_expect_arr_eq(got[1], part[1], (size_t)n[1] * sizeof *part[1], "not shuffled");
    cr_expect_arr_neq(got[0], part[0], (size_t)n[0] * sizeof *part[0], "shuffled");
}

/* ---- bad examples ---- */

/* No number that the sampler excludes takes the place of a bad example. */
Test(sampler, bad_examples_are_left_out)
{
    static const int64_t even[] = { 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22 };
    const int good = 17;
    const tp_listed list = { even, 12 };
    const tp_example_sampler s = { tp_order_listed, &list, 12 };
    for (int threads = 0; threads < 3; threads++) {
        int64_t number[4 * 9];
        int seen[COUNT] = { 0 };
        tp_loader *L =
            loader_of(&good, &s, (tp_loader_opts){ .train = true, .seed = 1, .threads = threads });
        cr_assert_eq(read(L, 4 * 9, number), 4 * 9, "%s", tp_loader_why(L));
        for (int i = 0; i < 4 * 9; i++) seen[number[i]]++;
        for (int i = 0; i < COUNT; i++)
            cr_expect_eq(seen[i], i < good && i % 2 == 0 ? 4 : 0, "%d: %d times", i, seen[i]);
        cr_expect_eq(tp_loader_skipped(L), 3);
        tp_loader_free(L);
    }
}

Test(sampler, an_epoch_of_bad_examples_fails, .timeout = 60)
{
    static const int64_t bad[] = { 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };
    const int good = 3;
    const tp_listed list = { bad, 10 };
    const tp_example_sampler s = { tp_order_listed, &list, 10 };
    for (int threads = 0; threads < 3; threads++) {
        int64_t number;
        tp_loader *L = loader_of(&good, &s, (tp_loader_opts){ .train = true, .threads = threads });
        tp_loader_seek(L, 4, 1); /* epoch 5 is the first that it reads to the end */
        cr_expect_eq(read(L, 1, &number), 0);
        cr_expect(tp_loader_code(L) == TP_E_IO &&
                      strstr(tp_loader_why(L), "none of the examples of epoch 5 could be read"),
                  "%s", tp_loader_why(L));
        tp_loader_free(L);
    }
}

/* ---- a function of the program, and messages ---- */

static const char *backwards(const void *env, const tp_epoch *s, tp_random *r, int64_t *order)
{
    (void)r;
    for (int64_t i = 0; i < s->length; i++) order[i] = s->count - 1 - i + *(const int *)env;
    return NULL;
}

static const char *refuse(const void *env, const tp_epoch *s, tp_random *r, int64_t *order)
{
    (void)s, (void)r, (void)order;
    return env;
}

/* Outside training, too, an order depends on the epoch, not on what was read before. */
Test(sampler, epochs_of_a_validation)
{
    int64_t first[COUNT], second[COUNT], again[COUNT];
    fill();
    const tp_weighted by = { .weight = weights };
    const tp_example_sampler s = { tp_order_weighted, &by, 0 };
    tp_loader *L = loader(&s, (tp_loader_opts){ 0 }), *M = loader(&s, (tp_loader_opts){ 0 });
    cr_expect_eq(read(L, COUNT, first), COUNT);
    tp_loader_seek(L, 1, 0);
    tp_loader_seek(M, 1, 0);
    cr_expect_eq(read(L, COUNT, second), COUNT);
    cr_expect_eq(read(M, COUNT, again), COUNT);
    cr_expect_arr_eq(second, again, sizeof again);
    cr_expect_arr_neq(second, first, sizeof first);
    tp_loader_free(L);
    tp_loader_free(M);
}

Test(sampler, a_function_of_the_program)
{
    int64_t number[COUNT];
    int shift = 0;
    const tp_example_sampler s = { backwards, &shift, 0 };
    tp_loader *L = loader(&s, (tp_loader_opts){ .batch = 8 });
    cr_expect_eq(read(L, COUNT, number), COUNT);
    cr_expect(number[0] == COUNT - 1 && number[COUNT - 1] == 0);
    tp_loader_free(L);
}

Test(sampler, messages)
{
    static const double bad[COUNT] = { 1, -1 }, zeros[COUNT] = { 0 };
    static const int32_t high[COUNT] = { 0, 4 };
    static int32_t none[COUNT];
    const int shift = 3;
    for (int i = 0; i < COUNT; i++) none[i] = -1;
    const tp_weighted w_bad = { .weight = bad }, w_zero = { .weight = zeros };
    const tp_balanced b_high = { .label = high, .classes = 4 }, b_none = { none, 2 };
    const tp_listed short_list = { (const int64_t[]){ 0, 1, 2 }, 3 };
    const struct {
        tp_example_sampler s;
        const char *why;
    } cases[] = {
        { { tp_order_weighted, &w_bad, 0 }, "weights must be finite, at least 0" },
        { { tp_order_weighted, &w_zero, 0 }, "the sum of the weights must be finite, above 0" },
        { { tp_order_weighted, NULL, 0 }, "NULL was given in place of what the sampler needs" },
        { { tp_order_balanced, &b_high, 0 }, "a label is not below the number of classes" },
        { { tp_order_balanced, &b_none, 0 }, "no example has a class" },
        { { tp_order_listed, &short_list, 0 }, "the sampler's length must be that of its list" },
        { { refuse, "not today", 0 }, "sampler of examples: not today" },
        { { backwards, &shift, 0 }, "its order has the number 32 at place 0; there are 30" },
        { { NULL, NULL, 0 }, "examples: the sampler needs a function" },
        { { backwards, &shift, -1 }, "and a length of at least 0" },
        { { refuse, "x", 3 }, "3 examples do not fill a batch of 4" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t number;
        tp_loader *L = loader(&cases[i].s, (tp_loader_opts){ .train = true });
        cr_expect_eq(read(L, 1, &number), 0, "%s", cases[i].why);
        cr_expect(strstr(tp_loader_why(L), cases[i].why), "%s", tp_loader_why(L));
        tp_loader_free(L);
    }
    const tp_weighted few = { .weight = (const double[COUNT]){ 1, 1 }, .once = true };
    int64_t number;
    tp_loader *L = loader(&(tp_example_sampler){ tp_order_weighted, &few, 4 },
                          (tp_loader_opts){ .train = true });
    cr_expect_eq(read(L, 1, &number), 0);
    cr_expect(strstr(tp_loader_why(L), "fewer weights are above 0 than an epoch has examples"));
    tp_loader_free(L);
}
