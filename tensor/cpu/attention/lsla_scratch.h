/* lsla_scratch.h - light self-limited attention: the scratch memory of a thread. */
#ifndef TP_LSLA_SCRATCH_H
#define TP_LSLA_SCRATCH_H

#include "tensor/geometry/lsla.h"

/* Offsets of the pieces of a thread's scratch, in elements. All matrices are [key][query], so that
 * a softmax runs down columns. Rows of `wide` queries are whole vectors, and so are the `deep`
 * columns of tokens. */
typedef struct tp_lsla_scratch {
    int64_t wide, deep;
    int64_t scale, inner, outer;    /* [n][wide]: scale and the head's tables, expanded         */
    int64_t q, k, v, out;           /* [wide][deep]: copies of heads that are not whole vectors */
    int64_t qt;                     /* [deep][wide]                                             */
    int64_t row;                    /* [wide] of int64_t                                        */
    int64_t region, lse, sum;       /* [wide]                                                   */
    int64_t minus, plus;            /* [n][wide]: biases of a window with several regions       */
    int64_t s, p;                   /* [wide][wide]: scores; probabilities                      */
    int64_t keep;                   /* [n][wide]: factors of dropout, if there is any           */
    int64_t dout, doutt, dp;        /* backward: [wide][deep]; [deep][wide]; gradient of p      */
    int64_t dscale, dinner, douter; /* [n][wide]: sums of the task                              */
    int64_t total;
    int64_t partial; /* backward, per slice: gradients of the scale [n][n], two tables */
} tp_lsla_scratch;

static inline int64_t tp__lsla_round(int64_t n)
{
    return (n + 15) / 16 * 16;
}

static inline tp_lsla_scratch tp__lsla_layout(const tp_lsla *g, bool backward, bool dropped)
{
    tp_lsla_scratch w = { .wide = tp__lsla_round(g->n), .deep = tp__lsla_round(g->dim) };
    const int64_t square = w.wide * w.wide, tokens = w.wide * w.deep;
    const struct {
        int64_t *at, size;
        bool forward;
    } pieces[] = {
        { &w.scale, square, true },
        { &w.inner, square, true },
        { &w.outer, square, true },
        { &w.q, tokens, true },
        { &w.k, tokens, true },
        { &w.v, tokens, true },
        { &w.out, tokens, true },
        { &w.qt, tokens, true },
        { &w.row, 2 * w.wide, true },
        { &w.region, w.wide, true },
        { &w.lse, w.wide, true },
        { &w.sum, w.wide, true },
        { &w.minus, square, true },
        { &w.plus, square, true },
        { &w.s, square, true },
        { &w.p, square, true },
        { &w.keep, dropped ? square : 0, true },
        { &w.dout, tokens, false },
        { &w.doutt, tokens, false },
        { &w.dp, square, false },
        { &w.dscale, square, false },
        { &w.dinner, square, false },
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

#endif
