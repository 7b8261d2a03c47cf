/* create.c - numbers in equal steps, and triangles of matrices: rows of x up to or from a diagonal;
 * every dtype is only moved. */
#include "tensor/geometry/create.h"

#include <math.h>
#include <string.h>

#include "tensor/kernel.h"
#include "tensor/shape.h"

enum { GRAIN = 1 << 14 }; /* elements worth a thread */

/* ---- arange ---- */

/* Numbers of a type, converted by way of `whole`. AVX2 cannot convert doubles to i64. */
#define NUMBERS(name, type, whole)                                                                 \
    static void name(const tp_arange_attr *attr, int64_t begin, int64_t end, void *to)             \
    {                                                                                              \
        const tp_arange_attr a = *attr; /* no store may alter it */                                \
        for (int64_t b = begin; b < end; b += GRAIN) {                                             \
            type *restrict y = (type *)to + b;                                                     \
            const int32_t n = (int32_t)(end - b < GRAIN ? end - b : GRAIN);                        \
            for (int32_t i = 0; i < n; i++)                                                        \
                y[i] = (whole)tp__arange_at(&a, (double)b + (double)i);                            \
        }                                                                                          \
    }
NUMBERS(numbers_f32, float, float)
NUMBERS(numbers_f64, double, double)
NUMBERS(numbers_i32, int32_t, int32_t)
NUMBERS(numbers_i64, int64_t, int64_t)
NUMBERS(numbers_i64_small, int64_t, int32_t)
NUMBERS(numbers_u8, uint8_t, uint8_t)

static bool is_small(double x)
{
    return fabs(x) < 0x1p31;
}

static void arange_range(const tp_call *c, int64_t begin, int64_t end)
{
    const tp_arange_attr *a = c->attr;
    const bool small =
        is_small(tp__arange_at(a, (double)begin)) && is_small(tp__arange_at(a, (double)(end - 1)));
    void *const y = c->y[0].data;
    switch (c->y[0].dtype) {
    case TP_F32: numbers_f32(a, begin, end, y); break;
    case TP_F64: numbers_f64(a, begin, end, y); break;
    case TP_I32: numbers_i32(a, begin, end, y); break;
    case TP_I64: (small ? numbers_i64_small : numbers_i64)(a, begin, end, y); break;
    default: numbers_u8(a, begin, end, y); break;
    }
}

static tp_code arange_fwd(const tp_call *c)
{
    tp__for(c, c->y[0].numel, GRAIN, arange_range);
    return TP_OK;
}

/* ---- triangles ---- */

typedef struct triangle {
    tp_triangle_attr attr;
    int64_t rows, columns, size; /* per matrix; bytes per element */
    const char *from;
    char *to;
} triangle;

/* Rows of all matrices. */
static void triangle_range(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const triangle *t = ctx;
    const int64_t row = t->columns * t->size;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const tp_triangle_row stay = tp__triangle_row(t->attr, i % t->rows, t->columns);
        const int64_t first = stay.begin * t->size, last = stay.end * t->size;
        char *to = t->to + i * row;
        memset(to, 0, (size_t)first);
        memcpy(to + first, t->from + i * row + first, (size_t)(last - first));
        memset(to + last, 0, (size_t)(row - last));
    }
}

static tp_code move(const tp_call *c, const tp_view *from, const tp_view *to)
{
    if (!to->data || to->numel == 0) return TP_OK;
    const triangle t = {
        .attr = *(const tp_triangle_attr *)c->attr,
        .rows = to->dim[to->ndim - 2],
        .columns = to->dim[to->ndim - 1],
        .size = (int64_t)tp_dtype_size(to->dtype),
        .from = from->data,
        .to = to->data,
    };
    tp__parallel(c->dev, to->numel / t.columns, 1 + GRAIN / t.columns, triangle_range, &t);
    return TP_OK;
}

static tp_code triangle_fwd(const tp_call *c)
{
    return move(c, &c->x[0], &c->y[0]);
}

static tp_code triangle_bwd(const tp_call *c)
{
    return move(c, &c->dy[0], &c->dx[0]);
}

TP_CPU_KERNEL_UNTYPED(arange_fwd)
TP_CPU_KERNEL_UNTYPED(triangle_fwd)
TP_CPU_KERNEL_UNTYPED(triangle_bwd)
