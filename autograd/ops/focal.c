/* focal.c - sigmoid focal loss (Lin et al. 2017), which down-weights well-classified elements.
 *
 *     a_t (1-p_t)^gamma bce(x, t)     p_t = p t + (1-p)(1-t), a_t = alpha t + (1-alpha)(1-t)
 *
 * with p = sigmoid(x), and a_t = 1 if alpha is negative. Class targets have their own op without
 * one-hot vectors, which for a detector's anchors would be as large as the logits. */
#include "autograd/ops/loss.h"

TP_KERNEL(focal_class_fwd);
TP_KERNEL(focal_class_bwd);
TP_WORK(focal_class_work);

static tp_code check_weights(tp_infer *q)
{
    const tp__point_loss_attr *a = q->attr;

    if (!(a->alpha <= 1.0))
        return tp_fail(q, TP_E_VALUE, "alpha must be at most 1, or negative for none, not %g",
                       a->alpha);
    if (!(a->gamma >= 0.0 && a->gamma <= 100.0))
        return tp_fail(q, TP_E_VALUE, "gamma must be in [0,100], not %g", a->gamma);
    return TP_OK;
}

static tp_code focal_shape(tp_infer *q)
{
    const tp_code code = check_weights(q);
    return code == TP_OK ? tp__point_loss_shape(q) : code;
}

#define FOCAL(...) .attr = TP_ATTR(tp__point_loss_attr, .loss = TP_LOSS_FOCAL, __VA_ARGS__)

/* Targets are 0, 1 and values in between. */
static void fill(int i, tp_view *v)
{
    for (int64_t e = 0; i == 1 && e < v->numel; e++) tp_st(v, e, (double)(e % 3) / 2.0);
}

static const tp_gradcase focal_cases[] = {
    { "usual", .in = { TP_DIMS(3, 7), TP_DIMS(3, 7) }, .fill = fill,
      FOCAL(.reduction = TP_MEAN, .alpha = 0.25, .gamma = 2.0) },
    { "no alpha", .in = { TP_DIMS(3, 7), TP_DIMS(3, 7) }, .fill = fill,
      FOCAL(.reduction = TP_EACH, .alpha = -1.0, .gamma = 0.5) },
    { "gamma 0", .in = { TP_DIMS(100), TP_DIMS(100) }, .fill = fill,
      FOCAL(.reduction = TP_SUM, .alpha = 0.25, .gamma = 0.0) },
    { 0 },
};

const tp_op tp_op_focal = {
    .name = "focal",
    .doc = "alpha_t (1-p_t)^gamma bce_logits(x, target), reduced",
    .shape = focal_shape,
    .cases = focal_cases,
    TP_POINT_LOSS,
};

/* ---- targets are classes ---- */

static tp_code focal_class_shape(tp_infer *q)
{
    const tp__point_loss_attr *a = q->attr;
    const tp_view *x = &q->x[0];
    tp_view rows = *x;
    const tp_code code = check_weights(q);

    if (code != TP_OK) return code;
    if (x->ndim < 1 || x->dim[x->ndim - 1] == 0 || x->dim[x->ndim - 1] > INT32_MAX)
        return tp_fail(q, TP_E_SHAPE, "x must have 1 to 2^31 - 1 classes along the last axis");
    rows.ndim--;
    if (!tp__same_shape(&rows, &q->x[1]))
        return tp_fail(q, TP_E_SHAPE,
                       "a target of classes must have the axes of x without the last one");
    rows.dtype = tp__sum_dtype(x->dtype);
    if (a->reduction == TP_EACH) q->y[0] = rows;
    q->y[0].dtype = rows.dtype;
    return tp__check_reduction(q, a->reduction);
}

/* Some rows are not counted, some are background (classes of all cases are below 5). */
static void classes(int i, tp_view *v)
{
    const int64_t K = v->numel % 7 ? 5 : 1;
    for (int64_t e = 0; i == 1 && e < v->numel; e++)
        if (e % 5 == 1)
            tp_st(v, e, -1.0 - (double)e);
        else
            tp_st(v, e, (double)(e % 3 ? K : e % K));
}

#define CLASS(...) .fill = classes, FOCAL(__VA_ARGS__)

static const tp_gradcase focal_class_cases[] = {
    { "sum", .in = { TP_DIMS(2, 3, 5), TP_DIMS(2, 3) }, .below = { 0, 5 },
      CLASS(.reduction = TP_SUM, .alpha = 0.25, .gamma = 2.0) },
    { "mean of counted rows", .in = { TP_DIMS(12, 5), TP_DIMS(12) }, .below = { 0, 5 },
      CLASS(.reduction = TP_MEAN, .alpha = 0.75, .gamma = 1.5) },
    { "mean of all rows", .in = { TP_DIMS(11, 5), TP_DIMS(11) }, .below = { 0, 5 },
      CLASS(.reduction = TP_MEAN_ALL, .alpha = -1.0, .gamma = 0.0) },
    { "each", .in = { TP_DIMS(9, 5), TP_DIMS(9) }, .below = { 0, 5 },
      CLASS(.reduction = TP_EACH, .alpha = 0.25, .gamma = 2.0) },
    { "one class", .in = { TP_DIMS(7, 1), TP_DIMS(7) }, .below = { 0, 1 },
      CLASS(.reduction = TP_SUM, .alpha = -1.0, .gamma = 0.0) },
    { "several blocks", .in = { TP_DIMS(1000, 5), TP_DIMS(1000) }, .below = { 0, 5 },
      CLASS(.reduction = TP_SUM, .alpha = 0.25, .gamma = 2.0) },
    { "wide rows", .in = { TP_DIMS(2, 4100), TP_DIMS(2) }, .below = { 0, 4100 },
      FOCAL(.reduction = TP_MEAN, .alpha = 0.25, .gamma = 2.0) },
    { "no rows", .in = { TP_DIMS(0, 5), TP_DIMS(0) }, .below = { 0, 5 },
      CLASS(.reduction = TP_SUM, .alpha = 0.25, .gamma = 2.0) },
    { 0 },
};

const tp_op tp_op_focal_class = {
    .name = "focal_class",
    .doc = "focal loss of rows of logits with class targets, reduced",
    .nx = 2,
    .inputs = "x, target",
    .takes = { [1] = TP_INDICES },
    .ny = 1,
    .attr_size = sizeof(tp__point_loss_attr),
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1),
    .constant = 1u << 1,
    .shape = focal_class_shape,
    .forward = TP_KERNELS(focal_class_fwd),
    .backward = TP_KERNELS(focal_class_bwd),
    .work = TP_WORKS(focal_class_work),
    .cases = focal_class_cases,
};

tp_tensor tp_focal(tp_tape *T, tp_tensor x, tp_tensor target, double alpha, double gamma,
                   tp_reduction r)
{
    const tp__point_loss_attr a = {
        .loss = TP_LOSS_FOCAL, .reduction = r, .alpha = alpha, .gamma = gamma
    };
    if (!tp_is_float(tp_dtype_of(target))) return tp_apply(T, &tp_op_focal_class, &a, x, target);
    return tp_apply(T, &tp_op_focal, &a, x, target);
}
