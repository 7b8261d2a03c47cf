/* triangle.c - lower or upper triangles of matrices, and of their gradients. */
#include "autograd/ops/op_inner.h"
#include "tensor/geometry/create.h"

TP_KERNEL(triangle_fwd);
TP_KERNEL(triangle_bwd);

static tp_code triangle_shape(tp_infer *q)
{
    if (q->x[0].ndim < 2)
        return tp_fail(q, TP_E_SHAPE, "x must have at least two axes, those of the matrices");
    q->y[0] = q->x[0];
    return TP_OK;
}

static const tp_gradcase triangle_cases[] = {
    { "lower", .in = { TP_DIMS(5, 7) }, .attr = &(tp_triangle_attr){ 0, false } },
    { "upper", .in = { TP_DIMS(7, 5) }, .attr = &(tp_triangle_attr){ 0, true } },
    { "several, above", .in = { TP_DIMS(3, 4, 33) }, .attr = &(tp_triangle_attr){ 2, false } },
    { "several, below", .in = { TP_DIMS(2, 2, 6, 3) }, .attr = &(tp_triangle_attr){ -3, true } },
    { "nothing left", .in = { TP_DIMS(3, 4) }, .attr = &(tp_triangle_attr){ -9, false } },
    { "far away", .in = { TP_DIMS(3, 4) }, .attr = &(tp_triangle_attr){ INT64_MAX, false } },
    { "far below", .in = { TP_DIMS(3, 4) }, .attr = &(tp_triangle_attr){ INT64_MIN, true } },
    { "empty", .in = { TP_DIMS(2, 0, 4) }, .attr = &(tp_triangle_attr){ 0, false } },
    { 0 },
};

#define TRIANGLE(f, text)                                                                          \
    .name = #f, .doc = text, .nx = 1, .ny = 1, .takes = { TP_ANY },                                \
    .attr_size = sizeof(tp_triangle_attr), .shape = triangle_shape,                                \
    .forward = TP_KERNELS(triangle_fwd), .backward = TP_KERNELS(triangle_bwd),                     \
    .cases = triangle_cases

const tp_op tp_op_tril = { TRIANGLE(tril, "matrices with zeros above a diagonal") };
const tp_op tp_op_triu = { TRIANGLE(triu, "matrices with zeros below a diagonal") };

tp_tensor tp_tril(tp_tape *T, tp_tensor x, int64_t diagonal)
{
    return tp_apply(T, &tp_op_tril, (&(tp_triangle_attr){ diagonal, false }), x);
}

tp_tensor tp_triu(tp_tape *T, tp_tensor x, int64_t diagonal)
{
    return tp_apply(T, &tp_op_triu, (&(tp_triangle_attr){ diagonal, true }), x);
}
