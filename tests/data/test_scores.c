/* test_scores.c - other test sets of ImageNet classifiers: classes, predictions, errors. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/test_sets.h>

enum { CLASSES = TP_IMAGENET_CLASSES };

/* Labels count the classes of a set from 0; 86 classes are in both A and R. */
Test(scores, classes_of_sets)
{
    static const int sizes[] = { 116, 52, 42, 36, 35, 27, 26, 20, 16 };
    int next[2] = { 0, 0 }, both = 0, found[9] = { 0 };
    for (int c = 0; c < CLASSES; c++) {
        const int a = tp_test_set_label(TP_TEST_A, c), r = tp_test_set_label(TP_TEST_R, c);
        const int super = tp_test_set_label(TP_TEST_9, c);
        cr_expect(a < 0 || a == next[0]++, "class %d of A", c);
        cr_expect(r < 0 || r == next[1]++, "class %d of R", c);
        both += a >= 0 && r >= 0;
        cr_expect(super >= -1 && super < 9);
        if (super >= 0) found[super]++;
        cr_expect_eq(tp_test_set_label(TP_TEST_ALL, c), c);
    }
    cr_expect(next[0] == 200 && next[1] == 200 && both == 86, "%d, %d, %d", next[0], next[1], both);
    cr_expect(memcmp(found, sizes, sizeof sizes) == 0);
    cr_expect(tp_test_set_labels(TP_TEST_ALL) == CLASSES && tp_test_set_labels(TP_TEST_9) == 9);
    for (int set = TP_TEST_ALL; set <= TP_TEST_9; set++)
        cr_expect(tp_test_set_label((tp_test_set)set, -1) == -1 &&
                  tp_test_set_label((tp_test_set)set, CLASSES) == -1);
}

/* A goldfish (1) is a fish, the first class of R, and not in A; a cat (281) has no superclass. */
Test(scores, predictions)
{
    static float logits[CLASSES];
    logits[1] = 2;
    cr_expect_eq(tp_test_set_predict(TP_TEST_ALL, logits), 1);
    cr_expect_eq(tp_test_set_predict(TP_TEST_R, logits), 0);
    cr_expect_eq(tp_test_set_predict(TP_TEST_9, logits), 8);
    cr_expect_eq(tp_test_set_predict(TP_TEST_A, logits), 0, "all of A are equal: the first");
    logits[281] = 3;
    cr_expect_eq(tp_test_set_predict(TP_TEST_9, logits), -1);
    logits[6] = 1;
    cr_expect_eq(tp_test_set_predict(TP_TEST_A, logits), tp_test_set_label(TP_TEST_A, 6));
}

/* ReaL's labels: arrays of arrays, with any white space. */
Test(scores, label_lists)
{
    static const char text[] = " [[], [970,795] ,\n[ 0\t,999 , 1],[5]]\r\n";
    static const int64_t from[] = { 0, 0, 2, 5, 6 }, label[] = { 970, 795, 0, 999, 1, 5 };
    tp_label_lists l = { 0 };
    cr_assert(tp_label_lists_parse(&l, "text", text, strlen(text), CLASSES), "%s", l.why);
    cr_expect_eq(l.count, 4);
    cr_expect_arr_eq(l.from, from, sizeof from);
    cr_expect_arr_eq(l.label, label, sizeof label);
    tp_label_lists_free(&l);
    cr_assert(tp_label_lists_parse(&l, "text", "[]", 2, CLASSES) && l.count == 0, "%s", l.why);
    tp_label_lists_free(&l);
}

Test(scores, bad_label_lists)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        { "", "list ends at byte 0: '[', the start of an array of arrays is wanted" },
        { "{}", "list, byte 0: '[', the start of an array of arrays is wanted, not '{'" },
        { "[1]", "list, byte 1: '[', the start of an image's classes is wanted, not '1'" },
        { "[[1],]", "list, byte 5: '[', the start of an image's classes is wanted, not ']'" },
        { "[[1,]]", "list, byte 4: a class number is wanted, not ']'" },
        { "[[-1]]", "list, byte 2: a class number is wanted, not '-'" },
        { "[[1.5]]", "list, byte 3: ',' or ']' is wanted, not '.'" },
        { "[[1]", "list ends at byte 4: ',' or ']' is wanted" },
        { "[[1", "list ends at byte 3: ',' or ']' is wanted" },
        { "[[1]] x", "list, byte 6: the end of the file is wanted, not 'x'" },
        { "[[1]]\x01", "list, byte 5: the end of the file is wanted, not '?'" },
        { "[[],[3,1000]]", "list, byte 7: image 1 has the class 1000; there are 1000" },
        { "[[99999999999999999999]]", "list, byte 2: image 0 has the class 9999999999" },
    };
    tp_label_lists l = { 0 };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect_not(tp_label_lists_parse(&l, "list", bad[i].text, strlen(bad[i].text), CLASSES));
        cr_expect(strstr(l.why, bad[i].why), "'%s': %s", bad[i].text, l.why);
        cr_expect_eq(l.count, 0);
        tp_label_lists_free(&l);
    }
    cr_expect_not(tp_label_lists_read(&l, "/nowhere/real.json", CLASSES));
    cr_expect(strstr(l.why, "/nowhere/real.json"), "%s", l.why);
    cr_expect_not(tp_label_lists_read(&l, "/", CLASSES));
    cr_expect(strncmp(l.why, "/", 1) == 0, "%s", l.why);
    tp_label_lists_free(&l);
}

Test(scores, top)
{
    const float logits[] = { 1, 5, 3, 3, -2 };
    static const struct {
        int k;
        int64_t labels[2];
        bool in;
    } cases[] = {
        { 1, { 1, -1 }, true },  { 1, { 2, -1 }, false },  { 2, { 2, -1 }, true },
        { 2, { 3, -1 }, false }, { 3, { 3, -1 }, true },   { 4, { 4, -1 }, false },
        { 4, { 4, 0 }, true },   { 5, { -1, -1 }, false }, { 5, { 7, -1 }, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_eq(tp_in_top(logits, 5, cases[i].k, cases[i].labels, 2), cases[i].in, "case %zu",
                     i);
}

Test(scores, corruptions)
{
    double error[TP_CORRUPTIONS][TP_SEVERITIES], relative[TP_CORRUPTIONS];
    for (int i = 0; i < TP_CORRUPTIONS; i++)
        for (int s = 0; s < TP_SEVERITIES; s++) error[i][s] = 0.1 * s;
    const double mean = tp_corruption_errors((const double(*)[TP_SEVERITIES])error, relative);
    cr_expect_float_eq(relative[0], 0.2 / 0.886428, 1e-12);
    cr_expect_float_eq(relative[14], 0.2 / 0.6065, 1e-12);
    cr_expect(mean > relative[1] && mean < relative[10]);
    cr_expect_str_eq(tp_corruption_name(14), "jpeg_compression");
    cr_expect_null(tp_corruption_name(TP_CORRUPTIONS));
    cr_expect_null(tp_corruption_name(-1));
}
