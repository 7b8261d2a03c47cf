/* ls_attention.h - attributes, inputs and geometry shared by the long-short attention op and its
 * kernels.
 *
 * Wc cached window rows precede the N queries. Window row j is a key at distance Wc + t - j from
 * query t. Chunk vectors are numbered oldest first; those of the Cc cached chunks precede the
 * segment. */
#ifndef TP_LS_ATTENTION_H
#define TP_LS_ATTENTION_H

#include <string.h>
#include <tapegrad/op.h>
#include <tapegrad/ops.h>

#include "tensor/geometry/whole.h"

#define LS_ALIGN 16 /* elements; scratch sizes are multiples of it for every vector length */
#define LS_TASKS 8  /* with fewer heads in the batch, queries are split into stripes */
#define LS_TILE  64 /* queries per tile */

typedef struct tp__ls_attr {
    int64_t heads, chunk, rank, window, clamp, chunk_clamp, cache, valid;
    double dropout;
    bool masked, segment;
} tp__ls_attr;

enum {
    LS_Q,
    LS_K_WIN,
    LS_V_WIN,
    LS_K_CMP,
    LS_V_CMP,
    LS_POS_WIN,
    LS_POS_CMP,
    LS_R_W,
    LS_R_R,
    LS_NX
};

static inline tp__ls_attr tp__ls_attr_of(tp_ls_in in, tp_ls_attn_cfg cfg)
{
    const tp__ls_attr a = { .heads = cfg.heads,
                            .chunk = cfg.chunk,
                            .rank = cfg.rank,
                            .window = cfg.window,
                            .clamp = cfg.clamp,
                            .chunk_clamp = cfg.chunk_clamp,
                            .cache = in.cache,
                            .valid = in.valid,
                            .dropout = cfg.dropout,
                            .masked = cfg.masked,
                            .segment = cfg.segment };
    return a;
}

typedef struct tp__ls_dims {
    int64_t B, N, H, D, width; /* q [B,N,width], width = H D */
    int64_t pad;               /* D rounded up to LS_ALIGN */
    int64_t w, l, r, span;     /* span: distances in the window table */
    int64_t Wc, nc, Cc;        /* cached window rows, vectors, cached chunks */
    int64_t first, first_vec;  /* the first visible window row and vector */
    int64_t stripe, stripes;   /* queries per task, tasks per head */
    int64_t clamp, chunk_clamp;
    bool segment, dropped; /* dropped: dropout, in training */
} tp__ls_dims;

/* The geometry of checked inputs. Stripes depend only on the shapes, so results do not depend on
 * the number of threads. No stripe is shorter than the window, because each stripe repacks the
 * window before it. */
static inline tp__ls_dims tp__ls_geometry(const tp_view *x, const tp__ls_attr *a)
{
    tp__ls_dims g;
    memset(&g, 0, sizeof g);
    g.B = x[LS_Q].dim[0];
    g.N = x[LS_Q].dim[1];
    g.H = a->heads;
    g.D = x[LS_Q].dim[2] / a->heads;
    g.width = x[LS_Q].dim[2];
    g.w = a->window;
    g.l = a->chunk;
    g.r = a->rank;
    g.span = a->segment ? 2 * a->window : a->window;
    g.Wc = a->window ? x[LS_K_WIN].dim[1] - x[LS_Q].dim[1] : 0;
    g.nc = tp_absent(&x[LS_K_CMP]) ? 0 : x[LS_K_CMP].dim[1];
    g.clamp = a->clamp > 0 ? a->clamp : INT64_MAX;
    g.chunk_clamp = a->chunk_clamp > 0 ? a->chunk_clamp : INT64_MAX;
    g.segment = a->segment;
    g.dropped = a->dropout > 0;
    g.pad = tp__round_up(g.D, LS_ALIGN);
    g.Cc = g.r ? g.nc / g.r - g.N / g.l : 0;
    if (a->masked) {
        g.first = tp__most(0, g.Wc - a->valid);
        g.first_vec = tp__least((a->cache - a->valid + g.l - 1) / g.l, g.Cc) * g.r;
    }
    const int64_t heads = tp__most(1, g.B * g.H);
    const int64_t want = (LS_TASKS + heads - 1) / heads, most = g.N / tp__most(g.w, LS_TILE);
    const int64_t stripes = tp__most(1, tp__least(want, most));
    g.stripe = tp__most(LS_TILE, tp__round_up((g.N + stripes - 1) / stripes, LS_TILE));
    g.stripes = (g.N + g.stripe - 1) / g.stripe;
    return g;
}

/* The first window row that query t sees (the last is Wc + t), and the end of its vectors. */
static inline int64_t tp__ls_first_row(const tp__ls_dims *g, int64_t t)
{
    const int64_t row = g->segment ? t / g->w * g->w - g->w : t - g->w + 1;
    return tp__most(g->first, g->Wc + row);
}

static inline int64_t tp__ls_end_vec(const tp__ls_dims *g, int64_t t)
{
    return (g->Cc + t / g->l) * g->r;
}

/* Element (query, 0) of the probabilities [B,H,N,nc+Wc+N], vectors before window rows. */
static inline int64_t tp__ls_row(const tp__ls_dims *g, int64_t b, int64_t h, int64_t t)
{
    return ((b * g->H + h) * g->N + t) * (g->nc + (g->w ? g->Wc + g->N : 0));
}

#endif
