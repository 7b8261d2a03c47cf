/* window_tiles.h - attention over maps, for forward and backward: packed keys, biases, logits.
 *
 * Keys' cells are packed column by column, for a strip of chunks at a time. If a row of chunks sees
 * one band of the map, a strip is several of its chunks. The keys of a chunk are then a range of
 * the packed cells, which overlaps with its neighbours'. Otherwise a strip is one chunk.
 *
 * A bias table is computed for each row of the chunk's queries. It has a column of keys for every
 * horizontal difference of positions, so a query's biases are also a range of it.
 *
 * With pairs (pairs.h), rows of D numbers are D / 2 pairs; operands that a sum runs across are
 * zipped from them: packed keys or values, and queries and dO, which are kept in both forms. Rows
 * of scores become pairs in place. */
#ifndef TP_WINDOW_TILES_H
#define TP_WINDOW_TILES_H

#include "cpu/attention/window_chunk.h"
#include "cpu/kit/transpose.h"

/* ---- packing ---- */

/* The number of cells of the rectangles. */
static int64_t packed_cells(const win_chunk *t)
{
    int64_t n = 0;
    for (int r = 0; r < t->nrect; r++) n += t->rect[r].rows * t->rect[r].cols;
    return n;
}

/* Row length of packed rows of D numbers, and length of their products. */
static inline int64_t row_length(const win *a)
{
    return a->pairs ? a->at.pad / 2 : a->at.pad;
}

static inline int64_t row_terms(const win *a)
{
    return a->pairs ? (a->g.dim + 1) / 2 : a->g.dim;
}

/* to = scale x, as pairs or as is */
static inline void put_row(const win *a, const real *x, real scale, real *to)
{
    if (a->pairs)
        pairs_along(x, a->g.dim, scale, to);
    else
        scaled_row(to, x, a->g.dim, scale);
}

/* Where m zipped rows [m / 2][pad] lie, after the rows of pairs they are made of. */
static inline real *zipped(const win *a, real *rows, int64_t m)
{
    return rows + (m + 1) / 2 * a->at.pad;
}

/* Prefetches the head's slice of a token; its neighbours are too far for hardware prefetching. */
static inline void fetch_slice(const win_chunk *t, const tp_view *x, int64_t token)
{
    const int64_t lane = 64 / (int64_t)sizeof(real);
    const real *row = slice(t, x, t->a->g.tokens, token);
    for (int64_t j = 0; j < t->a->g.dim; j += lane) __builtin_prefetch(row + j);
}

/* Fills `to` with the low rows, the global ones, then the rectangles' cells. Hidden rows are 0. */
static void gather(const win_chunk *t, const tp_view *low, const tp_view *x, real *to)
{
    const tp_window *g = &t->a->g;
    const int64_t pad = row_length(t->a), terms = row_terms(t->a);
    const uint8_t *mask = mask_of(t);
    enum { AHEAD = 8 }; /* rows */
    for (int64_t i = 0; i < g->low; i++)
        if (low_shown(t, i))
            put_row(t->a, slice(t, low, g->low, i), 1, to + i * pad);
        else
            clear_row(to + i * pad, terms);
    for (int64_t i = 0; i < g->global; i++)
        if (shown(t, i))
            put_row(t->a, slice(t, x, g->tokens, i), 1, to + (g->low + i) * pad);
        else
            clear_row(to + (g->low + i) * pad, terms);
    if (t->a->pairs) clear_row(to + g->extra * pad, terms); /* pads the last pair */
    to += t->a->at.front * pad;
    for (int r = 0; r < t->nrect; r++)
        for (int64_t j = 0; j < t->rect[r].cols; j++)
            for (int64_t i = 0; i < t->rect[r].rows; i++, to += pad) {
                const int64_t token = source(g, &t->rect[r], i, j);
                const int64_t later =
                    source(g, &t->rect[r], i, j + tp__ceil_div(AHEAD, t->rect[r].rows));
                if (later >= 0) fetch_slice(t, x, later);
                if (token >= 0 && (!mask || mask[token]))
                    put_row(t->a, slice(t, x, g->tokens, token), 1, to);
                else
                    clear_row(to, terms);
            }
}

static void gather_keys(const win_chunk *t, real *to)
{
    gather(t, &t->a->c->x[WIN_LOW_K], &t->a->c->x[WIN_K], to);
}

static void gather_values(const win_chunk *t, real *to)
{
    gather(t, &t->a->c->x[WIN_LOW_V], &t->a->c->x[WIN_V], to);
}

/* Packs kt and v; in backward kt, k and vt. */
static void pack(const win_chunk *t)
{
    const win *a = t->a;
    const tp_window_scratch *at = &a->at;
    const int64_t rows = at->front + packed_cells(t), ld = row_length(a), terms = row_terms(a);
    const bool backward = at->k != 0;
    real *keys = t->scratch + (backward ? at->k : at->v);
    real *from = a->pairs ? zipped(a, keys, rows) : keys; /* pairs are zipped to keys */
    if (backward) {
        gather_values(t, from);
        transpose(from, ld, rows, terms, t->scratch + at->vt, at->ldk);
    }
    gather_keys(t, from);
    transpose(from, ld, rows, terms, t->scratch + at->kt, at->ldk);
    if (!backward) gather_values(t, from);
    if (a->pairs) pairs_zip_rows(from, rows, ld, a->g.dim, keys, at->pad);
    mark_hidden(t);
}

/* ---- biases ---- */

static bool biased(const win_chunk *t)
{
    return t->a->at.tables > 0;
}

/* The table row for the difference (y,x) of query and key. */
static inline int64_t table_row(const tp_window *g, int64_t y, int64_t x)
{
    return (y + g->reach[0]) * g->stride + x + g->reach[1];
}

/* Computes the tables of one run. */
static void make_tables(const win_chunk *t, const win_run *u)
{
    const tp_window *g = &t->a->g;
    const real *from = t->a->c->x[WIN_TABLE].data;
    real *to = t->scratch + t->a->at.table + u->tables;
    for (int64_t y = t->y; y < t->y + t->rows; y++)
        for (int64_t x = u->least; x < u->least + u->count; x++)
            for (int64_t i = 0; i < u->rows; i++) {
                const int64_t down = y - u->y - i;
                const bool far =
                    x > g->halo[1] || -x > g->halo[1] || down > g->halo[0] || -down > g->halo[0];
                if (g->exact && far)
                    *to++ = -(real)INFINITY;
                else
                    *to++ = from ? from[table_row(g, down, -x) * g->heads + t->h] : 0;
            }
}

/* Adds a run's bias gradients to the task's. */
static void fold_tables(const win_chunk *t, const win_run *u)
{
    const tp_window *g = &t->a->g;
    const real *from = t->scratch + t->a->at.dtable + u->tables;
    real *to = t->partial + 2 * g->extra * g->dim;
    for (int64_t y = t->y; y < t->y + t->rows; y++)
        for (int64_t x = u->least; x < u->least + u->count; x++)
            for (int64_t i = 0; i < u->rows; i++) to[table_row(g, y - u->y - i, -x)] += *from++;
}

/* Sets the runs of the rectangles. */
static void set_runs(win_chunk *t)
{
    int64_t tables = 0;
    for (int r = 0; r < t->nrect; r++) {
        win_run *u = &t->run[r];
        *u = (win_run){ .y = t->rect[r].y, .rows = t->rect[r].rows, .tables = tables };
        if (tp__window_banded(&t->a->g)) {
            u->least = -tp__window_across(&t->a->g);
            u->count = 1 - 2 * u->least;
        } else {
            u->least = t->rect[r].x - (t->x + t->cols - 1);
            u->count = t->rect[r].cols + t->cols - 1;
        }
        u->step = u->rows * u->count;
        tables += u->step * t->rows;
    }
}

/* ---- chunks ---- */

static void set_row(win_chunk *t, int64_t cy)
{
    const tp_window *g = &t->a->g;
    t->y = cy * g->chunk[0];
    t->rows = tp__least(g->chunk[0], g->size[0] - t->y);
}

/* Sets what follows from the rectangles. Pairs begin at an even key, so a chunk may read one key
 * before and after its own with probability 0: where that key or value is infinite or NaN, the
 * result is NaN. */
static void count_keys(win_chunk *t)
{
    const tp_window *g = &t->a->g;
    t->key = t->a->at.front;
    if (tp__window_banded(g) && t->nrect > 0) t->key += (t->rect[0].x - t->first) * t->rect[0].rows;
    t->lead = t->a->pairs ? t->key % 2 : 0;
    t->key -= t->lead;
    t->n = t->a->at.map + t->lead + packed_cells(t);
    t->padded = tp__window_up(t->n + (t->a->pairs ? PAIR_ROWS : LS_ROWS));
}

static void set_chunk(win_chunk *t, int64_t cy, int64_t cx)
{
    const tp_window *g = &t->a->g;
    t->x = cx * g->chunk[1];
    t->cols = tp__least(g->chunk[1], g->size[1] - t->x);
    t->nrect = tp__window_rects(g, cy, cx, t->rect);
    count_keys(t);
}

/* The chunk as its m queries from i on see it: with an exact edge, part of a sequence does not see
 * all keys of the chunk. Saves a quarter of Longformer's products. */
static win_chunk piece_of(const win_chunk *chunk, int64_t i, int64_t m)
{
    const tp_window *g = &chunk->a->g;
    win_chunk t = *chunk;
    tp_rect *r = &t.rect[0];
    if (!g->exact || g->size[0] > 1 || t.nrect == 0 || !tp__window_banded(g)) return t;
    const int64_t end = tp__least(r->x + r->cols, t.x + i + m + g->halo[1]);
    r->x = tp__most(r->x, t.x + i - g->halo[1]);
    r->cols = end - r->x;
    count_keys(&t);
    return t;
}

/* Packs the keys of the strip of chunks from cx on, and sets t to its rectangles. If all its
 * queries are hidden, packs nothing and returns false. */
static bool begin_strip(win_chunk *t, int64_t cy, int64_t cx)
{
    const tp_window *g = &t->a->g;
    set_row(t, cy);
    if (!strip_shown(t, cx)) return false;
    set_chunk(t, cy, cx);
    if (tp__window_banded(g) && t->nrect > 0) {
        const int64_t end = (cx + g->strip) * g->chunk[1] + g->halo[1];
        t->first = t->rect[0].x;
        t->rect[0].cols = tp__least(g->size[1], end) - t->first;
    }
    pack(t);
    set_runs(t);
    for (int r = 0; biased(t) && r < t->nrect; r++) make_tables(t, &t->run[r]);
    return true;
}

/* ---- logits ---- */

static inline void set_product(const win_chunk *t, const ls_product *p)
{
    if (t->a->pairs)
        pairs_multiply(p, t->a->pairs);
    else
        ls_set(p);
}

static inline void add_product(const win_chunk *t, const ls_product *p)
{
    if (t->a->pairs)
        pairs_multiply(p, LS_ADD | t->a->pairs);
    else
        ls_add(p);
}

/* s[m][n] = x times the transposed keys or values. */
static void times_keys(const win_chunk *t, int64_t m, const real *x, const real *keys, real *s)
{
    const tp_window_scratch *at = &t->a->at;
    ls_product p = { .rows = m,
                     .cols = t->a->g.extra,
                     .depth = row_terms(t->a),
                     .a = x,
                     .lda = row_length(t->a),
                     .b = keys,
                     .ldb = at->ldk,
                     .c = s,
                     .ldc = at->ld };
    if (p.cols > 0) set_product(t, &p);
    p.cols = t->n - at->map;
    p.b = keys + t->key;
    p.c = s + at->map;
    set_product(t, &p);
}

/* out[m][pad] = s[m][n] times keys or values. */
static void sum_keys(const win_chunk *t, int64_t m, const real *s, const real *keys, real *out)
{
    const tp_window_scratch *at = &t->a->at;
    const int64_t each = t->a->pairs ? 2 : 1; /* keys per term */
    ls_product p = { .rows = m,
                     .cols = at->pad,
                     .depth = tp__ceil_div(t->n - at->map, each),
                     .a = s + at->map / each,
                     .lda = at->ld,
                     .b = keys + t->key / each * at->pad,
                     .ldb = at->pad,
                     .c = out,
                     .ldc = at->pad };
    set_product(t, &p);
    p.depth = tp__ceil_div(t->a->g.extra, each);
    p.a = s;
    p.b = keys;
    if (p.depth > 0) add_product(t, &p);
}

/* Offset of the biases of query (y,x) and rectangle r in a bias table or its gradient. */
static inline int64_t biases(const win_chunk *t, int r, int64_t y, int64_t x)
{
    const win_run *u = &t->run[r];
    return u->tables + (y - t->y) * u->step + (t->rect[r].x - x - u->least) * u->rows;
}

/* Scales the logits s of query i, adds its biases, and masks hidden keys and columns without keys,
 * which get no probability and no gradient. */
static void finish_logits(const win_chunk *t, int64_t i, real *s)
{
    const tp_window *g = &t->a->g;
    const int64_t y = t->y + i / t->cols, x = t->x + i % t->cols, map = t->a->at.map + t->lead;
    const real scale = t->a->pairs ? t->a->scale : 1, *bias = t->a->c->x[WIN_GLOBAL_BIAS].data;
    const real *hidden = g->masked ? t->scratch + t->a->at.hidden : NULL;
    finish_columns(g->low, scale, NULL, hidden, s);
    finish_columns(g->global, scale, bias ? bias + t->h * g->global : NULL,
                   hidden ? hidden + g->low : NULL, s + g->low);
    int64_t j = map - t->lead; /* also the first key before the chunk's: whole vectors */
    for (int r = 0; r < t->nrect; r++) {
        const int64_t lead = r == 0 ? t->lead : 0, n = t->rect[r].rows * t->rect[r].cols + lead;
        const real *table = biased(t) ? t->scratch + t->a->at.table + biases(t, r, y, x) : NULL;
        finish_columns(n, scale, table ? table - lead : NULL,
                       hidden ? hidden + t->key + j - t->a->at.map : NULL, s + j);
        j += n;
    }
    for (j = g->extra; j < map; j++) s[j] = -(real)INFINITY;
    for (j = t->n; j < t->padded; j++) s[j] = -(real)INFINITY;
}

/* Computes the logits of the chunk's m queries from i on; keeps the scaled queries. */
static void logits(const win_chunk *t, int64_t i, int64_t m)
{
    const win *a = t->a;
    const int64_t ld = row_length(a);
    real *q = t->scratch + a->at.q, *s = t->scratch + a->at.scores;
    for (int64_t r = 0; r < m; r++) {
        const int64_t token = a->g.global + cell_of(t, i + r);
        const real *from = slice(t, &a->c->x[WIN_Q], a->g.tokens, token);
        if (shown(t, token))
            put_row(a, from, a->pairs ? 1 : a->scale, q + r * ld);
        else
            clear_row(q + r * ld, row_terms(a));
    }
    times_keys(t, m, q, t->scratch + a->at.kt, s);
    for (int64_t r = 0; r < m; r++) finish_logits(t, i + r, s + r * a->at.ld);
}

#endif
