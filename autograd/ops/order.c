/* order.c - sort and topk along an axis: values and indices. */
#include "tensor/geometry/order.h"

#include "autograd/ops/op_inner.h"

TP_KERNEL(order_fwd);
TP_KERNEL(order_bwd);
TP_WORK(order_work);

static tp_code order_shape(tp_infer *q)
{
    const tp_order_attr *a = q->attr;
    const tp_view *x = &q->x[0];
    const int axis = tp__check_axis(q, x->ndim, a->axis);
    if (axis < 0) return TP_E_SHAPE;
    if (x->dim[axis] >= UINT32_MAX)
        return tp_fail(q, TP_E_SHAPE, "the axis must have fewer than 2^32 - 1 elements, not %lld",
                       (long long)x->dim[axis]);
    q->y[0] = *x;
    if (a->k >= 0) q->y[0].dim[axis] = a->k;
    q->y[1] = q->y[0];
    q->y[1].dtype = TP_I64;
    return TP_OK;
}

static tp_code topk_shape(tp_infer *q)
{
    const tp_order_attr *a = q->attr;
    const tp_view *x = &q->x[0];
    const int axis = tp__axis(x->ndim, a->axis);
    if (axis >= 0 && (a->k < 0 || a->k > x->dim[axis]))
        return tp_fail(q, TP_E_VALUE, "k must be from 0 to %lld, the size of the axis, not %lld",
                       (long long)x->dim[axis], (long long)a->k);
    return order_shape(q);
}

/* Distinct, unordered values, so that no two swap; equal ones in bf16. */
static void distinct(int i, tp_view *x)
{
    (void)i;
    for (int64_t e = 0; e < x->numel; e++) tp_st(x, e, 1e-3 * (double)(e * 7919 % 10007 - 5000));
}

#define ORDER(text, size, at, way, count)                                                          \
    TP_LIST(text, .in = { size }, .attr = TP_ATTR(tp_order_attr, at, way, count), .ny = 2,         \
            .fill = distinct)

static const tp_gradcase sort_cases[] = {
    ORDER("leading axis", TP_DIMS(5, 2, 3), 0, false, -1),
    ORDER("middle axis", TP_DIMS(2, 5, 3), 1, true, -1),
    ORDER("last axis", TP_DIMS(3, 7), -1, false, -1),
    ORDER("no rows", TP_DIMS(0, 5), 1, false, -1),
    ORDER("no elements", TP_DIMS(5, 0), 1, false, -1),
    ORDER("one element", TP_DIMS(5, 1), 1, true, -1),
    ORDER("more than a warp", TP_DIMS(3, 70), 1, true, -1),
    ORDER("three tiles", TP_DIMS(2, 4100), 1, false, -1),
    ORDER("three tiles down", TP_DIMS(4100, 2), 0, true, -1),
    { 0 },
};

static const tp_gradcase topk_cases[] = {
    ORDER("leading axis", TP_DIMS(5, 2, 3), 0, false, 2),
    ORDER("last axis", TP_DIMS(3, 7), -1, true, 3),
    ORDER("none", TP_DIMS(3, 7), 1, true, 0),
    ORDER("all", TP_DIMS(3, 7), 1, true, 7),
    ORDER("few of many", TP_DIMS(2, 4100), 1, true, 5),
    ORDER("few of many, down", TP_DIMS(4100, 2), 0, false, 9),
    ORDER("more than a tile", TP_DIMS(2, 4100), 1, false, 3000),
    ORDER("no rows", TP_DIMS(0, 5), 1, false, 2),
    { 0 },
};

#define SORTS(f, text)                                                                             \
    .name = #f, .doc = text, .nx = 1, .ny = 2, .attr_size = sizeof(tp_order_attr),                 \
    .saves = TP_SAVE_Y(1), .shape = f##_shape, .forward = TP_KERNELS(order_fwd),                   \
    .backward = TP_KERNELS(order_bwd), .work = TP_WORKS(order_work), .cases = f##_cases
#define sort_shape order_shape

const tp_op tp_op_sort = { SORTS(sort, "elements sorted along an axis, and their indices") };
const tp_op tp_op_topk = { SORTS(topk,
                                 "the k largest or smallest elements along an axis, sorted") };

static tp_tensor apply(tp_tape *T, const tp_op *op, tp_tensor x, tp_order_attr a,
                       tp_tensor *indices)
{
    tp_tensor y[2];
    tp_apply_n(T, op, &a, 1, &x, 2, y);
    if (indices) *indices = y[1];
    return y[0];
}

tp_tensor tp_sort(tp_tape *T, tp_tensor x, int axis, bool descending, tp_tensor *indices)
{
    return apply(T, &tp_op_sort, x, (tp_order_attr){ axis, descending, -1 }, indices);
}

tp_tensor tp_argsort(tp_tape *T, tp_tensor x, int axis, bool descending)
{
    tp_tensor indices;
    apply(T, &tp_op_sort, x, (tp_order_attr){ axis, descending, -1 }, &indices);
    return indices;
}

tp_tensor tp_topk(tp_tape *T, tp_tensor x, int64_t k, int axis, bool largest, tp_tensor *indices)
{
    return apply(T, &tp_op_topk, x, (tp_order_attr){ axis, largest, k }, indices);
}
