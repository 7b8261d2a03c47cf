/* op_cases_create.c - cases of bench_ops: tensors that are made on the device, and triangles. */
#include "op_cases.h"

#define MANY 1048576

static tp_tensor sequence(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)x;
    (void)k;
    return tp_arange(T, TP_F32, 0, MANY, 1);
}

static tp_tensor integers(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)x;
    (void)k;
    return tp_arange(T, TP_I64, 0, MANY, 1);
}

static tp_tensor uniform(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)x;
    (void)k;
    return tp_rand(T, TP_F32, TP_SHAPE(MANY));
}

static tp_tensor normal(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)x;
    (void)k;
    return tp_randn(T, TP_F32, TP_SHAPE(MANY));
}

static tp_tensor lower(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_tril(T, x[0], 0);
}

/* BYTES written for each element. */
#define MADE(BYTES) .mbyte = (BYTES)*1e-6 * MANY, .forward_only = true

/* clang-format off */
const op_case op_cases_create[] = {
    { "arange", "1M f32", sequence, MADE(4) },
    { "arange", "1M i64", integers, MADE(8) },
    { "rand", "1M", uniform, MADE(4) },
    { "randn", "1M", normal, MADE(4) },
    { "tril", "1024x1024", lower, .mbyte = 8e-6 * MANY, .mbyte_back = 8e-6 * MANY,
      .in = { { { 2, { 1024, 1024 } }, 0 } } },
    { 0 },
};
/* clang-format on */
