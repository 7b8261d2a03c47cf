/* window_mask.h - attention over maps: hidden keys and queries, dropout of probabilities.
 *
 * A hidden key is packed as zeros and gets the logit -infinity; a piece or a strip whose queries are all
 * hidden is not computed. Dropout draws the words of element [B,H,N,r+g+N] of (query, key), whatever
 * tiles they are in. */
#ifndef TP_WINDOW_MASK_H
#define TP_WINDOW_MASK_H

#include "tensor/cpu/attention/window_chunk.h"

/* The mask of the tokens of the batch row, or NULL. */
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

/* Is any of the m queries of the chunk from i on visible? */
static bool piece_shown(const win_chunk *t, int64_t i, int64_t m)
{
    for (int64_t r = 0; r < m; r++)
        if (query_shown(t, i + r)) return true;
    return false;
}

/* Is any query of the strip of chunks from cx on visible, in the chunk's rows? */
static bool strip_shown(const win_chunk *t, int64_t cx)
{
    const tp_window *g = &t->a->g;
    const int64_t stop = tp__least(g->size[1], (cx + g->strip) * g->chunk[1]);
    for (int64_t y = t->y; y < t->y + t->rows; y++)
        for (int64_t x = cx * g->chunk[1]; x < stop; x++)
            if (shown(t, g->global + y * g->size[1] + x)) return true;
    return false;
}

/* Notes which of the packed keys are hidden, in the order of gather(): 1, else 0. */
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

/* s = scale s + bias, -infinity at hidden keys; without a bias or hidden keys that is NULL. */
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

/* The factors of dropout of query i of the chunk, in the order of its logits; NULL: no dropout. The
 * columns after the last key get zeros. Zero keys outside the map have words of their neighbours: their
 * values are zero with any factor. */
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
