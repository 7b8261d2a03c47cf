/* focal.c - sigmoid focal loss (Lin et al. 2017), which down-weights well-classified elements.
 *
 *     a_t (1-p_t)^gamma bce(x, t)     p_t = p t + (1-p)(1-t), a_t = alpha t + (1-alpha)(1-t)
 *
 * with p = sigmoid(x), and a_t = 1 if alpha is negative. */
#include "autograd/ops/loss.h"

static tp_code focal_shape(tp_infer *q)
{
    const tp__point_loss_attr *a = q->attr;

    if (!(a->alpha <= 1.0))
        return tp_fail(q, TP_E_VALUE, "alpha must be at most 1, or negative for none, not %g",
                       a->alpha);
    if (!(a->gamma >= 0.0 && a->gamma <= 100.0))
        return tp_fail(q, TP_E_VALUE, "gamma must be in [0,100], not %g", a->gamma);
    return tp__point_loss_shape(q);
}

/* Targets are 0, 1 and values in between. */
static void fill(int i, tp_view *v)
{
    for (int64_t e = 0; i == 1 && e < v->numel; e++) tp_st(v, e, (double)(e % 3) / 2.0);
}

static const tp_gradcase focal_cases[] = {
    { "usual", .in = { { 2, { 3, 7 } }, { 2, { 3, 7 } } }, .fill = fill,
      .attr =
          &(tp__point_loss_attr){
              .loss = TP_LOSS_FOCAL, .reduction = TP_MEAN, .alpha = 0.25, .gamma = 2.0 } },
    { "no alpha", .in = { { 2, { 3, 7 } }, { 2, { 3, 7 } } }, .fill = fill,
      .attr =
          &(tp__point_loss_attr){
              .loss = TP_LOSS_FOCAL, .reduction = TP_EACH, .alpha = -1.0, .gamma = 0.5 } },
    { "gamma 0", .in = { { 1, { 100 } }, { 1, { 100 } } }, .fill = fill,
      .attr =
          &(tp__point_loss_attr){
              .loss = TP_LOSS_FOCAL, .reduction = TP_SUM, .alpha = 0.25, .gamma = 0.0 } },
    { 0 },
};

const tp_op tp_op_focal = {
    .name = "focal",
    .doc = "alpha_t (1-p_t)^gamma bce_logits(x, target), reduced",
    .shape = focal_shape,
    .cases = focal_cases,
    TP_POINT_LOSS,
};

tp_tensor tp_focal(tp_tape *T, tp_tensor x, tp_tensor target, double alpha, double gamma,
                   tp_reduction r)
{
    const tp__point_loss_attr a = {
        .loss = TP_LOSS_FOCAL, .reduction = r, .alpha = alpha, .gamma = gamma
    };
    return tp_apply(T, &tp_op_focal, &a, x, target);
}
