/* ls_plain.cuh - long-short attention: the plan of a call, and f32 tiles for forward and backward,
 * for any head size, chunk length, window or rank.
 *
 * Window and chunk vectors are two parts of one form. For query t of a part
 *
 *     key + distance = reach(t)       window: Wc + t     vectors: (Cc + t / l) r - 1
 *
 * and t sees keys first(t) .. reach(t); their distances are rows of the part's table. A tile of
 * queries by columns, which are keys or distances, thus has a straight operand, row c0 + j for
 * column j, and a skewed one, row reach(t) - c0 - j:
 *
 *     S = q (K + R) + a[key] + b[distance]        a = r_w K, b = r_r R, for the window only
 *
 * Tiles are 64 x 64, with 4 x 4 for each of 256 threads; heads longer than 64 are cut into blocks
 * of columns, each of which recomputes the logits. Bound by shared memory: 32 multiply-adds need 4
 * to 5 wide loads. */
#ifndef TP_LS_PLAIN_CUH
#define TP_LS_PLAIN_CUH

#include "cuda/kit/kernel.cuh"
#include "cuda/kit/mask.cuh"
#include "tensor/geometry/ls_attention.h"

/* ---- the sizes of a call, and places in scratch memory ----
 *
 * Scratch is proportional to the tokens, never to queries times keys. All batch rows share the
 * tables, so their gradients are sums over all queries. These are cut into `splits` runs of query
 * tiles, by shapes only, each with a separate sum. */

enum { LS_WINDOW_PART, LS_VECTOR_PART, LS_PARTS };

typedef struct tp__ls_plan {
    int B, N, H, D, width;   /* q [B,N,width], width = H D                         */
    int w, l, r, Wc, Cc;     /* window, chunk, rank; window rows and chunks before */
    int first[LS_PARTS];     /* first visible window row and vector                */
    int clamp[LS_PARTS];     /* of distances                                       */
    int keys[LS_PARTS];      /* Wc + N or 0, vectors                               */
    int distances[LS_PARTS]; /* rows of the table in use                           */
    int splits[LS_PARTS];
    bool segment;
    /* Offsets in scratch, in floats. From delta on, backward only. */
    int64_t a, b;            /* bias logits: r_w K [B,H,Wc+N], r_r Rw [H,distances]       */
    int64_t delta;           /* sum of dy y [B,H,N]                                       */
    int64_t c, e;            /* sums of dS: [B,H,Wc+N], and by split [splits,H,distances] */
    int64_t table[LS_PARTS]; /* gradients of the tables [splits,distances,width]          */
    int64_t sums[2];         /* of c K and e R, by LS_SUM_ROWS rows [blocks,width]      */
    int64_t total;
} tp__ls_plan;

/* About the number of blocks that work on a table, which fills the largest GPUs. */
enum { LS_SPLIT_BLOCKS = 512 };
enum { LS_SUM_ROWS = 256 }; /* per stored sum: gradients of biases */

static inline int64_t tp__ls_sum_blocks(int64_t rows)
{
    return (rows + LS_SUM_ROWS - 1) / LS_SUM_ROWS;
}

static inline int64_t tp__ls_splits(const tp__ls_dims *g, int64_t rows)
{
    const int64_t runs = (g->N + LS_TILE - 1) / LS_TILE;
    const int64_t blocks = tp__most(1, (rows + LS_TILE - 1) / LS_TILE * g->H);
    const int64_t want = (LS_SPLIT_BLOCKS + blocks - 1) / blocks;
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
    p.segment = g->segment;
    return p;
}

static inline tp__ls_plan tp__ls_plan_of(const tp_call *c)
{
    const tp__ls_dims g = tp__ls_geometry(c->x, static_cast<const tp__ls_attr *>(c->attr));
    tp__ls_plan p = tp__ls_sizes(&g);
    const int64_t rows = p.keys[LS_WINDOW_PART], sw = p.splits[LS_WINDOW_PART];
    const int64_t sc = p.splits[LS_VECTOR_PART];
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
        { &p.sums[0], tp__ls_sum_blocks(g.B * rows) * g.width },
        { &p.sums[1], tp__ls_sum_blocks(sw * g.span) * g.width },
    };
    for (int i = 0; i < (tp_is_backward(c) ? 9 : 2); i++) {
        *areas[i].at = p.total;
        p.total += tp__round_up(areas[i].n, LS_ALIGN);
    }
    return p;
}

/* ---- tiles ---- */

enum {
    LS_THREADS = 256,
    LS_DEPTH = 16,         /* depth of a product staged at a time             */
    LS_LINE = LS_TILE + 4, /* a line of a tile: 16-byte aligned, not one bank */
    LS_SKEW = 2 * LS_TILE, /* rows of the skewed operand staged at a time     */
    LS_SKEW_LINE = LS_SKEW + 4,
    LS_SQUARE = LS_TILE * LS_LINE
};

/* How the row of the skewed operand depends on the query: none (no operand), advances by one per
 * query, shared by four queries and within reach, or arbitrary. */
enum ls_way { LS_NONE, LS_DIAGONAL, LS_SAME, LS_ANY };

/* ---- the call, as kernels see it ---- */

template <class S> struct ls_call : tp__ls_plan {
    float scale;
    const S *q, *k[LS_PARTS], *v[LS_PARTS], *table_at[LS_PARTS], *r_w, *r_r;
    float *work;
    tp_mask drop; /* of element [B,H,N,vectors + window rows] */
};

template <class S> static ls_call<S> ls_call_of(const tp_call *c)
{
    ls_call<S> p;
    static_cast<tp__ls_plan &>(p) = tp__ls_plan_of(c);
    const auto in = [&](int i) {
        return tp_absent(&c->x[i]) ? static_cast<const S *>(NULL) : tp_in<S>(&c->x[i]);
    };
    p.scale = p.D > 0 ? 1.0f / sqrtf((float)p.D) : 0.0f;
    p.q = in(LS_Q);
    p.k[LS_WINDOW_PART] = in(LS_K_WIN);
    p.v[LS_WINDOW_PART] = in(LS_V_WIN);
    p.table_at[LS_WINDOW_PART] = in(LS_POS_WIN);
    p.k[LS_VECTOR_PART] = in(LS_K_CMP);
    p.v[LS_VECTOR_PART] = in(LS_V_CMP);
    p.table_at[LS_VECTOR_PART] = in(LS_POS_CMP);
    p.r_w = in(LS_R_W);
    p.r_r = in(LS_R_R);
    p.work = static_cast<float *>(c->work);
    p.drop = tp_mask_of(c, c->train ? static_cast<const tp__ls_attr *>(c->attr)->dropout : 0.0);
    return p;
}

static inline int64_t ls_tiles(int64_t n)
{
    return (n + LS_TILE - 1) / LS_TILE;
}

/* LS_SAME if four queries from a multiple of 4 share their skew and a tile stays within reach. */
template <class S> static ls_way ls_vector_way(const ls_call<S> &p)
{
    return p.l % 4 == 0 && ((int64_t)(LS_TILE - 1) / p.l + 1) * p.r <= LS_TILE ? LS_SAME : LS_ANY;
}

template <class S> static __device__ inline int ls_reach(const ls_call<S> &p, int part, int t)
{
    return part == LS_WINDOW_PART ? p.Wc + t : (p.Cc + t / p.l) * p.r - 1;
}

template <class S> static __device__ inline int ls_first(const ls_call<S> &p, int part, int t)
{
    if (part == LS_VECTOR_PART) return p.first[LS_VECTOR_PART];
    return max(p.first[LS_WINDOW_PART], p.Wc + (p.segment ? t / p.w * p.w - p.w : t - p.w + 1));
}

/* ---- operands ---- */

/* Rows of one head: zeros outside 0 .. n-1; rows above `clamp` repeat row `clamp`. */
template <class S> struct ls_rows {
    const S *at;
    const float *bias; /* logits that come with the rows, or NULL */
    int n, clamp;
};

template <class S>
static __device__ inline ls_rows<S> ls_queries(const ls_call<S> &p, const S *x, int b, int h)
{
    return { x + (int64_t)b * p.N * p.width + (int64_t)h * p.D, NULL, p.N, p.N };
}

/* Keys or values of a part: x: p.k[part] or p.v[part]. */
template <class S>
static __device__ inline ls_rows<S> ls_keys(const ls_call<S> &p, const S *x, int part, int b, int h)
{
    const int n = p.keys[part];
    return { x + (int64_t)b * n * p.width + (int64_t)h * p.D,
             part == LS_WINDOW_PART ? p.work + p.a + ((int64_t)b * p.H + h) * n : NULL, n, n };
}

template <class S>
static __device__ inline ls_rows<S> ls_table(const ls_call<S> &p, int part, int h)
{
    return { p.table_at[part] + (int64_t)h * p.D,
             part == LS_WINDOW_PART ? p.work + p.b + (int64_t)h * p.distances[part] : NULL,
             p.distances[part], p.clamp[part] };
}

template <class S>
static __device__ inline float ls_value(const ls_call<S> &p, const ls_rows<S> &x, int row, int d)
{
    if (row < 0 || row >= x.n || d >= p.D) return 0.0f;
    return tp_float(x.at[(int64_t)min(row, x.clamp) * p.width + d]);
}

/* ---- tiles ---- */

/* Queries from t0 against columns from c0. Row last - c0 - x of the skewed operand is staged as
 * line x; query i and column j of this thread use line last - reach[i] + j. */
struct ls_tile {
    int t0, c0, last, lines;
    int reach[4];
};

static __device__ inline int ls_row()
{
    return (int)threadIdx.x / 16 * 4;
}
static __device__ inline int ls_col()
{
    return (int)threadIdx.x % 16 * 4;
}

template <class S>
static __device__ inline ls_tile ls_tile_of(const ls_call<S> &p, int part, int t0, int c0)
{
    ls_tile t = { t0, c0, ls_reach(p, part, t0 + LS_TILE - 1), 0, {} };
    t.lines = t.last - ls_reach(p, part, t0) + LS_TILE;
#pragma unroll
    for (int i = 0; i < 4; i++) t.reach[i] = ls_reach(p, part, t0 + ls_row() + i);
    return t;
}

/* Stages rows transposed: line d holds element d0 + d of `lines` rows from `row`, step +-1. */
template <class S>
static __device__ inline void ls_stage_t(const ls_call<S> &p, float *to, int line, int lines,
                                         const ls_rows<S> &x, int row, int step, int d0,
                                         float scale)
{
#pragma unroll 2
    for (int e = threadIdx.x; e < lines * LS_DEPTH; e += LS_THREADS) {
        const int i = e / LS_DEPTH, d = e % LS_DEPTH;
        to[d * line + i] = scale * ls_value(p, x, row + step * i, d0 + d);
    }
}

/* Stages rows in order, 64 columns from d0. */
template <class S>
static __device__ inline void ls_stage(const ls_call<S> &p, float *to, int lines,
                                       const ls_rows<S> &x, int row, int step, int d0,
                                       float scale = 1.0f, const S *add = NULL)
{
#pragma unroll 2
    for (int e = threadIdx.x; e < lines * LS_TILE; e += LS_THREADS) {
        const int i = e / LS_TILE, d = e % LS_TILE;
        const float bias = add && d0 + d < p.D ? tp_float(add[d0 + d]) : 0.0f;
        to[i * LS_LINE + d] = scale * ls_value(p, x, row + step * i, d0 + d) + bias;
    }
}

/* acc[i][j] += a[i] times the line's element for query i and column j. */
template <ls_way WAY>
static __device__ inline void ls_skewed(const ls_tile &t, int x0, const float *line,
                                        const float a[4], float acc[4][4])
{
    if constexpr (WAY == LS_DIAGONAL) {
        const tp_pack<float, 8> v = tp_load_n<float, 8>(line + LS_TILE - 4 - ls_row() + ls_col());
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) acc[i][j] += a[i] * v.at[3 - i + j];
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float v = 0.0f;
            if (WAY == LS_SAME) v = line[t.last - t.reach[0] + ls_col() + j];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int x = t.last - t.reach[i] + ls_col() + j - x0;
                if (WAY == LS_ANY) v = (unsigned)x < LS_SKEW ? line[x] : 0.0f;
                acc[i][j] += a[i] * v;
            }
        }
    }
}

/* acc = scale q (straight + skewed)^T on a tile. Has barriers, then writes LS_SQUARE floats of
 * pool. */
template <bool STRAIGHT, ls_way WAY, class S>
static __device__ inline void ls_product(const ls_call<S> &p, const ls_tile &t, const ls_rows<S> &q,
                                         float scale, const ls_rows<S> &straight,
                                         const ls_rows<S> &skewed, float *pool, float acc[4][4])
{
    static_assert(LS_DEPTH * (2 * LS_LINE + LS_SKEW_LINE) <= LS_SQUARE, "the pool is large enough");
    float *qt = pool, *kt = qt + LS_DEPTH * LS_LINE, *rt = kt + LS_DEPTH * LS_LINE;
    int x0 = 0; /* LS_ANY may need more lines than fit a stage */
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) acc[i][j] = 0.0f;
    do {
        for (int d0 = 0; d0 < p.D; d0 += LS_DEPTH) {
            __syncthreads();
            ls_stage_t(p, qt, LS_LINE, LS_TILE, q, t.t0, 1, d0, scale);
            if (STRAIGHT) ls_stage_t(p, kt, LS_LINE, LS_TILE, straight, t.c0, 1, d0, 1.0f);
            if (WAY != LS_NONE)
                ls_stage_t(p, rt, LS_SKEW_LINE, LS_SKEW, skewed, t.last - t.c0 - x0, -1, d0, 1.0f);
            __syncthreads();
#pragma unroll 2
            for (int d = 0; d < LS_DEPTH; d++) {
                const tp_pack<float> a = tp_load(qt + d * LS_LINE + ls_row());
                if (STRAIGHT && x0 == 0) {
                    const tp_pack<float> b = tp_load(kt + d * LS_LINE + ls_col());
#pragma unroll
                    for (int i = 0; i < 4; i++)
#pragma unroll
                        for (int j = 0; j < 4; j++) acc[i][j] += a.at[i] * b.at[j];
                }
                if (WAY != LS_NONE) ls_skewed<WAY>(t, x0, rt + d * LS_SKEW_LINE, a.at, acc);
            }
        }
    } while (WAY == LS_ANY && (x0 += LS_SKEW) < t.lines);
}

/* Adds the bias logits; sets invisible pairs to -INFINITY. TABLE: columns are distances, else
 * keys. */
template <bool TABLE, class S>
static __device__ inline void ls_finish_logits(const ls_call<S> &p, int part, const ls_tile &t,
                                               const float *straight, const float *skewed,
                                               float s[4][4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = t.t0 + ls_row() + i, first = ls_first(p, part, row);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int column = t.c0 + ls_col() + j, other = t.reach[i] - column;
            const int key = TABLE ? other : column, distance = TABLE ? column : other;
            if (row >= p.N || key < first || distance < 0)
                s[i][j] = -INFINITY;
            else if (straight)
                s[i][j] += straight[column] + skewed[other];
        }
    }
}

/* The dropout factors of the tile's visible pairs; arbitrary for the others. */
template <bool TABLE, class S>
static __device__ inline void ls_keep(const ls_call<S> &p, int part, const ls_tile &t, int64_t head,
                                      float keep[4][4])
{
    const int64_t all = (int64_t)p.keys[LS_VECTOR_PART] + p.keys[LS_WINDOW_PART];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int column = t.c0 + ls_col() + j, key = TABLE ? t.reach[i] - column : column;
            const int64_t query = head * p.N + t.t0 + ls_row() + i;
            const int at = max(key, 0) + (part == LS_WINDOW_PART ? p.keys[LS_VECTOR_PART] : 0);
            const tp_words<1> words(p.drop, query * all + at);
            keep[i][j] = words.drop(p.drop, 0, 1.0f);
        }
}

/* acc[i][c] += sum over k of a[k][i] b[k][c]: lines of 64 at each k, a and b by row and column. */
static __device__ inline void ls_add_product(const float *a, const float *b, float acc[4][4])
{
#pragma unroll 4
    for (int k = 0; k < LS_TILE; k++) {
        const tp_pack<float> x = tp_load(a + k * LS_LINE + ls_row());
        const tp_pack<float> y = tp_load(b + k * LS_LINE + ls_col());
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int c = 0; c < 4; c++) acc[i][c] += x.at[i] * y.at[c];
    }
}

/* Store the tile in shared memory with one line per column, or one per row. */
static __device__ inline void ls_put_columns(float *to, const float s[4][4])
{
#pragma unroll
    for (int j = 0; j < 4; j++)
        tp_store_shared(to + (ls_col() + j) * LS_LINE + ls_row(),
                        tp_pack<float>{ { s[0][j], s[1][j], s[2][j], s[3][j] } });
}
static __device__ inline void ls_put_rows(float *to, const float s[4][4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        tp_store_shared(to + (ls_row() + i) * LS_LINE + ls_col(),
                        tp_pack<float>{ { s[i][0], s[i][1], s[i][2], s[i][3] } });
}

/* ---- bias logits ---- */

/* to[(b H + h) n + i] = <f[h], x[b][min(i, clamp)][h]>, where x advances by `step` per batch row. f
 * is [H,D] or, if `each`, another tensor like x. The warps before `end` compute these products or
 * those of an earlier member. */
template <class S> struct ls_dots {
    const S *f, *x;
    float *to;
    int64_t step, end;
    int n, clamp;
    bool each;
};

enum { LS_DOTS = 3 };

template <class S> struct ls_dot_list {
    int count;
    ls_dots<S> at[LS_DOTS];
};

/* One warp for each product. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    ls_dots_kernel(int width, int H, int D, ls_dot_list<S> list, int64_t items)
{
    const int lane = (int)threadIdx.x % 32;
    for (int64_t e = tp_warp_number(); e < items; e += tp_warps()) {
        int k = 0;
        while (e >= list.at[k].end) k++;
        const ls_dots<S> &q = list.at[k];
        const int64_t m = e - (k > 0 ? list.at[k - 1].end : 0), row = tp_div(m, H);
        const int64_t b = tp_div(row, q.n);
        const int h = (int)(m - row * H), i = (int)(row - b * q.n);
        const int64_t at = b * q.step + (int64_t)min(i, q.clamp) * width + (int64_t)h * D;
        const S *x = q.x + at, *f = q.f + (q.each ? at : (int64_t)h * D);
        float sum = 0.0f;
        for (int d = lane; d < D; d += 32) sum += tp_float(f[d]) * tp_float(x[d]);
        sum = tp_warp<tp_sum_of>(sum);
        if (lane == 0) q.to[(b * H + h) * q.n + i] = sum;
    }
}

/* Adds the products of `batches` times n rows. */
template <class S>
static void ls_append(const ls_call<S> &p, ls_dot_list<S> *list, int64_t batches, ls_dots<S> q)
{
    const int64_t before = list->count > 0 ? list->at[list->count - 1].end : 0;
    q.end = before + batches * q.n * p.H;
    list->at[list->count++] = q;
}

/* The bias logits of a call and, in backward, delta. */
template <class S> static tp_code ls_dot_products(const tp_call *c, const ls_call<S> &p)
{
    const int n = p.keys[LS_WINDOW_PART], span = p.distances[LS_WINDOW_PART];
    const int64_t keys = (int64_t)n * p.width, queries = (int64_t)p.N * p.width;
    ls_dot_list<S> list = {};
    ls_append(p, &list, p.B, { p.r_w, p.k[LS_WINDOW_PART], p.work + p.a, keys, 0, n, n, false });
    ls_append(p, &list, 1,
              { p.r_r, p.table_at[LS_WINDOW_PART], p.work + p.b, 0, 0, span,
                p.clamp[LS_WINDOW_PART], false });
    if (tp_is_backward(c))
        ls_append(p, &list, p.B,
                  { tp_in<S>(&c->dy[0]), tp_in<S>(&c->y[0]), p.work + p.delta, queries, 0, p.N, p.N,
                    true });
    const int64_t items = list.at[list.count - 1].end;
    return tp_launch(c, ls_dots_kernel<S>, tp_grid(c, items, TP_THREADS / 32), TP_THREADS, 0,
                     p.width, p.H, p.D, list, items);
}

#endif
