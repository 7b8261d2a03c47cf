/* dropout.c - dropout (Srivastava et al. 2014), plain and fused with bias and residual.
 *
 *     dropout      y = m x              m = 1/(1-p) where the element's word is at least p 2^32,
 *     dropout_add  y = residual + m (x + b)     else 0; 1 everywhere unless training
 *
 * The mask is a function of (seed, offset, element): backward recomputes it; nothing is saved. */
#include "autograd/ops/op_inner.h"

TP_KERNEL(dropout_fwd);
TP_KERNEL(dropout_bwd);
TP_KERNEL(dropout_add_fwd);
TP_KERNEL(dropout_add_bwd);
TP_WORK(dropout_add_work);

static tp_code check_p(tp_infer *q)
{
    const double p = *(const double *)q->attr;
    if (p >= 0.0 && p < 1.0) return TP_OK;
    return tp_fail(q, TP_E_VALUE, "p must be at least 0 and less than 1, not %g", p);
}

static tp_code dropout_shape(tp_infer *q)
{
    tp_code code = check_p(q);
    if (code == TP_OK) code = tp__like_x(q);
    if (!q->train || *(const double *)q->attr == 0.0) q->view_at = 0;
    return code;
}

static const tp_gradcase dropout_cases[] = {
    { "vector", .in = { TP_DIMS(7) }, .attr = &(double){ 0.3 } },
    { "many", .in = { TP_DIMS(3, 37, 5) }, .attr = &(double){ 0.75 } },
    { "p 0", .in = { TP_DIMS(3, 4) }, .attr = &(double){ 0.0 } },
    { "whole packs", .in = { TP_DIMS(5, 16) }, .attr = &(double){ 0.5 } },
    { "one more than two blocks", .in = { TP_DIMS(4097) }, .attr = &(double){ 0.5 } },
    { 0 },
};

const tp_op tp_op_dropout = {
    .name = "dropout",
    .doc = "x / (1-p) with probability 1-p, else 0; identity unless training",
    .nx = 1,
    .ny = 1,
    .attr_size = sizeof(double),
    .flags = TP_RANDOM,
    .shape = dropout_shape,
    .forward = TP_KERNELS(dropout_fwd),
    .backward = TP_KERNELS(dropout_bwd),
    .cases = dropout_cases,
};

tp_tensor tp_dropout(tp_tape *T, tp_tensor x, double p)
{
    return tp_apply(T, &tp_op_dropout, &p, x);
}

/* ---- residual + dropout(x + b) ---- */

static tp_code add_shape(tp_infer *q)
{
    const tp_view *x = &q->x[0], *b = &q->x[1], *residual = &q->x[2];
    const tp_code code = check_p(q);

    if (code != TP_OK) return code;
    if (x->ndim < 1) return tp_fail(q, TP_E_SHAPE, "x must have at least one axis");
    if (!tp__same_shape(x, residual))
        return tp_fail(q, TP_E_SHAPE, "x and residual differ in shape");
    if (!tp_absent(b) && (b->ndim != 1 || b->dim[0] != x->dim[x->ndim - 1]))
        return tp_fail(q, TP_E_SHAPE, "b must have one axis of size %lld, the last of x",
                       (long long)x->dim[x->ndim - 1]);
    q->y[0] = *x;
    tp__pass_gradient(q, 2);
    if (!q->train || *(const double *)q->attr == 0.0) tp__pass_gradient(q, 0);
    return TP_OK;
}

static const tp_gradcase add_cases[] = {
    { "bias", .in = { TP_DIMS(3, 7), TP_DIMS(7), TP_DIMS(3, 7) }, .attr = &(double){ 0.4 } },
    { "no bias", .in = { TP_DIMS(3, 7), { 0 }, TP_DIMS(3, 7) }, .attr = &(double){ 0.4 } },
    { "p 0", .in = { TP_DIMS(3, 7), TP_DIMS(7), TP_DIMS(3, 7) }, .attr = &(double){ 0.0 } },
    { "two blocks of rows", .in = { TP_DIMS(5, 8, 3), TP_DIMS(3), TP_DIMS(5, 8, 3) },
      .attr = &(double){ 0.25 } },
    { "long rows", .in = { TP_DIMS(2, 301), TP_DIMS(301), TP_DIMS(2, 301) },
      .attr = &(double){ 0.5 } },
    { "packs", .in = { TP_DIMS(21, 24), TP_DIMS(24), TP_DIMS(21, 24) }, .attr = &(double){ 0.5 } },
    { "half packs", .in = { TP_DIMS(3, 300), TP_DIMS(300), TP_DIMS(3, 300) },
      .attr = &(double){ 0.1 } },
    { "two tiles each way", .in = { TP_DIMS(259, 72), TP_DIMS(72), TP_DIMS(259, 72) },
      .attr = &(double){ 0.1 } },
    { "no rows", .in = { TP_DIMS(0, 3), TP_DIMS(3), TP_DIMS(0, 3) }, .attr = &(double){ 0.1 } },
    { 0 },
};

const tp_op tp_op_dropout_add = {
    .name = "dropout_add",
    .doc = "residual + dropout(x + b)",
    .nx = 3,
    .inputs = "x, b, residual",
    .ny = 1,
    .attr_size = sizeof(double),
    .optional = 1u << 1,
    .flags = TP_RANDOM | TP_MIXES,
    .shape = add_shape,
    .forward = TP_KERNELS(dropout_add_fwd),
    .backward = TP_KERNELS(dropout_add_bwd),
    .work = TP_WORKS(dropout_add_work),
    .cases = add_cases,
};

tp_tensor tp_dropout_add(tp_tape *T, tp_tensor x, tp_tensor b, tp_tensor residual, double p)
{
    return tp_apply(T, &tp_op_dropout_add, &p, x, b, residual);
}
