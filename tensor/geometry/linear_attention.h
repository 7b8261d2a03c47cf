/* linear_attention.h - sizes, features and summation order of linear attention and its kernels. */
#ifndef TP_LINEAR_ATTENTION_H
#define TP_LINEAR_ATTENTION_H

#include <math.h>
#include <string.h>
#include <tapegrad/op.h>
#include <tapegrad/ops.h>

#include "tensor/host_device.h"

enum { LIN_Q, LIN_K, LIN_V, LIN_PROJECTION, LIN_MASK, LIN_NX };
enum { LIN_Y, LIN_SUMS, LIN_ROWS, LIN_NY };

/* Saves the sums [B,H,M,E] over keys of feature times value, with E = D plus a column for a
 * value of 1 if results are normalised, and row data: the denominators [B,H,N] and the offsets
 * subtracted from the exponents of queries [B,H,N] and keys [B,H,S]. */
typedef struct tp_lin {
    int64_t batch, heads, queries, keys, dim, width; /* B, H, N, S, D, H * D */
    int64_t features, columns;                       /* M, E */
    bool normalise;
    double scale;  /* of queries and keys before the features */
    double factor; /* of the result, if not normalised */
    double eps;
} tp_lin;

static inline tp_lin tp__lin(const tp_view *x, const tp_linear_attn_cfg *cfg)
{
    const tp_view *q = &x[LIN_Q], *k = &x[LIN_K];
    const bool projected = cfg->features != TP_FEATURES_ELU;
    const double n = (double)(k->dim[1] > 0 ? k->dim[1] : 1);
    tp_lin g;
    memset(&g, 0, sizeof g);
    g.batch = q->dim[0];
    g.heads = cfg->heads;
    g.queries = q->dim[1];
    g.keys = k->dim[1];
    g.width = q->dim[2];
    g.dim = g.width / cfg->heads;
    g.features = projected ? x[LIN_PROJECTION].dim[0] : g.dim;
    g.normalise = projected || cfg->normalise;
    g.columns = g.dim + g.normalise;
    g.scale = !projected          ? 1.0
              : cfg->scale != 0.0 ? cfg->scale
              : g.dim             ? 1.0 / sqrt(sqrt((double)g.dim))
                                  : 1.0;
    g.factor = g.normalise ? 1.0 : cfg->scale != 0.0 ? cfg->scale : 1.0 / sqrt(n);
    g.eps = cfg->eps != 0.0 ? cfg->eps : cfg->features == TP_FEATURES_POSITIVE ? 1e-4 : 1e-3;
    return g;
}

/* The offset of a part of the row data: denominators, queries, keys. */
enum { LIN_DENOMINATOR, LIN_OF_QUERY, LIN_OF_KEY };
static inline int64_t tp__lin_rows(const tp_lin *g, int part)
{
    return g->batch * g->heads * part * g->queries;
}

/* The number of equal parts, of a multiple of 64 rows, into which sums over n rows are split and
 * added in order: about `tasks` in all heads together. */
static inline int64_t tp__lin_parts(const tp_lin *g, int64_t n, int64_t tasks)
{
    const int64_t heads = g->batch * g->heads, tiles = (n + 63) / 64;
    const int64_t want = heads > 0 && heads < tasks ? tasks / heads : 1;
    const int64_t most = (tiles + 3) / 4; /* at least 256 rows each */
    const int64_t parts = want < most ? want : most;
    return parts > 0 ? parts : 1;
}

static inline int64_t tp__lin_part(int64_t n, int64_t parts)
{
    return ((n + 63) / 64 + parts - 1) / parts * 64;
}

#endif
