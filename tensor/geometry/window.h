/* window.h - the keys that chunks of queries see in attention over maps. Shared by the op file and
 * the kernels.
 *
 * The map is split into chunks of queries. All queries of a chunk see the same keys: first the low
 * keys and the global tokens, then the cells of one to nine rectangles of the map. Relative
 * positions follow from a rectangle's nominal place; its source differs from that place where a
 * cyclic map wraps around.
 *
 * Backward adds to the gradients of keys that neighbouring chunks share. The chunks are therefore
 * grouped into stripes, and neighbouring stripes run in different phases: even stripes in phase 0,
 * odd ones in phase 1. On a cyclic map with an odd number of stripes, the last stripe is a
 * neighbour of the first and runs in phase 2. A stripe has at least two rows of chunks, since two
 * stripes with a single row between them would both add to it. Gradients that are shared more
 * widely (low and global keys, tables) are summed for each stripe and added in order. The split
 * depends only on the shapes, so results do not depend on the number of threads. */
#ifndef TP_WINDOW_H
#define TP_WINDOW_H

#include <string.h>
#include <tapegrad/op.h>
#include <tapegrad/ops.h>

#include "tensor/geometry/whole.h"

enum {
    TP_WINDOW_QUERIES = 64,     /* queries processed at a time */
    TP_WINDOW_TASKS = 16,       /* with fewer heads in the batch, more stripes */
    TP_WINDOW_PACKED = 1 << 16, /* approximate elements of keys packed together, to stay in cache */
    TP_WINDOW_RECTS = 9
};

enum {
    WIN_Q,
    WIN_K,
    WIN_V,
    WIN_LOW_K,
    WIN_LOW_V,
    WIN_TABLE,
    WIN_GLOBAL_BIAS,
    WIN_MASK,
    WIN_LOW_MASK,
    WIN_OFFSET,
    WIN_NX
};

/* rows x cols cells, nominally from (y,x). Cell (i,j) holds the key at (y+i+dy, x+j+dx) of the map,
 * or zeros outside the map. */
typedef struct tp_rect {
    int64_t y, x, rows, cols, dy, dx;
} tp_rect;

typedef struct tp_window {
    int64_t batch, heads, dim, width; /* B, H, D, C = H D */
    int64_t cells, tokens;            /* N, g + N */
    int64_t size[2], chunk[2], halo[2], chunks[2];
    int64_t low, global, extra;     /* r, g, r + g */
    int64_t keys;                   /* most keys of a chunk, the extra ones included */
    int64_t reach[2], stride, rows; /* layout of the bias table; 0 rows: no table */
    bool local, exact, cyclic, mask_wrapped;
    bool masked, dropped; /* there is a mask; dropout, in training */
    bool packed;          /* the geometry is that of documents of the longest length */
    int block;
    int64_t stripes, phases; /* stripes of rows of chunks, and their phases */
    int64_t strip, strips;   /* chunks whose keys are packed together; such strips in a row */
} tp_window;

/* Whether a row of chunks sees exactly one band of the map. */
static inline bool tp__window_banded(const tp_window *g)
{
    return !g->cyclic && g->block <= 0;
}

/* Rows of the band. */
static inline int64_t tp__window_band(const tp_window *g)
{
    return tp__least(g->chunk[0] + 2 * g->halo[0], g->size[0]);
}

static inline void tp__window_cut(tp_window *g)
{
    const int64_t groups = g->batch * g->heads, tasks = TP_WINDOW_TASKS;
    const int64_t parts = groups > 0 && groups < tasks ? tasks / groups : 1;
    g->stripes = tp__most(1, tp__least(parts, g->chunks[0] / 2));
    g->phases = g->stripes < 2 ? 1 : g->cyclic && g->stripes % 2 ? 3 : 2;
    const int64_t chunk = tp__most(1, tp__window_band(g) * g->chunk[1] * g->dim);
    g->strip = tp__window_banded(g) ? tp__most(1, TP_WINDOW_PACKED / chunk) : 1;
    g->strips = tp__ceil_div(g->chunks[1], g->strip);
}

/* The geometry of checked inputs; that of the longest document if packed. */
static inline tp_window tp__window(const tp_view *x, const tp_window_attn_cfg *cfg)
{
    const tp_view *q = &x[WIN_Q], *low = &x[WIN_LOW_K], *table = &x[WIN_TABLE];
    tp_window g;
    memset(&g, 0, sizeof g);
    g.packed = x[WIN_OFFSET].ndim > 0;
    g.batch = g.packed ? x[WIN_OFFSET].dim[0] - 1 : q->dim[0];
    g.heads = cfg->heads;
    g.width = q->dim[g.packed ? 1 : 2];
    g.dim = g.width / cfg->heads;
    g.cells = cfg->height * cfg->width;
    g.tokens = g.packed ? g.cells : q->dim[1];
    g.size[0] = cfg->height;
    g.size[1] = cfg->width;
    g.low = low->ndim ? low->dim[1] : 0;
    g.global = cfg->global;
    g.rows = table->ndim ? table->dim[0] : 0;
    g.local = cfg->window[0] > 0;
    g.exact = cfg->edge == TP_EDGE_EXACT;
    g.cyclic = cfg->edge == TP_EDGE_CYCLIC;
    g.mask_wrapped = cfg->mask_wrapped;
    g.masked = x[WIN_MASK].ndim > 0 || x[WIN_LOW_MASK].ndim > 0; /* absent: -1 */
    g.dropped = cfg->dropout > 0;
    g.block = cfg->block;
    int64_t most = 1;
    for (int i = 0; i < 2; i++) {
        g.chunk[i] = g.local ? cfg->window[i] : tp__most(g.size[i], 1);
        g.halo[i] = g.local && cfg->block != TP_BLOCK_OWN ? cfg->halo[i] : 0;
        g.chunks[i] = tp__ceil_div(g.size[i], g.chunk[i]);
        g.reach[i] = cfg->reach[i] ? cfg->reach[i] : cfg->window[i] + cfg->halo[i] - 1;
        const int64_t span = g.chunk[i] + 2 * g.halo[i];
        most *= g.cyclic ? span : tp__least(span, g.size[i]);
    }
    g.stride = cfg->stride ? cfg->stride : 2 * g.reach[1] + 1;
    g.extra = g.low + g.global;
    g.keys = g.extra + (g.local ? most : 0);
    tp__window_cut(&g);
    return g;
}

/* The first row of chunks of a stripe. */
static inline int64_t tp__window_stripe(const tp_window *g, int64_t stripe)
{
    return stripe * g->chunks[0] / g->stripes;
}

static inline int64_t tp__window_phase(const tp_window *g, int64_t stripe)
{
    return g->phases == 3 && stripe == g->stripes - 1 ? 2 : stripe % 2;
}

/* One axis of the rectangle of keys in block `step` (-1, 0, 1) of chunk `at`. */
TP_HD static inline void tp__window_block(const tp_window *g, int axis, int64_t at, int64_t step,
                                          int64_t *begin, int64_t *count, int64_t *shift)
{
    const int64_t size = g->size[axis], chunk = g->chunk[axis], n = g->chunks[axis];
    const int64_t nominal = at + step;
    const int64_t wrapped = nominal < 0 ? nominal + n : nominal >= n ? nominal - n : nominal;
    const int64_t source = g->cyclic ? wrapped : nominal;
    *begin = nominal * chunk;
    *shift = (source - nominal) * chunk;
    *count = source < 0 || source >= n ? 0 : chunk;
    if (nominal == n - 1 || (source == n - 1 && (g->mask_wrapped || !g->cyclic)))
        *count = size - (n - 1) * chunk;
}

/* Rectangle b of the keys that the chunk in row cy and column cx sees; false if it is empty.
 * Rectangle 0 is the chunk's own block; 1 to 8 surround it, row by row. */
TP_HD static inline bool tp__window_rect(const tp_window *g, int64_t cy, int64_t cx, int b,
                                         tp_rect *r)
{
    const int place = b == 0 ? 4 : b < 5 ? b - 1 : b;
    const bool whole = !g->cyclic && g->block <= 0; /* one rectangle holds all blocks */
    if (!g->local || (b > 0 && (whole || g->halo[0] == 0 || (g->block > 0 && b != g->block))))
        return false;
    if (whole) {
        r->y = tp__most(0, cy * g->chunk[0] - g->halo[0]);
        r->x = tp__most(0, cx * g->chunk[1] - g->halo[1]);
        r->rows = tp__least(g->size[0], (cy + 1) * g->chunk[0] + g->halo[0]) - r->y;
        r->cols = tp__least(g->size[1], (cx + 1) * g->chunk[1] + g->halo[1]) - r->x;
        r->dy = r->dx = 0;
    } else {
        tp__window_block(g, 0, cy, place / 3 - 1, &r->y, &r->rows, &r->dy);
        tp__window_block(g, 1, cx, place % 3 - 1, &r->x, &r->cols, &r->dx);
    }
    return r->rows > 0 && r->cols > 0;
}

/* Stores the non-empty rectangles that the chunk in row cy and column cx sees; returns their
 * number. */
TP_HD static inline int tp__window_rects(const tp_window *g, int64_t cy, int64_t cx,
                                         tp_rect rect[TP_WINDOW_RECTS])
{
    int n = 0;
    for (int b = 0; b < TP_WINDOW_RECTS; b++) {
        tp_rect r;
        if (tp__window_rect(g, cy, cx, b, &r)) rect[n++] = r;
    }
    return n;
}

#endif
