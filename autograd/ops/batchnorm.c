/* batchnorm.c - batch normalisation, channels last (Ioffe, Szegedy 2015).
 *
 *     y = (x - m) / sqrt(v + eps) * w + b      over all axes of x [...,C] but the last
 *
 * m and v are the batch's mean and variance in training, the buffers `mean` and `var` in eval. In
 * training the kernel also updates the buffers and increments `batches`; when tp_checkpoint replays
 * the op, it leaves them unchanged. */
#include <math.h>

#include "autograd/ops/op_inner.h"
#include "tensor/geometry/norms.h"

static tp_code batchnorm_shape(tp_infer *q)
{
    static const char *const names[] = { "x", "w", "b", "mean", "var" };
    const tp__batchnorm_attr *at = q->attr;
    const tp_view *x = &q->x[0];

    tp_infer vectors = *q; /* all inputs except batches */
    vectors.nx = 5;
    for (int i = 3; i < 5; i++)
        if (q->x[i].dtype != tp__sum_dtype(x->dtype))
            return tp_fail(q, TP_E_DTYPE, "%s must be %s", names[i],
                           tp_dtype_name(tp__sum_dtype(x->dtype)));
    if (x->ndim < 1) return tp_fail(q, TP_E_SHAPE, "x needs one axis or more");
    const int64_t C = x->dim[x->ndim - 1];
    if (tp__expect_norm_layout(q) != TP_OK) return TP_E_SHAPE;
    if (tp__expect_vectors(&vectors, names, C) != TP_OK) return TP_E_SHAPE;
    if (!tp_absent(&q->x[5]) && q->x[5].numel != 1)
        return tp_fail(q, TP_E_SHAPE, "batches must be one number of dtype i64");
    if (!(at->eps >= 0.0 && at->eps < INFINITY))
        return tp_fail(q, TP_E_VALUE, "eps must be 0 or more");
    if (!(at->momentum >= 0.0 && at->momentum <= 1.0))
        return tp_fail(q, TP_E_VALUE, "momentum must be in [0, 1]");
    if (q->train && x->numel == C && C > 0)
        return tp_fail(q, TP_E_SHAPE,
                       "training needs more than one value a channel: use a batch of 2 or more, "
                       "or larger inputs");

    q->y[0] = *x;
    q->y[1] = (tp_view){ .dtype = q->x[3].dtype, .ndim = 1, .dim = { C } };
    q->y[2] = q->y[1];
    return TP_OK;
}

/* Running variances are positive. */
static void batchnorm_fill(int i, tp_view *x)
{
    for (int64_t e = 0; i == 4 && e < x->numel; e++) tp_st(x, e, fabs(tp_ld(x, e)));
}

#define ATTR(m, e) .attr = &(tp__batchnorm_attr){ m, e }, .fill = batchnorm_fill

static const tp_gradcase batchnorm_cases[] = {
    { "w and b", .in = { TP_DIMS(6, 3), TP_DIMS(3), TP_DIMS(3), TP_DIMS(3), TP_DIMS(3) },
      ATTR(0.1, 1e-5) },
    { "counted",
      .in = { TP_DIMS(6, 3), TP_DIMS(3), TP_DIMS(3), TP_DIMS(3), TP_DIMS(3), TP_DIMS(1) },
      ATTR(0.1, 1e-5), .below = { [5] = 9 } },
    { "w only", .in = { TP_DIMS(2, 3, 2), TP_DIMS(2), { 0 }, TP_DIMS(2), TP_DIMS(2) },
      ATTR(0.1, 1e-5) },
    { "b only", .in = { TP_DIMS(4, 3), { 0 }, TP_DIMS(3), TP_DIMS(3), TP_DIMS(3) },
      ATTR(0.0, 1e-3) },
    { "plain", .in = { TP_DIMS(2, 2, 2, 3), { 0 }, { 0 }, TP_DIMS(3), TP_DIMS(3) },
      ATTR(1.0, 0.5) },
    { "one channel", .in = { TP_DIMS(5, 1), TP_DIMS(1), TP_DIMS(1), TP_DIMS(1), TP_DIMS(1) },
      ATTR(0.1, 1e-5) },
    { "several blocks", .in = { TP_DIMS(70, 2), TP_DIMS(2), TP_DIMS(2), TP_DIMS(2), TP_DIMS(2) },
      ATTR(0.1, 1e-5) },
    { "packs", .in = { TP_DIMS(9, 24), TP_DIMS(24), TP_DIMS(24), TP_DIMS(24), TP_DIMS(24) },
      ATTR(0.1, 1e-2) },
    { "all rows of a tile",
      .in = { TP_DIMS(259, 3), TP_DIMS(3), TP_DIMS(3), TP_DIMS(3), TP_DIMS(3) }, ATTR(0.1, 1e-2) },
    { "several tiles",
      .in = { TP_DIMS(300, 72), TP_DIMS(72), TP_DIMS(72), TP_DIMS(72), TP_DIMS(72) },
      ATTR(0.1, 1e-2) },
    { "several pieces of a row",
      .in = { TP_DIMS(3, 260), TP_DIMS(260), TP_DIMS(260), TP_DIMS(260), TP_DIMS(260) },
      ATTR(0.1, 1e-2) },
    { "no rows", .in = { TP_DIMS(0, 2), TP_DIMS(2), TP_DIMS(2), TP_DIMS(2), TP_DIMS(2) },
      ATTR(0.1, 1e-5) },
    { "no channels", .in = { TP_DIMS(2, 0), TP_DIMS(0), TP_DIMS(0), TP_DIMS(0), TP_DIMS(0) },
      ATTR(0.1, 1e-5) },
    { 0 },
};

TP_KERNEL(batchnorm_fwd);
TP_KERNEL(batchnorm_bwd);
TP_WORK(batchnorm_work);

const tp_op tp_op_batchnorm = {
    .name = "batchnorm",
    .doc = "(x - m) / sqrt(v + eps) * w + b over all axes but the last; batch or running m, v",
    .nx = 6,
    .inputs = "x, w, b, mean, var, batches",
    .takes = { [3] = 1 << TP_F32 | 1 << TP_F64, 1 << TP_F32 | 1 << TP_F64, 1 << TP_I64 },
    .ny = 3, /* y, m, 1/sqrt(v + eps) */
    .attr_size = sizeof(tp__batchnorm_attr),
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1) | TP_SAVE_Y(1) | TP_SAVE_Y(2),
    .optional = 1u << 1 | 1u << 2 | 1u << 5,
    .constant = 1u << 3 | 1u << 4 | 1u << 5,
    .exact = 1u << 3 | 1u << 4,
    .flags = TP_MIXES | TP_TAKES_BF16,
    .shape = batchnorm_shape,
    .forward = TP_KERNELS(batchnorm_fwd),
    .backward = TP_KERNELS(batchnorm_bwd),
    .work = TP_WORKS(batchnorm_work),
    .cases = batchnorm_cases,
};

tp_tensor tp_batchnorm(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, tp_tensor mean,
                       tp_tensor var, tp_tensor batches, double momentum, double eps)
{
    const tp__batchnorm_attr at = { momentum, eps };
    return tp_apply(T, &tp_op_batchnorm, &at, x, w, b, mean, var, batches);
}
