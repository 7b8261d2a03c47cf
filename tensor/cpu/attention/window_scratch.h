/* window_scratch.h - attention over maps: the scratch memory of a thread. */
#ifndef TP_WINDOW_SCRATCH_H
#define TP_WINDOW_SCRATCH_H

#include "tensor/cpu/kit/take.h"
#include "tensor/geometry/window.h"

enum {
    TP_WINDOW_ALIGN = 16, /* elements; scratch sizes are multiples of it for every vector length */
    TP_WINDOW_SLACK = 16  /* rows and columns that products may touch beyond the end             */
};

/* Offsets of the pieces of a thread's scratch, in elements. A final t in a name means transposed.
 * Rows of D elements are padded to `pad`. The extra keys are packed first; the keys of a strip of
 * the map follow from row `front` on. */
typedef struct tp_window_scratch {
    int64_t m, pad, ld;    /* most queries of a piece; row lengths of [m][pad] and of score tiles */
    int64_t map;           /* scores: first column of map keys, a whole vector                    */
    int64_t front, packed; /* packed keys: first row of map keys; rows in all                     */
    int64_t ldk;           /* row length of transposed keys                                       */
    int64_t scores;        /* [m][ld]                                                             */
    int64_t q, out;        /* [m][pad]: scaled queries; result, or their gradient                 */
    int64_t kt, v;         /* [D][ldk]; [packed][pad]                                             */
    int64_t table, tables; /* biases of the packed keys, see window_tiles.h; their number         */
    int64_t hidden, keep;  /* [packed], with a mask: 1 for hidden keys; [ld], factors of dropout  */
    int64_t other, dout;   /* backward: [m][ld] gradients of probabilities; [m][pad]              */
    int64_t k, vt;         /* backward                                                            */
    int64_t dk, dv;        /* backward: sums, [packed][pad]                                       */
    int64_t dtable;        /* backward: gradient of the biases                                    */
    int64_t total;
    int64_t partial; /* backward, per task: dk, dv [extra][D]; [rows]; [g] */
} tp_window_scratch;

/* The largest horizontal distance between a key and a query. */
static inline int64_t tp__window_across(const tp_window *g)
{
    return tp__most(0, tp__least(g->chunk[1] + g->halo[1], g->size[1]) - 1);
}

/* The most elements in the bias tables of window_tiles.h. */
static inline int64_t tp__window_biases(const tp_window *g)
{
    const int64_t down = tp__least(g->chunk[0], g->size[0]);
    if (!g->local || (g->rows == 0 && !g->exact)) return 0;
    if (tp__window_banded(g)) return down * tp__window_band(g) * (2 * tp__window_across(g) + 1);
    return TP_WINDOW_RECTS * down * g->chunk[0] * (2 * g->chunk[1] - 1);
}

static inline int64_t tp__window_up(int64_t n)
{
    return tp__ceil_div(n, TP_WINDOW_ALIGN) * TP_WINDOW_ALIGN;
}

/* The row length for n elements. An odd multiple of TP_WINDOW_ALIGN spreads a column over cache
 * sets. */
static inline int64_t tp__window_ld(int64_t n)
{
    return (tp__ceil_div(n + TP_WINDOW_SLACK, TP_WINDOW_ALIGN) | 1) * TP_WINDOW_ALIGN;
}

static inline tp_window_scratch tp__window_layout(const tp_window *g, bool backward)
{
    const int64_t queries = tp__least(g->chunk[0] * g->chunk[1], g->cells);
    const int64_t across = tp__least(g->strip * g->chunk[1] + 2 * g->halo[1], g->size[1]);
    const int64_t cells = tp__window_banded(g) ? tp__window_band(g) * across : g->keys - g->extra;
    tp_window_scratch w = { 0 };
    w.m = tp__least(TP_WINDOW_QUERIES, queries);
    w.pad = tp__window_up(g->dim);
    w.map = tp__window_up(g->extra);
    w.ld = tp__window_ld(w.map - g->extra + g->keys);
    w.front = tp__window_up(g->extra + TP_WINDOW_SLACK);
    w.packed = w.front + (g->local ? cells : 0) + TP_WINDOW_SLACK;
    w.ldk = tp__window_ld(w.packed);
    w.tables = tp__window_biases(g);
    const int64_t rows = (w.m + TP_WINDOW_SLACK) * w.pad, tile = (w.m + TP_WINDOW_SLACK) * w.ld;
    w.scores = tp__take(&w.total, tile);
    w.q = tp__take(&w.total, rows);
    w.out = tp__take(&w.total, rows);
    w.kt = tp__take(&w.total, w.pad * w.ldk);
    w.v = tp__take(&w.total, w.packed * w.pad);
    w.table = tp__take(&w.total, w.tables);
    w.hidden = tp__take(&w.total, g->masked ? w.packed : 0);
    w.keep = tp__take(&w.total, g->dropped ? w.ld : 0);
    if (!backward) return w;
    w.other = tp__take(&w.total, tile);
    w.dout = tp__take(&w.total, rows);
    w.k = tp__take(&w.total, w.packed * w.pad);
    w.vt = tp__take(&w.total, w.pad * w.ldk);
    w.dk = tp__take(&w.total, w.packed * w.pad);
    w.dv = tp__take(&w.total, w.packed * w.pad);
    w.dtable = tp__take(&w.total, w.tables);
    w.partial = 2 * g->extra * g->dim + g->rows + g->global;
    return w;
}

#endif
