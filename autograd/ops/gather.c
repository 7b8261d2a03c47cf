/* gather.c - gather and scatter_add along an axis, here axis 1 of 3
 *
 *     gather       y[i][j][k] = x[i][index[i][j][k]][k]
 *     scatter_add  y = x, then y[i][index[i][j][k]][k] += src[i][j][k]
 *
 * Each is the other's gradient. Kernels check the indices, since shape rules cannot see values. */
#include "autograd/ops/op_inner.h"

TP_KERNEL(gather_fwd);
TP_KERNEL(gather_bwd);
TP_WORK(gather_work);
TP_KERNEL(scatter_add_fwd);
TP_KERNEL(scatter_add_bwd);
TP_WORK(scatter_add_work);

static tp_code check_index(tp_infer *q)
{
    const tp_view *x = &q->x[0], *index = &q->x[1];
    const int axis = tp__axis(x->ndim, *(const int *)q->attr);

    if (axis < 0)
        return tp_fail(q, TP_E_VALUE, "axis %d is out of range: x has %d axes",
                       *(const int *)q->attr, x->ndim);
    if (index->ndim != x->ndim)
        return tp_fail(q, TP_E_SHAPE, "x has %d axes and the index has %d", x->ndim, index->ndim);
    for (int d = 0; d < x->ndim; d++)
        if (d != axis && index->dim[d] > x->dim[d])
            return tp_fail(q, TP_E_SHAPE, "the index is larger than x along axis %d: %lld and %lld",
                           d, (long long)index->dim[d], (long long)x->dim[d]);
    return TP_OK;
}

static tp_code gather_shape(tp_infer *q)
{
    q->y[0] = q->x[1];
    q->y[0].dtype = q->x[0].dtype;
    return check_index(q);
}

static const tp_gradcase gather_cases[] = {
    { "vector", .in = { TP_DIMS(4), TP_DIMS(7) }, .attr = &(int){ 0 }, .below = { 0, 4 } },
    { "first axis", .in = { TP_DIMS(4, 3), TP_DIMS(6, 3) }, .attr = &(int){ 0 },
      .below = { 0, 4 } },
    { "middle axis, smaller index", .in = { TP_DIMS(3, 4, 5), TP_DIMS(2, 6, 3) },
      .attr = &(int){ 1 }, .below = { 0, 4 } },
    { "last axis", .in = { TP_DIMS(3, 5), TP_DIMS(3, 2) }, .attr = &(int){ -1 },
      .below = { 0, 5 } },
    { "two bytes of places", .in = { TP_DIMS(2, 170), TP_DIMS(2, 13) }, .attr = &(int){ 1 },
      .below = { 0, 170 } },
    { "lines side by side", .in = { TP_DIMS(1, 37, 3), TP_DIMS(1, 17, 2) }, .attr = &(int){ 1 },
      .below = { 0, 37 } },
    { "places across many runs, two tiles", .in = { TP_DIMS(2, 2), TP_DIMS(2, 1100) },
      .attr = &(int){ 1 }, .below = { 0, 2 } },
    { "one row of several", .in = { TP_DIMS(2, 2, 5), TP_DIMS(1, 2, 9) }, .attr = &(int){ 2 },
      .below = { 0, 5 } },
    { "empty index", .in = { TP_DIMS(3, 5), TP_DIMS(3, 0) }, .attr = &(int){ 1 },
      .below = { 0, 5 } },
    { 0 },
};

const tp_op tp_op_gather = {
    .name = "gather",
    .doc = "y[i][j][k] = x[i][index[i][j][k]][k] for axis 1",
    .nx = 2,
    .inputs = "x, index",
    .takes = { [1] = TP_INDICES },
    .ny = 1,
    .attr_size = sizeof(int),
    .saves = TP_SAVE_X(1),
    .shape = gather_shape,
    .forward = TP_KERNELS(gather_fwd),
    .backward = TP_KERNELS(gather_bwd),
    .work = TP_CUDA_WORKS(gather_work),
    .cases = gather_cases,
};

tp_tensor tp_gather(tp_tape *T, tp_tensor x, int axis, tp_tensor index)
{
    return tp_apply(T, &tp_op_gather, &axis, x, index);
}

/* ---- scatter_add ---- */

static tp_code scatter_add_shape(tp_infer *q)
{
    if (!tp__same_shape(&q->x[1], &q->x[2]))
        return tp_fail(q, TP_E_SHAPE, "index and src differ in shape");
    q->y[0] = q->x[0];
    return check_index(q);
}

static const tp_gradcase scatter_add_cases[] = {
    { "vector", .in = { TP_DIMS(4), TP_DIMS(7), TP_DIMS(7) }, .attr = &(int){ 0 },
      .below = { 0, 4 } },
    { "middle axis, smaller index", .in = { TP_DIMS(3, 4, 5), TP_DIMS(2, 6, 3), TP_DIMS(2, 6, 3) },
      .attr = &(int){ 1 }, .below = { 0, 4 } },
    { "last axis", .in = { TP_DIMS(3, 5), TP_DIMS(3, 2), TP_DIMS(3, 2) }, .attr = &(int){ -1 },
      .below = { 0, 5 } },
    { "two bytes of places", .in = { TP_DIMS(2, 170), TP_DIMS(2, 13), TP_DIMS(2, 13) },
      .attr = &(int){ 1 }, .below = { 0, 170 } },
    { "places across runs", .in = { TP_DIMS(2), TP_DIMS(150), TP_DIMS(150) }, .attr = &(int){ 0 },
      .below = { 0, 2 } },
    { "empty index", .in = { TP_DIMS(3, 5), TP_DIMS(3, 0), TP_DIMS(3, 0) }, .attr = &(int){ 1 },
      .below = { 0, 5 } },
    { 0 },
};

const tp_op tp_op_scatter_add = {
    .name = "scatter_add",
    .doc = "x with src added at index along axis",
    .nx = 3,
    .inputs = "x, index, src",
    .takes = { [1] = TP_INDICES },
    .ny = 1,
    .attr_size = sizeof(int),
    .saves = TP_SAVE_X(1),
    .flags = TP_MIXES,
    .shape = scatter_add_shape,
    .forward = TP_KERNELS(scatter_add_fwd),
    .backward = TP_KERNELS(scatter_add_bwd),
    .work = TP_CUDA_WORKS(scatter_add_work),
    .cases = scatter_add_cases,
};

tp_tensor tp_scatter_add(tp_tape *T, tp_tensor x, int axis, tp_tensor index, tp_tensor src)
{
    return tp_apply(T, &tp_op_scatter_add, &axis, x, index, src);
}
