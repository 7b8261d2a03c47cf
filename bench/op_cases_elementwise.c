/* op_cases_elementwise.c - cases of bench_ops: elementwise ops. */
#define TP_NO_SITE
#include "op_cases.h"

tp_tensor op_dropout_add(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_dropout_add(T, x[0], TP_NONE, x[1], 0.2);
}

static tp_tensor by_number(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    return k->two(T, x[0], tp_number(1.5));
}

static tp_tensor where(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_where(T, tp_gt(T, x[0], tp_number(0)), x[0], x[1]);
}

static tp_tensor to_i64(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_cast(T, x[0], TP_I64);
}

static tp_tensor glu(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_glu(T, x[0], -1);
}

static tp_tensor rotary(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    return tp_rotary(T, x[0], TP_NONE, (tp_rotary_cfg){ .heads = k->cfg.heads });
}

#define ROWS 4096

/* clang-format off */
/* Of one shape, with a row, and with a number. */
#define TWO(NAME)                                                                                  \
    { #NAME, "4096x512", op_two, .two = tp_##NAME, .mbyte = 12e-6 * ROWS * 512, .mbyte_back = 20e-6 * ROWS * 512, \
      .in = { { { 2, { ROWS, 512 } }, 0 }, { { 2, { ROWS, 512 } }, 0 } } },                        \
    { #NAME, "4096x512 row", op_two, .two = tp_##NAME, .mbyte = 8e-6 * ROWS * 512, .mbyte_back = 12e-6 * ROWS * 512, \
      .in = { { { 2, { ROWS, 512 } }, 0 }, { { 1, { 512 } }, 0 } } },                              \
    { #NAME, "4096x512 number", by_number, .two = tp_##NAME, .mbyte = 8e-6 * ROWS * 512, .mbyte_back = 8e-6 * ROWS * 512, \
      .in = { { { 2, { ROWS, 512 } }, 0 } } }

const op_case op_cases_elementwise[] = {
    TWO(mul),
    TWO(add),
    TWO(div),
    { "maximum", "4096x512", op_two, .two = tp_maximum, .mbyte = 12e-6 * ROWS * 512, .mbyte_back = 20e-6 * ROWS * 512,
      .in = { { { 2, { ROWS, 512 } }, 0 }, { { 2, { ROWS, 512 } }, 0 } } },
    { "pow", "4096x512", op_two, .two = tp_pow, .mbyte = 12e-6 * ROWS * 512, .mbyte_back = 20e-6 * ROWS * 512, .unit = 1,
      .in = { { { 2, { ROWS, 512 } }, 0 }, { { 2, { ROWS, 512 } }, 0 } } },
    { "gt", "4096x512", op_two, .two = tp_gt, .mbyte = 9e-6 * ROWS * 512, .forward_only = true,
      .in = { { { 2, { ROWS, 512 } }, 0 }, { { 2, { ROWS, 512 } }, 0 } } },
    { "where", "4096x512, x > 0", where, .mbyte = 18e-6 * ROWS * 512, .mbyte_back = 17e-6 * ROWS * 512,
      .in = { { { 2, { ROWS, 512 } }, 0 }, { { 2, { ROWS, 512 } }, 0 } } },
    { "sin", "4096x512", op_one, .one = tp_sin, .mbyte = 8e-6 * ROWS * 512, .mbyte_back = 12e-6 * ROWS * 512,
      .in = { { { 2, { ROWS, 512 } }, 0 } } },
    { "cast", "4096x512 to i64", to_i64, .mbyte = 12e-6 * ROWS * 512, .forward_only = true,
      .in = { { { 2, { ROWS, 512 } }, 0 } } },
    { "gelu", "4096x512", op_one, .one = tp_gelu, .mbyte = 8e-6 * ROWS * 512, .mbyte_back = 12e-6 * ROWS * 512,
      .in = { { { 2, { ROWS, 512 } }, 0 } } },
    { "dropout_add", "4096x512", op_dropout_add, .mbyte = 12e-6 * ROWS * 512, .mbyte_back = 8e-6 * ROWS * 512,
      .in = { { { 2, { ROWS, 512 } }, 0 }, { { 2, { ROWS, 512 } }, 0 } } },
    { "glu", "4096x1024", glu, .mbyte = 12e-6 * ROWS * 512, .mbyte_back = 20e-6 * ROWS * 512,
      .in = { { { 2, { ROWS, 1024 } }, 0 } } },
    { "rotary", "8x512x512 h8", rotary, .cfg = { .heads = 8 }, .mbyte = 8e-6 * ROWS * 512,
      .mbyte_back = 8e-6 * ROWS * 512, .in = { { { 3, { 8, 512, 512 } }, 0 } } },
    { 0 },
};
/* clang-format on */
