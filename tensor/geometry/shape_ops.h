/* shape_ops.h - attributes shared by the shape and cumulative ops and their kernels. Axes may be
 * negative, as the user gave them. */
#ifndef TP_SHAPE_OPS_H
#define TP_SHAPE_OPS_H

#include <stdint.h>

typedef struct tp_axis_attr { /* concat, split, chunk, stack, cumsum, cumprod */
    int axis;
} tp_axis_attr;

typedef struct tp_sizes_attr { /* split_sizes; its kernels read the axis only */
    tp_axis_attr along;
    const int64_t *sizes; /* the caller's list: for the shape rule */
} tp_sizes_attr;

typedef struct tp_slice_attr {
    int axis;
    int64_t start, count;
} tp_slice_attr;

typedef struct tp_pad_attr {
    int axis;
    int64_t before, after;
    double value;
} tp_pad_attr;

typedef struct tp_roll_attr {
    int axis;
    int64_t shift;
} tp_roll_attr;

#endif
