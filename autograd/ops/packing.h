/* packing.h - shape checks of packed documents. */
#ifndef TP_PACKING_INNER_H
#define TP_PACKING_INNER_H

#include "autograd/ops/op_inner.h"

enum { TP_LONGEST_DOCUMENT = 1 << 30 };

/* Fails unless input i, called `name`, can divide `rows` rows into documents of at most
 * `longest`. */
static inline tp_code tp__expect_packing(tp_infer *q, int i, const char *name, int64_t rows,
                                         int64_t longest)
{
    const tp_view *offset = &q->x[i];
    if (offset->ndim != 1 || offset->dim[0] < 1)
        return tp_fail(q, TP_E_SHAPE, "%s must be [n+1] for n documents", name);
    if (longest < 0 || longest > TP_LONGEST_DOCUMENT)
        return tp_fail(q, TP_E_VALUE, "the longest document must have 0 to 2^30 rows, not %lld",
                       (long long)longest);
    if (rows > (offset->dim[0] - 1) * longest)
        return tp_fail(q, TP_E_SHAPE, "%lld documents of at most %lld rows cannot fill %lld rows",
                       (long long)(offset->dim[0] - 1), (long long)longest, (long long)rows);
    return TP_OK;
}

/* Offsets for gradient cases: documents of 4, 0, 1, 7, 5, ... rows; the last gets the remainder of
 * `rows`. */
static inline void tp__fill_offsets(tp_view *offset, int64_t rows)
{
    static const int64_t counts[] = { 4, 0, 1, 7, 5 };
    const int64_t n = offset->dim[0] - 1;
    int64_t at = 0;
    for (int64_t b = 0; b <= n; b++) {
        tp_st(offset, b, (double)(b == n ? rows : at));
        at += counts[b % 5];
        if (at > rows) at = rows;
    }
}

#endif
