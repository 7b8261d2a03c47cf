/* reduce.c - sum, mean, prod and logsumexp over any set of axes. */
#include "autograd/ops/reduce.h"

#include <math.h>

#include "tensor/geometry/broadcast.h"

TP_KERNEL(sum_fwd);
TP_KERNEL(sum_bwd);
TP_KERNEL(mean_fwd);
TP_KERNEL(mean_bwd);
TP_KERNEL(prod_fwd);
TP_KERNEL(prod_bwd);
TP_KERNEL(logsumexp_fwd);
TP_KERNEL(logsumexp_bwd);

static tp_code sum_shape(tp_infer *q)
{
    int64_t terms = 0;
    return tp__reduce_sums(q, &terms);
}

/* Besides the product: that of the nonzero elements as a number times 2 to an exponent, the count
 * of zeros, and the exponent. */
static tp_code prod_shape(tp_infer *q)
{
    const tp_code code = sum_shape(q);
    q->y[1] = q->y[2] = q->y[3] = q->y[0];
    return code;
}

/* Forward folds x into y. */
static size_t sum_work(const tp_call *c)
{
    const tp_view b = tp__reduced(&c->x[0], ((const tp_reduce_attr *)c->attr)->axes);
    return tp_is_backward(c) ? 0 : tp__fold_work(&c->x[0], &b, c->x[0].dtype);
}

static size_t prod_work(const tp_call *c)
{
    return tp__reduce_work(c, 3 * sizeof(double));
}

static size_t logsumexp_work(const tp_call *c)
{
    return tp__reduce_work(c, 2 * sizeof(double));
}

static const tp_gradcase reduce_cases[] = { TP_REDUCE_CASES, { 0 } };

/* Column j has j zeros, up to two. */
static void with_zeros(int i, tp_view *x)
{
    (void)i;
    for (int64_t e = 0; e < x->numel; e++) {
        const int64_t row = e / x->dim[1], column = e % x->dim[1];
        const double v = tp_ld(x, e);
        tp_st(x, e, row < column && row < 2 ? 0.0 : v < 0 ? v - 0.5 : v + 0.5);
    }
}

/* Keeps long products from losing precision. */
static void around_one(int i, tp_view *x)
{
    (void)i;
    for (int64_t e = 0; e < x->numel; e++) tp_st(x, e, 1.0 + 0.1 * tp_ld(x, e));
}

static const tp_gradcase prod_cases[] = {
    { "zeros in columns", .in = { TP_DIMS(4, 4) }, .attr = &(tp_reduce_attr){ 0, 0 },
      .fill = with_zeros },
    { "zeros in rows", .in = { TP_DIMS(3, 3) }, .attr = &(tp_reduce_attr){ 1, 0 },
      .fill = with_zeros },
    { "many rows", .in = { TP_DIMS(700, 2) }, .attr = &(tp_reduce_attr){ 0, 0 },
      .fill = around_one },
    { "many columns", .in = { TP_DIMS(3, 259) }, .attr = &(tp_reduce_attr){ 0, 0 },
      .fill = around_one },
    { "outer axes", .in = { TP_DIMS(3, 5, 4) }, .attr = &(tp_reduce_attr){ TP_AXES(0, 2), 0 },
      .fill = around_one },
    { "every other axis, kept", .in = { TP_DIMS(3, 2, 4, 3) },
      .attr = &(tp_reduce_attr){ TP_KEEP(TP_AXES(0, 2)), 0 }, .fill = around_one },
    { "all", .in = { TP_DIMS(30, 30) }, .attr = &(tp_reduce_attr){ TP_ALL, 0 },
      .fill = around_one },
    { "no rows", .in = { TP_DIMS(0, 5) }, .attr = &(tp_reduce_attr){ 1, 0 } },
    { 0 },
};

#define REDUCE(f, text)                                                                            \
    .name = #f, .doc = text, .nx = 1, .ny = 1, .attr_size = sizeof(tp_reduce_attr),                \
    .shape = sum_shape, .forward = TP_KERNELS(f##_fwd), .backward = TP_KERNELS(f##_bwd),           \
    .cases = reduce_cases

const tp_op tp_op_sum = { REDUCE(sum, "sum over axes"), .work = TP_SAME_WORK(sum_work) };
const tp_op tp_op_mean = { REDUCE(mean, "mean over axes"), .work = TP_SAME_WORK(sum_work) };
const tp_op tp_op_logsumexp = {
    REDUCE(logsumexp, "log of the sum of e^x over axes"),
    .saves = TP_SAVE_X(0) | TP_SAVE_Y(0),
    .work = TP_SAME_WORK(logsumexp_work),
};

const tp_op tp_op_prod = {
    .name = "prod",
    .doc = "product over axes",
    .nx = 1,
    .ny = 4,
    .attr_size = sizeof(tp_reduce_attr),
    .saves = TP_SAVE_X(0) | TP_SAVE_Y(1) | TP_SAVE_Y(2) | TP_SAVE_Y(3),
    .shape = prod_shape,
    .forward = TP_KERNELS(prod_fwd),
    .backward = TP_KERNELS(prod_bwd),
    .work = TP_SAME_WORK(prod_work),
    .cases = prod_cases,
};

/* A mask, whose sum counts, becomes f32. */
static tp_tensor countable(tp_tape *T, tp_tensor x)
{
    return tp_dtype_of(x) == TP_U8 ? tp_cast(T, x, TP_F32) : x;
}

tp_tensor tp_sum(tp_tape *T, tp_tensor x, int axes)
{
    return tp_apply(T, &tp_op_sum, (&(tp_reduce_attr){ axes, 0 }), countable(T, x));
}

tp_tensor tp_mean(tp_tape *T, tp_tensor x, int axes)
{
    return tp_apply(T, &tp_op_mean, (&(tp_reduce_attr){ axes, 0 }), countable(T, x));
}

tp_tensor tp_prod(tp_tape *T, tp_tensor x, int axes)
{
    return tp_apply(T, &tp_op_prod, (&(tp_reduce_attr){ axes, 0 }), x);
}

tp_tensor tp_logsumexp(tp_tape *T, tp_tensor x, int axes)
{
    return tp_apply(T, &tp_op_logsumexp, (&(tp_reduce_attr){ axes, 0 }), x);
}
