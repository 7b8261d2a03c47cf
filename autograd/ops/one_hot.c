/* one_hot.c - y[...,j] = 1 where j is the id, else 0. Targets need no speed: one CPU kernel serves
 * all floating dtypes. */
#include <string.h>

#include "autograd/ops/op_inner.h"
#include "tensor/error.h"
#include "tensor/geometry/index.h"

TP_KERNEL(one_hot_fwd);

typedef struct one_hot_attr {
    int64_t n;
    tp_dtype dtype;
} one_hot_attr;

static tp_code one_hot_shape(tp_infer *q)
{
    const one_hot_attr *a = q->attr;
    const tp_view *ids = &q->x[0];

    if (!tp_is_float(a->dtype))
        return tp_fail(q, TP_E_DTYPE, "the result must be floating point, not %s",
                       tp_dtype_name(a->dtype));
    if (a->n < 0) return tp_fail(q, TP_E_VALUE, "n must not be negative: %lld", (long long)a->n);
    if (ids->ndim == TP_MAX_DIMS)
        return tp_fail(q, TP_E_SHAPE, "ids have %d axes, one too many", TP_MAX_DIMS);
    q->y[0] = *ids;
    q->y[0].dtype = a->dtype;
    q->y[0].dim[q->y[0].ndim++] = a->n;
    return TP_OK;
}

tp_code tp_cpu_one_hot_fwd(const tp_call *c)
{
    const tp_view *ids = &c->x[0], *y = &c->y[0];
    const int64_t n = ((const one_hot_attr *)c->attr)->n, bad = tp__first_outside(ids, 0, n);

    if (bad >= 0) {
        tp__append(c->why, TP_WHY, "id %lld at position %lld, but n is %lld",
                   (long long)tp__index(ids, bad), (long long)bad, (long long)n);
        return TP_E_VALUE;
    }
    if (y->numel) memset(y->data, 0, tp__view_bytes(y));
    for (int64_t i = 0; i < ids->numel; i++) tp_st(y, i * n + tp__index(ids, i), 1.0);
    return TP_OK;
}

static const tp_gradcase one_hot_cases[] = {
    { "two axes", .in = { TP_DIMS(3, 4) }, .attr = &(one_hot_attr){ 5, TP_F64 }, .below = { 5 } },
    { 0 },
};

const tp_op tp_op_one_hot = {
    .name = "one_hot",
    .doc = "1 at the id along a new last axis, else 0",
    .nx = 1,
    .ny = 1,
    .inputs = "ids",
    .takes = { TP_INDICES },
    .attr_size = sizeof(one_hot_attr),
    .flags = TP_NOT_DIFFERENTIABLE,
    .shape = one_hot_shape,
    .forward = TP_KERNELS(one_hot_fwd),
    .cases = one_hot_cases,
};

tp_tensor tp_one_hot(tp_tape *T, tp_tensor ids, int64_t n, tp_dtype dt)
{
    return tp_apply(T, &tp_op_one_hot, (&(one_hot_attr){ n, dt }), ids);
}
