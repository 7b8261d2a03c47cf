/* reshape.c - the same data in another shape: a view in both directions. */
#include "autograd/ops/op_inner.h"

/* Computes the size given as -1, if any. */
static tp_code infer_size(tp_infer *q, tp_view *y, int unknown)
{
    const int64_t n = q->x[0].numel;
    int64_t known = 1;
    for (int i = 0; i < y->ndim; i++)
        if (i != unknown && __builtin_mul_overflow(known, y->dim[i], &known))
            return tp_fail(q, TP_E_SHAPE, "the product of the sizes overflows");
    if (unknown >= 0) {
        if (known == 0)
            return tp_fail(q, TP_E_SHAPE, "size -1 is not determined beside a size of 0");
        if (n % known != 0)
            return tp_fail(q, TP_E_SHAPE, "%lld elements are not a multiple of %lld", (long long)n,
                           (long long)known);
        y->dim[unknown] = n / known;
    } else if (known != n) {
        return tp_fail(q, TP_E_SHAPE, "%lld elements do not fit a shape of %lld", (long long)n,
                       (long long)known);
    }
    return TP_OK;
}

static tp_code reshape_shape(tp_infer *q)
{
    const tp_shape *s = q->attr;
    tp_view y = { .dtype = q->x[0].dtype, .ndim = s->ndim };
    int unknown = -1;
    if (s->ndim < 0 || s->ndim > TP_MAX_DIMS)
        return tp_fail(q, TP_E_SHAPE, "%d axes; at most %d are possible", s->ndim, TP_MAX_DIMS);
    for (int i = 0; i < s->ndim; i++) {
        y.dim[i] = s->dim[i];
        if (s->dim[i] >= 0) continue;
        if (s->dim[i] < -1)
            return tp_fail(q, TP_E_SHAPE, "size of axis %d is %lld", i, (long long)s->dim[i]);
        if (unknown >= 0)
            return tp_fail(q, TP_E_SHAPE, "sizes of axes %d and %d are both -1", unknown, i);
        unknown = i;
    }
    q->y[0] = y;
    q->view_at = 0;
    return infer_size(q, &q->y[0], unknown);
}

static const tp_gradcase reshape_cases[] = {
    { "merge", .in = { TP_DIMS(2, 3, 4) }, .attr = &TP_SHAPE(6, 4) },
    { "split, one size inferred", .in = { TP_DIMS(6, 5) }, .attr = &TP_SHAPE(2, -1, 5) },
    { "to a scalar", .in = { TP_DIMS(1, 1) }, .attr = &TP_SCALAR },
    { "empty", .in = { TP_DIMS(0, 3) }, .attr = &TP_SHAPE(2, 0, 7) },
    { 0 },
};

const tp_op tp_op_reshape = {
    .name = "reshape",
    .doc = "the same elements in another shape; a view",
    .nx = 1,
    .takes = { TP_ANY },
    .ny = 1,
    .attr_size = sizeof(tp_shape),
    .shape = reshape_shape,
    .cases = reshape_cases,
};

tp_tensor tp_reshape(tp_tape *T, tp_tensor x, tp_shape s)
{
    return tp_apply(T, &tp_op_reshape, &s, x);
}
