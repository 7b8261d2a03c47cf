/* where.c - selects elements of two operands by a mask; all broadcast. masked_fill selects between
 * a number and a tensor of the result's shape. */
#include "autograd/ops/op_inner.h"
#include "autograd/ops/operands.h"

TP_KERNEL(where_fwd);
TP_KERNEL(where_bwd);

static tp_code where_shape(tp_infer *q)
{
    static const char *const names[TP_MEETING + 1] = { "mask", "a", "b" };
    const tp_binary_attr *k = q->attr;
    const tp_code code = tp__expect_two(q, 1);
    if (code != TP_OK) return code;
    if (k->numbers && tp__expect_held(q, q->y[0].dtype, k->number) != TP_OK) return TP_E_VALUE;
    return tp__broadcast_inputs(q, names);
}

static tp_code masked_fill_shape(tp_infer *q)
{
    const tp_code code = where_shape(q);
    if (code == TP_OK && !tp__same_shape(&q->y[0], &q->x[2]))
        return tp_fail(q, TP_E_SHAPE, "the mask must broadcast into x, whose shape the result has");
    return code;
}

static size_t where_work(const tp_call *c)
{
    return tp__operands_work(c, 1);
}

#define TENSORS      TP_ATTR(tp_binary_attr, 0)
#define NUMBER(i, k) TP_ATTR(tp_binary_attr, k, 1 << (i))
static const tp_gradcase where_cases[] = {
    { "vector", .in = { TP_DIMS(7), TP_DIMS(7), TP_DIMS(7) }, .masks = 1, .attr = TENSORS },
    { "odd sizes", .in = { TP_DIMS(5, 9), TP_DIMS(5, 9), TP_DIMS(5, 9) }, .masks = 1,
      .attr = TENSORS },
    { "empty", .in = { TP_DIMS(5, 0), TP_DIMS(5, 0), TP_DIMS(5, 0) }, .masks = 1, .attr = TENSORS },
    { "whole packs", .in = { TP_DIMS(16), TP_DIMS(16), TP_DIMS(16) }, .masks = 1, .attr = TENSORS },
    { "packs and a tail", .in = { TP_DIMS(43), TP_DIMS(43), TP_DIMS(43) }, .masks = 1,
      .attr = TENSORS },
    { "a mask of columns", .in = { TP_DIMS(5, 1), TP_DIMS(5, 9), TP_DIMS(5, 9) }, .masks = 1,
      .attr = TENSORS },
    { "a mask of rows", .in = { TP_DIMS(16), TP_DIMS(3, 16), TP_DIMS(3, 16) }, .masks = 1,
      .attr = TENSORS },
    { "a larger mask", .in = { TP_DIMS(2, 3, 5), TP_DIMS(5), TP_DIMS(3, 1) }, .masks = 1,
      .attr = TENSORS },
    { "each repeated", .in = { TP_DIMS(2, 1, 1), TP_DIMS(3, 1), TP_DIMS(8) }, .masks = 1,
      .attr = TENSORS },
    { "one element", .in = { TP_DIMS(3, 7), TP_DIMS(1), TP_DIMS(3, 7) }, .masks = 1,
      .attr = TENSORS },
    { "repeated no times", .in = { TP_DIMS(1, 1), TP_DIMS(1, 4), TP_DIMS(0, 4) }, .masks = 1,
      .attr = TENSORS },
    { "a is a number", .in = { TP_DIMS(3, 11), { 0 }, TP_DIMS(3, 11) }, .masks = 1,
      .attr = NUMBER(0, 1.5) },
    { "b is a number", .in = { TP_DIMS(11), TP_DIMS(3, 1) }, .masks = 1, .attr = NUMBER(1, -2.5) },
    { 0 },
};

static const tp_gradcase masked_fill_cases[] = {
    { "one shape", .in = { TP_DIMS(3, 11), { 0 }, TP_DIMS(3, 11) }, .masks = 1,
      .attr = NUMBER(0, 1.5) },
    { "a mask of rows", .in = { TP_DIMS(3, 1), { 0 }, TP_DIMS(2, 3, 8) }, .masks = 1,
      .attr = NUMBER(0, -1) },
    { "empty", .in = { TP_DIMS(4), { 0 }, TP_DIMS(0, 4) }, .masks = 1, .attr = NUMBER(0, 1) },
    { 0 },
};

#define WHERE(op, text)                                                                            \
    .name = #op, .doc = text, .nx = 3, .ny = 1, .inputs = "mask, a, b",                            \
    .takes = { TP_MASKS, TP_ANY, TP_ANY }, .attr_size = sizeof(tp_binary_attr),                    \
    .saves = TP_SAVE_X(0), .optional = 6, .shape = op##_shape, .work = TP_SAME_WORK(where_work),   \
    .forward = TP_KERNELS(where_fwd), .backward = TP_KERNELS(where_bwd), .cases = op##_cases

const tp_op tp_op_where = { WHERE(where, "mask ? a : b") };
const tp_op tp_op_masked_fill = { WHERE(masked_fill, "mask ? a number : x") };

static tp_tensor choose(tp_tape *T, const tp_op *op, tp_tensor mask, tp_tensor a, tp_tensor b)
{
    tp_tensor x[] = { a, b };
    const tp_binary_attr k = tp__take_number(x);
    return tp_apply(T, op, &k, mask, x[0], x[1]);
}

tp_tensor tp_where(tp_tape *T, tp_tensor mask, tp_tensor a, tp_tensor b)
{
    return choose(T, &tp_op_where, mask, a, b);
}

tp_tensor tp_masked_fill(tp_tape *T, tp_tensor x, tp_tensor mask, double value)
{
    return choose(T, &tp_op_masked_fill, mask, tp_number(value), x);
}
