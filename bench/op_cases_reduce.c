/* op_cases_reduce.c - cases of bench_ops: reductions and what normalises along an axis. */
#include "op_cases.h"

static tp_tensor sort(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    return tp_sort(T, x[0], k->axis, false, NULL);
}

static tp_tensor top10(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    return tp_topk(T, x[0], 10, k->axis, true, NULL);
}

/* clang-format off */
/* M x N matrices, BYTES for each element; along an axis, or with arguments. */
#define MATRIX(M, N, BYTES)       .mbyte = BYTES * 1e-6 * M * N, .in = { { { 2, { M, N } }, 0 } }
#define ALONG(M, N, AXIS, BYTES)  .axis = AXIS, MATRIX(M, N, BYTES)
#define CALL(M, N, ARGS, BYTES)   op_named, .args = ARGS, MATRIX(M, N, BYTES)
#define SQUARE(NAME, ARGS, BYTES) \
    { #NAME, "1024x1024", CALL(1024, 1024, ARGS "=1", BYTES) }, \
    { #NAME, "1024x1024 down", CALL(1024, 1024, ARGS "=0", BYTES) }

/* Each axis of a cube. */
#define CUBE(NAME, AXIS, WHICH) \
    { #NAME, "128x128x128 " WHICH, op_named, .args = "axes=" #AXIS, .mbyte = 8.388608, .mbyte_back = 8.388608, \
      .in = { { { 3, { 128, 128, 128 } }, 0 } } }
#define CUBES(NAME) CUBE(NAME, 2, "last axis"), CUBE(NAME, 1, "middle axis"), CUBE(NAME, 0, "first axis")

const op_case op_cases_reduce[] = {
    { "softmax", "4096x512", op_named, .mbyte = 8e-6 * 4096 * 512, .mbyte_back = 12e-6 * 4096 * 512,
      .in = { { { 2, { 4096, 512 } }, 0 } } },
    SQUARE(prod, "axes", 4),
    SQUARE(var, "correction=1 axes", 4),
    SQUARE(norm, "p=2 axes", 4),
    { "argmin", "1024x1024", CALL(1024, 1024, "axes=1", 4), .forward_only = true },
    { "argmin", "1024x1024 down", CALL(1024, 1024, "axes=0", 4), .forward_only = true },
    SQUARE(cumsum, "axis", 8),
    { "cumsum", "64x16384", CALL(64, 16384, "axis=1", 8) },
    { "cumsum", "1x1048576", CALL(1, 1048576, "axis=1", 8) },
    SQUARE(cumprod, "axis", 8),
    { "sort", "1024x1024", sort, ALONG(1024, 1024, 1, 16) },
    { "sort", "1024x1024 down", sort, ALONG(1024, 1024, 0, 16) },
    { "sort", "64x16384", sort, ALONG(64, 16384, 1, 16) },
    { "sort", "1x1048576", sort, ALONG(1, 1048576, 1, 16) },
    { "argsort", "1024x1024", CALL(1024, 1024, "axis=1", 12), .forward_only = true },
    { "argsort", "64x16384", CALL(64, 16384, "axis=1", 12), .forward_only = true },
    { "topk", "1024x1024", top10, ALONG(1024, 1024, 1, 4) },
    { "topk", "1024x1024 down", top10, ALONG(1024, 1024, 0, 4) },
    { "topk", "64x16384", top10, ALONG(64, 16384, 1, 4) },
    { "topk", "1x1048576", top10, ALONG(1, 1048576, 1, 4) },
    CUBES(sum),
    CUBES(mean),
    CUBES(max),
    CUBES(logsumexp),
    { 0 },
};
/* clang-format on */
