/* op_cases_elementwise.c - cases of bench_ops: elementwise ops. */
#include "op_cases.h"

static tp_tensor where(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_where(T, tp_gt(T, x[0], 0), x[0], x[1]);
}

#define ROWS 4096

/* clang-format off */
/* Of one shape, with a row, and with a number. */
#define TWO(NAME)                                                                                  \
    { #NAME, "4096x512", op_named, .mbyte = 12e-6 * ROWS * 512, .mbyte_back = 20e-6 * ROWS * 512, \
      .in = { { { 2, { ROWS, 512 } }, 0 }, { { 2, { ROWS, 512 } }, 0 } } },                        \
    { #NAME, "4096x512 row", op_named, .mbyte = 8e-6 * ROWS * 512, .mbyte_back = 12e-6 * ROWS * 512, \
      .in = { { { 2, { ROWS, 512 } }, 0 }, { { 1, { 512 } }, 0 } } },                              \
    { #NAME, "4096x512 number", op_named, .args = "k=1.5", .mbyte = 8e-6 * ROWS * 512, .mbyte_back = 8e-6 * ROWS * 512, \
      .in = { { { 2, { ROWS, 512 } }, 0 } } }

const op_case op_cases_elementwise[] = {
    TWO(mul),
    TWO(add),
    TWO(div),
    { "maximum", "4096x512", op_named, .mbyte = 12e-6 * ROWS * 512, .mbyte_back = 20e-6 * ROWS * 512,
      .in = { { { 2, { ROWS, 512 } }, 0 }, { { 2, { ROWS, 512 } }, 0 } } },
    { "pow", "4096x512", op_named, .mbyte = 12e-6 * ROWS * 512, .mbyte_back = 20e-6 * ROWS * 512, .unit = 1,
      .in = { { { 2, { ROWS, 512 } }, 0 }, { { 2, { ROWS, 512 } }, 0 } } },
    { "gt", "4096x512", op_named, .mbyte = 9e-6 * ROWS * 512, .forward_only = true,
      .in = { { { 2, { ROWS, 512 } }, 0 }, { { 2, { ROWS, 512 } }, 0 } } },
    { "where", "4096x512, x > 0", where, .mbyte = 18e-6 * ROWS * 512, .mbyte_back = 17e-6 * ROWS * 512,
      .in = { { { 2, { ROWS, 512 } }, 0 }, { { 2, { ROWS, 512 } }, 0 } } },
    { "sin", "4096x512", op_named, .mbyte = 8e-6 * ROWS * 512, .mbyte_back = 12e-6 * ROWS * 512,
      .in = { { { 2, { ROWS, 512 } }, 0 } } },
    { "cast", "4096x512 to i64", op_named, .args = "dt=i64", .mbyte = 12e-6 * ROWS * 512, .forward_only = true,
      .in = { { { 2, { ROWS, 512 } }, 0 } } },
    { "gelu", "4096x512", op_named, .mbyte = 8e-6 * ROWS * 512, .mbyte_back = 12e-6 * ROWS * 512,
      .in = { { { 2, { ROWS, 512 } }, 0 } } },
    { "dropout_add", "4096x512", op_named, .absent = 1 << 1, .args = "p=0.2", .mbyte = 12e-6 * ROWS * 512, .mbyte_back = 8e-6 * ROWS * 512,
      .in = { { { 2, { ROWS, 512 } }, 0 }, { { 2, { ROWS, 512 } }, 0 } } },
    { "glu", "4096x1024", op_named, .args = "axis=-1", .mbyte = 12e-6 * ROWS * 512, .mbyte_back = 20e-6 * ROWS * 512,
      .in = { { { 2, { ROWS, 1024 } }, 0 } } },
    { "rotary", "8x512x512 h8", op_named, .args = "heads=8", .mbyte = 8e-6 * ROWS * 512,
      .mbyte_back = 8e-6 * ROWS * 512, .in = { { { 3, { 8, 512, 512 } }, 0 } } },
    { 0 },
};
/* clang-format on */
