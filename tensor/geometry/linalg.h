/* linalg.h - attributes shared by matmul, linear and their kernels. */
#ifndef TP_LINALG_H
#define TP_LINALG_H

#include <tapegrad/op.h>
#include <tapegrad/ops.h>

#include "tensor/host_device.h"

typedef struct tp__matmul_attr {
    bool ta, tb; /* the last two axes of that operand are transposed */
} tp__matmul_attr;

typedef struct tp__linear_attr {
    tp_act act;
    double dropout; /* of the activation, in training; 0 without one */
} tp__linear_attr;

typedef struct tp__glu_attr {
    tp_glu_kind kind;
} tp__glu_attr;

/* Whether the hidden output of linear is act'(Z), or its product with the dropout's factors. For
 * ReLU it is one byte per element, Z > 0 and kept. */
TP_HD static inline bool tp__keeps_slope(tp_act act)
{
    return act != TP_ACT_NONE && act != TP_ACT_RELU;
}

#endif
