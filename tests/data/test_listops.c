/* test_listops.c - ListOps expressions: tokens, values, files, the random process; and the
 * reference tables, which tp-parity compares. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tapegrad/listops.h>

#include "parity.h"
#include "support/fixtures.h"
#include "support/folder.h"

enum { ROOM = 4096 };

static int64_t ids_of(const char *text, uint16_t *ids)
{
    char why[256] = "";
    const int64_t n = tp_listops_read(text, strlen(text), ids, why, sizeof why);
    cr_assert_geq(n, 0, "%s: %s", text, why);
    return n;
}

Test(listops, tokens)
{
    static const uint16_t meant[] = { 13, 2, 3, 10, 15 };
    const char *const texts[] = { "[MED 1 2 9 ]", "( ( ( ( [MED 1 ) 2 ) 9 ) ] )",
                                  "((( [MED (1) 2 )9)]", "  [MED   1 2 9 ]  " };
    uint16_t ids[64];
    for (int i = 0; i < 4; i++) {
        cr_expect_eq(ids_of(texts[i], ids), 5, "%s", texts[i]);
        cr_expect_arr_eq(ids, meant, sizeof meant, "%s", texts[i]);
    }
    cr_expect_eq(ids_of("", ids), 0);
    cr_expect_eq(ids_of("( )", ids), 0);
    cr_expect_eq(ids_of("[MIN [MAX [SM 0 9 ]", ids), 6);
    cr_expect_eq(ids[0] * 10000 + ids[2] * 100 + ids[3], 11 * 10000 + 14 * 100 + 1);
}

Test(listops, words_that_are_no_tokens)
{
    const char *const bad[] = { "10", "[FIRST", "[min", "1]", "X", "[MIN[MAX", "\t", "-1" };
    uint16_t ids[8];
    for (int i = 0; i < 8; i++) {
        char text[32], why[256] = "";
        snprintf(text, sizeof text, "7 %s 3", bad[i]);
        cr_expect_eq(tp_listops_read(text, strlen(text), ids, why, sizeof why), -1, "%s", bad[i]);
        cr_expect(strstr(why, bad[i]) && strstr(why, "at byte 3"), "%s", why);
    }
}

Test(listops, values)
{
    static const struct {
        const char *text;
        int answer, depth;
    } cases[] = {
        { "7", 7, 0 },
        { "[MIN 4 2 8 ]", 2, 1 },
        { "[MAX 4 2 8 ]", 8, 1 },
        { "[SM 9 9 9 ]", 7, 1 },
        { "[SM 5 5 ]", 0, 1 },
        { "[MED 3 ]", 3, 1 },
        { "[MED 9 0 ]", 4, 1 },
        { "[MED 9 0 0 ]", 0, 1 },
        { "[MED 1 2 3 4 ]", 2, 1 },
        { "[MED 2 2 5 9 ]", 3, 1 },
        { "[MED 5 5 5 5 ]", 5, 1 },
        { "[MAX [MIN 9 8 ] [SM 1 [MED 3 4 ] ] ]", 8, 3 },
        { "( ( ( [MED 1 ) 2 ) ] )", 1, 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint16_t ids[64];
        char why[256] = "";
        tp_listops_value v;
        const int64_t n = ids_of(cases[i].text, ids);
        cr_expect(tp_listops_evaluate(ids, n, &v, why, sizeof why), "%s: %s", cases[i].text, why);
        cr_expect_eq(v.answer, cases[i].answer, "%s = %d", cases[i].text, v.answer);
        cr_expect_eq(v.depth, cases[i].depth, "%s", cases[i].text);
    }
}

Test(listops, expressions_that_have_no_value)
{
    static const char *const cases[][2] = {
        { "", "no tokens" },
        { "]", "token 1: a bracket closes nothing" },
        { "1 2", "token 2: the expression has ended before" },
        { "[MIN 1 ] ]", "token 4: the expression has ended before" },
        { "[MIN ]", "token 2: a bracket" },
        { "[MIN 1", "1 brackets are not closed" },
        { "[MAX 1 [SM ] ]", "token 4" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint16_t ids[64];
        char why[256] = "";
        tp_listops_value v;
        const int64_t n = ids_of(cases[i][0], ids);
        cr_expect_not(tp_listops_evaluate(ids, n, &v, why, sizeof why), "%s", cases[i][0]);
        cr_expect(strstr(why, cases[i][1]), "%s: %s", cases[i][0], why);
    }
    const uint16_t zero[] = { 11, 0, 15 };
    char why[256] = "";
    tp_listops_value v;
    cr_expect_not(tp_listops_evaluate(zero, 3, &v, why, sizeof why));
    cr_expect(strstr(why, "token 2: this is not a token"), "%s", why);
}

Test(listops, a_million_levels)
{
    enum { DEEP = 1000000 };
    uint16_t *ids = malloc((2 * DEEP + 1) * sizeof *ids);
    char why[256] = "";
    tp_listops_value v;
    for (int i = 0; i < DEEP; i++) {
        ids[i] = TP_LISTOPS_MAX;
        ids[DEEP + 1 + i] = TP_LISTOPS_CLOSE;
    }
    ids[DEEP] = TP_LISTOPS_DIGIT + 6;
    cr_expect(tp_listops_evaluate(ids, 2 * DEEP + 1, &v, why, sizeof why), "%s", why);
    cr_expect_eq(v.answer, 6);
    cr_expect_eq(v.depth, DEEP);
    free(ids);
}

/* ---- the random process ---- */

/* Checks the grammar from *at on; returns the expression's end. */
static int64_t follow(const uint16_t *ids, int64_t at, int64_t n, int depth, int *deepest)
{
    cr_assert_lt(at, n);
    if (ids[at] < TP_LISTOPS_MIN) return at + 1;
    int args = 0;
    if (depth > *deepest) *deepest = depth;
    for (at++; at < n && ids[at] != TP_LISTOPS_CLOSE; args++)
        at = follow(ids, at, n, depth + 1, deepest);
    cr_expect(args >= 2 && args <= 10, "%d arguments", args);
    return at + 1;
}

Test(listops, drawn_expressions_follow_the_process)
{
    enum { DRAWS = 40000 };
    uint16_t ids[1999];
    int64_t single = 0, kept = 0, longer = 0;
    double tokens = 0;
    for (int i = 0; i < DRAWS; i++) {
        tp_random r = tp_random_stream(5, "listops", (uint64_t)i, 0);
        int answer, deepest = 0;
        const int64_t n = tp_listops_draw(&r, &(tp_listops_opts){ 0 }, ids, &answer);
        longer += n < 0;
        if (n < 0) continue;
        single += n == 1;
        if (n > 500) kept++, tokens += (double)n;
        tp_listops_value v;
        char why[256] = "";
        cr_assert(tp_listops_evaluate(ids, n, &v, why, sizeof why), "draw %d: %s", i, why);
        cr_assert_eq(v.answer, answer, "draw %d", i);
        cr_assert_eq(follow(ids, 0, n, 1, &deepest), n);
        cr_assert(deepest <= 9 && deepest == v.depth, "draw %d: depth %d", i, deepest);
    }
    /* The specified shares, within four standard deviations of that many draws. */
    cr_expect_float_eq((double)single / DRAWS, 0.75, 0.009);
    cr_expect_float_eq((double)kept / DRAWS, 0.082, 0.006);
    cr_expect_float_eq((double)longer / DRAWS, 0.011, 0.0022);
    cr_expect_float_eq(tokens / (double)kept, 1035, 28);
}

static tp_documents *drawn(tp_part part, tp_listops_opts o)
{
    tp_documents *X = tp_documents_listops_drawn(part, &o);
    cr_assert(tp_documents_ok(X), "%s", tp_documents_why(X));
    return X;
}

static void expect_same(const tp_documents *X, int64_t i, const tp_documents *Y, int64_t j)
{
    int64_t n, m;
    const uint16_t *a = tp_documents_ids(X, i, 0, &n), *b = tp_documents_ids(Y, j, 0, &m);
    cr_assert_eq(n, m, "example %lld", (long long)i);
    cr_expect_arr_eq(a, b, (size_t)n * sizeof *a, "example %lld", (long long)i);
    cr_expect_eq(tp_documents_label(X, i), tp_documents_label(Y, j));
}

Test(listops, parts_are_cut_from_one_sequence)
{
    const tp_listops_opts parts = { .seed = 3, .train = 40, .valid = 20, .test = 10 };
    tp_listops_opts whole = parts;
    whole.train = 70;
    whole.valid = whole.test = 0;
    tp_documents *all = drawn(TP_TRAIN, whole), *part[3];
    int64_t first = 0;
    for (int p = 0; p < 3; p++) {
        part[p] = drawn((tp_part)p, parts);
        for (int64_t i = 0; i < tp_documents_count(part[p]); i++)
            expect_same(part[p], i, all, first + i);
        first += tp_documents_count(part[p]);
    }
    cr_expect_eq(first, 70);
    cr_expect_leq(tp_documents_longest(all), 1999 * 6 / 7 + 200, "brackets are dropped");
    whole.seed = 4;
    tp_documents *other = drawn(TP_TRAIN, whole);
    cr_expect_neq(tp_documents_hash(all), tp_documents_hash(other));
    tp_documents_close(other);
    for (int p = 0; p < 3; p++) tp_documents_close(part[p]);
    tp_documents_close(all);
}

static int by_ids(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

Test(listops, drawn_expressions_are_distinct)
{
    enum { N = 3000 };
    static char text[N][32], *order[N];
    tp_documents *X = drawn(
        TP_TRAIN,
        (tp_listops_opts){ .shortest = 3, .longest = 6, .train = N, .brackets = TP_BRACKETS_KEEP });
    for (int i = 0; i < N; i++) {
        int64_t n;
        const uint16_t *ids = tp_documents_ids(X, i, 0, &n);
        cr_assert(n >= 3 && n <= 6 && ids[n - 1] == TP_LISTOPS_CLOSE);
        for (int64_t k = 0; k < n; k++) text[i][k] = (char)('a' + ids[k]);
        order[i] = text[i];
    }
    qsort(order, N, sizeof *order, by_ids);
    for (int i = 1; i < N; i++) cr_expect_str_neq(order[i - 1], order[i]);
    tp_documents_close(X);
}

Test(listops, impossible_wishes)
{
    static const struct {
        tp_listops_opts o;
        const char *message;
    } cases[] = {
        { { .shortest = 1, .longest = 1, .train = 11 }, "gave no new one of 1 to 1 tokens" },
        { { .shortest = 9, .longest = 3 }, "lengths of 9 to 3" },
        { { .shortest = 1, .longest = (int64_t)1 << 40 }, "lengths of 1 to" },
        { { .depth = 65 }, "depth 65" },
        { { .args = 1 }, "args 1" },
        { { .train = -1, .test = 2 }, "negative" },
        { { .cut = -1 }, "negative" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tp_documents *X = tp_documents_listops_drawn(TP_TRAIN, &cases[i].o);
        cr_expect_not(tp_documents_ok(X), "%s", cases[i].message);
        cr_expect(strstr(tp_documents_why(X), cases[i].message), "%s", tp_documents_why(X));
        cr_expect_eq(tp_documents_count(X), 0);
        tp_documents_close(X);
    }
}

/* ---- files ---- */

static void expect_ids(tp_documents *X, int64_t i, int32_t label, int n, const uint16_t *ids)
{
    int64_t count;
    cr_assert(tp_documents_ok(X), "%s", tp_documents_why(X));
    cr_assert_lt(i, tp_documents_count(X));
    const uint16_t *ours = tp_documents_ids(X, i, 0, &count);
    cr_assert_eq(count, n);
    cr_expect_arr_eq(ours, ids, (size_t)n * sizeof *ids);
    cr_expect_eq(tp_documents_label(X, i), label);
}

static const char two[] = "Source\tTarget\n"
                          "( ( ( [MED 1 ) 2 ) ] )\t1\n"
                          "[SM 9 [MIN 3 4 ] ]\t2\n";

Test(listops, files, .init = make_folder, .fini = remove_folder)
{
    const uint16_t keep[] = { 14, 10, 11, 4, 5, 15, 15 }, drop[] = { 14, 10, 11, 4, 5 },
                   first[] = { 13, 2, 3 };
    const tp_documents_opts kept = { .brackets = TP_BRACKETS_KEEP };
    cr_assert_eq(mkdir(in_folder("listops-1000"), 0700), 0);
    write_text("listops-1000/basic_train.tsv", two);
    write_text("listops-1000/basic_val.tsv", "Source\tTarget\r\n\r\n[SM 9 [MIN 3 4 ] ]\t2\r\n");
    write_text("listops-1000/basic_test.tsv", "Source\tTarget\tmore\n7\t7\tx\ty\n8\t8");
    tp_documents *X = tp_documents_listops(folder, TP_TRAIN, NULL);
    expect_ids(X, 0, 1, 3, first);
    expect_ids(X, 1, 2, 5, drop);
    cr_expect_eq(tp_documents_count(X), 2);
    cr_expect_eq(tp_documents_longest(X), 5);
    tp_documents_close(X);
    X = tp_documents_listops(in_folder("listops-1000"), TP_VALID, &kept);
    expect_ids(X, 0, 2, 7, keep);
    tp_documents_close(X);
    X = tp_documents_listops(folder, TP_TEST, NULL);
    cr_expect_eq(tp_documents_count(X), 2);
    tp_documents_close(X);
    X = tp_documents_listops(in_folder("listops-1000/basic_train.tsv"), TP_TEST,
                             &(tp_documents_opts){ .longest = 4, .limit = 2 });
    expect_ids(X, 1, 2, 4, drop);
    tp_documents_close(X);
    X = tp_documents_listops(folder, TP_TRAIN, &(tp_documents_opts){ .limit = 1 });
    cr_expect_eq(tp_documents_count(X), 1);
    tp_documents_close(X);
}

Test(listops, packed_files, .init = make_folder, .fini = remove_folder)
{
    static const char *const packers[] = { "tar cf t", "tar czf t", "tar cJf t" };
    char command[2048];
    write_text("basic_train.tsv", two);
    for (int i = 0; i < 3; i++) {
        snprintf(command, sizeof command, "cd '%s' && %s ./basic_train.tsv", folder, packers[i]);
        cr_assert_eq(system(command), 0);
        tp_documents *X = tp_documents_listops(in_folder("t"), TP_TRAIN, NULL);
        cr_expect_eq(tp_documents_count(X), 2, "%s: %s", packers[i], tp_documents_why(X));
        tp_documents_close(X);
    }
    snprintf(command, sizeof command, "gzip '%s'", in_folder("basic_train.tsv"));
    cr_assert_eq(system(command), 0);
    tp_documents *X = tp_documents_listops(in_folder("basic_train.tsv.gz"), TP_TRAIN, NULL);
    cr_expect_eq(tp_documents_count(X), 2, "%s", tp_documents_why(X));
    tp_documents_close(X);
}

Test(listops, bad_files, .init = make_folder, .fini = remove_folder)
{
    static const char *const cases[][2] = {
        { "[SM 1 2 ]\t3\n", "the first line is not 'Source', a tab and 'Target'" },
        { "Source\tTarget\n", "has no expressions" },
        { "Source\tTarget\n1\t1\n\n[SM 1 2 ]\n", "line 4: has no answer from 0 to 9" },
        { "Source\tTarget\n1\t10\n", "line 2: has no answer" },
        { "Source\tTarget\n1\tx\n", "line 2: has no answer" },
        { "Source\tTarget\n\t1\n", "line 2: has no expression" },
        { "Source\tTarget\n[SM 1 2\t3\n", "line 2: 1 brackets are not closed" },
        { "Source\tTarget\n[SM 1 Z ]\t3\n", "line 2: 'Z' at byte 7 is not a token" },
        { "Source\tTarget\n[SM 1 2 ]\t4\n", "line 2: says that the answer is 4, but it is 3" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text("basic_train.tsv", cases[i][0]);
        tp_documents *X = tp_documents_listops(folder, TP_TRAIN, NULL);
        cr_expect_not(tp_documents_ok(X), "%s", cases[i][1]);
        cr_expect(strstr(tp_documents_why(X), cases[i][1]) &&
                      strstr(tp_documents_why(X), "/basic_train.tsv"),
                  "%s: %s", cases[i][1], tp_documents_why(X));
        tp_documents_close(X);
    }
    tp_documents *X =
        tp_documents_listops(folder, TP_TRAIN, &(tp_documents_opts){ .unchecked = true });
    cr_expect(tp_documents_ok(X), "a wrong answer is taken if nobody checks");
    tp_documents_close(X);
    X = tp_documents_listops(folder, TP_VALID, NULL);
    cr_expect(strstr(tp_documents_why(X), "contains no file basic_val.tsv"), "%s",
              tp_documents_why(X));
    tp_documents_close(X);
    X = tp_documents_listops(in_folder("missing"), TP_VALID, NULL);
    cr_expect(strstr(tp_documents_why(X), "No such file"), "%s", tp_documents_why(X));
    tp_documents_close(X);
    write_text("text", "this is no archive");
    X = tp_documents_listops(in_folder("text"), TP_VALID, NULL);
    cr_expect(strstr(tp_documents_why(X), "neither a folder nor a tar file"), "%s",
              tp_documents_why(X));
    tp_documents_close(X);
}

Test(listops, published_files)
{
    static const int64_t count[] = { 8000, 1000, 1000 };
    const char *path = TP_SOURCE_DIR "/../shared/data/lra/listops.tar.xz";
    if (access(path, R_OK) != 0) cr_skip_test("no %s", path);
    for (int p = 0; p < 3; p++) {
        tp_documents *X = tp_documents_listops(path, (tp_part)p, NULL);
        cr_expect_eq(tp_documents_count(X), count[p], "%s", tp_documents_why(X));
        tp_documents_close(X);
    }
}

/* ---- reference tables ---- */

static void run_table(const char *name)
{
    char path[1024];
    parity_result r;
    fixture_find(name, path, sizeof path);
    cr_expect_eq(parity_run(&r, path, &(parity_opts){ .compute = TP_F32 }), 0, "%s: %s", name,
                 r.why);
}

Test(listops, reference_values)
{
    run_table("lra/listops_cases.tsv");
}
Test(listops, reference_ids)
{
    run_table("lra/listops_tokens.tsv");
}
Test(listops, reference_damage)
{
    run_table("lra/perturb_cases.tsv");
}

Test(listops, tables_that_differ_are_refused, .init = make_folder, .fini = remove_folder)
{
    static const char *const cases[][2] = {
        { "Source\tTarget\tTokens\n[SM 1 2 ]\t3\t5\n", "row 1: Tokens is 4, not 5" },
        { "Source\tDepth\n1\t0\n[SM 1 2 ]\t2\n", "row 2: Depth is 1, not 2" },
        { "Source\tTarget\n[SM 1 2 ]\t4\n", "row 1: Target is 3, not 4" },
        { "Source\tIds_drop\n[SM 1 2 ]\t14 2 3 15\n", "Ids_drop: there are more ids" },
        { "Source\tIds_keep\n[SM 1 2 ]\t14 2 3\n", "Ids_keep: token 4 is 15" },
        { "Source\tTarget\n[SM 1 2\t3\n", "row 1: 1 brackets are not closed" },
        { "What\tTarget\n1\t1\n", "not those of a known kind" },
        { "#sample index\td\tt\ti\te\n2\t0\t61\t613f3d29265e4029217e27\t61\n",
          "i: 11 bytes differ" },
        { "#sample index\td\tt\ti\te\n2\t0\t61\t613f3d29265e4029217e26\t62\n",
          "e: 1 bytes differ" },
        { "#sample index\td\tt\ti\te\n2\t0\t6x\t61\t61\n", "'6x' is not a byte" },
        { "#sample index\td\tt\ti\te\n2\t0\t616\t61\t61\n", "half a byte" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        parity_result r;
        write_text("t.tsv", cases[i][0]);
        cr_expect_eq(parity_run(&r, in_folder("t.tsv"), &(parity_opts){ .compute = TP_F32 }), 1);
        cr_expect(strstr(r.why, cases[i][1]), "%s: %s", cases[i][1], r.why);
    }
}
