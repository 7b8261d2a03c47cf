/* fuzz_table.c - the input is two bytes of options and a file of rows, plain or packed. Besides
 * memory safety the following must hold: every row has all its cells, no cell contains a line end,
 * only the last cell may contain a separator, and labels number the distinct cells in sorted
 * order. */
#include "fuzz.h"

#include <string.h>
#include <tapegrad/data.h>

enum { OPTIONS = 2, LIMIT = 1 << 17, MOST = 1 << 12 };

static void check_cells(tp_table *X, const tp_table_opts *o)
{
    const int columns = tp_table_columns(X);
    const char separator = o->separator ? o->separator : '\t';
    for (int64_t i = 0; i < tp_table_rows(X) && i * columns < MOST; i++)
        for (int c = 0; c < columns; c++) {
            const char *cell = tp_table_cell(X, i, c);
            const bool rest = o->columns > 0 && c == columns - 1;
            fuzz_demand(!strchr(cell, '\n'), "a cell is of one line");
            fuzz_demand(rest || separator == '\n' || !strchr(cell, separator), "cells are cut");
        }
}

static void check_labels(tp_table *X)
{
    const int column = tp_table_columns(X) - 1, n = tp_table_labels(X, column);
    for (int k = 1; k < n; k++)
        fuzz_demand(
            strcmp(tp_table_label_name(X, column, k - 1), tp_table_label_name(X, column, k)) < 0,
            "labels are in order");
    for (int64_t i = 0; i < tp_table_rows(X); i++) {
        const int32_t k = tp_table_label(X, i, column);
        fuzz_demand(k >= 0 && k < n &&
                        strcmp(tp_table_label_name(X, column, k), tp_table_cell(X, i, column)) == 0,
                    "a label is its cell");
    }
}

static void check(tp_table *X, const tp_table_opts *o)
{
    fuzz_demand_reason(tp_table_ok(X), tp_table_why(X));
    fuzz_demand(tp_table_ok(X) == (tp_table_rows(X) > 0), "a good table has rows");
    if (tp_table_ok(X)) {
        check_cells(X, o);
        check_labels(X);
    }
    tp_table_close(X);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    if (size < OPTIONS) return 0;
    const tp_table_opts o = {
        .columns = input[0] % 8, .separator = (char)input[1], .header = input[0] & 8, .limit = LIMIT
    };
    check(tp_table_from((const char *)input + OPTIONS, size - OPTIONS, &o), &o);
    check(tp_table_open(fuzz_path(input + OPTIONS, size - OPTIONS), &o), &o);
    return 0;
}
