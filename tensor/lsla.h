/* lsla.h - light self-limited attention: windows, shifts, scratch memory. Shared by the op file and
 * the kernels.
 *
 * The map is rolled up and left by the shift, then cut into windows of w x w tokens, n = w w. Of
 * the rolled map's rows the last w hold tokens from two borders of the map, and columns likewise: a
 * query must not see keys of another region (all others have region 0). */
#ifndef TP_LSLA_H
#define TP_LSLA_H

#include <string.h>
#include <tapegrad/op.h>
#include <tapegrad/ops.h>

#include "tensor/host_device.h"

enum { TP_LSLA_SLICES = 16 }; /* of the windows of a head, at most: tasks and partial sums */

enum { LSLA_Q, LSLA_K, LSLA_V, LSLA_SCALE, LSLA_INNER, LSLA_OUTER, LSLA_NX };

typedef struct tp_lsla {
    int64_t batch, heads, dim, width; /* B, H, D, C = H D                     */
    int64_t size[2], window, shift;   /* of the map; w                        */
    int64_t n, table;                 /* tokens of a window; rows of a table  */
    int64_t down, across;             /* windows                              */
    int64_t slices;                   /* of the windows of a head             */
} tp_lsla;

/* Where the pieces of a thread's scratch begin, in elements; matrices are [n][n]. */
typedef struct tp_lsla_scratch {
    int64_t inner, outer;           /* the head's biases, spread out             */
    int64_t q, k, v, out;           /* [n][D]                                    */
    int64_t s, p;                   /* scores; probabilities                     */
    int64_t dout, dp;               /* backward: [n][D]; of the probabilities    */
    int64_t dscale, dinner, douter; /* backward: sums of the task                */
    int64_t total;
    int64_t partial; /* backward, of a slice: [n][n], two tables  */
} tp_lsla_scratch;

static inline tp_lsla tp__lsla(const tp_view *x, const tp_lsla_cfg *cfg)
{
    const tp_view *q = &x[LSLA_Q];
    const int64_t w = cfg->window;
    const int64_t rows = q->dim[0] * (cfg->height / w);
    const tp_lsla g = { q->dim[0],
                        cfg->heads,
                        q->dim[2] / cfg->heads,
                        q->dim[2],
                        { cfg->height, cfg->width },
                        w,
                        cfg->shift,
                        w * w,
                        (2 * w - 1) * (2 * w - 1),
                        cfg->height / w,
                        cfg->width / w,
                        rows < TP_LSLA_SLICES ? rows : (int64_t)TP_LSLA_SLICES };
    return g;
}

/* The token of the map that stands at (y,x) of the rolled map. */
TP_HD static inline int64_t tp__lsla_token(const tp_lsla *g, int64_t y, int64_t x)
{
    return (y + g->shift) % g->size[0] * g->size[1] + (x + g->shift) % g->size[1];
}

/* The region of (y,x) of the rolled map: 3 times that of the row and that of the column. */
TP_HD static inline int tp__lsla_region(const tp_lsla *g, int64_t y, int64_t x)
{
    const int row = y < g->size[0] - g->window ? 0 : y < g->size[0] - g->shift ? 1 : 2;
    const int col = x < g->size[1] - g->window ? 0 : x < g->size[1] - g->shift ? 1 : 2;
    return g->shift ? 3 * row + col : 0;
}

/* The row of a table for query a and key b of a window. */
TP_HD static inline int64_t tp__lsla_place(const tp_lsla *g, int64_t a, int64_t b)
{
    const int64_t w = g->window;
    return (a / w - b / w + w - 1) * (2 * w - 1) + a % w - b % w + w - 1;
}

static inline int64_t tp__lsla_take(int64_t *total, int64_t n)
{
    const int64_t at = *total;
    *total += (n + 15) / 16 * 16;
    return at;
}

static inline tp_lsla_scratch tp__lsla_layout(const tp_lsla *g, bool backward)
{
    const int64_t square = g->n * g->n, rows = g->n * g->dim;
    tp_lsla_scratch w;
    memset(&w, 0, sizeof w);
    w.partial = backward ? square + 2 * g->table : 0;
    int64_t *const pieces[] = { &w.inner, &w.outer, &w.s, &w.p, &w.q, &w.k, &w.v, &w.out };
    int64_t *const more[] = { &w.dp, &w.dscale, &w.dinner, &w.douter };
    for (int i = 0; i < 8; i++) *pieces[i] = tp__lsla_take(&w.total, i < 4 ? square : rows);
    if (!backward) return w;
    for (int i = 0; i < 4; i++) *more[i] = tp__lsla_take(&w.total, square);
    w.dout = tp__lsla_take(&w.total, rows);
    return w;
}

/* Elements of scratch: each thread's, then the slices' of all heads. */
static inline int64_t tp__lsla_elements(const tp_lsla *g, bool backward, int threads)
{
    const tp_lsla_scratch w = tp__lsla_layout(g, backward);
    return threads * w.total + g->heads * g->slices * w.partial;
}

#endif
