/* logical.c - any and all of x != 0, over any set of axes and for every dtype (reducer.h).
 *
 * all is not any of x == 0. The state becomes 1 at such an element; later ones are not read. */
#include "cpu/kit/reducer.h"
#include "cpu/kit/vector.h"
#include "tensor/kernel.h"

/* Is one of n elements 0 (zero), or nonzero? */
#define SEEN(type)                                                                                 \
    TP_INLINE int seen_##type(const type *x, int64_t n, bool zero)                                 \
    {                                                                                              \
        int found = 0;                                                                             \
        for (int64_t i = 0; i < n; i++) found |= (x[i] == 0) == zero;                              \
        return found;                                                                              \
    }

SEEN(uint8_t)
SEEN(int32_t)
SEEN(int64_t)
SEEN(double)
SEEN(float)

TP_INLINE int seen(tp_dtype dt, const void *x, int64_t n, bool zero)
{
    switch (dt) {
    case TP_U8: return seen_uint8_t(x, n, zero);
    case TP_I32: return seen_int32_t(x, n, zero);
    case TP_I64: return seen_int64_t(x, n, zero);
    case TP_F64: return seen_double(x, n, zero);
    default: return seen_float(x, n, zero);
    }
}

#define MARK(type)                                                                                 \
    TP_INLINE void mark_##type(const type *restrict x, int64_t step, int64_t rows, int64_t n,      \
                               bool zero, uint8_t *restrict found)                                 \
    {                                                                                              \
        for (int64_t d = 0; d < rows; d++)                                                         \
            for (int64_t j = 0; j < n; j++) found[j] |= (x[d * step + j] == 0) == zero;            \
    }

MARK(uint8_t)
MARK(int32_t)
MARK(int64_t)
MARK(double)
MARK(float)

TP_INLINE void columns(tp_dtype dt, const void *x, int64_t step, int64_t rows, int64_t n, double *s,
                       bool zero)
{
    uint8_t found[REDUCER_WIDTH] = { 0 };
    switch (dt) {
    case TP_U8: mark_uint8_t(x, step, rows, n, zero, found); break;
    case TP_I32: mark_int32_t(x, step, rows, n, zero, found); break;
    case TP_I64: mark_int64_t(x, step, rows, n, zero, found); break;
    case TP_F64: mark_double(x, step, rows, n, zero, found); break;
    default: mark_float(x, step, rows, n, zero, found);
    }
    for (int64_t j = 0; j < n; j++) s[j] = found[j] ? 1 : s[j];
}

static void any_row(const tp_call *c, const void *x, int64_t n, int64_t at, double *s)
{
    (void)at;
    if (s[0] == 0) s[0] = seen(c->x[0].dtype, x, n, false);
}

static void all_row(const tp_call *c, const void *x, int64_t n, int64_t at, double *s)
{
    (void)at;
    if (s[0] == 0) s[0] = seen(c->x[0].dtype, x, n, true);
}

static void any_columns(const tp_call *c, const void *x, int64_t step, int64_t rows, int64_t n,
                        int64_t at, double *s)
{
    (void)at;
    columns(c->x[0].dtype, x, step, rows, n, s, false);
}

static void all_columns(const tp_call *c, const void *x, int64_t step, int64_t rows, int64_t n,
                        int64_t at, double *s)
{
    (void)at;
    columns(c->x[0].dtype, x, step, rows, n, s, true);
}

static void join(double *s, const double *t, int64_t n)
{
    for (int64_t j = 0; j < n; j++) s[j] = t[j] != 0 ? 1 : s[j];
}

static void any_finish(const tp_call *c, const double *s, int64_t n, int64_t i)
{
    for (int64_t j = 0; j < n; j++) ((uint8_t *)c->y[0].data)[i + j] = s[j] != 0;
}

static void all_finish(const tp_call *c, const double *s, int64_t n, int64_t i)
{
    for (int64_t j = 0; j < n; j++) ((uint8_t *)c->y[0].data)[i + j] = s[j] == 0;
}

static const reducer of_any = { 1, { 0 }, any_row, any_columns, join, any_finish, NULL };
static const reducer of_all = { 1, { 0 }, all_row, all_columns, join, all_finish, NULL };

static tp_code any_fwd(const tp_call *c)
{
    return reduce(c, &of_any);
}

static tp_code all_fwd(const tp_call *c)
{
    return reduce(c, &of_all);
}

TP_CPU_KERNEL_UNTYPED(any_fwd)
TP_CPU_KERNEL_UNTYPED(all_fwd)
