/* window_chunk.h - attention over maps: a chunk of one head with a thread's scratch, rows of its
 * tensors, hidden keys and queries, dropout of probabilities. */
#ifndef TP_WINDOW_CHUNK_H
#define TP_WINDOW_CHUNK_H

#include "cpu/attention/ls_products.h"
#include "cpu/attention/pairs.h"
#include "cpu/kit/philox_words.h"
#include "cpu/kit/real.h"
#include "cpu/kit/take.h"
#include "tensor/geometry/window.h"
#include "tensor/kernel.h"

/* ---- the scratch of a thread ---- */

enum {
    TP_WINDOW_ALIGN = 16, /* elements; scratch sizes are multiples of it in all builds */
    TP_WINDOW_SLACK = 16  /* rows and columns past the end that products may touch */
};

/* Offsets of the parts of a thread's scratch, in elements. A final t means transposed. Rows of D
 * elements are padded to `pad`. The extra keys are packed first; the keys of a strip of the map
 * follow from row `front` on. */
typedef struct tp_window_scratch {
    int64_t m, pad, ld;    /* most queries of a piece; row lengths of [m][pad] and of scores */
    int64_t map;           /* scores: first column of map keys, a whole vector */
    int64_t front, packed; /* packed keys: first row of map keys; total rows */
    int64_t ldk;           /* row length of transposed keys */
    int64_t scores;        /* [m][ld] */
    int64_t q, out;        /* [m][pad]: scaled queries; result, or their gradient */
    int64_t kt, v;         /* [D][ldk]; [packed][pad] */
    int64_t table, tables; /* biases of the packed keys, see window_tiles.h; their number */
    int64_t hidden, keep;  /* [packed], with a mask: 1 for hidden keys; [ld]: dropout factors */
    int64_t other, dout;   /* backward: [m][ld] gradients of probabilities; [m][pad] */
    int64_t k, vt;         /* backward */
    int64_t dk, dv;        /* backward: sums, [packed][pad] */
    int64_t dtable;        /* backward: gradient of the biases */
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

/* The row length for n elements. An odd multiple of TP_WINDOW_ALIGN spreads cache sets. */
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

/* ---- a chunk ---- */

typedef struct win {
    const tp_call *c;
    tp_window g;
    tp_window_scratch at;
    int pairs; /* products in bf16: pairs.h */
    /* Of queries and their gradients; with pairs, of logits and theirs: keeps bf16 exact. */
    real scale;
    tp_keeper drop;
    int64_t phase;
    /* For one of several documents: its number, their number, the tokens of the longest, where its
     * partial sums begin. Otherwise maps is the batch. */
    int64_t document, maps, longest, first_task;
} win;

/* The biases of a rectangle of keys begin at tables + row of queries * step + (horizontal
 * difference - least) * rows. y: the first row of keys. */
typedef struct win_run {
    int64_t y, rows, least, count, tables, step;
} win_run;

/* A chunk of one head, with the thread's scratch. It sees n keys: the extra ones and the packed
 * ones from `key` on. With pairs these begin at an even row; the first `lead` rows are not the
 * chunk's. */
typedef struct win_chunk {
    const win *a;
    int64_t b, h;
    int64_t y, x, rows, cols; /* its queries */
    int nrect;
    tp_rect rect[TP_WINDOW_RECTS];
    win_run run[TP_WINDOW_RECTS];
    int64_t key, lead, n, padded; /* padded: columns of scores that products read */
    int64_t first;                /* map column of the first packed cell of a band */
    real *scratch;
    real *partial; /* backward: sums of the task */
} win_chunk;

/* The head's slice of a token of x [B,g+N,C], of y [B,N,C] (tokens = N) or of low [B,r,C]. */
static inline real *slice(const win_chunk *t, const tp_view *x, int64_t tokens, int64_t token)
{
    const tp_window *g = &t->a->g;
    return (real *)x->data + (t->b * tokens + token) * g->width + t->h * g->dim;
}

/* Returns the token of cell (i,j) of a rectangle, or -1 outside the map. */
static inline int64_t source(const tp_window *g, const tp_rect *r, int64_t i, int64_t j)
{
    const int64_t y = r->y + i + r->dy, x = r->x + j + r->dx;
    return y < g->size[0] && x < g->size[1] ? g->global + y * g->size[1] + x : -1;
}

/* Returns the map index of query i of the chunk. */
static inline int64_t cell_of(const win_chunk *t, int64_t i)
{
    return (t->y + i / t->cols) * t->a->g.size[1] + t->x + i % t->cols;
}

/* to[d] = k from[d] in whole vectors; a library call does not pay for so small a d. */
TP_INLINE void scaled_row(real *restrict to, const real *restrict from, int64_t d, real k)
{
    int64_t i = 0;
    for (; i + LANES <= d; i += LANES) vec_store(to + i, k * vec_load(from + i));
    for (; i < d; i++) to[i] = k * from[i];
}

TP_INLINE void copy_row(real *restrict to, const real *restrict from, int64_t d)
{
    int64_t i = 0;
    for (; i + LANES <= d; i += LANES) vec_store(to + i, vec_load(from + i));
    for (; i < d; i++) to[i] = from[i];
}

static inline void clear_row(real *to, int64_t d)
{
    memset(to, 0, (size_t)d * sizeof(real));
}

TP_INLINE void add_row(real *restrict to, const real *restrict from, int64_t d)
{
    int64_t i = 0;
    for (; i + LANES <= d; i += LANES) vec_store(to + i, vec_load(to + i) + vec_load(from + i));
    for (; i < d; i++) to[i] += from[i];
}

/* ---- masks and dropout ----
 *
 * A hidden key is packed as zeros and gets the logit -infinity; a piece or a strip whose queries
 * are all hidden is not computed. Dropout draws the words of element [B,H,N,r+g+N] for (query,
 * key), in any tile. */

/* The mask of the batch row's tokens, or NULL. */
static inline const uint8_t *mask_of(const win_chunk *t)
{
    const uint8_t *mask = t->a->c->x[WIN_MASK].data;
    return mask ? mask + t->b * t->a->g.tokens : NULL;
}

/* Is token i of the batch row visible? */
static inline bool shown(const win_chunk *t, int64_t i)
{
    const uint8_t *mask = mask_of(t);
    return !mask || mask[i];
}

static inline bool low_shown(const win_chunk *t, int64_t i)
{
    const uint8_t *mask = t->a->c->x[WIN_LOW_MASK].data;
    return !mask || mask[t->b * t->a->g.low + i];
}

static inline bool query_shown(const win_chunk *t, int64_t i)
{
    return shown(t, t->a->g.global + cell_of(t, i));
}

/* Is any of the chunk's m queries from i on visible? */
static bool piece_shown(const win_chunk *t, int64_t i, int64_t m)
{
    for (int64_t r = 0; r < m; r++)
        if (query_shown(t, i + r)) return true;
    return false;
}

/* In the chunk's rows, is any query of the strip of chunks from cx on visible? */
static bool strip_shown(const win_chunk *t, int64_t cx)
{
    const tp_window *g = &t->a->g;
    const int64_t stop = tp__least(g->size[1], (cx + g->strip) * g->chunk[1]);
    for (int64_t y = t->y; y < t->y + t->rows; y++)
        for (int64_t x = cx * g->chunk[1]; x < stop; x++)
            if (shown(t, g->global + y * g->size[1] + x)) return true;
    return false;
}

/* Marks the hidden packed keys, in the order of gather(), with 1, others with 0. */
static void mark_hidden(const win_chunk *t)
{
    const tp_window *g = &t->a->g;
    real *to = t->scratch + t->a->at.hidden;
    if (!g->masked) return;
    for (int64_t i = 0; i < g->low; i++) to[i] = !low_shown(t, i);
    for (int64_t i = 0; i < g->global; i++) to[g->low + i] = !shown(t, i);
    to += t->a->at.front;
    for (int r = 0; r < t->nrect; r++)
        for (int64_t j = 0; j < t->rect[r].cols; j++)
            for (int64_t i = 0; i < t->rect[r].rows; i++) {
                const int64_t token = source(g, &t->rect[r], i, j);
                *to++ = token >= 0 && !shown(t, token);
            }
}

/* s = scale s + bias, -infinity at hidden keys; bias or hidden may be NULL. */
static inline void finish_columns(int64_t n, real scale, const real *restrict bias,
                                  const real *restrict hidden, real *restrict s)
{
    if (bias && hidden)
        for (int64_t j = 0; j < n; j++)
            s[j] = hidden[j] != 0 ? -(real)INFINITY : scale * s[j] + bias[j];
    else if (hidden)
        for (int64_t j = 0; j < n; j++) s[j] = hidden[j] != 0 ? -(real)INFINITY : scale * s[j];
    else if (bias)
        for (int64_t j = 0; j < n; j++) s[j] = scale * s[j] + bias[j];
    else if (scale != 1)
        for (int64_t j = 0; j < n; j++) s[j] = scale * s[j];
}

/* The dropout factors of query i of the chunk, in the order of its logits; NULL without dropout.
 * Columns after the last key get zeros. Zero keys outside the map get their neighbours' words:
 * their values are zero with any factor. */
static const real *keep_row(const win_chunk *t, int64_t i)
{
    const win *a = t->a;
    const tp_window *g = &a->g;
    const int64_t head = (a->document + t->b) * g->heads + t->h;
    const int64_t row = (head * a->longest + cell_of(t, i)) * (g->extra + a->longest);
    real *keep = t->scratch + a->at.keep, *to = keep + a->at.map + t->lead;
    if (a->drop.below == 0) return NULL;
    tp__draw_keep(&a->drop, row, g->extra, 1, keep);
    clear_row(keep + g->extra, a->at.map - g->extra + t->lead);
    for (int r = 0; r < t->nrect; r++) {
        const tp_rect *u = &t->rect[r];
        for (int64_t y = 0; y < u->rows; y++) {
            const int64_t cell = (u->y + y + u->dy) * g->size[1] + u->x + u->dx;
            tp__draw_keep(&a->drop, row + g->extra + cell, u->cols, u->rows, to + y);
        }
        to += u->rows * u->cols;
    }
    clear_row(keep + t->n, t->padded - t->n);
    return keep;
}

#endif
