/* packed.h - packed documents and their rows. Shared by op files and kernels.
 *
 * Only kernels can read the offsets, which are data. Whatever their values, a document's rows lie
 * within the tensor and number at most `longest`. Without offsets all documents have `longest`
 * rows. */
#ifndef TP_PACKED_H
#define TP_PACKED_H

#include <tapegrad/op.h>

#include "tensor/geometry/whole.h"

typedef struct tp_packing {
    const void *offset; /* [n+1], or NULL */
    bool wide;          /* i64, not i32 */
    int64_t n, rows, longest;
} tp_packing;

/* Rows first .. first + count - 1. */
typedef struct tp_rows {
    int64_t first, count;
} tp_rows;

static inline tp_packing tp__packing(const tp_view *offset, int64_t rows, int64_t longest)
{
    tp_packing p = { offset->data, offset->dtype == TP_I64, offset->dim[0] - 1, rows, longest };
    return p;
}

static inline TP_HD int64_t tp__offset(const tp_packing *p, int64_t b)
{
    const int64_t at = p->wide ? ((const int64_t *)p->offset)[b] : ((const int32_t *)p->offset)[b];
    return tp__most(0, tp__least(at, p->rows));
}

/* The rows of document b. */
static inline TP_HD tp_rows tp__document(const tp_packing *p, int64_t b)
{
    tp_rows r = { b * p->longest, p->longest };
    if (!p->offset) return r;
    r.first = tp__offset(p, b);
    r.count = tp__most(0, tp__least(tp__offset(p, b + 1) - r.first, p->longest));
    return r;
}

/* The document of a row, given offsets. */
static inline TP_HD int64_t tp__document_of(const tp_packing *p, int64_t row)
{
    int64_t lo = 0, hi = p->n - 1;
    while (lo < hi) {
        const int64_t mid = (lo + hi + 1) / 2;
        if (tp__offset(p, mid) <= row)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

#endif
