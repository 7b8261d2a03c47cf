/* expand.c - repeats axes of size 1: copies pieces of rows, or fills them with one element.
 * Backward sums the repetitions (fold.h). */
#include "cpu/kit/copies.h"
#include "cpu/kit/fold.h"
#include "cpu/kit/real.h"
#include "tensor/geometry/broadcast.h"
#include "tensor/kernel.h"

#define GRAIN (4 * TP_BLOCK)

/* Repeats each of `rows` elements of 4 bytes n times; n is a constant. */
TP_INLINE void spread_by(char *restrict y, const char *restrict x, int64_t rows, int n)
{
    for (int64_t r = 0; r < rows; r++)
        for (int i = 0; i < n; i++) memcpy(y + (r * n + i) * 4, x + r * 4, 4);
}

/* The same for the n that have a loop; false for others. */
static bool spread(char *restrict y, const char *restrict x, int64_t rows, int64_t n)
{
    switch (n) {
    case 2: spread_by(y, x, rows, 2); return true;
    case 3: spread_by(y, x, rows, 3); return true;
    case 4: spread_by(y, x, rows, 4); return true;
    case 8: spread_by(y, x, rows, 8); return true;
    default: return false;
    }
}

static void expand_pieces(const tp_bcast *p, char *y, const char *x, int64_t size, int64_t begin,
                          int64_t end)
{
    for (tp_piece s = tp__piece(p, begin, end); s.n > 0; tp__next(p, &s, end)) {
        if (p->one)
            tp__repeat(y + s.a * size, x + s.b * size, size, s.n);
        else
            memcpy(y + s.a * size, x + s.b * size, (size_t)(s.n * size));
    }
}

static void expand(const tp_call *c, int64_t begin, int64_t end)
{
    const char *x = c->x[0].data;
    char *y = c->y[0].data;
    const int64_t size = (int64_t)tp_dtype_size(c->x[0].dtype);
    const tp_bcast p = tp__bcast(&c->y[0], &c->x[0]);
    const bool side_by_side = p.one && p.rows.n == 1 && p.rows.stride[0] == 1 && size == 4;
    if (side_by_side) { /* short whole rows */
        const int64_t first = (begin + p.n - 1) / p.n, last = end / p.n;
        if (first < last && spread(y + first * p.n * 4, x + first * 4, last - first, p.n)) {
            expand_pieces(&p, y, x, size, begin, first * p.n);
            begin = last * p.n;
        }
    }
    expand_pieces(&p, y, x, size, begin, end);
}

static tp_code expand_fwd(const tp_call *c)
{
    tp__for(c, c->y[0].numel, GRAIN, expand);
    return TP_OK;
}

static tp_code expand_bwd(const tp_call *c)
{
    if (c->dx[0].data) fold(c, &c->dy[0], &c->dx[0], c->dy[0].data, NULL, c->dx[0].data);
    return TP_OK;
}

TP_CPU_KERNEL_UNTYPED(expand_fwd)
TP_CPU_KERNEL(expand_bwd)
