/* order.h - shared by sort, topk and their kernels. */
#ifndef TP_ORDER_H
#define TP_ORDER_H

#include "tensor/host_device.h"
#include "tensor/shape.h"

typedef struct tp_order_attr {
    int axis;
    bool descending;
    int64_t k; /* the first k of each lane; -1: all */
} tp_order_attr;

/* A tensor as [outer][dim][inner]; its results are [outer][k][inner]. */
typedef struct tp_order {
    int64_t outer, dim, inner, k;
    bool descending;
} tp_order;

/* x: the input, or the gradient of its shape. */
static inline tp_order tp__order(const tp_view *x, const void *attr)
{
    const tp_order_attr *a = (const tp_order_attr *)attr;
    tp_order o = { 0, 0, 0, a->k, a->descending };
    tp__axis_split(x, tp__axis(x->ndim, a->axis), &o.outer, &o.dim, &o.inner);
    if (o.k < 0) o.k = o.dim;
    return o;
}

/* A key whose unsigned order is the float's: -0 equals 0, NaN is the largest. */
TP_HD static inline uint32_t tp__order_key32(float x, bool descending)
{
    const union {
        float x;
        uint32_t bits;
    } u = { x + 0.0f };
    const uint32_t flip = (uint32_t) - (int32_t)(u.bits >> 31) | 0x80000000u;
    const uint32_t key = x != x ? UINT32_MAX : u.bits ^ flip;
    return descending ? ~key : key;
}

static inline uint64_t tp__order_key64(double x, bool descending)
{
    const union {
        double x;
        uint64_t bits;
    } u = { x + 0.0 };
    const uint64_t flip = (uint64_t) - (int64_t)(u.bits >> 63) | (uint64_t)1 << 63;
    const uint64_t key = x != x ? UINT64_MAX : u.bits ^ flip;
    return descending ? ~key : key;
}

#endif
