/* stored.h - rows of `real` whose stored elements may be bf16, for kernels that accept bf16
 * (TP_TAKES_BF16): they compute in f32, in buffers of ROOM elements. */
#ifndef TP_STORED_H
#define TP_STORED_H

#include <tapegrad/op.h>

#include "cpu/kit/gemm.h"
#include "cpu/kit/real.h"
#include "cpu/kit/vector.h"
#include "tensor/bf16.h"

/* Also the most columns of a tile of a bf16 product. */
enum { ROOM = TP_GEMM_COLS / sizeof(float) };

/* Returns the stored data type of a call: TP_BF16 or REAL. */
TP_INLINE tp_dtype stored_dtype(const tp_call *c)
{
    return c->x[0].dtype == TP_BF16 ? TP_BF16 : REAL;
}

TP_INLINE bool is_bf16(const tp_view *v)
{
    return v->dtype == TP_BF16;
}

/* n elements from element `at` on: in place, or widened into `room`. */
TP_INLINE const real *read_row(const tp_view *v, const void *data, int64_t at, int64_t n,
                               real *room)
{
    if (!is_bf16(v)) return (const real *)data + at;
    const uint16_t *restrict x = (const uint16_t *)data + at;
    for (int64_t i = 0; i < n; i++) room[i] = (real)tp__from_bf16(x[i]);
    return room;
}

/* Returns where elements from `at` on are computed: in place, or in `room` for put_row. */
TP_INLINE real *row_at(const tp_view *v, void *data, int64_t at, real *room)
{
    return is_bf16(v) ? room : (real *)data + at;
}

TP_INLINE void put_row(const tp_view *v, void *data, int64_t at, int64_t n, const real *row)
{
    if (!is_bf16(v)) return;
    uint16_t *restrict y = (uint16_t *)data + at;
    for (int64_t i = 0; i < n; i++) y[i] = tp__to_bf16((float)row[i]);
}

#endif
