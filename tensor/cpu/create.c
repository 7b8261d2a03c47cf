/* create.c - numbers in equal steps, and triangles of matrices: rows of x up to a diagonal or from it on, of which
 * every dtype is only moved. */
#include "tensor/geometry/create.h"

#include <string.h>

#include "tensor/kernel.h"
#include "tensor/shape.h"

enum { GRAIN = 1 << 14 }; /* elements that are worth a thread */

/* ---- arange ---- */

#define STORE(TYPE)                                                                                \
    do {                                                                                           \
        TYPE *restrict y = c->y[0].data;                                                           \
        for (int64_t i = begin; i < end; i++) y[i] = (TYPE)tp__arange_at(&a, i);                   \
    } while (0)

static void arange_range(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp_arange_attr a = *(const tp_arange_attr *)c->attr;
    (void)thread;
    switch (c->y[0].dtype) {
    case TP_F32: STORE(float); break;
    case TP_F64: STORE(double); break;
    case TP_I32: STORE(int32_t); break;
    case TP_I64: STORE(int64_t); break;
    default: STORE(uint8_t); break;
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
    int64_t rows, columns, size; /* of a matrix; bytes of an element */
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
