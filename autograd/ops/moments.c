/* moments.c - variance, standard deviation and norms over any set of axes.
 *
 * For backward, var and std also return the mean, and the norm for p = infinity the number of
 * elements that share the largest magnitude. */
#include <math.h>

#include "autograd/ops/reduce.h"

TP_KERNEL(var_fwd);
TP_KERNEL(var_bwd);
TP_KERNEL(std_fwd);
TP_KERNEL(std_bwd);
TP_KERNEL(norm_fwd);
TP_KERNEL(norm_bwd);

static tp_code var_shape(tp_infer *q)
{
    int64_t terms = 0;
    const tp_reduce_attr *a = q->attr;
    if (!isfinite(a->k))
        return tp_fail(q, TP_E_VALUE, "the correction is %g, not a finite number", a->k);
    const tp_code code = tp__reduce_sums(q, &terms);
    q->y[1] = q->y[0];
    return code;
}

static tp_code norm_shape(tp_infer *q)
{
    int64_t terms = 0;
    const tp_reduce_attr *a = q->attr;
    if (!(a->k >= 0))
        return tp_fail(q, TP_E_VALUE, "p is %g, but must be 0 or more, or INFINITY", a->k);
    const tp_code code = tp__reduce_sums(q, &terms);
    if (code != TP_OK) return code;
    if (isinf(a->k) && terms == 0)
        return tp_fail(q, TP_E_SHAPE,
                       "the reduced axes have no elements, so none has the largest magnitude");
    q->y[1] = q->y[0];
    if (!isinf(a->k)) q->y[1] = (tp_view){ .dtype = q->y[0].dtype, .ndim = 1 };
    return TP_OK;
}

static size_t var_work(const tp_call *c)
{
    return tp__reduce_work(c, 3 * sizeof(double));
}

static size_t norm_work(const tp_call *c)
{
    return tp__reduce_work(c, 3 * sizeof(double));
}

static const tp_gradcase var_cases[] = {
    TP_REDUCE_CASES_OF(1),
    { "without correction", .in = { TP_DIMS(5, 3) }, .attr = &(tp_reduce_attr){ 0, 0 } },
    { "half a correction", .in = { TP_DIMS(5, 3) }, .attr = &(tp_reduce_attr){ 1, 0.5 } },
    { "axis of one", .in = { TP_DIMS(3, 1) }, .attr = &(tp_reduce_attr){ 1, -1 } },
    { 0 },
};

/* std is not differentiable if all elements are equal, so no axis has size 1. */
static const tp_gradcase std_cases[] = {
    TP_REDUCE_CASES_OF(1),
    { "without correction", .in = { TP_DIMS(5, 3) }, .attr = &(tp_reduce_attr){ 0, 0 } },
    { 0 },
};

static const tp_gradcase norm_cases[] = {
    TP_REDUCE_CASES_OF(2),
    { "p = 0", .in = { TP_DIMS(5, 3) }, .attr = &(tp_reduce_attr){ 0, 0 } },
    { "p = 1", .in = { TP_DIMS(5, 3) }, .attr = &(tp_reduce_attr){ 1, 1 } },
    { "p = 1 of columns", .in = { TP_DIMS(5, 70) }, .attr = &(tp_reduce_attr){ 0, 1 } },
    { "p = 3", .in = { TP_DIMS(5, 3) }, .attr = &(tp_reduce_attr){ 1, 3 } },
    { "p = 0.5 of columns", .in = { TP_DIMS(5, 3) }, .attr = &(tp_reduce_attr){ 0, 0.5 } },
    { "the largest", .in = { TP_DIMS(3, 700) }, .attr = &(tp_reduce_attr){ 1, INFINITY } },
    { "the largest of columns", .in = { TP_DIMS(300, 3) },
      .attr = &(tp_reduce_attr){ 0, INFINITY } },
    { "the largest of outer axes", .in = { TP_DIMS(3, 5, 4) },
      .attr = &(tp_reduce_attr){ TP_AXES(0, 2), INFINITY } },
    { 0 },
};

#define REDUCE(f, text)                                                                            \
    .name = #f, .doc = text, .nx = 1, .ny = 2, .attr_size = sizeof(tp_reduce_attr),                \
    .forward = TP_KERNELS(f##_fwd), .backward = TP_KERNELS(f##_bwd), .cases = f##_cases

const tp_op tp_op_var = {
    REDUCE(var, "variance over axes"),
    .saves = TP_SAVE_X(0) | TP_SAVE_Y(1),
    .shape = var_shape,
    .work = TP_SAME_WORK(var_work),
};

const tp_op tp_op_std = {
    REDUCE(std, "standard deviation over axes"),
    .saves = TP_SAVE_X(0) | TP_SAVE_Y(0) | TP_SAVE_Y(1),
    .shape = var_shape,
    .work = TP_SAME_WORK(var_work),
};

const tp_op tp_op_norm = {
    REDUCE(norm, "(sum |x|^p)^(1/p) over axes"),
    .saves = TP_SAVE_X(0) | TP_SAVE_Y(0) | TP_SAVE_Y(1),
    .shape = norm_shape,
    .work = TP_SAME_WORK(norm_work),
};

tp_tensor tp_var(tp_tape *T, tp_tensor x, int axes, double correction)
{
    return tp_apply(T, &tp_op_var, (&(tp_reduce_attr){ axes, correction }), x);
}

tp_tensor tp_std(tp_tape *T, tp_tensor x, int axes, double correction)
{
    return tp_apply(T, &tp_op_std, (&(tp_reduce_attr){ axes, correction }), x);
}

tp_tensor tp_norm(tp_tape *T, tp_tensor x, double p, int axes)
{
    return tp_apply(T, &tp_op_norm, (&(tp_reduce_attr){ axes, p }), x);
}
