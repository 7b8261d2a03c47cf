/* op_cases_elementwise.c - cases of bench_ops: elementwise ops. */
#define TP_NO_SITE
#include "op_cases.h"

tp_tensor op_dropout_add(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_dropout_add(T, x[0], TP_NONE, x[1], 0.2);
}

#define ROWS 4096

/* clang-format off */
const op_case op_cases_elementwise[] = {
    { "mul", "4096x512", op_two, .two = tp_mul, .mbyte = 12e-6 * ROWS * 512, .mbyte_back = 20e-6 * ROWS * 512,
      .in = { { { 2, { ROWS, 512 } }, 0 }, { { 2, { ROWS, 512 } }, 0 } } },
    { "gelu", "4096x512", op_one, .one = tp_gelu, .mbyte = 8e-6 * ROWS * 512, .mbyte_back = 12e-6 * ROWS * 512,
      .in = { { { 2, { ROWS, 512 } }, 0 } } },
    { "dropout_add", "4096x512", op_dropout_add, .mbyte = 12e-6 * ROWS * 512, .mbyte_back = 8e-6 * ROWS * 512,
      .in = { { { 2, { ROWS, 512 } }, 0 }, { { 2, { ROWS, 512 } }, 0 } } },
    { 0 },
};
/* clang-format on */
