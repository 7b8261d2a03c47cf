/* cumulative.c - running sums and products along one axis: y_i = x_0 + .. + x_i, y_i = x_0 ..
 * x_i. */
#include "autograd/ops/op_inner.h"
#include "tensor/geometry/shape_ops.h"

TP_KERNEL(cumsum_fwd);
TP_KERNEL(cumsum_bwd);
TP_KERNEL(cumprod_fwd);
TP_KERNEL(cumprod_bwd);
TP_WORK(cumulative_work);

static tp_code cumulative_shape(tp_infer *q)
{
    const tp_axis_attr *a = q->attr;
    if (tp__check_axis(q, q->x[0].ndim, a->axis) < 0) return TP_E_SHAPE;
    return tp__like_x(q);
}

/* Around 1, so that long products neither vanish nor overflow. */
static void around_one(int i, tp_view *x)
{
    (void)i;
    for (int64_t e = 0; e < x->numel; e++) tp_st(x, e, 1.0 + 0.02 * tp_ld(x, e));
}

/* Rows with no zero, one, two, ... */
static void with_zeros(int i, tp_view *x)
{
    (void)i;
    for (int64_t e = 0; e < x->numel; e++) {
        const int64_t row = e / x->dim[1], column = e % x->dim[1];
        if (column % 3 == 1 && column / 3 < row) tp_st(x, e, 0.0);
    }
}

#define CASES(name, ...)                                                                           \
    static const tp_gradcase name[] = {                                                            \
        { "leading axis", .in = { TP_DIMS(5, 2, 3) }, .attr = &(tp_axis_attr){ 0 } },              \
        { "middle axis", .in = { TP_DIMS(2, 5, 3) }, .attr = &(tp_axis_attr){ 1 } },               \
        { "last axis", .in = { TP_DIMS(3, 7) }, .attr = &(tp_axis_attr){ -1 } },                   \
        { "no rows", .in = { TP_DIMS(0, 5) }, .attr = &(tp_axis_attr){ 1 } },                      \
        { "no steps", .in = { TP_DIMS(5, 0) }, .attr = &(tp_axis_attr){ 1 } },                     \
        { "one step", .in = { TP_DIMS(5, 1) }, .attr = &(tp_axis_attr){ 1 } },                     \
        { "packs", .in = { TP_DIMS(9, 24) }, .attr = &(tp_axis_attr){ 1 }, .fill = around_one },   \
        { "many lanes", .in = { TP_DIMS(3, 130) }, .attr = &(tp_axis_attr){ 0 } },                 \
        { "two tiles of columns", .in = { TP_DIMS(67, 3) }, .attr = &(tp_axis_attr){ 0 },          \
          .fill = around_one },                                                                    \
        { "tiles of packs", .in = { TP_DIMS(2, 4104) }, .attr = &(tp_axis_attr){ 1 },              \
          .fill = around_one },                                                                    \
        { "tiles of few lanes", .in = { TP_DIMS(1030, 2) }, .attr = &(tp_axis_attr){ 0 },          \
          .fill = around_one },                                                                    \
        { "tiles of more lanes", .in = { TP_DIMS(1030, 17) }, .attr = &(tp_axis_attr){ 0 },        \
          .fill = around_one },                                                                    \
        __VA_ARGS__                                                                                \
    }

CASES(cumsum_cases, { 0 });
CASES(cumprod_cases,
      { "zeros", .in = { TP_DIMS(4, 10) }, .attr = &(tp_axis_attr){ 1 }, .fill = with_zeros },
      { "zeros in columns", .in = { TP_DIMS(7, 20) }, .attr = &(tp_axis_attr){ 0 },
        .fill = with_zeros },
      { 0 });

#define CUMULATIVE(f, text)                                                                        \
    .name = #f, .doc = text, .nx = 1, .ny = 1, .attr_size = sizeof(tp_axis_attr),                  \
    .shape = cumulative_shape, .forward = TP_KERNELS(f##_fwd), .backward = TP_KERNELS(f##_bwd),    \
    .work = TP_WORKS(cumulative_work), .cases = f##_cases

const tp_op tp_op_cumsum = { CUMULATIVE(cumsum, "running sums along an axis") };
const tp_op tp_op_cumprod = {
    CUMULATIVE(cumprod, "running products along an axis"),
    .saves = TP_SAVE_X(0) | TP_SAVE_Y(0),
};

tp_tensor tp_cumsum(tp_tape *T, tp_tensor x, int axis)
{
    return tp_apply(T, &tp_op_cumsum, (&(tp_axis_attr){ axis }), x);
}

tp_tensor tp_cumprod(tp_tape *T, tp_tensor x, int axis)
{
    return tp_apply(T, &tp_op_cumprod, (&(tp_axis_attr){ axis }), x);
}
