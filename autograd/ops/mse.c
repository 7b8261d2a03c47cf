/* mse.c - squared error (x - target)^2. */
#include "autograd/ops/loss.h"

static const tp_gradcase mse_cases[] = {
    { "mean", .in = { TP_DIMS(3, 5), TP_DIMS(3, 5) },
      .attr = &(tp__point_loss_attr){ .loss = TP_LOSS_MSE, .reduction = TP_MEAN } },
    { "sum", .in = { TP_DIMS(100), TP_DIMS(100) },
      .attr = &(tp__point_loss_attr){ .loss = TP_LOSS_MSE, .reduction = TP_SUM } },
    { "each", .in = { TP_DIMS(3, 5), TP_DIMS(3, 5) },
      .attr = &(tp__point_loss_attr){ .loss = TP_LOSS_MSE, .reduction = TP_EACH } },
    { "two blocks and part of a pack", .in = { TP_DIMS(4099), TP_DIMS(4099) },
      .attr = &(tp__point_loss_attr){ .loss = TP_LOSS_MSE, .reduction = TP_MEAN } },
    { 0 },
};

const tp_op tp_op_mse = {
    .name = "mse",
    .doc = "(x - target)^2, reduced",
    .shape = tp__point_loss_shape,
    .cases = mse_cases,
    TP_POINT_LOSS,
};

tp_tensor tp_mse(tp_tape *T, tp_tensor x, tp_tensor target, tp_reduction r)
{
    return tp_apply(T, &tp_op_mse, (&(tp__point_loss_attr){ .loss = TP_LOSS_MSE, .reduction = r }),
                    x, target);
}
