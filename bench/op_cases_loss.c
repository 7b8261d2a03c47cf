/* op_cases_loss.c - cases of bench_ops: losses. */
#include "op_cases.h"

tp_tensor op_cross_entropy(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_cross_entropy(T, x[0], x[1], TP_MEAN);
}

/* clang-format off */
const op_case op_cases_loss[] = {
    { "cross_entropy", "2048x208", op_cross_entropy, .mbyte = 4e-6 * 2048 * 208,
      .in = { { { 2, { 2048, 208 } }, 0 }, { { 1, { 2048 } }, 208 } } },
    { 0 },
};
/* clang-format on */
