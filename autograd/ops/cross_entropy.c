/* cross_entropy.c - cross entropy of softmax(logits) with class indices or probabilities.
 *
 *     loss = sum_j q_j (lse - x_j)    q = w ((1-e) target + e/V)    lse = log sum_j exp(x_j)
 *
 * Saves logits, targets and two numbers per row, never probabilities. The kernel checks index
 * targets, since shape rules cannot see values. */
#include "autograd/ops/loss.h"
#include "tensor/error.h"

TP_KERNEL(cross_entropy_fwd);
TP_KERNEL(cross_entropy_bwd);

/* Index targets have the leading axes of the logits; probabilities have all axes. */
static tp_code check_target(tp_infer *q)
{
    const tp_view *logits = &q->x[0], *target = &q->x[1];
    const bool soft = tp_is_float(target->dtype);
    tp_view want = *logits;
    char text[128] = "";

    if (!soft) want.ndim--;
    if (tp__same_shape(&want, target)) return TP_OK;
    tp__print_shape(text, sizeof text, want.ndim, want.dim);
    want.ndim = logits->ndim - 1;
    const bool classes = soft && tp__same_shape(&want, target);
    return tp_fail(q, TP_E_SHAPE, "%s targets must have the shape %s%s", soft ? "soft" : "index",
                   text, classes ? "; numbers of classes are i32 or i64: tp_cast converts" : "");
}

static tp_code cross_entropy_shape(tp_infer *q)
{
    const tp__cross_entropy_attr *a = q->attr;
    const tp_view *logits = &q->x[0];

    if (logits->ndim < 1 || logits->dim[logits->ndim - 1] == 0)
        return tp_fail(q, TP_E_SHAPE, "logits must have at least one class along the last axis");
    if (!(a->smoothing >= 0.0 && a->smoothing <= 1.0))
        return tp_fail(q, TP_E_VALUE, "smoothing must be in [0,1], not %g", a->smoothing);

    tp_view rows = *logits;
    rows.dtype = tp__sum_dtype(logits->dtype);
    rows.ndim--;
    if (a->reduction == TP_EACH) q->y[0] = rows;
    q->y[0].dtype = rows.dtype;
    q->y[1] = (tp_view){ .dtype = rows.dtype,
                         .ndim = 2,
                         .dim = { logits->numel / logits->dim[logits->ndim - 1], 2 } };
    tp_code code = check_target(q);
    if (code == TP_OK) code = tp__check_class_weights(q, logits->dim[logits->ndim - 1]);
    return code == TP_OK ? tp__check_reduction(q, a->reduction) : code;
}

/* Forward: one loss per row. Backward: the divisor of the sum. */
static size_t cross_entropy_work(const tp_call *c)
{
    return (size_t)(tp_is_backward(c) ? 1 : c->y[1].dim[0]) * sizeof(double);
}

/* Index targets that ignore some rows; probabilities not summing to 1; positive weights. */
static void fill(int i, tp_view *v)
{
    for (int64_t e = 0; i == 2 && e < v->numel; e++) tp_st(v, e, 0.25 + fabs(tp_ld(v, e)));
    for (int64_t e = 0; i == 1 && e < v->numel; e++)
        if (tp_is_float(v->dtype))
            tp_st(v, e, fabs(tp_ld(v, e)));
        else if (e % 3 == 1)
            tp_st(v, e, -1.0 - (double)e);
}

static const tp_gradcase cross_entropy_cases[] = {
    { "mean of counted rows", .in = { TP_DIMS(2, 3, 5), TP_DIMS(2, 3) }, .below = { 0, 5 },
      .fill = fill, .attr = &(tp__cross_entropy_attr){ 0.0, TP_MEAN } },
    { "mean of all rows", .in = { TP_DIMS(5, 1), TP_DIMS(5) }, .below = { 0, 1 }, .fill = fill,
      .attr = &(tp__cross_entropy_attr){ 0.0, TP_MEAN_ALL } },
    { "smoothed sum", .in = { TP_DIMS(4, 50), TP_DIMS(4) }, .below = { 0, 50 }, .fill = fill,
      .attr = &(tp__cross_entropy_attr){ 0.1, TP_SUM } },
    { "smoothed each", .in = { TP_DIMS(5, 7), TP_DIMS(5) }, .below = { 0, 7 }, .fill = fill,
      .attr = &(tp__cross_entropy_attr){ 0.3, TP_EACH } },
    { "soft", .in = { TP_DIMS(3, 7), TP_DIMS(3, 7) }, .fill = fill,
      .attr = &(tp__cross_entropy_attr){ 0.0, TP_MEAN } },
    { "soft, smoothed, each", .in = { TP_DIMS(2, 2, 33), TP_DIMS(2, 2, 33) }, .fill = fill,
      .attr = &(tp__cross_entropy_attr){ 0.2, TP_EACH } },
    { "rows of a few lanes", .in = { TP_DIMS(35, 11), TP_DIMS(35) }, .below = { 0, 11 },
      .fill = fill, .attr = &(tp__cross_entropy_attr){ 0.1, TP_MEAN } },
    { "rows of a warp", .in = { TP_DIMS(9, 131), TP_DIMS(9) }, .below = { 0, 131 }, .fill = fill,
      .attr = &(tp__cross_entropy_attr){ 0.0, TP_MEAN } },
    { "soft rows of a warp", .in = { TP_DIMS(9, 135), TP_DIMS(9, 135) }, .fill = fill,
      .attr = &(tp__cross_entropy_attr){ 0.1, TP_MEAN_ALL } },
    { "rows of a block", .in = { TP_DIMS(2, 1027), TP_DIMS(2) }, .below = { 0, 1027 },
      .attr = &(tp__cross_entropy_attr){ 0.1, TP_MEAN } },
    { "one row", .in = { TP_DIMS(6), TP_DIMS(6) }, .fill = fill,
      .attr = &(tp__cross_entropy_attr){ 0.0, TP_SUM } },
    { "weighted mean", .in = { TP_DIMS(2, 3, 5), TP_DIMS(2, 3), TP_DIMS(5) }, .below = { 0, 5 },
      .fill = fill, .attr = &(tp__cross_entropy_attr){ 0.0, TP_MEAN } },
    { "weighted, smoothed mean", .in = { TP_DIMS(35, 11), TP_DIMS(35), TP_DIMS(11) },
      .below = { 0, 11 }, .fill = fill, .attr = &(tp__cross_entropy_attr){ 0.1, TP_MEAN } },
    { "weighted, each", .in = { TP_DIMS(9, 131), TP_DIMS(9), TP_DIMS(131) }, .below = { 0, 131 },
      .fill = fill, .attr = &(tp__cross_entropy_attr){ 0.2, TP_EACH } },
    { "weighted, of all rows", .in = { TP_DIMS(3, 1027), TP_DIMS(3), TP_DIMS(1027) },
      .below = { 0, 1027 }, .fill = fill, .attr = &(tp__cross_entropy_attr){ 0.1, TP_MEAN_ALL } },
    { "weighted, soft, smoothed", .in = { TP_DIMS(9, 135), TP_DIMS(9, 135), TP_DIMS(135) },
      .fill = fill, .attr = &(tp__cross_entropy_attr){ 0.1, TP_MEAN } },
    { "weighted, soft sum", .in = { TP_DIMS(3, 7), TP_DIMS(3, 7), TP_DIMS(7) }, .fill = fill,
      .attr = &(tp__cross_entropy_attr){ 0.0, TP_SUM } },
    { 0 },
};

const tp_op tp_op_cross_entropy = {
    .name = "cross_entropy",
    .doc = "-sum_j q_j log_softmax(logits)_j, q the smoothed, weighted target, reduced",
    .nx = 3,
    .inputs = "logits, target, weights",
    .takes = { [1] = TP_INDICES | TP_FLOATS },
    .optional = 1u << 2,
    .exact = 1u << 1 | 1u << 2,
    .ny = 2, /* loss; max and log-sum of each row for backward */
    .attr_size = sizeof(tp__cross_entropy_attr),
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1) | TP_SAVE_X(2) | TP_SAVE_Y(1),
    .constant = 1u << 1 | 1u << 2,
    .shape = cross_entropy_shape,
    .forward = TP_KERNELS(cross_entropy_fwd),
    .backward = TP_KERNELS(cross_entropy_bwd),
    .work = TP_SAME_WORK(cross_entropy_work),
    .cases = cross_entropy_cases,
};

tp_tensor tp_cross_entropy_weighted(tp_tape *T, tp_tensor logits, tp_tensor target,
                                    tp_tensor weights, double smoothing, tp_reduction r)
{
    const tp__cross_entropy_attr a = { smoothing, r };
    return tp_apply(T, &tp_op_cross_entropy, &a, logits, target, weights);
}

tp_tensor tp_cross_entropy_smooth(tp_tape *T, tp_tensor logits, tp_tensor target, double smoothing,
                                  tp_reduction r)
{
    return tp_cross_entropy_weighted(T, logits, target, TP_NONE, smoothing, r);
}

tp_tensor tp_cross_entropy(tp_tape *T, tp_tensor logits, tp_tensor target, tp_reduction r)
{
    return tp_cross_entropy_smooth(T, logits, target, 0.0, r);
}
