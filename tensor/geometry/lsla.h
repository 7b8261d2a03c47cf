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

/* Of the windows of a head, at most: tasks and partial sums; each has at least eight windows, since
 * a task spreads out the head's biases. */
enum { TP_LSLA_SLICES = 16 };

enum { LSLA_Q, LSLA_K, LSLA_V, LSLA_SCALE, LSLA_INNER, LSLA_OUTER, LSLA_NX };

typedef struct tp_lsla {
    int64_t batch, heads, dim, width; /* B, H, D, C = H D                     */
    int64_t size[2], window, shift;   /* of the map; w                        */
    int64_t n, table;                 /* tokens of a window; rows of a table  */
    int64_t down, across;             /* windows                              */
    int64_t slices;                   /* of the windows of a head             */
} tp_lsla;

/* Where the pieces of a thread's scratch on the CPU begin, in elements. All matrices are
 * [key][query], so that a softmax runs down columns: rows of `wide` queries, whole vectors, as are
 * the `deep` columns of tokens. */
typedef struct tp_lsla_scratch {
    int64_t wide, deep;
    int64_t scale, inner, outer;    /* [n][wide]: the head's, spread out                     */
    int64_t q, k, v, out;           /* [wide][deep]: copies of heads that are no whole vectors */
    int64_t qt;                     /* [deep][wide]                                          */
    int64_t row;                    /* [wide] of int64_t                                     */
    int64_t region, lse, sum;       /* [wide]                                                */
    int64_t minus, plus;            /* [n][wide]: biases of a window of several regions      */
    int64_t s, p;                   /* [wide][wide]: scores; probabilities                   */
    int64_t dout, doutt, dp;        /* backward: [wide][deep], [deep][wide]; of probabilities */
    int64_t dscale, dinner, douter; /* [n][wide]: sums of the task                           */
    int64_t total;
    int64_t partial; /* backward, of a slice: [n][n] of the scale, two tables */
} tp_lsla_scratch;

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

/* The slices of a CUDA device: two blocks for each processor of a large GPU, with two windows at
 * least, and sums of 16 MiB at most. */
static inline int64_t tp__lsla_gpu_slices(const tp_lsla *g)
{
    const int64_t windows = g->batch * g->down * g->across, each = 5 * g->n * g->n * g->heads;
    int64_t most = 264 / g->heads;
    if (most > windows / 2) most = windows / 2;
    if (most > (1 << 22) / each) most = (1 << 22) / each;
    return most < 1 ? 1 : most;
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

static inline int64_t tp__lsla_round(int64_t n)
{
    return (n + 15) / 16 * 16;
}

static inline tp_lsla_scratch tp__lsla_layout(const tp_lsla *g, bool backward)
{
    tp_lsla_scratch w;
    memset(&w, 0, sizeof w);
    w.wide = tp__lsla_round(g->n);
    w.deep = tp__lsla_round(g->dim);
    const int64_t square = w.wide * w.wide, tokens = w.wide * w.deep;
    const struct {
        int64_t *at, size;
        bool forward;
    } pieces[] = {
        { &w.scale, square, true },   { &w.inner, square, true },   { &w.outer, square, true },
        { &w.q, tokens, true },       { &w.k, tokens, true },       { &w.v, tokens, true },
        { &w.out, tokens, true },     { &w.qt, tokens, true },      { &w.row, 2 * w.wide, true },
        { &w.region, w.wide, true },  { &w.lse, w.wide, true },     { &w.sum, w.wide, true },
        { &w.minus, square, true },   { &w.plus, square, true },    { &w.s, square, true },
        { &w.p, square, true },       { &w.dout, tokens, false },   { &w.doutt, tokens, false },
        { &w.dp, square, false },     { &w.dscale, square, false }, { &w.dinner, square, false },
        { &w.douter, square, false },
    };
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        if (pieces[i].forward || backward) {
            *pieces[i].at = w.total;
            w.total += pieces[i].size;
        }
    w.partial = backward ? tp__lsla_round(g->n * g->n + 2 * g->table) : 0;
    return w;
}

/* Elements of scratch: each thread's, then the slices' of all heads. */
static inline int64_t tp__lsla_elements(const tp_lsla *g, bool backward, int threads)
{
    const tp_lsla_scratch w = tp__lsla_layout(g, backward);
    return threads * w.total + g->heads * g->slices * w.partial;
}

#endif
