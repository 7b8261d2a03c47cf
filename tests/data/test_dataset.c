/* test_dataset.c - data sets from CSV, JSON lines, arrays and files of tensors: what rows hold, and
 * the messages for bad ones. test_dataset_loader.c has loaders of them. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/dataset.h>

#include "support/folder.h"

TestSuite(dataset, .init = make_folder, .fini = remove_folder);

static tp_dataset *csv(const char *text, tp_dataset_opts o)
{
    return tp_dataset_csv(write_text("x.csv", text), &o);
}

static tp_dataset *lines(const char *text)
{
    return tp_dataset_json_lines(write_text("x.jsonl", text), NULL);
}

/* Appends the texts of all fields. */
typedef struct texts {
    const tp_dataset *X;
    const char *json; /* the field of a JSON line; NULL: all of CSV */
    char all[4096];
} texts;

static bool add_texts(void *env, tp_row *r)
{
    texts *t = env;
    for (int i = 0; t->json ? i < 1 : tp_dataset_field(t->X, i) != NULL; i++) {
        strcat(t->all, tp_row_text(r, t->json ? t->json : tp_dataset_field(t->X, i)));
        strcat(t->all, "|");
    }
    strcat(t->all, "\n");
    return true;
}

/* Frees X. */
static void expect_texts(tp_dataset *X, const char *json, const char *want)
{
    char why[1000];
    texts t = { .X = X, .json = json };
    cr_assert(tp_dataset_ok(X), "%s", tp_dataset_why(X));
    cr_expect(tp_dataset_each(X, add_texts, &t, why, sizeof why), "%s", why);
    cr_expect_str_eq(t.all, want);
    tp_dataset_free(X);
}

/* Frees X, which has failed with a message that ends in `want`. */
static void expect_why(tp_dataset *X, const char *want)
{
    const char *why = tp_dataset_why(X);
    const size_t n = strlen(why), k = strlen(want);
    cr_expect_not(tp_dataset_ok(X), "%s", want);
    cr_expect(n >= k && strcmp(why + n - k, want) == 0, "'%s' ends in '%s'", why, want);
    cr_expect(tp_dataset_count(X) == 0 && tp_dataset_code(X) != TP_OK);
    tp_dataset_free(X);
}

Test(dataset, csv_dialect)
{
    const tp_dataset_opts none = { 0 };
    expect_texts(csv("a,b\n1,2\n3,4", none), NULL, "1|2|\n3|4|\n");
    expect_texts(csv("a,b\r\n1,2\r\n\r\n\n3,4\r\n", none), NULL, "1|2|\n3|4|\n");
    expect_texts(csv("\xef\xbb\xbf\"a\",b\n\"x,y\",\"she said \"\"no\"\"\"\n", none), NULL,
                 "x,y|she said \"no\"|\n");
    expect_texts(csv("a,b\n\"two\nlines\r\n\",\"\"\n , x \n", none), NULL,
                 "two\nlines\r\n||\n | x |\n");
    expect_texts(csv("a;b\n1,5;\"2;3\"\n", (tp_dataset_opts){ .separator = ';' }), NULL,
                 "1,5|2;3|\n");
    expect_texts(csv("# made by hand\na,b\n# \"\n1,#2\n", (tp_dataset_opts){ .comment = '#' }),
                 NULL, "1|#2|\n");
    expect_texts(csv("6\" pipe\t\"x\n",
                     (tp_dataset_opts){ .separator = '\t', .no_header = true, .no_quotes = true }),
                 NULL, "6\" pipe|\"x|\n");
    tp_dataset *X = csv(",b\n7,8\n", none);
    cr_expect_str_eq(tp_dataset_field(X, 0), "1");
    cr_expect_str_eq(tp_dataset_field(X, 1), "b");
    cr_expect_null(tp_dataset_field(X, 2));
    tp_dataset_free(X);
}

/* The reason why row `number` of X is bad, in why; frees X. */
static bool ask(void *env, tp_row *r)
{
    const char *what = env;
    float x[4];
    uint8_t small;
    if (*what == 'n') tp_row_real(r, what + 1);
    if (*what == 'i') tp_row_int(r, what + 1);
    if (*what == 't') tp_row_text(r, what + 1);
    if (*what == 'l') tp_row_label(r, what + 1);
    if (*what == 'f') tp_row_read(r, what + 1, 4, TP_F32, x);
    if (*what == 'u') tp_row_read(r, what + 1, 1, TP_U8, &small);
    if (*what == 'b') tp_row_read(r, what + 1, 1, TP_BF16, x);
    if (*what == 'x') return tp_row_fail(r, "it is %s", "odd");
    return true;
}

static void expect_bad(tp_dataset *X, char *question, const char *want)
{
    char why[1000];
    cr_assert(tp_dataset_ok(X), "%s", tp_dataset_why(X));
    cr_expect_not(tp_dataset_each(X, ask, question, why, sizeof why), "%s", question);
    const size_t n = strlen(why), k = strlen(want);
    cr_expect(n >= k && strcmp(why + n - k, want) == 0, "'%s' ends in '%s'", why, want);
    tp_dataset_free(X);
}

Test(dataset, bad_rows_are_named_by_line)
{
    const tp_dataset_opts none = { 0 };
    expect_bad(csv("a,b\n1,2\n\n\"x\ny\",3\n1\n", none), "",
               "x.csv, line 6: it has 1 cell, the first row has 2");
    expect_bad(csv("a,b\n1,2,3\n", none), "", "line 2: it has 3 cells, the first row has 2");
    expect_bad(csv("a\n1\nx2\n", none), "na",
               "x.csv, line 3: column 'a' has 'x2', which is not a finite number");
    expect_bad(csv("a\n1e999\n", none), "na", "which is not a finite number");
    expect_bad(csv("a\nnan\n", none), "na", "which is not a finite number");
    expect_bad(csv("a\n1.5\n", none), "ia",
               "column 'a' has '1.5', which is not an integer of 64 bits");
    expect_bad(csv("a\n99999999999999999999\n", none), "ia", "an integer of 64 bits");
    expect_bad(csv("a\n9223372036854775808.0\n", none), "ia", "an integer of 64 bits");
    expect_bad(csv("a\n256.0\n", none), "ua", "column 'a' has 256, which does not fit into u8");
    expect_bad(csv("a,b\n1, \n", none), "nb",
               "column 'b' is empty; ask tp_row_is_empty first where that is allowed");
    expect_bad(csv("a\n300\n", none), "ua", "column 'a' has 300, which does not fit into u8");
    expect_bad(csv("a,b\n1,2\n", none), "nc",
               "line 2: there is no column 'c'; the first is 'a', the last 'b'");
    expect_bad(csv("a,b\n1,2\n", none), "fb", "there are 1 columns from 'b' on, 4 were asked for");
    expect_bad(csv("a\n1\n", none), "ba",
               "field 'a': 1 values of dtype bf16 cannot be read; read f32, which a bf16 tape "
               "converts");
    expect_bad(csv("a\n1\n", none), "la",
               "field 'a' has no classes; call tp_dataset_classes before the loader is made");
    expect_bad(csv("a\n\"1\"2\n", none), "",
               "line 2: there is text after the closing '\"': double one that is part of the cell");
    expect_bad(csv("a\n1\"2\n", none), "",
               "a cell has a '\"' but does not begin with it: quote the cell and double the '\"', "
               "or read the file without quotes");
    expect_bad(csv("a\n1\n", none), "x", "line 2: it is odd");
}

Test(dataset, bad_csv_files)
{
    const tp_dataset_opts none = { 0 };
    char *wide = malloc(1 << 16);
    expect_why(tp_dataset_csv(in_folder("missing.csv"), NULL),
               "cannot be opened: No such file or directory; check the path");
    expect_why(tp_dataset_csv(NULL, NULL), "NULL was given in place of the path of a file");
    expect_why(csv("", none), "x.csv: has no rows");
    expect_why(csv("a,b\n", none), "has no rows after the one that names the columns");
    expect_why(csv("a,b\n1,2\n3,\"4\n5,6\n", none),
               "x.csv: a '\"' of the row that begins on line 3, byte 8, is not closed; close it, "
               "or read the file without quotes");
    expect_why(csv("a,b,a\n1,2,3\n", none),
               "line 1: columns 1 and 3 are both named 'a'; rename one, or say that the file has "
               "no header");
    expect_why(csv("a\n1\n", (tp_dataset_opts){ .separator = '"' }),
               "byte 34 cannot separate cells and byte 0 begin comments; take ',', ';' or a tab, "
               "and '#'");
    expect_why(tp_dataset_csv(write_in_folder("x.csv", "a\0\n1\0\n", 6), NULL),
               "x.csv has a zero byte at offset 1: it is not text in UTF-8");
    memset(wide, ',', 1 << 16);
    wide[20000] = '\0';
    expect_why(csv(wide, none), "line 1: it has more than 16384 cells");
    free(wide);
}

static bool check_numbers(void *env, tp_row *r)
{
    double x[3];
    int32_t w;
    (void)env;
    cr_expect(tp_row_is_empty(r, "v") && tp_row_is_empty(r, "u") && !tp_row_is_empty(r, "x"));
    cr_expect_eq(tp_row_length(r, "x"), 6);
    cr_expect(tp_row_read(r, "x", 3, TP_F64, x) && x[0] == -1.5 && x[1] == 2000 && x[2] == 4);
    cr_expect(tp_row_read(r, "w", 1, TP_I32, &w) && w == -7);
    cr_expect_eq(tp_row_int(r, "w"), -7);
    cr_expect_null(tp_row_json(r));
    return true;
}

Test(dataset, numbers_of_csv)
{
    char why[600] = "";
    tp_dataset *X =
        csv("id,x,y,z,w,v,u\nq, -1.5 ,2e3,+4,-7,NA, \n", (tp_dataset_opts){ .missing = "NA" });
    cr_expect(tp_dataset_each(X, check_numbers, NULL, why, sizeof why), "%s", why);
    tp_dataset_free(X);
}

static bool check_tree(void *env, tp_row *r)
{
    float x[4];
    (void)env;
    cr_expect_eq(tp_row_length(r, "a"), 4);
    cr_expect(tp_row_read(r, "a", 4, TP_F32, x) && x[0] == 1 && x[3] == 0);
    cr_expect(tp_row_is_empty(r, "b") && tp_row_is_empty(r, "c") && !tp_row_is_empty(r, "a"));
    cr_expect_eq(json_object_size(tp_row_json(r)), 2);
    return true;
}

Test(dataset, json_lists_and_trees)
{
    char why[600] = "";
    tp_dataset *X = lines("{\"a\": [[1, 2.5], [true, false]], \"b\": null}\n");
    cr_expect(tp_dataset_each(X, check_tree, NULL, why, sizeof why), "%s", why);
    tp_dataset_free(X);
}

static bool check_whole(void *env, tp_row *r)
{
    (void)env;
    return tp_row_int(r, "a") == -3;
}

/* As pandas writes the integers of a column with gaps. */
Test(dataset, whole_numbers_are_integers)
{
    static const double x[] = { -3.0 };
    const tp_row_array array = { "a", TP_F64, TP_SHAPE(1), x };
    tp_dataset *all[] = { lines("{\"a\": -3.0}\n{\"a\": -3}\n"),
                          csv("a\n-3.0\n-3\n-3e0\n", (tp_dataset_opts){ 0 }),
                          tp_dataset_arrays(1, &array) };
    for (int i = 0; i < 3; i++) {
        char why[600] = "";
        cr_expect(tp_dataset_each(all[i], check_whole, NULL, why, sizeof why), "%s", why);
        tp_dataset_free(all[i]);
    }
}

Test(dataset, json_lines_hold_values_of_all_kinds)
{
    expect_texts(lines("{\"a\": \"x\\ny\"}\n \t\r\n{\"a\": 3}\r\n{\"a\": 2.5}\n{\"a\": true}"), "a",
                 "x\ny|\n3|\n2.5|\ntrue|\n");
    expect_bad(lines("{}\n"), "na", "x.jsonl, line 1: there is no member 'a'");
    expect_bad(lines("{\"a\": 1}\n{\"a\": \"1\"}\n"), "na",
               "line 2: member 'a' has a string where a number is expected");
    expect_bad(lines("{\"a\": [1, 2]}\n"), "na", "member 'a' has 2 values instead of 1");
    expect_bad(lines("{\"a\": [1, [2, null, 4]]}\n"), "fa",
               "member 'a' has null where a number is expected");
    expect_bad(lines("{\"a\": 0.5}\n"), "ia",
               "member 'a' has 0.5, which is not an integer; read it as f32 or f64");
    expect_bad(lines("{\"a\": 1e19}\n"), "ia", "member 'a' has 1e+19, which does not fit into i64");
    expect_bad(lines("{\"a\": 3e2}\n"), "ua", "member 'a' has 300, which does not fit into u8");
    expect_bad(lines("{\"a\": [1]}\n"), "ta", "member 'a' is a list where a text is expected");
    expect_bad(lines("\n\n[1]\n"), "", "line 3: it is not an object; write {\"name\": value, ...}");
    expect_bad(lines("{\"a\": 1, \"a\": 2}\n"), "",
               "at byte 12 of the line: duplicate object key near '\"a\"'");
    expect_bad(lines("{\"a\": }\n"), "",
               "line 1: at byte 7 of the line: unexpected token near '}'");
    expect_bad(lines("{} {}\n"), "",
               "line 1: at byte 4 of the line: end of file expected near '{'");
    expect_why(lines(" \n"), "x.jsonl: has no rows");
}

/* ---- arrays ---- */

static const float points[3][2] = { { 1, 2 }, { 3, 4 }, { 5, 6 } };
static const int64_t kinds[3] = { 10, 9, 10 };

static tp_dataset *two_arrays(void)
{
    const tp_row_array all[] = { { "x", TP_F32, TP_SHAPE(3, 2), points },
                                 { "k", TP_I64, TP_SHAPE(3), kinds } };
    return tp_dataset_arrays(2, all);
}

static bool add_values(void *env, tp_row *r)
{
    double x[2], *sum = env;
    uint8_t k;
    cr_expect_eq(tp_row_length(r, "x"), 2);
    cr_expect_eq(tp_row_length(r, "k"), 1);
    if (!tp_row_read(r, "x", 2, TP_F64, x) || !tp_row_read(r, "k", 1, TP_U8, &k)) return false;
    *sum = *sum * 100 + x[0] * 10 + x[1] + k / 100.0;
    return true;
}

Test(dataset, arrays_convert)
{
    char why[600] = "";
    double sum = 0;
    tp_dataset *X = two_arrays();
    cr_expect_eq(tp_dataset_count(X), 3);
    cr_expect(tp_dataset_each(X, add_values, &sum, why, sizeof why), "%s", why);
    cr_expect_float_eq(sum, 123456 + 1000.0 + 9.0 + 0.1, 1e-9);
    tp_dataset_free(X);
    expect_bad(two_arrays(), "ix", "row 0: array 'x' has 2 values for each row, 1 were asked for");
    expect_bad(two_arrays(), "nz", "row 0: there is no array 'z'; the first is 'x'");
    const tp_row_array uneven[] = { { "x", TP_F32, TP_SHAPE(3, 2), points },
                                    { "k", TP_I64, TP_SHAPE(2), kinds } };
    expect_why(tp_dataset_arrays(2, uneven),
               "dataset of arrays: array 'k' has 2 rows, 'x' has 3; name the arrays that belong "
               "together");
    const tp_row_array scalar = { "x", TP_F32, TP_SCALAR, points };
    expect_why(tp_dataset_arrays(1, &scalar), "array 'x' has no rows along a first axis");
    const tp_row_array missing = { "x", TP_F32, TP_SHAPE(1), NULL };
    expect_why(tp_dataset_arrays(1, &missing), "array 'x' has no data");
    expect_why(tp_dataset_arrays(0, NULL), "0 arrays are not 1 to 64");
}

static void write_npz(const char *path)
{
    tp_writer *W = tp_writer_numpy(path);
    tp_writer_add(W, "x", TP_F32, TP_SHAPE(3, 2), points, false);
    tp_writer_add(W, "k", TP_I64, TP_SHAPE(3), kinds, false);
    tp_writer_add(W, "test", TP_I64, TP_SHAPE(2), kinds, false);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
}

Test(dataset, files_of_tensors_in_memory_or_not)
{
    static const char *const names[] = { "x", "k" };
    const char *path = in_folder("x.npz");
    write_npz(path);
    for (size_t memory = 0; memory < 2; memory++) {
        char why[600] = "";
        double sum = 0;
        tp_dataset *X = tp_dataset_file(
            path, &(tp_dataset_opts){ .memory = memory, .field = names, .fields = 2 });
        cr_assert(tp_dataset_ok(X), "%s", tp_dataset_why(X));
        cr_expect(tp_dataset_each(X, add_values, &sum, why, sizeof why), "%s", why);
        cr_expect_float_eq(sum, 123456 + 1000.0 + 9.0 + 0.1, 1e-9);
        tp_dataset_free(X);
    }
    expect_why(tp_dataset_file(path, NULL),
               "x.npz: array 'test' has 2 rows, 'x' has 3; name the arrays that belong together");
    static const char *const other[] = { "y" };
    expect_why(tp_dataset_file(path, &(tp_dataset_opts){ .field = other, .fields = 1 }),
               "x.npz: there is no tensor 'y' in it");
    expect_why(tp_dataset_file(in_folder("none.npy"), NULL),
               "none.npy: cannot be opened (No such file or directory); check the path and its "
               "permissions");
}

/* ---- classes and parts ---- */

Test(dataset, classes_are_sorted)
{
    tp_dataset *X = csv("a,n\nrose,10\nlily,9\nrose,9\n", (tp_dataset_opts){ 0 });
    cr_expect_eq(tp_dataset_classes(X, "a"), 2);
    cr_expect_str_eq(tp_dataset_class(X, "a", 0), "lily");
    cr_expect_str_eq(tp_dataset_class(X, "a", 1), "rose");
    cr_expect_null(tp_dataset_class(X, "a", 2));
    cr_expect_arr_eq(tp_dataset_labels(X, "a"), ((int32_t[]){ 1, 0, 1 }), 3 * sizeof(int32_t));
    cr_expect_eq(tp_dataset_classes(X, "n"), 2);
    cr_expect_str_eq(tp_dataset_class(X, "n", 0), "9", "integers are in the order of numbers");
    tp_dataset *P = tp_dataset_choose(X, (int64_t[]){ 2, 1 }, 2);
    cr_expect_arr_eq(tp_dataset_labels(P, "a"), ((int32_t[]){ 1, 0 }), 2 * sizeof(int32_t));
    cr_expect_str_eq(tp_dataset_class(P, "a", 1), "rose");
    tp_dataset *Q = tp_dataset_choose(P, (int64_t[]){ 1, 1 }, 2);
    expect_texts(Q, NULL, "lily|9|\nlily|9|\n");
    expect_why(tp_dataset_choose(X, (int64_t[]){ 3 }, 1),
               "a part has row 3, which is not from 0 to 2");
    cr_expect_eq(tp_dataset_classes(P, "a"), 2, "those of the whole");
    tp_dataset_free(P);
    P = tp_dataset_choose(X, (int64_t[]){ 0, 2 }, 2);
    cr_expect_eq(tp_dataset_classes(P, "b"), 0);
    expect_why(P, "a part has the classes of its whole, where field 'b' has none; call "
                  "tp_dataset_classes for the whole before it is divided");
    cr_expect_eq(tp_dataset_classes(X, "b"), 0);
    expect_why(X, "x.csv, line 2: there is no column 'b'; the first is 'a', the last 'n'");
}

/* ---- large files ---- */

/* A file of `rows` rows, every 7th of which spans lines. */
static char *many_rows(int rows, size_t *n)
{
    char *text = malloc((size_t)rows * 40 + 10);
    *n = (size_t)sprintf(text, "n,t\n");
    for (int i = 0; i < rows; i++)
        *n += (size_t)sprintf(text + *n, i % 7 ? "%d,x\n" : "%d,\"x\n\"\n", i);
    return text;
}

static bool count_up(void *env, tp_row *r)
{
    int64_t *next = env;
    return tp_row_int(r, "n") == (*next)++;
}

static bool fail_at_5000(void *env, tp_row *r)
{
    (void)env;
    return tp_row_int(r, "n") != 5000;
}

Test(dataset, large_files_are_read_again)
{
    enum { ROWS = 100000 };
    size_t n;
    char *text = many_rows(ROWS, &n), command[2048], why[600], want[600];
    write_in_folder("x.csv", text, n);
    snprintf(command, sizeof command, "gzip -k '%s'", in_folder("x.csv"));
    cr_assert_eq(system(command), 0);
    for (int packed = 0; packed < 2; packed++)
        for (size_t memory = 0; memory < 2; memory++) {
            int64_t next = 0;
            tp_dataset *X = tp_dataset_csv(in_folder(packed ? "x.csv.gz" : "x.csv"),
                                           &(tp_dataset_opts){ .memory = memory });
            cr_assert(tp_dataset_ok(X), "%s", tp_dataset_why(X));
            cr_expect_eq(tp_dataset_count(X), ROWS);
            cr_expect(tp_dataset_each(X, count_up, &next, why, sizeof why), "%s", why);
            cr_expect_eq(next, ROWS);
            cr_expect_not(tp_dataset_each(X, fail_at_5000, NULL, why, sizeof why));
            snprintf(want, sizeof want, ", line %d: the function has stopped here",
                     5000 + 2 + (5000 + 6) / 7);
            cr_expect(strstr(why, want), "'%s' in '%s'", want, why);
            tp_dataset_free(X);
        }
    free(text);
}
