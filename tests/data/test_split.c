/* test_split.c - dividing examples: folds are disjoint and complete, classes keep their shares, and
 * the result depends on the seed alone. */
#include <criterion/criterion.h>
#include <string.h>
#include <tapegrad/dataset.h>
#include <tapegrad/random.h>

enum { N = 103, FOLDS = 5 };

static int64_t divide(tp_part part, tp_split_opts o, int64_t *number)
{
    char why[300];
    const int64_t m = tp_split_numbers(N, part, &o, number, why, sizeof why);
    cr_assert(m > 0, "%s", why);
    for (int64_t i = 1; i < m; i++) cr_expect(number[i - 1] < number[i], "ascending");
    return m;
}

/* 80 of class 0, 20 of class 5, 3 of class -1. */
static void make_labels(int32_t label[N])
{
    for (int i = 0; i < N; i++) label[i] = i % 34 == 33 ? -1 : i % 5 == 2 ? 5 : 0;
}

Test(split, folds_are_disjoint_and_complete)
{
    int32_t label[N];
    make_labels(label);
    for (int stratified = 0; stratified < 2; stratified++) {
        int seen[N] = { 0 };
        for (int fold = 0; fold < FOLDS; fold++) {
            const tp_split_opts o = {
                .seed = 3, .folds = FOLDS, .fold = fold, .label = stratified ? label : NULL
            };
            int64_t valid[N], train[N];
            const int64_t m = divide(TP_VALID, o, valid);
            cr_expect(m == N / FOLDS || m == N / FOLDS + 1);
            cr_expect_eq(divide(TP_TRAIN, o, train), N - m);
            int fives = 0;
            for (int64_t i = 0; i < m; i++) {
                seen[valid[i]]++;
                fives += label[valid[i]] == 5;
            }
            for (int64_t i = 0; i < N - m; i++) cr_expect_neq(label[train[i]], 9);
            if (stratified) cr_expect(fives >= 3 && fives <= 5, "%d", fives);
        }
        for (int i = 0; i < N; i++) cr_expect_eq(seen[i], 1, "example %d", i);
    }
}

Test(split, a_fraction_of_every_class)
{
    int32_t label[N];
    int64_t valid[N], again[N];
    make_labels(label);
    for (uint64_t seed = 0; seed < 20; seed++) {
        const tp_split_opts o = { .seed = seed, .held_back = 0.2, .label = label };
        const int64_t m = divide(TP_VALID, o, valid);
        int all = 0, held = 0;
        for (int i = 0; i < N; i++) all += label[i] == 5;
        for (int64_t i = 0; i < m; i++) held += label[valid[i]] == 5;
        cr_expect_eq(m, 21);
        cr_expect(5 * held >= all - 5 && 5 * held <= all + 5, "%d of %d", held, all);
        cr_expect_eq(divide(TP_VALID, o, again), m);
        cr_expect_arr_eq(valid, again, (size_t)m * sizeof *valid);
    }
    divide(TP_VALID, (tp_split_opts){ .seed = 1, .held_back = 0.2 }, valid);
    const int64_t m = divide(TP_VALID, (tp_split_opts){ .seed = 2, .held_back = 0.2 }, again);
    cr_expect_arr_neq(valid, again, (size_t)m * sizeof *valid);
}

/* The numbers of seed 7, for good: a run that is resumed on another machine has the same parts. */
Test(split, is_the_same_everywhere)
{
    int64_t number[10];
    uint64_t h = TP_HASH;
    char why[100];
    const tp_split_opts o = { .seed = 7, .folds = 2 };
    const int64_t m = tp_split_numbers(10, TP_VALID, &o, number, why, sizeof why);
    for (int64_t i = 0; i < m; i++) h = h * 31 + (uint64_t)number[i];
    cr_expect_eq(m, 5);
    cr_expect_eq(h, 0x95414b8eb9e0807f, "%llx", (unsigned long long)h);
}

static void refused(int64_t n, tp_split_opts o, const char *want)
{
    int64_t number[N];
    char why[300];
    cr_expect_eq(tp_split_numbers(n, TP_TRAIN, &o, number, why, sizeof why), 0);
    cr_expect_str_eq(why, want);
}

Test(split, refusals)
{
    char why[100];
    refused(1, (tp_split_opts){ .held_back = 0.5 },
            "split: 1 examples cannot be divided; give at least 2");
    refused(
        9, (tp_split_opts){ 0 },
        "split: held_back is 0 and folds 0; give a fraction above 0 and below 1, or 2 to 9 folds");
    refused(
        9, (tp_split_opts){ .folds = 10 },
        "split: held_back is 0 and folds 10; give a fraction above 0 and below 1, or 2 to 9 folds");
    refused(9, (tp_split_opts){ .folds = 3, .fold = 3 },
            "split: fold 3 of 3 with held_back 0; folds are numbered from 0, and have no fraction");
    refused(9, (tp_split_opts){ .held_back = 0.01 },
            "split: with held_back 0.01 one part of 9 examples is empty; change held_back, or "
            "give folds");
    cr_expect_eq(tp_split_numbers(9, TP_TRAIN, NULL, NULL, why, sizeof why), 0);
    cr_expect_str_eq(why, "split: NULL was given in place of options or of room for numbers");
    tp_dataset *X = tp_dataset_split(NULL, TP_TRAIN, NULL);
    cr_expect_str_eq(tp_dataset_why(X), "dataset: NULL was given in place of a data set");
    tp_dataset_free(X);
}
