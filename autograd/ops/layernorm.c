/* layernorm.c - layer normalisation over the last axis (Ba, Kiros, Hinton 2016).
 *
 *     y = (x - mean) / sqrt(var + eps) * w + b       biased variance; w, b optional
 *
 * Backward reads x and two numbers a row, not y. */
#include "autograd/ops/rownorm.h"

#define EPS(e) .attr = TP_ATTR(tp__rownorm_attr, .eps = e, .centre = true)

static const tp_gradcase layernorm_cases[] = {
    { "w and b", .in = { TP_DIMS(4, 5), TP_DIMS(5), TP_DIMS(5) }, EPS(1e-5) },
    { "w only", .in = { TP_DIMS(2, 2, 3), TP_DIMS(3) }, EPS(1e-5) },
    { "b only", .in = { TP_DIMS(3, 4), { 0 }, TP_DIMS(4) }, EPS(1e-5) },
    { "plain", .in = { TP_DIMS(2, 7) }, EPS(1e-3) },
    { "large eps", .in = { TP_DIMS(6), TP_DIMS(6), TP_DIMS(6) }, EPS(0.5) },
    { "one channel", .in = { TP_DIMS(3, 1), TP_DIMS(1), TP_DIMS(1) }, EPS(1e-2) },
    { "several blocks", .in = { TP_DIMS(70, 3), TP_DIMS(3), TP_DIMS(3) }, EPS(0.1) },
    { "two packs and one more", .in = { TP_DIMS(3, 17), TP_DIMS(17), TP_DIMS(17) }, EPS(0.1) },
    { "eight lanes", .in = { TP_DIMS(19, 64), TP_DIMS(64), TP_DIMS(64) }, EPS(0.1) },
    { "a warp", .in = { TP_DIMS(17, 72), TP_DIMS(72), TP_DIMS(72) }, EPS(0.1) },
    { "single elements", .in = { TP_DIMS(5, 259), TP_DIMS(259), TP_DIMS(259) }, EPS(0.1) },
    { "two packs a lane", .in = { TP_DIMS(5, 264), TP_DIMS(264), TP_DIMS(264) }, EPS(0.1) },
    { "a full warp", .in = { TP_DIMS(5, 1024), TP_DIMS(1024), TP_DIMS(1024) }, EPS(0.1) },
    { "a block", .in = { TP_DIMS(3, 1032), TP_DIMS(1032), TP_DIMS(1032) }, EPS(0.1) },
    { "half a block", .in = { TP_DIMS(2, 2056), TP_DIMS(2056), TP_DIMS(2056) }, EPS(0.1) },
    { "a full block", .in = { TP_DIMS(1, 8192), TP_DIMS(8192), TP_DIMS(8192) }, EPS(0.1) },
    { "a long row", .in = { TP_DIMS(1, 8193), TP_DIMS(8193), TP_DIMS(8193) }, EPS(0.1) },
    { "no rows", .in = { TP_DIMS(0, 3), TP_DIMS(3), TP_DIMS(3) }, EPS(1e-5) },
    { "no channels", .in = { TP_DIMS(3, 0), TP_DIMS(0), TP_DIMS(0) }, EPS(1e-5) },
    { 0 },
};

#define KV(b, n, m, c) .in = { TP_DIMS(b, n, c), TP_DIMS(c), TP_DIMS(c), TP_DIMS(b, m, c) }, .ny = 2

static const tp_gradcase kv_cases[] = {
    { "w and b", KV(2, 3, 3, 5), EPS(1e-5) },
    { "other rows", KV(2, 3, 7, 4), EPS(1e-2) },
    { "w only", .in = { TP_DIMS(2, 3), TP_DIMS(3), { 0 }, TP_DIMS(3, 2, 3) }, .ny = 2, EPS(0.1) },
    { "b only", .in = { TP_DIMS(4), { 0 }, TP_DIMS(4), TP_DIMS(3, 4) }, .ny = 2, EPS(0.1) },
    { "plain", .in = { TP_DIMS(2, 7), { 0 }, { 0 }, TP_DIMS(1, 7) }, .ny = 2, EPS(1e-3) },
    { "a block of both", KV(1, 9, 25, 64), EPS(0.1) },
    { "several blocks", KV(2, 35, 20, 3), EPS(0.1) },
    { "two packs and one more", KV(1, 3, 2, 17), EPS(0.1) },
    { "a full warp", KV(1, 2, 3, 1024), EPS(0.1) },
    { "a block", KV(1, 2, 1, 1032), EPS(0.1) },
    { "long rows", KV(1, 1, 2, 8193), EPS(0.1) },
    { "no rows of k", KV(1, 0, 3, 6), EPS(0.1) },
    { "no rows of v", KV(1, 3, 0, 6), EPS(0.1) },
    { 0 },
};

const tp_op tp_op_layernorm = {
    .name = "layernorm",
    .doc = "(x - mean) / sqrt(var + eps) * w + b over the last axis, biased variance",
    .nx = 3,
    .inputs = "x, w, b",
    .ny = 2, /* y, mean and 1/sqrt(var + eps) of each row */
    .attr_size = sizeof(tp__rownorm_attr),
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1) | TP_SAVE_Y(1),
    .optional = 1u << 1 | 1u << 2,
    .flags = TP_ACCUMULATES | TP_MIXES | TP_TAKES_BF16,
    .shape = tp__rownorm_shape,
    .forward = TP_KERNELS(rownorm_fwd),
    .backward = TP_KERNELS(rownorm_bwd),
    .work = TP_WORKS(rownorm_work),
    .cases = layernorm_cases,
};

const tp_op tp_op_layernorm_kv = {
    .name = "layernorm_kv",
    .doc = "layernorm of two tensors with the same parameters",
    .nx = ROWNORM_NX,
    .inputs = "k, w, b, v",
    .ny = 3, /* of k, of v, mean and 1/sqrt(var + eps) of each row */
    .attr_size = sizeof(tp__rownorm_attr),
    .saves = TP_SAVE_X(ROWNORM_X) | TP_SAVE_X(ROWNORM_W) | TP_SAVE_X(ROWNORM_V) | TP_SAVE_Y(2),
    .optional = 1u << ROWNORM_W | 1u << ROWNORM_B,
    .flags = TP_ACCUMULATES | TP_MIXES_BUT_LAST | TP_TAKES_BF16,
    .shape = tp__rownorm_shape,
    .forward = TP_KERNELS(rownorm_fwd),
    .backward = TP_KERNELS(rownorm_bwd),
    .work = TP_WORKS(rownorm_work),
    .cases = kv_cases,
};

tp_tensor tp_layernorm(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, double eps)
{
    const tp__rownorm_attr at = { .eps = eps, .centre = true };
    return tp_apply(T, &tp_op_layernorm, &at, x, w, b);
}

tp_kv tp_layernorm_kv(tp_tape *T, tp_tensor k, tp_tensor v, tp_tensor w, tp_tensor b, double eps)
{
    const tp__rownorm_attr at = { .eps = eps, .centre = true };
    const tp_tensor x[ROWNORM_NX] = { k, w, b, v };
    tp_tensor y[2];
    tp_apply_n(T, &tp_op_layernorm_kv, &at, ROWNORM_NX, x, 2, y);
    return (tp_kv){ y[0], y[1] };
}
