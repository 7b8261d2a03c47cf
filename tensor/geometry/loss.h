/* loss.h - attributes that the losses share with their kernels. */
#ifndef TP_LOSS_H
#define TP_LOSS_H

#include <tapegrad/op.h>
#include <tapegrad/ops.h>

typedef enum tp__loss { TP_LOSS_BCE, TP_LOSS_FOCAL, TP_LOSS_SMOOTH_L1, TP_LOSS_MSE } tp__loss;

/* Elementwise losses of x and a target. */
typedef struct tp__point_loss_attr {
    tp__loss loss;
    tp_reduction reduction;
    double alpha, gamma; /* focal     */
    double beta;         /* smooth_l1 */
} tp__point_loss_attr;

typedef struct tp__cross_entropy_attr {
    double smoothing;
    tp_reduction reduction;
} tp__cross_entropy_attr;

#endif
