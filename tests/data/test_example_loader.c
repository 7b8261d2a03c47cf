/* test_example_loader.c - loaders of examples from a function: the same for any number of threads
 * and after a seek; bad examples are named once and replaced, failures are kept. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/loader.h>
#include <tapegrad/random.h>

#include "support/device.h"

TestSuite(example_loader, .timeout = 300);

enum { COUNT = 29, BATCH = 4, STEPS = COUNT / BATCH };

/* How the function treats some examples. */
typedef struct examples {
    int64_t bad, failed; /* numbers, or -1 */
    bool all_bad, plain, starved;
    int reported;
    char name[64], why[600];
} examples;

/* Two columns: the number and a draw; a label. */
static tp_example_state make(void *env, const tp_loader_example *e, void *const value[], char *why)
{
    const examples *x = env;
    tp_random r = tp_random_stream(e->seed, "test", (uint64_t)e->place, (uint64_t)e->epoch);
    float *pair = value[0];
    if (x->all_bad || e->number == x->bad) {
        snprintf(why, TP_EXAMPLE_WHY, "the line ends early");
        return TP_EXAMPLE_BAD;
    }
    if (e->number == x->failed) {
        snprintf(why, TP_EXAMPLE_WHY, x->starved ? "no memory; close other programs" : "no disk");
        return x->starved ? TP_EXAMPLE_NO_MEMORY : TP_EXAMPLE_FAILED;
    }
    pair[0] = (float)e->number;
    pair[1] = (float)tp_random_uniform(&r);
    *(int32_t *)value[1] = (int32_t)(e->number % 3);
    return TP_EXAMPLE_MADE;
}

static const char *name_of(void *env, int64_t number, char *buf, size_t size)
{
    if (((const examples *)env)->plain) return NULL;
    snprintf(buf, size, "table.csv:%lld", (long long)number);
    return buf;
}

static void note(void *env, const char *name, const char *why)
{
    examples *x = env;
    x->reported++;
    snprintf(x->name, sizeof x->name, "%s", name);
    snprintf(x->why, sizeof x->why, "%s", why);
}

static tp_loader *loader(examples *x, tp_loader_opts o)
{
    const tp_column columns[] = { { TP_F32, TP_SHAPE(2) }, { TP_I32, TP_SCALAR } };
    const tp_example_source s = {
        .count = COUNT, .columns = 2, .column = columns, .make = make, .name = name_of, .env = x
    };
    o.bad = note;
    o.env = x;
    return tp_example_loader_new(&s, &o);
}

static uint64_t hash_of(const tp_example_batch *b)
{
    uint64_t h = tp_hash(tp_hash(TP_HASH, (uint64_t)b->epoch), (uint64_t)b->step);
    const float *pair = b->value[0];
    for (int64_t i = 0; i < b->n; i++) {
        uint32_t bits;
        memcpy(&bits, &pair[2 * i + 1], sizeof bits);
        cr_expect_eq((int64_t)pair[2 * i], b->index[i]);
        cr_expect_eq(((const int32_t *)b->value[1])[i], b->index[i] % 3);
        h = tp_hash(tp_hash(h, (uint64_t)b->index[i]), bits);
    }
    return h;
}

static uint64_t next(tp_loader *L)
{
    tp_example_batch b;
    cr_assert(tp_example_loader_next(L, &b), "%s", tp_loader_why(L));
    return hash_of(&b);
}

Test(example_loader, batches_follow_from_seed_epoch_and_step)
{
    enum { BATCHES = 3 * STEPS };
    examples x = { .bad = -1, .failed = -1 };
    uint64_t hash[BATCHES];
    const tp_loader_opts o = { .batch = BATCH, .seed = 5, .train = true };
    tp_loader *one = loader(&x, o);
    cr_assert_eq(tp_loader_steps(one), STEPS);
    for (int k = 0; k < BATCHES; k++) hash[k] = next(one);
    for (int threads = 1; threads <= 4; threads += 3)
        for (int ahead = 1; ahead < 5; ahead++) {
            tp_loader_opts many = o;
            many.threads = threads, many.ahead = ahead;
            tp_loader *L = loader(&x, many);
            for (int k = 0; k < BATCHES; k++) cr_expect_eq(next(L), hash[k], "batch %d", k);
            static const int jumps[] = { 9, 10, 3, 20, 0, 7, 7 };
            for (size_t i = 0; i < sizeof jumps / sizeof *jumps; i++) {
                tp_loader_seek(L, jumps[i] / STEPS, jumps[i] % STEPS);
                cr_expect_eq(next(L), hash[jumps[i]], "batch %d", jumps[i]);
            }
            tp_loader_free(L);
        }
    tp_loader_free(one);
    tp_loader_opts other = o;
    other.seed = 6;
    tp_loader *L = loader(&x, other);
    cr_expect_neq(next(L), hash[0]);
    tp_loader_free(L);
}

Test(example_loader, an_epoch_has_each_example_once)
{
    examples x = { .bad = -1, .failed = -1 };
    for (int train = 0; train < 2; train++) {
        int64_t seen = 0, batches = 0;
        bool have[COUNT] = { false };
        tp_example_batch b;
        tp_loader *L = loader(&x, (tp_loader_opts){ .batch = BATCH, .train = train, .threads = 2 });
        while (batches < tp_loader_steps(L) && tp_example_loader_next(L, &b)) {
            cr_expect(b.epoch == 0 && b.step == batches++);
            for (int64_t i = 0; i < b.n; i++, seen++) {
                cr_expect(!have[b.index[i]] && (train || b.index[i] == seen));
                have[b.index[i]] = true;
            }
        }
        cr_expect_eq(seen, train ? STEPS * BATCH : COUNT);
        cr_expect_eq(tp_example_loader_next(L, &b), train, "it is endless, or has ended");
        cr_expect(tp_loader_ok(L));
        tp_loader_free(L);
    }
    tp_loader *L = loader(&x, (tp_loader_opts){ .batch = BATCH, .whole = true });
    cr_expect_eq(tp_loader_steps(L), STEPS);
    tp_loader_free(L);
}

Test(example_loader, feeds_a_slot_for_each_column)
{
    examples x = { .bad = -1, .failed = -1 };
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_tensor slot[2] = { TP_NONE, TP_NONE };
    tp_loader *L = loader(&x, (tp_loader_opts){ .batch = BATCH, .seed = 1 });
    float pair[BATCH][2];
    cr_assert_eq(tp_loader_feed(L, T, 0, 2, slot), BATCH, "%s", tp_why(T));
    cr_assert(tp_read(T, slot[0], pair, sizeof pair));
    for (int i = 0; i < BATCH; i++) cr_expect_eq(pair[i][0], (float)(2 * BATCH + i));
    cr_expect_eq(tp_dtype_of(slot[1]), TP_I32);
    cr_expect_eq(tp_loader_feed(L, T, 0, STEPS, slot), COUNT % BATCH);
    cr_expect_eq(tp_loader_feed(L, T, 0, STEPS + 1, slot), 0);
    cr_expect(tp_ok(T), "reaching the end is not an error");
    tp_loader_free(L);
    x.failed = 3;
    x.starved = true;
    L = loader(&x, (tp_loader_opts){ .batch = BATCH });
    cr_expect_eq(tp_loader_feed(L, T, 0, 0, slot), 0);
    cr_expect(tp_code_of(T) == TP_E_MEMORY && strstr(tp_why(T), "table.csv:3: no memory"), "%s",
              tp_why(T));
    tp_loader_free(L);
    tp_tape_free(T);
    tp_device_close(D);
}

Test(example_loader, bad_examples_are_replaced_and_named_once)
{
    for (int threads = 0; threads < 3; threads++) {
        examples x = { .bad = 11, .failed = -1, .plain = threads == 2 };
        tp_example_batch b;
        tp_loader *L =
            loader(&x, (tp_loader_opts){ .batch = BATCH, .train = true, .threads = threads });
        for (int k = 0; k < 3 * STEPS; k++) {
            cr_assert(tp_example_loader_next(L, &b));
            cr_expect_eq(b.n, BATCH);
            hash_of(&b);
            for (int64_t i = 0; i < b.n; i++) cr_expect_neq(b.index[i], 11);
        }
        cr_expect(x.reported == 1 && tp_loader_skipped(L) == 1);
        cr_expect_str_eq(x.name, threads == 2 ? "example 11" : "table.csv:11");
        cr_expect_str_eq(x.why, "the line ends early");
        tp_loader_free(L);
        L = loader(&x, (tp_loader_opts){ .batch = BATCH, .threads = threads });
        int64_t n = 0;
        for (; tp_example_loader_next(L, &b); n += b.n) hash_of(&b);
        cr_expect_eq(n, COUNT - 1, "it is left out");
        tp_loader_free(L);
    }
}

/* The first failure is kept, with its code and the name of the example. */
Test(example_loader, failures)
{
    static const struct {
        examples x;
        tp_loader_opts o;
        tp_code code;
        const char *why;
    } cases[] = {
        { { .bad = 2, .failed = -1 },
          { .batch = 4, .strict = true },
          TP_E_IO,
          "table.csv:2: the line ends early" },
        { { .bad = -1, .failed = 2 }, { .batch = 4 }, TP_E_IO, "table.csv:2: no disk" },
        { { .bad = -1, .failed = 2, .starved = true },
          { .batch = 4 },
          TP_E_MEMORY,
          "table.csv:2: no memory; close" },
        { { .all_bad = true },
          { .batch = 4, .train = true },
          TP_E_IO,
          "none of the 29 examples could be read" },
        { { .bad = -1 },
          { .batch = 30, .train = true },
          TP_E_VALUE,
          "29 examples do not fill a batch of 30: lower the batch" },
        { { .bad = -1 }, { .batch = 0 }, TP_E_VALUE, "the batch is 0" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int threads = 0; threads < 3; threads++) {
            examples x = cases[i].x;
            tp_loader_opts o = cases[i].o;
            tp_example_batch b;
            o.threads = threads;
            tp_loader *L = loader(&x, o);
            while (tp_example_loader_next(L, &b)) cr_assert(b.n > 0);
            cr_expect(!tp_loader_ok(L) && tp_loader_code(L) == cases[i].code, "case %zu", i);
            cr_expect(strstr(tp_loader_why(L), cases[i].why), "case %zu: %s", i, tp_loader_why(L));
            tp_loader_seek(L, 0, 0);
            cr_expect(!tp_example_loader_next(L, &b) && b.n == 0, "it stays failed");
            tp_loader_free(L);
        }
}

Test(example_loader, columns_that_cannot_be)
{
    static const tp_column none = { TP_F32, { .ndim = 1, .dim = { 0 } } };
    static const tp_column huge = { TP_F64, { .ndim = 2, .dim = { INT64_C(1) << 40, 1 << 30 } } };
    const tp_column *const bad[] = { &none, &huge };
    for (int i = 0; i < 2; i++) {
        tp_loader *L = tp_example_loader_new(
            &(tp_example_source){ .count = 9, .columns = 1, .column = bad[i], .make = make },
            &(tp_loader_opts){ .batch = 3 });
        cr_expect(strstr(tp_loader_why(L), "column 0 has no dtype, no shape"), "%s",
                  tp_loader_why(L));
        tp_loader_free(L);
    }
    tp_loader *L =
        tp_example_loader_new(&(tp_example_source){ .count = 9, .columns = 17, .make = make },
                              &(tp_loader_opts){ .batch = 3 });
    cr_expect(strstr(tp_loader_why(L), "17 columns"), "%s", tp_loader_why(L));
    tp_loader_free(L);
}

static tp_example_state make_none(void *env, const tp_loader_example *e, void *const value[],
                                  char *why)
{
    (void)env, (void)e, (void)value, (void)why;
    return TP_EXAMPLE_MADE;
}

static int64_t no_rows(void *env, int64_t number, int column)
{
    (void)env, (void)number, (void)column;
    return 0;
}

Test(example_loader, pads_are_the_nearest_bf16)
{
    static const struct {
        double pad;
        uint16_t bits;
    } cases[] = { { 1.0, 0x3f80 },       { 1.0 + 0x1p-8, 0x3f80 }, { 1.0 + 0x1.2p-8, 0x3f81 },
                  { -0x1.03p0, 0xbf82 }, { INFINITY, 0x7f80 },     { 3.4e38, 0x7f80 },
                  { NAN, 0x7fc0 },       { 1.0 + 0x3p-8, 0x3f82 } };
    static const tp_column column = { TP_BF16, { 1, { 3 } } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tp_example_batch b;
        tp_loader *L = tp_example_loader_new(&(tp_example_source){ .count = 1,
                                                                   .columns = 1,
                                                                   .column = &column,
                                                                   .make = make_none,
                                                                   .length = no_rows,
                                                                   .pad = &cases[i].pad },
                                             &(tp_loader_opts){ .batch = 1 });
        cr_assert(tp_example_loader_next(L, &b), "%s", tp_loader_why(L));
        const uint16_t bits = *(const uint16_t *)b.value[0];
        cr_expect_eq(bits & 0x7fff, cases[i].bits & 0x7fff, "%g: %x", cases[i].pad, bits);
        tp_loader_free(L);
    }
}

/* Batches are read as their own kind. */
static void finish(tp_loader *L, void *state, const tp_loader_batch *b, void *slot)
{
    (void)L, (void)state;
    *(tp_loader_batch *)slot = *b;
}

Test(example_loader, kinds)
{
    static const tp_loader_kind numbers = {
        .name = "numbers", .slot = sizeof(tp_loader_batch), .stream = "numbers", .finish = finish
    };
    tp_loader *L = tp_loader_new(&numbers);
    tp_loader_batch head;
    tp_example_batch b;
    cr_expect(!tp_loader_take(L, &numbers, &head, sizeof head) && tp_loader_ok(L),
              "it is not open yet");
    tp_loader_open(L, &(tp_loader_examples){ .count = 10, .length = 6 },
                   &(tp_loader_opts){ .batch = 3, .train = true });
    cr_expect_eq(tp_loader_steps(L), 2);
    cr_assert(tp_loader_take(L, &numbers, &head, sizeof head));
    cr_expect(head.n == 3 && head.index[0] != head.index[1]);
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_tensor slot[1];
    cr_expect_eq(tp_loader_feed(L, T, 0, 0, slot), 0);
    cr_expect(tp_code_of(T) == TP_E_STATE && strstr(tp_why(T), "batches of numbers are not fed"),
              "%s", tp_why(T));
    cr_expect(tp_loader_ok(L) && tp_loader_take(L, &numbers, &head, sizeof head) && head.step == 1,
              "the loader goes on where it was");
    tp_tape_free(T);
    tp_device_close(D);
    cr_expect(!tp_example_loader_next(L, &b));
    cr_expect(tp_loader_code(L) == TP_E_STATE &&
                  strstr(tp_loader_why(L), "of examples was asked for from a loader of numbers"),
              "%s", tp_loader_why(L));
    tp_loader_free(L);
}
