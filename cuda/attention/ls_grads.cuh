/* ls_grads.cuh - common to the f32 and tensor core kernels of long-short attention backward. */
#ifndef TP_LS_GRADS_CUH
#define TP_LS_GRADS_CUH

#include "cuda/attention/ls_plain.cuh"

/* The destination of a gradient, in the type of its view. */
struct ls_out {
    void *at;
    bool wide;
};

static ls_out ls_out_of(const tp_view *v)
{
    return { v->data, v->dtype == TP_F32 };
}

static __device__ inline void ls_put(const ls_out &o, int64_t i, float v)
{
    if (o.wide)
        static_cast<float *>(o.at)[i] = v;
    else
        tp_put(static_cast<bf16 *>(o.at) + i, v);
}

template <class S> struct ls_grad {
    const S *dy;
    const float *lse, *delta;
};

/* The columns of a part, and the destinations of their sums. */
struct ls_columns {
    int part, tiles, pieces, splits;
    int64_t blocks; /* without pieces; 0: not wanted */
    ls_out dx, dv;
    float *sum; /* c or e, or NULL */
};

struct ls_column_parts {
    ls_columns at[LS_PARTS];
};

/* The block's tile of n columns, from c0. Its queries are tiles begin .. end - 1 of a batch row or,
 * for tables, of all batch rows. */
struct ls_column {
    int c0, h, split, piece, n;
    int64_t begin, end;
};

/* Block: (piece of the head, split or batch row, head, tile of columns). TABLE: columns are
 * distances, summed over a split; otherwise they are keys of a batch row. */
template <bool TABLE, class S>
static __device__ inline ls_column ls_column_of(const ls_call<S> &p, const ls_columns &o,
                                                int64_t block)
{
    const int64_t item = tp_div(block, o.pieces), column = tp_div(item, o.splits);
    ls_column c;
    c.piece = (int)(block - item * o.pieces);
    c.split = (int)(item - column * o.splits);
    c.h = (int)(column % p.H);
    c.c0 = (int)(column / p.H) * LS_TILE;
    c.n = TABLE ? p.distances[o.part] : p.keys[o.part];
    const int64_t all = TABLE ? (int64_t)p.B * o.tiles : o.tiles;
    c.begin = TABLE ? all * c.split / o.splits : 0;
    c.end = TABLE ? all * (c.split + 1) / o.splits : all;
    return c;
}

/* Batch row and first query of tile m. */
template <bool TABLE>
static __device__ inline int ls_batch_of(const ls_columns &o, const ls_column &c, int64_t m)
{
    return TABLE ? (int)tp_div(m, o.tiles) : c.split;
}
template <bool TABLE> static __device__ inline int ls_query_of(const ls_columns &o, int64_t m)
{
    return (int)(TABLE ? m - tp_div(m, o.tiles) * o.tiles : m) * LS_TILE;
}

/* The first tile from m on with a query that sees a column, or the end. */
template <bool TABLE, class S>
static __device__ inline int64_t ls_next_tile(const ls_call<S> &p, const ls_columns &o,
                                              const ls_column &c, int64_t m)
{
    for (; m < c.end; m++) {
        const int t0 = ls_query_of<TABLE>(o, m), first = ls_first(p, o.part, t0);
        const int last = ls_reach(p, o.part, t0 + LS_TILE - 1);
        if (TABLE ? last - first >= c.c0 : last >= c.c0 && first < c.c0 + LS_TILE) break;
    }
    return m;
}

#endif
