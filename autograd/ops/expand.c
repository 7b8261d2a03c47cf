/* expand.c - repeats axes of size 1 and adds leading axes to reach a given shape. */
#include "autograd/ops/op_inner.h"
#include "tensor/geometry/broadcast.h"

TP_KERNEL(expand_fwd);
TP_KERNEL(expand_bwd);

static tp_code expand_shape(tp_infer *q)
{
    const tp_shape *s = q->attr;
    const tp_view *x = &q->x[0];
    if (s->ndim > TP_MAX_DIMS || s->ndim < x->ndim)
        return tp_fail(q, TP_E_SHAPE, "%d axes cannot become %d", x->ndim, s->ndim);
    q->y[0] = (tp_view){ .dtype = x->dtype, .ndim = s->ndim };
    for (int i = 0; i < s->ndim; i++) {
        const int k = i - (s->ndim - x->ndim);
        if (k < 0 && s->dim[i] < 0)
            return tp_fail(q, TP_E_SHAPE, "a new axis cannot have size %lld", (long long)s->dim[i]);
        if (k >= 0 && x->dim[k] != s->dim[i] && (x->dim[k] != 1 || s->dim[i] < 0))
            return tp_fail(q, TP_E_SHAPE, "size %lld of axis %d cannot become %lld",
                           (long long)x->dim[k], k, (long long)s->dim[i]);
        q->y[0].dim[i] = s->dim[i];
    }
    return TP_OK;
}

static size_t expand_work(const tp_call *c)
{
    return tp_is_backward(c) ? tp__fold_work(&c->y[0], &c->x[0], c->x[0].dtype) : 0;
}

static const tp_gradcase expand_cases[] = {
    { "new leading axes", .in = { TP_DIMS(3) }, .attr = &TP_SHAPE(2, 4, 3) },
    { "last axis", .in = { TP_DIMS(3, 1) }, .attr = &TP_SHAPE(3, 7) },
    { "one element", .in = { TP_DIMS(1) }, .attr = &TP_SHAPE(3, 5) },
    { "two axes apart", .in = { TP_DIMS(1, 3, 1) }, .attr = &TP_SHAPE(2, 3, 4) },
    { "middle axis", .in = { TP_DIMS(2, 1, 3) }, .attr = &TP_SHAPE(2, 4, 3) },
    { "nothing repeated", .in = { TP_DIMS(2, 3) }, .attr = &TP_SHAPE(2, 3) },
    { "no times", .in = { TP_DIMS(1, 3) }, .attr = &TP_SHAPE(0, 3) },
    { "rows of whole packs", .in = { TP_DIMS(2, 1, 16) }, .attr = &TP_SHAPE(2, 3, 16) },
    { "rows of pieces of packs", .in = { TP_DIMS(1, 19) }, .attr = &TP_SHAPE(5, 19) },
    { "packs of one element", .in = { TP_DIMS(3, 1) }, .attr = &TP_SHAPE(3, 37) },
    { 0 },
};

const tp_op tp_op_expand = {
    .name = "expand",
    .doc = "axes of size 1 repeated; leading axes added",
    .nx = 1,
    .ny = 1,
    .takes = { TP_ANY },
    .attr_size = sizeof(tp_shape),
    .shape = expand_shape,
    .forward = TP_KERNELS(expand_fwd),
    .backward = TP_KERNELS(expand_bwd),
    .work = TP_SAME_WORK(expand_work),
    .cases = expand_cases,
};

tp_tensor tp_expand(tp_tape *T, tp_tensor x, tp_shape s)
{
    return tp_apply(T, &tp_op_expand, &s, x);
}
