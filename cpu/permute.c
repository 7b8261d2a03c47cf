/* permute.c - reorders axes: copies of whole runs, or transposes of tiles.
 *
 * Axes that stay adjacent are merged first. If the last axis of y is the last of x, rows are
 * copied. Otherwise y's last axis and the axis that is contiguous in x span matrices, which are
 * transposed in tiles small enough for both sides to stay in L1; the other axes count the matrices.
 * Only a dtype's size matters. */
#include "cpu/kit/copies.h"
#include "tensor/geometry/permute_plan.h"
#include "tensor/kernel.h"

#define TILE  32
#define GRAIN (8 * TP_BLOCK) /* elements */

typedef struct job {
    const char *x;
    char *y;
    size_t size;
    tp_axes from, to;              /* of rows or matrices */
    int64_t rows, columns;         /* of a matrix in y; rows are contiguous in x */
    int64_t row_step, column_step; /* in y and in x */
    int64_t strips;                /* of TILE rows per matrix */
} job;

static void copy_rows(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const job *j = ctx;
    const int64_t size = (int64_t)j->size, bytes = j->columns * size;
    (void)thread;
    for (int64_t i = begin; i < end;) {
        const tp_even run = tp__even(&j->from, i, end);
        tp__copy_rows(j->y + i * bytes, bytes, j->x + run.at * size, run.step * size, run.items,
                      bytes);
        i += run.items;
    }
}

/* One tile: y[r * row_step + c] = x[r + c * column_step], r < m, c < n. It goes through a buffer,
 * so that x and y are accessed in whole runs: with steps that are powers of two, a tile's runs map
 * to few cache sets, and element-wise accesses would evict each other's lines. */
#define DEFINE_TILE(name, type)                                                                    \
    static void name(const job *j, const void *from, void *to, int64_t m, int64_t n)               \
    {                                                                                              \
        const type *x = from;                                                                      \
        type *y = to, tile[TILE][TILE + 1];                                                        \
        for (int64_t c = 0; c < n; c++)                                                            \
            for (int64_t r = 0; r < m; r++)                                                        \
                memcpy(&tile[r][c], &x[r + c * j->column_step], sizeof(type));                     \
        for (int64_t r = 0; r < m; r++)                                                            \
            memcpy(&y[r * j->row_step], tile[r], (size_t)n * sizeof(type));                        \
    }
DEFINE_TILE(tile1, uint8_t)
DEFINE_TILE(tile2, uint16_t)
DEFINE_TILE(tile4, uint32_t)
DEFINE_TILE(tile8, uint64_t)

static void transpose_strips(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const job *j = ctx;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const int64_t r = i % j->strips * TILE, matrix = i / j->strips;
        const int64_t m = j->rows - r < TILE ? j->rows - r : TILE;
        const int64_t x = tp__axes_at(&j->from, matrix) + r;
        const int64_t y = tp__axes_at(&j->to, matrix) + r * j->row_step;
        for (int64_t c = 0; c < j->columns; c += TILE) {
            const int64_t n = j->columns - c < TILE ? j->columns - c : TILE;
            const char *from = j->x + (size_t)(x + c * j->column_step) * j->size;
            char *to = j->y + (size_t)(y + c) * j->size;
            if (j->size == 4)
                tile4(j, from, to, m, n);
            else if (j->size == 8)
                tile8(j, from, to, m, n);
            else if (j->size == 2)
                tile2(j, from, to, m, n);
            else
                tile1(j, from, to, m, n);
        }
    }
}

static void permute(const tp_device *D, const tp_view *x, const tp_view *y, const int *order)
{
    if (x->numel == 0) return;
    const tp_permute_plan p = tp__permute_plan(x, order);
    const int last = p.n - 1;
    job j = { .x = x->data, .y = y->data, .size = tp_dtype_size(x->dtype), .columns = p.dim[last] };
    if (p.from[last] == 1) {
        tp__permute_others(&p, last, last, &j.from, &j.to);
        tp__parallel(D, j.from.count, GRAIN / j.columns, copy_rows, &j);
        return;
    }
    int row = 0; /* the axis of y that is contiguous in x */
    while (p.from[row] != 1) row++;
    tp__permute_others(&p, row, last, &j.from, &j.to);
    j.rows = p.dim[row];
    j.row_step = p.to[row];
    j.column_step = p.from[last];
    j.strips = (j.rows + TILE - 1) / TILE;
    tp__parallel(D, j.from.count * j.strips, GRAIN / (TILE * j.columns), transpose_strips, &j);
}

/* The axes of c->attr, a tp_shape, and of its inverse. */
static void orders(const tp_call *c, int *order, int *inverse)
{
    const tp_shape *s = c->attr;
    for (int i = 0; i < s->ndim; i++) {
        order[i] = (int)(s->dim[i] < 0 ? s->dim[i] + s->ndim : s->dim[i]);
        inverse[order[i]] = i;
    }
}

static tp_code permute_fwd(const tp_call *c)
{
    int order[TP_MAX_DIMS] = { 0 }, inverse[TP_MAX_DIMS] = { 0 };
    orders(c, order, inverse);
    permute(c->dev, &c->x[0], &c->y[0], order);
    return TP_OK;
}

static tp_code permute_bwd(const tp_call *c)
{
    int order[TP_MAX_DIMS] = { 0 }, inverse[TP_MAX_DIMS] = { 0 };
    orders(c, order, inverse);
    if (c->dx[0].data) permute(c->dev, &c->dy[0], &c->dx[0], inverse);
    return TP_OK;
}

TP_CPU_KERNEL_UNTYPED(permute_fwd)
TP_CPU_KERNEL_UNTYPED(permute_bwd)
