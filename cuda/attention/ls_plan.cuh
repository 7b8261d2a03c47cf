/* ls_plan.cuh - long-short attention: the sizes of a call, and places in scratch memory. Scratch
 * holds floats in proportion to the tokens; nothing has the size of queries times keys.
 *
 * Tables are shared by all batch rows, so their gradients are sums over all queries. These are cut
 * into `splits` runs of query tiles, by shapes alone, and each run has its own sum. */
#ifndef TP_LS_PLAN_CUH
#define TP_LS_PLAN_CUH

#include "tensor/geometry/ls_attention.h"

enum { LS_WINDOW_PART, LS_VECTOR_PART, LS_PARTS };

typedef struct tp__ls_plan {
    int B, N, H, D, width;   /* q [B,N,width], width = H D                             */
    int w, l, r, Wc, Cc;     /* window, chunk, rank; window rows and chunks before     */
    int first[LS_PARTS];     /* the first visible window row and vector                */
    int clamp[LS_PARTS];     /* of distances                                           */
    int keys[LS_PARTS];      /* Wc + N or 0, vectors                                   */
    int distances[LS_PARTS]; /* rows of the table that are used                        */
    int splits[LS_PARTS];
    int sum_rows; /* rows added before a sum is stored: gradients of biases */
    bool segment;
    /* Places in scratch memory, in floats. Backward only: from delta. */
    int64_t a, b;            /* bias logits: r_w K [B,H,Wc+N], r_r Rw [H,distances]    */
    int64_t delta;           /* sum of dy y [B,H,N]                                    */
    int64_t c, e;            /* sums of dS over queries [B,H,Wc+N] and over queries of
                                a split [splits,H,distances]                           */
    int64_t table[LS_PARTS]; /* gradients of the tables [splits,distances,width]       */
    int64_t sums;            /* [blocks of sum_rows,width]                             */
    int64_t total;
} tp__ls_plan;

enum {
    SPLIT_BLOCKS = 512,
    SUM_ROWS = 256
}; /* blocks that work on a table, about: enough for the largest GPUs */

static inline int64_t tp__ls_splits(const tp__ls_dims *g, int64_t rows)
{
    const int64_t runs = (g->N + LS_TILE - 1) / LS_TILE;
    const int64_t blocks = tp__most(1, (rows + LS_TILE - 1) / LS_TILE * g->H);
    const int64_t want = (SPLIT_BLOCKS + blocks - 1) / blocks;
    return tp__most(1, tp__least(g->B * runs, want));
}

static inline int tp__ls_small(int64_t n)
{
    return (int)tp__least(n, INT32_MAX);
}

static inline tp__ls_plan tp__ls_sizes(const tp__ls_dims *g)
{
    tp__ls_plan p = {};
    p.B = (int)g->B;
    p.N = (int)g->N;
    p.H = (int)g->H;
    p.D = (int)g->D;
    p.width = (int)g->width;
    p.w = (int)g->w;
    p.l = tp__ls_small(g->l);
    p.r = (int)g->r;
    p.Wc = (int)g->Wc;
    p.Cc = (int)g->Cc;
    p.first[LS_WINDOW_PART] = (int)g->first;
    p.first[LS_VECTOR_PART] = (int)g->first_vec;
    p.clamp[LS_WINDOW_PART] = tp__ls_small(g->clamp);
    p.clamp[LS_VECTOR_PART] = tp__ls_small(g->chunk_clamp);
    p.keys[LS_WINDOW_PART] = g->w ? (int)(g->Wc + g->N) : 0;
    p.distances[LS_WINDOW_PART] = (int)g->span;
    p.keys[LS_VECTOR_PART] = p.distances[LS_VECTOR_PART] = (int)g->nc;
    for (int part = 0; part < LS_PARTS; part++)
        p.splits[part] = (int)tp__ls_splits(g, p.distances[part]);
    p.sum_rows = SUM_ROWS;
    p.segment = g->segment;
    return p;
}

static inline tp__ls_plan tp__ls_plan_of(const tp_call *c)
{
    const tp__ls_dims g = tp__ls_geometry(c->x, static_cast<const tp__ls_attr *>(c->attr));
    tp__ls_plan p = tp__ls_sizes(&g);
    const int64_t rows = p.keys[LS_WINDOW_PART], sw = p.splits[LS_WINDOW_PART];
    const int64_t sc = p.splits[LS_VECTOR_PART];
    const int64_t most = tp__most(g.B * rows, sw * g.span);
    const struct {
        int64_t *at, n;
    } areas[] = {
        { &p.a, g.B * g.H * rows },
        { &p.b, g.H * g.span },
        { &p.delta, g.B * g.H * g.N },
        { &p.c, g.B * g.H * rows },
        { &p.e, sw * g.H * g.span },
        { &p.table[LS_WINDOW_PART], sw * g.span * g.width },
        { &p.table[LS_VECTOR_PART], sc * g.nc * g.width },
        { &p.sums, (most + SUM_ROWS - 1) / SUM_ROWS * g.width },
    };
    for (int i = 0; i < (tp_is_backward(c) ? 8 : 2); i++) {
        *areas[i].at = p.total;
        p.total += tp__round_up(areas[i].n, LS_ALIGN);
    }
    return p;
}

#endif
