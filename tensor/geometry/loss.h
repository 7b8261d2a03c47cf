/* loss.h - attributes shared by the losses and their kernels. */
#ifndef TP_LOSS_H
#define TP_LOSS_H

#include <tapegrad/op.h>
#include <tapegrad/ops.h>

#include "tensor/geometry/block.h"

typedef enum tp__loss {
    TP_LOSS_BCE,
    TP_LOSS_FOCAL,
    TP_LOSS_SMOOTH_L1,
    TP_LOSS_MSE,
    TP_LOSS_PROBS, /* bce */
    TP_LOSS_KL,
    TP_LOSS_KL_LOG,
    TP_LOSS_POISSON,
    TP_LOSS_POISSON_FULL,
    TP_LOSS_POISSON_RATE,
    TP_LOSS_POISSON_RATE_FULL,
    TP_LOSS_HINGE,
    TP_LOSS_HINGE_EMBEDDING,
    TP_LOSS_SOFT_MARGIN,
    TP_LOSS_COSINE /* cosine_embedding */
} tp__loss;

/* Elementwise losses of x and a target. */
typedef struct tp__point_loss_attr {
    tp__loss loss;
    tp_reduction reduction;
    double alpha, gamma; /* focal */
    double beta;         /* smooth_l1 */
    double margin;       /* hinge, hinge_embedding, cosine_embedding */
    double eps;          /* poisson_nll */
} tp__point_loss_attr;

/* Rows of K logits that focal_class sums together. */
static inline int64_t tp__focal_rows(int64_t K)
{
    return K < TP_BLOCK ? TP_BLOCK / K : 1;
}

/* Row losses: nll, giou, triplet_margin, dice. */
typedef struct tp__row_loss_attr {
    tp_reduction reduction;
    int axes;         /* dice: of a row */
    bool swap;        /* triplet_margin */
    double margin, p; /* triplet_margin */
    double smooth;    /* dice */
    double eps;       /* giou */
} tp__row_loss_attr;

#define TP_TRIPLET_EPS 1e-6 /* added to differences, as in PyTorch */

typedef struct tp__cosine_attr {
    double eps;
} tp__cosine_attr;

typedef struct tp__ctc_attr {
    int64_t blank;
    tp_reduction reduction;
    bool zero_infinity;
} tp__ctc_attr;

typedef struct tp__cross_entropy_attr {
    double smoothing;
    tp_reduction reduction;
} tp__cross_entropy_attr;

#endif
