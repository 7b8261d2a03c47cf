/* lsla.h - windows and shifts of light self-limited attention. For the op file and the
 * kernels.
 *
 * The map is rolled up and left by the shift, then split into windows of w x w tokens, n = w w. The
 * last w rows of the rolled map hold tokens from two borders of the map, and so do its last w
 * columns. A query must not see keys of another region; the rest of the map is region 0. */
#ifndef TP_LSLA_H
#define TP_LSLA_H

#include <tapegrad/op.h>
#include <tapegrad/ops.h>

#include "tensor/host_device.h"

/* Most slices of a head's windows. A slice is one task with its own partial sums, and has at least
 * eight windows because each task expands the head's biases. */
enum { TP_LSLA_SLICES = 16 };

enum { LSLA_Q, LSLA_K, LSLA_V, LSLA_SCALE, LSLA_INNER, LSLA_OUTER, LSLA_NX };

typedef struct tp_lsla {
    int64_t batch, heads, dim, width; /* B, H, D, C = H D */
    int64_t size[2], window, shift;   /* size of the map; w */
    int64_t n, table;                 /* tokens of a window; rows of a table */
    int64_t down, across;             /* windows in the map */
    int64_t slices;                   /* slices of a head's windows */
} tp_lsla;

static inline tp_lsla tp__lsla(const tp_view *x, const tp_lsla_attn_cfg *cfg)
{
    const tp_view *q = &x[LSLA_Q];
    const int64_t w = cfg->window;
    const int64_t rows = q->dim[0] * (cfg->height / w), eighth = rows * (cfg->width / w) / 8;
    const int64_t most = eighth < 1 ? 1 : eighth < rows ? eighth : rows;
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
                        most < TP_LSLA_SLICES ? most : (int64_t)TP_LSLA_SLICES };
    return g;
}

/* The token of the map at (y,x) of the rolled map. */
TP_HD static inline int64_t tp__lsla_token(const tp_lsla *g, int64_t y, int64_t x)
{
    return (y + g->shift) % g->size[0] * g->size[1] + (x + g->shift) % g->size[1];
}

/* The region of (y,x) of the rolled map: 3 times the row's region plus the column's. */
TP_HD static inline int tp__lsla_region(const tp_lsla *g, int64_t y, int64_t x)
{
    const int row = y < g->size[0] - g->window ? 0 : y < g->size[0] - g->shift ? 1 : 2;
    const int col = x < g->size[1] - g->window ? 0 : x < g->size[1] - g->shift ? 1 : 2;
    return g->shift ? 3 * row + col : 0;
}

/* Element (token, key 0) of the probabilities [B,H,N,n]. */
TP_HD static inline int64_t tp__lsla_row(const tp_lsla *g, int64_t b, int64_t h, int64_t token)
{
    return ((b * g->heads + h) * g->size[0] * g->size[1] + token) * g->n;
}

/* The bias table row for query a and key b of a window. */
TP_HD static inline int64_t tp__lsla_place(const tp_lsla *g, int64_t a, int64_t b)
{
    const int64_t w = g->window;
    return (a / w - b / w + w - 1) * (2 * w - 1) + a % w - b % w + w - 1;
}

#endif
