/* elementwise.h - attributes shared by the elementwise ops and their kernels. */
#ifndef TP_ELEMENTWISE_H
#define TP_ELEMENTWISE_H

#include <tapegrad/op.h>

/* A number replaces one operand of a binary function; that operand is absent. */
typedef struct tp_binary_attr {
    double number;
    int numbers; /* bit i: operand i is the number */
} tp_binary_attr;

/* The relations tested by comparisons and logical ops. */
typedef enum tp_relation {
    TP_EQ,
    TP_NE,
    TP_LT,
    TP_LE,
    TP_GT,
    TP_GE,
    TP_AND,
    TP_OR,
    TP_XOR
} tp_relation;

/* A number is exact in the dtype of the tensor that it is compared with. */
typedef struct tp_compare_attr {
    tp_binary_attr operands; /* first, so that the rules of two operands find it */
    tp_relation relation;
} tp_compare_attr;

/* Tests of one element. */
typedef enum tp_question { TP_IS_ZERO, TP_IS_NAN, TP_IS_FINITE, TP_IS_INF } tp_question;

/* A conversion. On the CPU, dtypes of views hide bf16. */
typedef struct tp_cast_attr {
    tp_dtype to, from;
} tp_cast_attr;

/* Constants of a unary function: clamp's bounds a, b; otherwise only a. */
typedef struct tp_unary_attr {
    double a, b;
} tp_unary_attr;

#endif
