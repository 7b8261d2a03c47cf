/* permute.c - reorders axes: axis i of y is axis order[i] of x. A view if only axes of size 1
 * move. */
#include "autograd/ops/op_inner.h"

TP_KERNEL(permute_fwd);
TP_KERNEL(permute_bwd);

static tp_code permute_shape(tp_infer *q)
{
    const tp_shape *s = q->attr;
    const tp_view *x = &q->x[0];
    unsigned seen = 0;
    int last = -1; /* the previous axis of x that is longer than 1 */
    bool moved = false;
    if (s->ndim != x->ndim)
        return tp_fail(q, TP_E_SHAPE, "the order names %d axes, x has %d", s->ndim, x->ndim);
    q->y[0] = *x;
    for (int i = 0; i < x->ndim; i++) {
        const int64_t k = s->dim[i] < 0 ? s->dim[i] + x->ndim : s->dim[i];
        if (k < 0 || k >= x->ndim)
            return tp_fail(q, TP_E_SHAPE, "axis %lld is out of range for %d axes",
                           (long long)s->dim[i], x->ndim);
        if (seen >> k & 1u) return tp_fail(q, TP_E_SHAPE, "axis %lld is named twice", (long long)k);
        seen |= 1u << k;
        q->y[0].dim[i] = x->dim[k];
        if (x->dim[k] == 1) continue;
        if ((int)k < last) moved = true;
        last = (int)k;
    }
    if (!moved) q->view_at = 0;
    return TP_OK;
}

static const tp_gradcase permute_cases[] = {
    { "transpose", .in = { TP_DIMS(3, 5) }, .attr = &TP_SHAPE(1, 0) },
    { "heads", .in = { TP_DIMS(2, 3, 2, 5) }, .attr = &TP_SHAPE(0, 2, 1, 3) },
    { "batches of matrices", .in = { TP_DIMS(2, 3, 4) }, .attr = &TP_SHAPE(0, 2, 1) },
    { "a cycle", .in = { TP_DIMS(2, 3, 4) }, .attr = &TP_SHAPE(2, 0, 1) },
    { "negative axes", .in = { TP_DIMS(2, 3, 4) }, .attr = &TP_SHAPE(-1, -2, -3) },
    { "larger than a tile", .in = { TP_DIMS(33, 35) }, .attr = &TP_SHAPE(1, 0) },
    { "larger than two tiles", .in = { TP_DIMS(10, 66) }, .attr = &TP_SHAPE(1, 0) },
    { "a narrow side", .in = { TP_DIMS(2, 35, 8) }, .attr = &TP_SHAPE(0, 2, 1) },
    { "a side that is not narrow", .in = { TP_DIMS(2, 9, 11) }, .attr = &TP_SHAPE(2, 0, 1) },
    { "rows of whole packs", .in = { TP_DIMS(3, 4, 16) }, .attr = &TP_SHAPE(1, 0, 2) },
    { "a view", .in = { TP_DIMS(3, 1, 4) }, .attr = &TP_SHAPE(1, 0, 2) },
    { "empty", .in = { TP_DIMS(2, 0, 4) }, .attr = &TP_SHAPE(2, 1, 0) },
    { 0 },
};

const tp_op tp_op_permute = {
    .name = "permute",
    .doc = "axes in another order; a view where only axes of size 1 move",
    .nx = 1,
    .ny = 1,
    .takes = { TP_ANY },
    .attr_size = sizeof(tp_shape),
    .flags = TP_TAKES_BF16,
    .shape = permute_shape,
    .forward = TP_KERNELS(permute_fwd),
    .backward = TP_KERNELS(permute_bwd),
    .cases = permute_cases,
};

tp_tensor tp_permute(tp_tape *T, tp_tensor x, tp_shape order)
{
    return tp_apply(T, &tp_op_permute, &order, x);
}
