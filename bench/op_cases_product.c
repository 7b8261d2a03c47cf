/* op_cases_product.c - cases of bench_ops: products. */
#include "op_cases.h"

tp_tensor op_linear(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_linear(T, x[0], x[1], x[2], TP_ACT_NONE);
}

tp_tensor op_gelu_linear(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_linear(T, x[0], x[1], x[2], TP_ACT_GELU);
}

#define LINEAR_CASE(K, N)                                                                          \
    .mflop = 2e-6 * 2048.0 * K * N,                                                                \
    .in = { { { 2, { 2048, K } }, 0 }, { { 2, { N, K } }, 0 }, { { 1, { N } }, 0 } }

/* clang-format off */
const op_case op_cases_product[] = {
    { "linear", "2048x512->512", op_linear, LINEAR_CASE(512, 512) },
    { "linear", "2048x2048->512", op_linear, LINEAR_CASE(2048, 512) },
    { "linear_gelu", "2048x512->2048", op_gelu_linear, LINEAR_CASE(512, 2048) },
    { 0 },
};
/* clang-format on */
