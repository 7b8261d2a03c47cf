/* op_cases_shape.c - cases of bench_ops: ops that move elements. */
#include "op_cases.h"

tp_tensor op_embedding(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_embedding(T, x[0], x[1], 1.0);
}

tp_tensor op_swap_middle(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_permute(T, x[0], TP_SHAPE(0, 2, 1, 3));
}

/* clang-format off */
const op_case op_cases_shape[] = {
    { "embedding", "4096 of 208x512", op_embedding, .mbyte = 4e-6 * 4096 * 512, .mbyte_back = 4e-6 * 4096 * 512,
      .in = { { { 2, { 208, 512 } }, 0 }, { { 1, { 4096 } }, 208 } } },
    { "permute", "8x512x8x64 to 0213", op_swap_middle, .mbyte = 8e-6 * 4096 * 512, .mbyte_back = 8e-6 * 4096 * 512,
      .in = { { { 4, { 8, 512, 8, 64 } }, 0 } } },
    { 0 },
};
/* clang-format on */
