/* ls_scratch.h - long-short attention on the CPU: tiles of queries, and the layout of scratch memory.
 *
 * Distances fall as the indices of keys and vectors rise, so both position tables are packed in
 * reverse: packed row x of the window table is distance span - 1 - x, of the chunk table rho = nc -
 * 1 - x. Table rows and keys then have the same order, and neither needs a shift:
 *
 *     window   key row base + u + i of query t0 + i   <->  packed row span - U + u
 *     chunks   vector v of a query in chunk m         <->  packed row nc - (Cc + m) r + v
 *
 * A tile has up to LS_TILE queries. Its window scores are S[i][c], c = key row - base. Query i's
 * band ends before column U + i. Read with leading dimension ld + 1, all bands of S form one dense
 * matrix whose U columns are table rows. Without a window (w = 0) U is 0 and all bands are empty;
 * with rank 0 there are no vectors. */
#ifndef TP_LS_SCRATCH_H
#define TP_LS_SCRATCH_H

#include "tensor/geometry/ls_attention.h"

#define LS_SLACK 16 /* rows and columns that register kernels may touch beyond the end */

/* ---- tiles ---- */

/* Queries t0 .. t0+n-1. Column c of the scores is window row base + c. */
typedef struct tp__ls_tile {
    int64_t t0, n, base;
    int64_t reach; /* the most window rows that a query sees; query i's end at column reach + i */
    int64_t cols, vecs; /* ends of the columns and vectors that the last query sees */
} tp__ls_tile;

/* The most window rows seen by one of `rows` queries from t. */
static inline int64_t tp__ls_reach(const tp__ls_dims *g, int64_t t, int64_t rows)
{
    int64_t most = 0;
    for (; rows > 0; rows--, t++) most = tp__most(most, g->Wc + t + 1 - tp__ls_first_row(g, t));
    return most;
}

static inline tp__ls_tile tp__ls_tile_at(const tp__ls_dims *g, int64_t t0, int64_t end)
{
    const int64_t n = tp__least(LS_TILE, end - t0), reach = tp__ls_reach(g, t0, n);
    return (tp__ls_tile){ .t0 = t0,
                          .n = n,
                          .base = g->Wc + t0 + 1 - reach,
                          .reach = reach,
                          .cols = reach ? reach + n - 1 : 0,
                          .vecs = tp__ls_end_vec(g, t0 + n - 1) };
}

/* The first column that query i sees. */
static inline int64_t tp__ls_first_col(const tp__ls_dims *g, const tp__ls_tile *t, int64_t i)
{
    return tp__ls_first_row(g, t->t0 + i) - t->base;
}

/* The number of columns that `rows` queries from i see, from `first` on. */
static inline int64_t tp__ls_band(const tp__ls_tile *t, int64_t i, int64_t rows, int64_t first)
{
    return t->reach ? t->reach + i + rows - 1 - first : 0;
}

/* The end of the queries in the chunk of query i. */
static inline int64_t tp__ls_chunk_end(const tp__ls_dims *g, const tp__ls_tile *t, int64_t i)
{
    return tp__least(t->n, ((t->t0 + i) / g->l + 1) * g->l - t->t0);
}

/* ---- scratch ---- */

/* Arrays of a thread: name, rows, elements per row. A final t in a name means transposed. */
/* clang-format off */
#define LS_AREAS(X)                                                        \
    X(kt, g->D, ld_win)  /* keys of the window */                          \
    X(v, win, pad)       /* values of the window */                        \
    X(kct, g->D, ld_cmp) /* chunk vectors */                               \
    X(vc, cmp, pad)                                                        \
    X(rw, pos, pad)      /* window table, reversed */                      \
    X(rwt, g->D, ld_pos)                                                   \
    X(rc, cmp, pad)      /* chunk table, reversed */                       \
    X(rct, g->D, ld_cmp)                                                   \
    X(s, tile, ld_s)     /* window scores, then probabilities */           \
    X(sc, tile, ld_cmp)  /* chunk scores, then probabilities */            \
    X(qs, tile, pad)     /* scaled queries */                              \
    X(qw, tile, pad)     /* queries with content bias */                   \
    X(qr, tile, pad)     /* queries with position bias */                  \
    X(o, tile, pad)      /* output; in backward its gradient */            \
    X(keep, dropped, ld_keep) /* factors of dropout of a row */
#define LS_BACKWARD_AREAS(X)                                               \
    X(k, win, pad)                                                         \
    X(vt, g->D, ld_win)                                                    \
    X(kc, cmp, pad)                                                        \
    X(vct, g->D, ld_cmp)                                                   \
    X(ds, tile, ld_s)                                                      \
    X(dsc, tile, ld_cmp)                                                   \
    X(dqs, tile, pad)                                                      \
    X(dqw, tile, pad)                                                      \
    X(dqr, tile, pad)                                                      \
    X(dk, win, pad)      /* sums over the tiles of the stripe */           \
    X(dv, win, pad)

/* Partial sums of a task of backward, which are summed over tasks afterwards. */
#define LS_PARTIAL_AREAS(X)                                                \
    X(head_k, head, pad) /* window rows before the stripe's own */         \
    X(head_v, head, pad)                                                   \
    X(dkc, cmp, pad)                                                       \
    X(dvc, cmp, pad)                                                       \
    X(drw, pos, pad)     /* tables, reversed */                            \
    X(drc, cmp, pad)                                                       \
    X(dr_w, 1, pad)      /* biases */                                      \
    X(dr_r, 1, pad)
/* clang-format on */

/* Offsets and leading dimensions, in elements. */
typedef struct tp__ls_scratch {
    int64_t ld_win, ld_cmp, ld_pos, ld_s;
    int64_t total, partial; /* elements of a thread and of a task */
#define X(name, rows, ld) int64_t name;
    LS_AREAS(X)
    LS_BACKWARD_AREAS(X)
    LS_PARTIAL_AREAS(X)
#undef X
} tp__ls_scratch;

/* An odd multiple of LS_ALIGN, so that the rows of a column fall into different cache sets. */
static inline int64_t tp__ls_ld(int64_t n)
{
    return ((n + LS_SLACK + LS_ALIGN - 1) / LS_ALIGN | 1) * LS_ALIGN;
}

static inline tp__ls_scratch tp__ls_layout(const tp__ls_dims *g, bool backward)
{
    const int64_t keys = g->w ? g->Wc + g->N : 0, rows = tp__least(keys, g->stripe + g->span);
    const int64_t ld_win = tp__ls_ld(rows), ld_cmp = tp__ls_ld(g->nc), ld_pos = tp__ls_ld(g->span);
    const int64_t ld_s = tp__ls_ld(tp__least(keys, g->span) + LS_TILE), pad = g->pad;
    const int64_t win = rows + LS_SLACK, cmp = g->nc + LS_SLACK, pos = g->span + LS_SLACK;
    const int64_t tile = LS_TILE + LS_SLACK, dropped = g->dropped, ld_keep = tp__most(ld_s, ld_cmp);
    const int64_t head = g->stripes > 1 ? tp__least(keys, g->span) : 0;
    tp__ls_scratch a = { .ld_win = ld_win, .ld_cmp = ld_cmp, .ld_pos = ld_pos, .ld_s = ld_s };
#define X(name, rows, ld) a.name = (a.total += (rows) * (ld)) - (rows) * (ld);
    LS_AREAS(X)
    if (!backward) return a;
    LS_BACKWARD_AREAS(X)
#undef X
#define X(name, rows, ld) a.name = (a.partial += (rows) * (ld)) - (rows) * (ld);
    LS_PARTIAL_AREAS(X)
#undef X
    return a;
}

#endif
