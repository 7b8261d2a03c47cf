/* op_cases_reduce.c - cases of bench_ops: reductions and what normalises along an axis. */
#define TP_NO_SITE
#include "op_cases.h"

static tp_tensor along(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    return k->along(T, x[0], k->axis);
}

static tp_tensor var(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    return tp_var(T, x[0], k->axis, 1.0);
}

static tp_tensor norm(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    return tp_norm(T, x[0], 2.0, k->axis);
}

static tp_tensor sort(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    return tp_sort(T, x[0], k->axis, false, NULL);
}

static tp_tensor argsort(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    return tp_argsort(T, x[0], k->axis, false);
}

static tp_tensor top10(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    return tp_topk(T, x[0], 10, k->axis, true, NULL);
}

/* M x N matrices along an axis; BYTES for each element. */
#define MATRIX(M, N, AXIS, BYTES)                                                                  \
    .axis = AXIS, .mbyte = BYTES * 1e-6 * M * N, .in = { { { 2, { M, N } }, 0 } }
#define SQUARE(NAME, BYTES)                                                                        \
    { #NAME, "1024x1024", along, .along = tp_##NAME, MATRIX(1024, 1024, 1, BYTES) },               \
    {                                                                                              \
#NAME, "1024x1024 down", along, .along = tp_##NAME, MATRIX(1024, 1024, 0, BYTES)           \
    }

/* Each axis of a cube. */
#define CUBE(NAME, AXIS, WHICH)                                                                    \
    {                                                                                              \
#NAME, "128x128x128 " WHICH, along, .along = tp_##NAME, .axis = AXIS, .mbyte = 8.388608,   \
                                            .mbyte_back = 8.388608,                                \
                                            .in = {                                                \
                                                { { 3, { 128, 128, 128 } }, 0 } }                  \
    }

/* clang-format off */
#define CUBES(NAME) CUBE(NAME, 2, "last axis"), CUBE(NAME, 1, "middle axis"), CUBE(NAME, 0, "first axis")

const op_case op_cases_reduce[] = {
    { "softmax", "4096x512", op_one, .one = tp_softmax, .mbyte = 8e-6 * 4096 * 512, .mbyte_back = 12e-6 * 4096 * 512,
      .in = { { { 2, { 4096, 512 } }, 0 } } },
    SQUARE(prod, 4),
    { "var", "1024x1024", var, MATRIX(1024, 1024, 1, 4) },
    { "var", "1024x1024 down", var, MATRIX(1024, 1024, 0, 4) },
    { "norm", "1024x1024", norm, MATRIX(1024, 1024, 1, 4) },
    { "norm", "1024x1024 down", norm, MATRIX(1024, 1024, 0, 4) },
    { "argmin", "1024x1024", along, .along = tp_argmin, MATRIX(1024, 1024, 1, 4), .forward_only = true },
    { "argmin", "1024x1024 down", along, .along = tp_argmin, MATRIX(1024, 1024, 0, 4), .forward_only = true },
    SQUARE(cumsum, 8),
    { "cumsum", "64x16384", along, .along = tp_cumsum, MATRIX(64, 16384, 1, 8) },
    { "cumsum", "1x1048576", along, .along = tp_cumsum, MATRIX(1, 1048576, 1, 8) },
    SQUARE(cumprod, 8),
    { "sort", "1024x1024", sort, MATRIX(1024, 1024, 1, 16) },
    { "sort", "1024x1024 down", sort, MATRIX(1024, 1024, 0, 16) },
    { "sort", "64x16384", sort, MATRIX(64, 16384, 1, 16) },
    { "sort", "1x1048576", sort, MATRIX(1, 1048576, 1, 16) },
    { "argsort", "1024x1024", argsort, MATRIX(1024, 1024, 1, 12), .forward_only = true },
    { "argsort", "64x16384", argsort, MATRIX(64, 16384, 1, 12), .forward_only = true },
    { "topk", "1024x1024", top10, MATRIX(1024, 1024, 1, 4) },
    { "topk", "1024x1024 down", top10, MATRIX(1024, 1024, 0, 4) },
    { "topk", "64x16384", top10, MATRIX(64, 16384, 1, 4) },
    { "topk", "1x1048576", top10, MATRIX(1, 1048576, 1, 4) },
    CUBES(sum),
    CUBES(mean),
    CUBES(max),
    CUBES(logsumexp),
    { 0 },
};
/* clang-format on */
