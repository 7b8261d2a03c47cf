/* op_cases_reduce.c - cases of bench_ops: reductions and what normalises along an axis. */
#define TP_NO_SITE
#include "op_cases.h"

/* clang-format off */
const op_case op_cases_reduce[] = {
    { "softmax", "4096x512", op_one, .one = tp_softmax, .mbyte = 8e-6 * 4096 * 512, .mbyte_back = 12e-6 * 4096 * 512,
      .in = { { { 2, { 4096, 512 } }, 0 } } },
    { 0 },
};
/* clang-format on */
