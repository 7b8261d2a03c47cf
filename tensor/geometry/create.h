/* create.h - attributes of the ops that make tensors, and formulas of their kernels. */
#ifndef TP_GEOMETRY_CREATE_H
#define TP_GEOMETRY_CREATE_H

#include <tapegrad/op.h>

#include "tensor/host_device.h"

/* Element i < ahead is first + i step; of the others, element n-1-j is last - j step. */
typedef struct tp_arange_attr {
    tp_dtype dtype;
    int64_t n, ahead;
    double first, last, step;
    bool line; /* tp_linspace */
} tp_arange_attr;

/* Number i, an integer. */
TP_HD static inline double tp__arange_at(const tp_arange_attr *a, double i)
{
    return i < (double)a->ahead ? a->first + i * a->step
                                : a->last - ((double)(a->n - 1) - i) * a->step;
}

typedef struct tp_random_attr {
    tp_dtype dtype;
    tp_shape shape;
} tp_random_attr;

typedef struct tp_triangle_attr {
    int64_t diagonal;
    bool upper;
} tp_triangle_attr;

/* Row r of a matrix with C columns keeps columns begin .. end. */
typedef struct tp_triangle_row {
    int64_t begin, end;
} tp_triangle_row;

TP_HD static inline tp_triangle_row tp__triangle_row(tp_triangle_attr a, int64_t r, int64_t C)
{
    const int64_t last = INT64_MAX - r < a.diagonal ? C : r + a.diagonal; /* on the diagonal */
    const int64_t at = a.upper ? last : last < C ? last + 1 : C;
    const int64_t cut = at < 0 ? 0 : at < C ? at : C;
    const tp_triangle_row row = { a.upper ? cut : 0, a.upper ? C : cut };
    return row;
}

#endif
