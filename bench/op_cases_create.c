/* op_cases_create.c - cases of bench_ops: tensors that are made on the device, and triangles. */
#include "op_cases.h"

#define MANY 1048576

/* BYTES written for each element. */
#define MADE(BYTES) .mbyte = (BYTES)*1e-6 * MANY, .forward_only = true

/* clang-format off */
const op_case op_cases_create[] = {
    { "arange", "1M f32", op_named, .args = "dt=f32 end=1048576 step=1", MADE(4) },
    { "arange", "1M i64", op_named, .args = "dt=i64 end=1048576 step=1", MADE(8) },
    { "rand", "1M", op_named, .args = "dt=f32 s=1048576", MADE(4) },
    { "randn", "1M", op_named, .args = "dt=f32 s=1048576", MADE(4) },
    { "tril", "1024x1024", op_named, .mbyte = 8e-6 * MANY, .mbyte_back = 8e-6 * MANY,
      .in = { { { 2, { 1024, 1024 } }, 0 } } },
    { 0 },
};
/* clang-format on */
