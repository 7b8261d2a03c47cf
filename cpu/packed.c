/* packed.c - packed documents: sums of rows, and rows prepended to them. Memory-bound. */
#include "cpu/kit/packed.h"
#include "cpu/kit/real.h"
#include "tensor/kernel.h"

enum { COLUMNS = 64 }; /* summed by a task at a time */

/* ---- sums: x, offset ---- */

static tp_packing packing_of(const tp_call *c, int x)
{
    return tp__packing(&c->x[x + 1], c->x[x].dim[0], *(const int64_t *)c->attr);
}

/* Numbers in a row of y [n,...]. */
static int64_t width_of(const tp_view *y)
{
    return y->dim[0] > 0 ? y->numel / y->dim[0] : 0;
}

/* A task is up to COLUMNS columns of a document; its rows are added in double. */
static void sum_tasks(const tp_call *c, int64_t begin, int64_t end)
{
    const tp_packing p = packing_of(c, 0);
    const int64_t width = width_of(&c->y[0]), strips = tp__ceil_div(width, COLUMNS);
    for (int64_t task = begin; task < end; task++) {
        const int64_t b = task / strips, col = task % strips * COLUMNS;
        const int64_t n = tp__least(COLUMNS, width - col);
        const tp_rows rows = tp__document(&p, b);
        const real *x = (const real *)c->x[0].data + rows.first * width + col;
        real *y = (real *)c->y[0].data + b * width + col;
        double sum[COLUMNS] = { 0 };
        for (int64_t i = 0; i < rows.count; i++, x += width)
            for (int64_t j = 0; j < n; j++) sum[j] += (double)x[j];
        for (int64_t j = 0; j < n; j++) y[j] = (real)sum[j];
    }
}

static tp_code packed_sum_fwd(const tp_call *c)
{
    const tp_packing p = packing_of(c, 0);
    const tp_code code = tp__check_packing(c, &p);
    if (code != TP_OK) return code;
    const int64_t strips = tp__ceil_div(width_of(&c->y[0]), COLUMNS);
    tp__for(c, p.n * strips, 1, sum_tasks);
    return TP_OK;
}

static void spread_documents(const tp_call *c, int64_t begin, int64_t end)
{
    const tp_packing p = packing_of(c, 0);
    const int64_t width = width_of(&c->dy[0]);
    for (int64_t b = begin; b < end; b++) {
        const tp_rows rows = tp__document(&p, b);
        const real *dy = (const real *)c->dy[0].data + b * width;
        real *dx = (real *)c->dx[0].data + rows.first * width;
        for (int64_t i = 0; i < rows.count; i++, dx += width)
            memcpy(dx, dy, (size_t)width * sizeof *dx);
    }
}

static tp_code packed_sum_bwd(const tp_call *c)
{
    if (c->dx[0].data && c->dx[0].numel) tp__for(c, packing_of(c, 0).n, 1, spread_documents);
    return TP_OK;
}

/* ---- rows before documents: first, x, offset ---- */

static void move(void *to, const void *from, size_t bytes)
{
    if (bytes) memcpy(to, from, bytes);
}

/* Moves documents' rows between y and first, x; bytes: of a row. */
static void move_documents(const tp_packing *p, bool gather, char *first, char *x, char *y,
                           size_t bytes)
{
    for (int64_t b = 0; b < p->n; b++) {
        const tp_rows rows = tp__document(p, b);
        char *head = y + (size_t)(rows.first + b) * bytes, *own = first + (size_t)b * bytes;
        char *tail = head + bytes, *body = x + (size_t)rows.first * bytes;
        const size_t most = (size_t)rows.count * bytes;
        if (first) move(gather ? head : own, gather ? own : head, bytes);
        if (x) move(gather ? tail : body, gather ? body : tail, most);
    }
}

static tp_code packed_prepend_fwd(const tp_call *c)
{
    const tp_packing p = packing_of(c, 1);
    const tp_view *y = &c->y[0], *longer = &c->y[1];
    const tp_code code = tp__check_packing(c, &p);
    if (code != TP_OK) return code;
    move_documents(&p, true, c->x[0].data, c->x[1].data, y->data,
                   (size_t)width_of(y) * tp_dtype_size(y->dtype));
    for (int64_t b = 0; b <= p.n; b++)
        if (p.wide)
            ((int64_t *)longer->data)[b] = tp__offset(&p, b) + b;
        else
            ((int32_t *)longer->data)[b] = (int32_t)(tp__offset(&p, b) + b);
    return TP_OK;
}

static tp_code packed_prepend_bwd(const tp_call *c)
{
    const tp_packing p = packing_of(c, 1);
    const tp_view *dy = &c->dy[0];
    move_documents(&p, false, c->dx[0].data, c->dx[1].data, dy->data,
                   (size_t)width_of(dy) * tp_dtype_size(dy->dtype));
    return TP_OK;
}

TP_CPU_KERNEL(packed_sum_fwd)
TP_CPU_KERNEL(packed_sum_bwd)
TP_CPU_KERNEL(packed_prepend_fwd)
TP_CPU_KERNEL(packed_prepend_bwd)
