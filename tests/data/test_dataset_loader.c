/* test_dataset_loader.c - loaders of rows: the same for any number of threads, after a seek and for
 * any number of processes; padding; bad rows. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/dataset.h>
#include <tapegrad/random.h>

#include "support/device.h"
#include "support/folder.h"

TestSuite(dataset_loader, .init = make_folder, .fini = remove_folder, .timeout = 300);

enum { ROWS = 37, BATCH = 4, LONGEST = 6 };

/* Row i: its number and a list of i % 7 numbers, all of them i. The line of one row ends early. */
static tp_dataset *lists(int bad)
{
    const char *path = in_folder("x.jsonl");
    FILE *f = fopen(path, "w");
    cr_assert(f);
    for (int i = 0; i < ROWS; i++) {
        fprintf(f, "{\"n\": %d, \"list\": [", i);
        for (int k = 0; k < i % 7; k++) fprintf(f, "%s%d", k ? ", " : "", i);
        fprintf(f, i == bad ? "\n" : "]}\n");
    }
    cr_assert_eq(fclose(f), 0);
    tp_dataset *X = tp_dataset_json_lines(path, &(tp_dataset_opts){ .memory = 1 });
    cr_assert(tp_dataset_ok(X), "%s", tp_dataset_why(X));
    return X;
}

/* Columns: the list, padded; a draw; the number. */
static bool make(void *env, tp_row *r, const tp_loader_example *e, void *const value[])
{
    tp_random draw = tp_random_stream(e->seed, "test", (uint64_t)e->place, (uint64_t)e->epoch);
    (void)env;
    *(float *)value[1] = (float)tp_random_uniform(&draw);
    *(int32_t *)value[2] = (int32_t)tp_row_int(r, "n");
    return tp_row_read(r, "list", tp_row_length(r, "list"), TP_I32, value[0]);
}

static int64_t length(void *env, tp_row *r, int column)
{
    (void)env;
    return column == 0 ? tp_row_length(r, "list") : -1;
}

static const tp_column columns[] = { { TP_I32, { 1, { LONGEST } } },
                                     { TP_F32, { 0, { 0 } } },
                                     { TP_I32, { 0, { 0 } } } };
static const double pads[] = { -1, 0, 0 };
static const tp_row_source padded = {
    .columns = 3, .column = columns, .make = make, .length = length, .pad = pads
};

/* Checks a batch and returns its hash. */
static uint64_t check(const tp_example_batch *b)
{
    const int32_t *list = b->value[0], *n = b->value[2];
    uint64_t h = tp_hash(TP_HASH, (uint64_t)b->width[0]);
    for (int64_t i = 0; i < b->n; i++) {
        cr_expect_eq(n[i], b->index[i]);
        for (int64_t k = 0; k < b->width[0]; k++) {
            cr_expect_eq(list[i * b->width[0] + k], k < n[i] % 7 ? n[i] : -1);
            h = tp_hash(h, (uint64_t)(list[i * b->width[0] + k] + 1));
        }
        uint32_t bits;
        memcpy(&bits, (const float *)b->value[1] + i, sizeof bits);
        h = tp_hash(h, bits);
    }
    return h;
}

static uint64_t next(tp_loader *L)
{
    tp_example_batch b;
    cr_assert(tp_example_loader_next(L, &b), "%s", tp_loader_why(L));
    return check(&b);
}

Test(dataset_loader, threads_and_seeks_change_nothing)
{
    tp_dataset *X = lists(-1);
    for (int64_t bucket = 0; bucket < 4; bucket += 3) {
        const tp_loader_opts o = { .batch = BATCH, .seed = 5, .train = true, .bucket = bucket };
        tp_loader *one = tp_row_loader_new(X, &padded, &o);
        tp_loader_opts many = o;
        many.threads = 3;
        tp_loader *three = tp_row_loader_new(X, &padded, &many);
        uint64_t hash[20];
        for (int k = 0; k < 20; k++) {
            hash[k] = next(one);
            cr_expect_eq(next(three), hash[k], "batch %d", k);
        }
        const int64_t steps = tp_loader_steps(one);
        tp_loader_seek(three, 13 / steps, 13 % steps);
        cr_expect_eq(next(three), hash[13], "resumed in the middle of an epoch");
        tp_loader_free(one);
        tp_loader_free(three);
    }
    tp_dataset_free(X);
}

/* The rows of a batch that two processes share are those of one, with its padding. */
Test(dataset_loader, processes_share_a_batch)
{
    tp_dataset *X = lists(-1);
    tp_loader *all = tp_row_loader_new(
        X, &padded, &(tp_loader_opts){ .batch = 2 * BATCH, .seed = 2, .train = true });
    tp_loader *part[2];
    for (int r = 0; r < 2; r++)
        part[r] = tp_row_loader_new(
            X, &padded,
            &(tp_loader_opts){ .batch = BATCH, .seed = 2, .train = true, .share = { r, 2 } });
    for (int step = 0; step < 9; step++) {
        tp_example_batch b, p;
        cr_assert(tp_example_loader_next(all, &b));
        for (int r = 0; r < 2; r++) {
            cr_assert(tp_example_loader_next(part[r], &p), "%s", tp_loader_why(part[r]));
            cr_expect_eq(p.width[0], b.width[0]);
            const size_t row = (size_t)b.width[0] * sizeof(int32_t);
            cr_expect_arr_eq(p.value[0], (char *)b.value[0] + (size_t)r * BATCH * row, BATCH * row);
            cr_expect_arr_eq(p.value[1], (float *)b.value[1] + r * BATCH, BATCH * sizeof(float));
        }
    }
    tp_loader_free(all);
    for (int r = 0; r < 2; r++) tp_loader_free(part[r]);
    tp_dataset_free(X);
}

typedef struct told {
    int n;
    char name[600], why[600];
} told;

static void note(void *env, const char *name, const char *why)
{
    told *t = env;
    t->n++;
    snprintf(t->name, sizeof t->name, "%s", name);
    snprintf(t->why, sizeof t->why, "%s", why);
}

Test(dataset_loader, bad_rows_are_left_out_or_fail)
{
    tp_dataset *X = lists(11);
    tp_example_batch b;
    told t = { 0 };
    for (int train = 0; train < 2; train++) {
        t = (told){ 0 };
        tp_loader *L = tp_row_loader_new(
            X, &padded,
            &(tp_loader_opts){
                .batch = ROWS, .train = train, .threads = 2, .bad = note, .env = &t });
        cr_assert(tp_example_loader_next(L, &b), "%s", tp_loader_why(L));
        check(&b);
        cr_expect(b.n == ROWS - 1 && t.n == 1 && tp_loader_skipped(L) == 1);
        cr_expect(strstr(t.name, "x.jsonl, line 12"), "%s", t.name);
        cr_expect_str_eq(t.why, "at byte 33 of the line: ']' expected near end of file");
        tp_loader_free(L);
    }
    tp_loader *L = tp_row_loader_new(X, &padded, &(tp_loader_opts){ .batch = 20, .strict = true });
    cr_expect_not(tp_example_loader_next(L, &b));
    cr_expect(strstr(tp_loader_why(L), "x.jsonl, line 12: at byte"), "%s", tp_loader_why(L));
    tp_loader_free(L);
    tp_dataset_free(X);
}

/* The list, and two numbers that are not padded. Row 6 is refused once its length is known. */
static bool make_two(void *env, tp_row *r, const tp_loader_example *e, void *const value[])
{
    (void)env;
    memset(value[1], 0, 2 * sizeof(float));
    return e->number != 6 && tp_row_read(r, "list", tp_row_length(r, "list"), TP_I32, value[0]);
}

/* A bad row pads no column, wherever it is. */
Test(dataset_loader, bad_rows_have_no_length)
{
    static const tp_column two[] = { { TP_I32, { 1, { LONGEST } } }, { TP_F32, { 1, { 2 } } } };
    for (int bad = 0; bad < 2; bad++) {
        tp_dataset *X = lists(bad);
        const tp_row_source s = { .columns = 2, .column = two, .make = make_two, .length = length };
        tp_example_batch b;
        tp_loader *L = tp_row_loader_new(X, &s, &(tp_loader_opts){ .batch = 4 });
        cr_assert(tp_example_loader_next(L, &b), "%s", tp_loader_why(L));
        cr_expect(b.n == 3 && b.width[0] == 3 && b.width[1] == 2, "%d x %d, %d", (int)b.n,
                  (int)b.width[0], (int)b.width[1]);
        cr_assert(tp_example_loader_next(L, &b), "%s", tp_loader_why(L));
        cr_expect(b.n == 3 && b.width[0] == 6, "the width is that of all rows: %d",
                  (int)b.width[0]);
        tp_loader_free(L);
        tp_dataset_free(X);
    }
}

static bool misspelt(void *env, tp_row *r, const tp_loader_example *e, void *const value[])
{
    (void)env, (void)e;
    *(float *)value[0] = (float)tp_row_real(r, "m");
    return true;
}

static bool refuses(void *env, tp_row *r, const tp_loader_example *e, void *const value[])
{
    (void)env, (void)r, (void)e, (void)value;
    return false;
}

static int64_t too_long(void *env, tp_row *r, int column)
{
    return 2 * length(env, r, column);
}

static int64_t sometimes(void *env, tp_row *r, int column)
{
    return tp_row_int(r, "n") > 0 ? length(env, r, column) : -1;
}

static void expect_why(const tp_dataset *X, const tp_row_source *s, const char *want)
{
    tp_example_batch b;
    tp_loader *L = tp_row_loader_new(X, s, &(tp_loader_opts){ .batch = 2, .strict = true });
    cr_expect_not(tp_example_loader_next(L, &b));
    cr_expect(strstr(tp_loader_why(L), want), "'%s' in '%s'", want, tp_loader_why(L));
    tp_loader_free(L);
}

Test(dataset_loader, mistakes_of_programs)
{
    static const float x[] = { 1, 2, 3 };
    const tp_row_array array = { "x", TP_F32, TP_SHAPE(3), x };
    tp_dataset *A = tp_dataset_arrays(1, &array), *X = lists(-1);
    static const tp_column scalar = { TP_F32, { 0, { 0 } } };
    expect_why(A, &(tp_row_source){ .columns = 1, .column = &scalar, .make = misspelt },
               "row 0: there is no array 'm'; the first is 'x'");
    expect_why(A, &(tp_row_source){ .columns = 1, .column = &scalar, .make = refuses },
               "row 0: the program refuses it without a reason");
    expect_why(A, &(tp_row_source){ .columns = 1, .column = &scalar },
               "NULL was given in place of the columns of an example or of the function that makes "
               "it");
    tp_row_source wide = padded;
    wide.length = too_long;
    expect_why(X, &wide,
               "x.jsonl, line 5: it has length 8 in column 0, not 0 to 6, the first axis of its "
               "shape; cut it to that");
    tp_row_source uneven = padded;
    uneven.length = sometimes;
    expect_why(X, &uneven, "x.jsonl, line 1: it has length -1 in column 0, not 0 to 6");
    tp_dataset *none = tp_dataset_csv("/none.csv", NULL);
    expect_why(none, &padded, "dataset /none.csv: cannot be opened");
    cr_expect_null(tp_row_loader_new(NULL, &padded, &(tp_loader_opts){ .batch = 2 }));
    tp_dataset_free(none);
    tp_dataset_free(A);
    tp_dataset_free(X);
}

Test(dataset_loader, feeds_padded_slots)
{
    tp_dataset *X = lists(-1);
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_tensor slot[3] = { TP_NONE, TP_NONE, TP_NONE };
    tp_loader *L = tp_row_loader_new(X, &padded, &(tp_loader_opts){ .batch = 3 });
    for (int64_t step = 0; step < 3; step++) {
        cr_assert_eq(tp_loader_feed(L, T, 0, step, slot), 3, "%s", tp_why(T));
        const tp_shape s = tp_shape_of(slot[0]);
        cr_expect(s.ndim == 2 && s.dim[0] == 3 && s.dim[1] == (step == 0 ? 2 : step == 1 ? 5 : 6));
        cr_expect_eq(tp_shape_of(slot[2]).ndim, 1);
    }
    tp_loader_free(L);
    tp_tape_free(T);
    tp_device_close(D);
    tp_dataset_free(X);
}
