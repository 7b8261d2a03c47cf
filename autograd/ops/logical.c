/* logical.c - any and all over any set of axes, of any dtype. */
#include "autograd/ops/reduce.h"

TP_KERNEL(any_fwd);
TP_KERNEL(all_fwd);

static tp_code logical_shape(tp_infer *q)
{
    int64_t terms = 0;
    return tp__reduce_shape(q, TP_U8, &terms);
}

static size_t logical_work(const tp_call *c)
{
    return tp__reduce_work(c, sizeof(double));
}

/* Sets half of them to 0. */
static void half(int i, tp_view *x)
{
    (void)i;
    for (int64_t e = 0; e < x->numel; e++)
        if (tp_ld(x, e) < 0) tp_st(x, e, 0.0);
}

static const tp_gradcase logical_cases[] = {
    TP_REDUCE_CASES,
    { "zeros", .in = { TP_DIMS(5, 2) }, .attr = &(tp_reduce_attr){ 1, 0 }, .fill = half },
    { "zeros in columns", .in = { TP_DIMS(2, 70) }, .attr = &(tp_reduce_attr){ 0, 0 },
      .fill = half },
    { "masks", .in = { TP_DIMS(9, 3) }, .attr = &(tp_reduce_attr){ 1, 0 }, .masks = 1 },
    { "integers", .in = { TP_DIMS(9, 2) }, .attr = &(tp_reduce_attr){ 1, 0 }, .below = { 2 } },
    { 0 },
};

#define LOGICAL(f, text)                                                                           \
    .name = #f, .doc = text, .nx = 1, .ny = 1, .takes = { TP_ANY },                                \
    .attr_size = sizeof(tp_reduce_attr), .flags = TP_NOT_DIFFERENTIABLE, .shape = logical_shape,   \
    .forward = TP_KERNELS(f##_fwd), .work = TP_SAME_WORK(logical_work), .cases = logical_cases

const tp_op tp_op_any = { LOGICAL(any, "whether any element over axes is nonzero") };
const tp_op tp_op_all = { LOGICAL(all, "whether all elements over axes are nonzero") };

tp_tensor tp_any(tp_tape *T, tp_tensor x, int axes)
{
    return tp_apply(T, &tp_op_any, (&(tp_reduce_attr){ axes, 0 }), x);
}

tp_tensor tp_all(tp_tape *T, tp_tensor x, int axes)
{
    return tp_apply(T, &tp_op_all, (&(tp_reduce_attr){ axes, 0 }), x);
}
