/* bce_logits.c - binary cross entropy of sigmoid(x) with a target in [0,1], from the logits:
 *
 *     max(x,0) - x target + log(1 + exp(-|x|)) */
#include "autograd/ops/loss.h"

static const tp_gradcase bce_cases[] = {
    { "mean", .in = { TP_DIMS(3, 5), TP_DIMS(3, 5) },
      .attr = &(tp__point_loss_attr){ .loss = TP_LOSS_BCE, .reduction = TP_MEAN } },
    { "sum", .in = { TP_DIMS(100), TP_DIMS(100) },
      .attr = &(tp__point_loss_attr){ .loss = TP_LOSS_BCE, .reduction = TP_SUM } },
    { "each", .in = { TP_DIMS(3, 5), TP_DIMS(3, 5) },
      .attr = &(tp__point_loss_attr){ .loss = TP_LOSS_BCE, .reduction = TP_EACH } },
    { 0 },
};

const tp_op tp_op_bce_logits = {
    .name = "bce_logits",
    .doc = "max(x,0) - x target + log(1 + exp(-|x|)), reduced",
    .shape = tp__point_loss_shape,
    .cases = bce_cases,
    TP_POINT_LOSS,
};

tp_tensor tp_bce_logits(tp_tape *T, tp_tensor x, tp_tensor target, tp_reduction r)
{
    return tp_apply(T, &tp_op_bce_logits,
                    (&(tp__point_loss_attr){ .loss = TP_LOSS_BCE, .reduction = r }), x, target);
}
