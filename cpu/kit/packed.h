/* packed.h - packed documents on the CPU: checks offsets and cuts pieces from tensors. */
#ifndef TP_CPU_PACKED_H
#define TP_CPU_PACKED_H

#include <stdio.h>

#include "tensor/geometry/packed.h"
#include "tensor/kernel.h"

/* Offsets must rise from 0 to the number of rows, by at most `longest`. */
static inline tp_code tp__check_packing(const tp_call *c, const tp_packing *p)
{
    int64_t before = 0;
    for (int64_t b = 0; b <= p->n; b++) {
        const int64_t at =
            p->wide ? ((const int64_t *)p->offset)[b] : ((const int32_t *)p->offset)[b];
        if (at < before || at > p->rows || (b == 0 && at != 0) ||
            (b > 0 && at - before > p->longest) || (b == p->n && at != p->rows)) {
            snprintf(c->why, TP_WHY,
                     "offset %lld is %lld after %lld, but offsets must rise from 0 to %lld, by at "
                     "most %lld",
                     (long long)b, (long long)at, (long long)before, (long long)p->rows,
                     (long long)p->longest);
            return TP_E_VALUE;
        }
        before = at;
    }
    return TP_OK;
}

/* Rows of x [M,width] as [1,count,width]. */
static inline tp_view tp__rows_of(const tp_view *x, tp_rows r)
{
    const int64_t width = x->dim[1];
    const size_t size = tp_dtype_size(x->dtype);
    tp_view y = {
        .dtype = x->dtype, .ndim = 3, .dim = { 1, r.count, width }, .numel = r.count * width
    };
    if (x->data) y.data = (char *)x->data + (size_t)(r.first * width) * size;
    return y;
}

#endif
