/* test_table.c - text files of rows and cells: line ends, separators, headers, labels, and the
 * messages for bad files. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/data.h>

#include "support/folder.h"

static tp_table *table(const char *text, tp_table_opts o)
{
    return tp_table_from(text, strlen(text), &o);
}

/* `cells` has the cells of all rows, separated by '|'. */
static void expect_cells(tp_table *X, int columns, const char *cells)
{
    char all[256] = "";
    cr_assert(tp_table_ok(X), "%s", tp_table_why(X));
    cr_expect_eq(tp_table_columns(X), columns);
    for (int64_t i = 0; i < tp_table_rows(X); i++)
        for (int c = 0; c < columns; c++) {
            strcat(all, tp_table_cell(X, i, c));
            strcat(all, "|");
        }
    cr_expect_str_eq(all, cells);
    tp_table_close(X);
}

Test(table, rows_and_cells)
{
    expect_cells(table("a\tb\nc\td\n", (tp_table_opts){ 0 }), 2, "a|b|c|d|");
    expect_cells(table("a\tb\r\n\r\n\nc\td", (tp_table_opts){ 0 }), 2, "a|b|c|d|");
    expect_cells(table("\t\t\nx\t\ty\n", (tp_table_opts){ 0 }), 3, "|||x||y|");
    expect_cells(table("one\ntwo\n", (tp_table_opts){ 0 }), 1, "one|two|");
    expect_cells(table("a,b\nc,\"d\"\n", (tp_table_opts){ .separator = ',' }), 2, "a|b|c|\"d\"|");
    expect_cells(table("x\tthe\trest\t\ny\t\n", (tp_table_opts){ .columns = 2 }), 2,
                 "x|the\trest\t|y||");
    expect_cells(table("a\tb\nc\td\ne\tf", (tp_table_opts){ .limit = 7 }), 2, "a|b|c|d|");
    tp_table *X = table("name\tage\nada\t36\n", (tp_table_opts){ .header = true });
    cr_expect_eq(tp_table_rows(X), 1);
    cr_expect_str_eq(tp_table_heading(X, 1), "age");
    expect_cells(X, 2, "ada|36|");
    expect_cells(table("\xef\xbb\xbf"
                       "a\tb\n",
                       (tp_table_opts){ 0 }),
                 2, "a|b|");
    expect_cells(table("\xef\xbb\t\xbf\n", (tp_table_opts){ 0 }), 2, "\xef\xbb|\xbf|");
    X = table("ada\t36\n", (tp_table_opts){ 0 });
    cr_expect_null(tp_table_heading(X, 0));
    tp_table_close(X);
}

Test(table, labels_are_numbered_in_order)
{
    tp_table *X =
        table("n\tc\n1\tpear\n2\tfig\n3\tpear\n4\t\n5\tfig\n", (tp_table_opts){ .header = true });
    const int32_t meant[] = { 2, 1, 2, 0, 1 };
    cr_expect_eq(tp_table_label(X, 3, 1), 0, "without asking for their number first");
    cr_expect_eq(tp_table_labels(X, 1), 3);
    for (int i = 0; i < 5; i++) cr_expect_eq(tp_table_label(X, i, 1), meant[i], "row %d", i);
    cr_expect_str_eq(tp_table_label_name(X, 1, 0), "");
    cr_expect_str_eq(tp_table_label_name(X, 1, 1), "fig");
    cr_expect_str_eq(tp_table_label_name(X, 1, 2), "pear");
    cr_expect_eq(tp_table_labels(X, 0), 5);
    tp_table_close(X);
}

static void expect_failure(tp_table *X, const char *message)
{
    cr_expect_not(tp_table_ok(X), "%s", message);
    cr_expect(strstr(tp_table_why(X), message), "'%s' in: %s", message, tp_table_why(X));
    cr_expect_eq(tp_table_rows(X), 0);
    cr_expect_eq(tp_table_labels(X, 0), 0);
    cr_expect_eq(tp_table_label(X, 0, 0), 0);
    cr_expect_str_eq(tp_table_label_name(X, 0, 0), "");
    cr_expect_str_eq(tp_table_cell(X, 0, 0), "");
    cr_expect_null(tp_table_heading(X, 0));
    tp_table_close(X);
}

Test(table, mistakes_are_named, .init = make_folder, .fini = remove_folder)
{
    char wide[5002];
    expect_failure(table("", (tp_table_opts){ 0 }), "table in memory: has no rows");
    expect_failure(table("\n\r\n", (tp_table_opts){ 0 }), "no rows");
    expect_failure(table("a\tb\n", (tp_table_opts){ .header = true }), "no rows");
    expect_failure(table("a\tb\n\nc\n", (tp_table_opts){ 0 }),
                   "line 3 has 1 cell instead of 2, separated by tabs");
    expect_failure(table("a\nb\tc\n", (tp_table_opts){ 0 }), "line 2 has 2 cells instead of 1");
    expect_failure(table("a b\n", (tp_table_opts){ .columns = 2, .separator = ';' }),
                   "line 1 has 1 cell instead of 2, separated by ';'");
    expect_failure(tp_table_from("a\0b\n", 4, NULL), "has a zero byte at offset 1");
    expect_failure(table("a\n", (tp_table_opts){ .columns = -1 }), "-1 columns");
    expect_failure(table("a\n", (tp_table_opts){ .columns = 5000 }), "5000 columns");
    memset(wide, '\t', 5000);
    strcpy(wide + 5000, "\n");
    expect_failure(table(wide, (tp_table_opts){ 0 }), "more than 4096 cells");
    expect_failure(tp_table_open(in_folder("missing"), NULL), "No such file");
    expect_failure(tp_table_open(folder, NULL), folder);
}

Test(table, packed_files, .init = make_folder, .fini = remove_folder)
{
    char command[2048];
    write_text("rows", "1\tone\n2\ttwo\n");
    snprintf(command, sizeof command, "gzip -k '%s'", in_folder("rows"));
    cr_assert_eq(system(command), 0);
    expect_cells(tp_table_open(in_folder("rows"), NULL), 2, "1|one|2|two|");
    expect_cells(tp_table_open(in_folder("rows.gz"), NULL), 2, "1|one|2|two|");
}
