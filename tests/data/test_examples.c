/* test_examples.c - examples in memory: the contents of each batch, independent of when it is
 * requested, and refusals. */
#include <criterion/criterion.h>
#include <string.h>

#include <tapegrad/data.h>

#include "support/device.h"

enum { N = 23, BATCH = 4 };

/* Example i: { i, 2 i } and the label i mod 3. */
static tp_examples *make(int n, tp_examples_opts o)
{
    const tp_column columns[] = { { TP_F32, TP_SHAPE(2) }, { TP_I32, TP_SCALAR } };
    tp_examples *X = tp_examples_new(2, columns, &o);
    for (int i = 0; i < n; i++) {
        const float x[] = { (float)i, 2 * (float)i };
        const int32_t label = i % 3;
        tp_examples_add(X, (const void *[]){ x, &label });
    }
    return X;
}

typedef struct batch {
    int64_t n;
    int32_t example[BATCH];
} batch;

/* Reads a batch and checks that its columns belong together. */
static batch read(tp_examples *X, tp_tape *T, tp_part part, int64_t epoch, int64_t step,
                  tp_tensor slot[2])
{
    float x[BATCH][2];
    int32_t label[BATCH];
    batch b = { .n = tp_examples_feed(X, T, part, epoch, step, slot) };
    if (b.n == 0) return b;
    cr_assert(tp_dim(slot[0], 0) == b.n && tp_dim(slot[0], 1) == 2 && tp_ndim(slot[1]) == 1);
    cr_assert(tp_read(T, slot[0], x, (size_t)b.n * sizeof *x), "%s", tp_why(T));
    cr_assert(tp_read(T, slot[1], label, (size_t)b.n * sizeof *label), "%s", tp_why(T));
    for (int64_t i = 0; i < b.n; i++) {
        b.example[i] = (int32_t)x[i][0];
        cr_expect(x[i][1] == 2 * x[i][0] && label[i] == b.example[i] % 3, "example %d",
                  b.example[i]);
    }
    return b;
}

static bool same(batch a, batch b)
{
    return a.n == b.n && memcmp(a.example, b.example, (size_t)a.n * sizeof *a.example) == 0;
}

static tp_device *D;
static tp_tape *T;
static tp_tensor slot[2];

static void begin(void)
{
    D = device_open(NULL);
    T = tp_tape_new(D, NULL);
    slot[0] = slot[1] = TP_NONE;
}

static void end(void)
{
    tp_tape_free(T);
    tp_device_close(D);
}

TestSuite(examples, .init = begin, .fini = end);

Test(examples, an_epoch_has_each_example_once)
{
    tp_examples *X = make(N, (tp_examples_opts){ .batch = BATCH, .seed = 5, .hold_back_every = 5 });
    cr_expect_eq(tp_examples_count(X, TP_TRAIN), 19);
    cr_expect_eq(tp_examples_count(X, TP_VALID), 4);
    cr_expect_eq(tp_examples_steps(X, TP_TRAIN), 4, "three examples are left over");
    int seen[N] = { 0 }, moved = 0;
    for (int e = 0; e < 2; e++)
        for (int s = 0; s < 4; s++) {
            const batch b = read(X, T, TP_TRAIN, e, s, slot);
            cr_expect_eq(b.n, BATCH);
            for (int i = 0; i < BATCH; i++) {
                cr_expect_neq(b.example[i] % 5, 4, "%d is for validation", b.example[i]);
                seen[b.example[i]] += e == 0;
                moved += b.example[i] != BATCH * s + i;
            }
        }
    for (int i = 0; i < N; i++) cr_expect_leq(seen[i], 1, "example %d", i);
    cr_expect_gt(moved, 16, "it is shuffled");
    tp_examples_free(X);
}

Test(examples, a_batch_depends_on_nothing_before)
{
    tp_examples *X = make(N, (tp_examples_opts){ .batch = BATCH, .seed = 5 });
    tp_examples *Y = make(N, (tp_examples_opts){ .batch = BATCH, .seed = 6 });
    const batch a = read(X, T, TP_TRAIN, 7, 3, slot);
    const batch other_step = read(X, T, TP_TRAIN, 7, 2, slot);
    const batch other_epoch = read(X, T, TP_TRAIN, 0, 3, slot);
    cr_expect(same(a, read(X, T, TP_TRAIN, 7, 3, slot)));
    cr_expect_not(same(a, other_step));
    cr_expect_not(same(a, other_epoch));
    cr_expect_not(same(a, read(Y, T, TP_TRAIN, 7, 3, slot)), "another seed");
    tp_examples_free(X);
    tp_examples_free(Y);
}

Test(examples, validation_is_in_order_and_ends)
{
    tp_examples *X = make(N, (tp_examples_opts){ .batch = BATCH, .hold_back_every = 4 });
    const batch first = { 4, { 3, 7, 11, 15 } }, second = { 1, { 19 } };
    cr_expect_eq(tp_examples_steps(X, TP_VALID), 2);
    cr_expect(same(first, read(X, T, TP_VALID, 0, 0, slot)));
    cr_expect(same(second, read(X, T, TP_TEST, 0, 1, slot)));
    cr_expect_eq(tp_examples_feed(X, T, TP_VALID, 0, 2, slot), 0);
    cr_expect_eq(tp_examples_feed(X, T, TP_VALID, 0, -1, slot), 0);
    cr_expect(tp_ok(T), "reaching the end is not an error");
    tp_examples_free(X);
}

Test(examples, hashes_of_data_differ)
{
    tp_examples *X = make(N, (tp_examples_opts){ .batch = 1 });
    tp_examples *Y = make(N, (tp_examples_opts){ .batch = 2 });
    tp_examples *Z = make(N - 1, (tp_examples_opts){ .batch = 1 });
    cr_expect_eq(tp_examples_hash(X), tp_examples_hash(Y));
    cr_expect_neq(tp_examples_hash(X), tp_examples_hash(Z));
    tp_examples_add(Z, (const void *[]){ (const float[]){ 22, 44 }, &(const int32_t){ 2 } });
    cr_expect_neq(tp_examples_hash(X), tp_examples_hash(Z), "another label");
    tp_examples_free(X);
    tp_examples_free(Y);
    tp_examples_free(Z);
}

/* Adds more examples than the first allocations hold, feeding batches in between. */
Test(examples, they_may_be_added_later)
{
    const tp_column column = { TP_I64, TP_SCALAR };
    tp_examples *X = tp_examples_new(1, &column, &(tp_examples_opts){ .batch = 1 });
    int64_t value, sum = 0;
    for (int64_t i = 0; i < 300; i++) {
        tp_examples_add(X, (const void *[]){ &i });
        tp_examples_feed(X, T, TP_TRAIN, 0, i, slot);
    }
    for (int64_t i = 0; i < 300; i++) {
        cr_assert_eq(tp_examples_feed(X, T, TP_TRAIN, 0, i, slot), 1);
        tp_read(T, slot[0], &value, sizeof value);
        sum += value;
    }
    cr_expect_eq(sum, 299 * 150);
    tp_examples_free(X);
}

Test(examples, mistakes_are_named)
{
    const tp_column good = { TP_F32, TP_SHAPE(2) };
    const struct {
        int columns;
        tp_column column;
        tp_examples_opts o;
        const char *why;
    } cases[] = {
        { 0, good, { .batch = 1 }, "0 columns are not 1 to 16" },
        { 17, good, { .batch = 1 }, "17 columns are not 1 to 16" },
        { 1, good, { .batch = 0 }, "the batch is 0" },
        { 1, good, { .batch = 1, .hold_back_every = 1 }, "hold_back_every is 1" },
        { 1, good, { .batch = 1, .hold_back_every = -2 }, "hold_back_every is -2" },
        { 1, { (tp_dtype)99, TP_SCALAR }, { .batch = 1 }, "column 0 has no dtype" },
        { 1, { TP_F32, { .ndim = 8 } }, { .batch = 1 }, "no shape" },
        { 1,
          { TP_F32, TP_SHAPE(0) },
          { .batch = 1 },
          "no shape, or too many values for batches of 1" },
        { 1, { TP_F32, TP_SHAPE(INT64_MAX, 5) }, { .batch = 1 }, "too many values" },
        { 1, good, { .batch = INT64_MAX }, "the batch is 9223372036854775807, not 1 to 2^31 - 1" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tp_examples *X = tp_examples_new(cases[i].columns, &cases[i].column, &cases[i].o);
        cr_expect_not(tp_examples_ok(X), "%s", cases[i].why);
        cr_expect(strstr(tp_examples_why(X), cases[i].why), "'%s' in: %s", cases[i].why,
                  tp_examples_why(X));
        tp_examples_add(X, (const void *[]){ "none" });
        cr_expect_eq(tp_examples_steps(X, TP_TRAIN), 0);
        tp_examples_free(X);
    }
}

Test(examples, too_few_fail_the_tape)
{
    tp_examples *X = make(3, (tp_examples_opts){ .batch = BATCH });
    cr_expect_eq(tp_examples_feed(X, T, TP_TRAIN, 0, 0, slot), 0);
    cr_expect(strstr(tp_why(T), "3 examples to train on are too few for a batch of 4"), "%s",
              tp_why(T));
    cr_expect_not(tp_examples_ok(X));
    tp_examples_free(X);
}
