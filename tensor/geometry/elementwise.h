/* elementwise.h - attributes shared by the elementwise ops and their kernels. */
#ifndef TP_ELEMENTWISE_H
#define TP_ELEMENTWISE_H

/* Constants of a function of one operand: clamp's bounds a, b; of others only a. */
typedef struct tp_unary_attr {
    double a, b;
} tp_unary_attr;

#endif
