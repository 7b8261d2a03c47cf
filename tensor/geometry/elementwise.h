/* elementwise.h - attributes shared by the elementwise ops and their kernels. */
#ifndef TP_ELEMENTWISE_H
#define TP_ELEMENTWISE_H

#include <tapegrad/op.h>

/* A number in place of an operand of a function of two: the operand is absent. */
typedef struct tp_binary_attr {
    double number;
    int numbers; /* bit i: operand i is the number */
} tp_binary_attr;

/* Constants of a function of one operand: clamp's bounds a, b; of others only a. */
typedef struct tp_unary_attr {
    double a, b;
} tp_unary_attr;

#endif
