/* extreme.c - max, min, argmax and argmin over any set of axes. */
#include "autograd/ops/reduce.h"

TP_KERNEL(max_fwd);
TP_KERNEL(max_bwd);
TP_KERNEL(min_fwd);
TP_KERNEL(argmax_fwd);
TP_KERNEL(argmin_fwd);

static tp_code extreme_shape(tp_infer *q, tp_dtype dtype)
{
    int64_t terms = 0;
    const tp_code code = tp__reduce_shape(q, dtype, &terms);
    if (code == TP_OK && terms == 0)
        return tp_fail(q, TP_E_SHAPE,
                       "the reduced axes have no elements, so none is the largest or smallest");
    return code;
}

static tp_code index_shape(tp_infer *q)
{
    return extreme_shape(q, TP_I64);
}

/* Values and their indices. */
static tp_code value_shape(tp_infer *q)
{
    const tp_code code = extreme_shape(q, q->x[0].dtype);
    q->y[1] = q->y[0];
    q->y[1].dtype = TP_I64;
    return code;
}

static size_t extreme_work(const tp_call *c)
{
    return tp__reduce_work(c, 2 * sizeof(double));
}

static const tp_gradcase extreme_cases[] = {
    TP_REDUCE_CASES,
    { "axis of one", .in = { TP_DIMS(3, 1) }, .attr = &(tp_reduce_attr){ 1, 0 } },
    { 0 },
};

/* The gradients of max and min need only the indices. */
#define VALUES(f, text)                                                                            \
    .name = #f, .doc = text, .nx = 1, .ny = 2, .attr_size = sizeof(tp_reduce_attr),                \
    .saves = TP_SAVE_Y(1), .shape = value_shape, .forward = TP_KERNELS(f##_fwd),                   \
    .backward = TP_KERNELS(max_bwd), .work = TP_SAME_WORK(extreme_work), .cases = extreme_cases
#define INDICES(f, text)                                                                           \
    .name = #f, .doc = text, .nx = 1, .ny = 1, .attr_size = sizeof(tp_reduce_attr),                \
    .flags = TP_NOT_DIFFERENTIABLE, .shape = index_shape, .forward = TP_KERNELS(f##_fwd),          \
    .work = TP_SAME_WORK(extreme_work), .cases = extreme_cases

const tp_op tp_op_max = { VALUES(max, "maximum over axes; the first maximum gets the gradient") };
const tp_op tp_op_min = { VALUES(min, "minimum over axes; the first minimum gets the gradient") };
const tp_op tp_op_argmax = { INDICES(argmax, "index of the first maximum over axes") };
const tp_op tp_op_argmin = { INDICES(argmin, "index of the first minimum over axes") };

tp_tensor tp_max(tp_tape *T, tp_tensor x, int axes)
{
    return tp_apply(T, &tp_op_max, (&(tp_reduce_attr){ axes, 0 }), x);
}

tp_tensor tp_min(tp_tape *T, tp_tensor x, int axes)
{
    return tp_apply(T, &tp_op_min, (&(tp_reduce_attr){ axes, 0 }), x);
}

tp_tensor tp_argmax(tp_tape *T, tp_tensor x, int axes)
{
    return tp_apply(T, &tp_op_argmax, (&(tp_reduce_attr){ axes, 0 }), x);
}

tp_tensor tp_argmin(tp_tape *T, tp_tensor x, int axes)
{
    return tp_apply(T, &tp_op_argmin, (&(tp_reduce_attr){ axes, 0 }), x);
}
