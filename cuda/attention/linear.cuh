/* linear.cuh - linear attention on the GPU: the problem, tiles of features, kernels for both
 * passes.
 *
 * A tile is 64 rows by 64 features, computed in registers from products with the projection and
 * used immediately. Results are 64 columns wide; wider heads recompute features for each 64
 * columns. */
#ifndef TP_LINEAR_CUH
#define TP_LINEAR_CUH

#include "cuda/attention/attention_f32.cuh"
#include "tensor/geometry/linear_attention.h"

enum { LIN_TASKS = 512 };

/* Queries or keys. */
template <class S> struct lin_side {
    const S *x;
    const uint8_t *mask; /* NULL: no padding                   */
    float *shift;        /* [B,H,n]: subtracted from exponents */
    int n;
};

template <class S> struct lin {
    int heads, dim, width, features, columns, kind;
    bool normalise;
    float scale, factor, eps;
    const float *projection; /* [M,D] or NULL   */
    float *sums;             /* [B,H,M,E]       */
    float *partial;          /* [B,H,parts,M,E] */
    float *denominator;      /* [B,H,N]         */
    int parts;
};

template <class S> static lin<S> lin_problem(const tp_lin &g, const tp_call *c)
{
    const tp_linear_attn_cfg *cfg = static_cast<const tp_linear_attn_cfg *>(c->attr);
    lin<S> p = {};
    p.heads = (int)g.heads;
    p.dim = (int)g.dim;
    p.width = (int)g.width;
    p.features = (int)g.features;
    p.columns = (int)g.columns;
    p.kind = (int)cfg->features;
    p.normalise = g.normalise;
    p.scale = (float)g.scale;
    p.factor = (float)g.factor;
    p.eps = (float)g.eps;
    p.sums = tp_out<float>(&c->y[LIN_SUMS]);
    p.denominator = tp_out<float>(&c->y[LIN_ROWS]) + tp__lin_rows(&g, LIN_DENOMINATOR);
    return p;
}

template <class S> static lin_side<S> lin_queries(const tp_lin &g, const tp_call *c)
{
    return { tp_in<S>(&c->x[LIN_Q]), NULL,
             tp_out<float>(&c->y[LIN_ROWS]) + tp__lin_rows(&g, LIN_OF_QUERY), (int)g.queries };
}

template <class S> static lin_side<S> lin_keys(const tp_lin &g, const tp_call *c)
{
    const tp_view *mask = &c->x[LIN_MASK];
    return { tp_in<S>(&c->x[LIN_K]), tp_absent(mask) ? NULL : tp_in<uint8_t>(mask),
             tp_out<float>(&c->y[LIN_ROWS]) + tp__lin_rows(&g, LIN_OF_KEY), (int)g.keys };
}

/* Rows of a head times scale by[row]; 0 for padding and outside [0, n). */
template <class S> struct lin_rows {
    const S *at;
    const uint8_t *mask;
    const float *by;
    float scale;
    int n, width;
    __device__ float get(int row, int x, int dim) const
    {
        if (row >= n || x >= dim || (mask && !mask[row])) return 0.0f;
        return (by ? by[row] : 1.0f) * scale * tp_float(at[(int64_t)row * width + x]);
    }
};

/* 64 rows of a head from i, and 64 columns from x0. Blocks are numbered columns first, then tiles,
 * then heads. */
struct lin_block {
    int x0, tile, b, h;
    int64_t head;
    __device__ lin_block(int slabs, int tiles, int heads)
    {
        unsigned k = blockIdx.x;
        x0 = (int)(k % (unsigned)slabs) * ATTN_F32_TILE;
        k /= (unsigned)slabs;
        tile = (int)(k % (unsigned)tiles);
        head = k / (unsigned)tiles;
        b = (int)(head / heads);
        h = (int)(head % heads);
    }
};

/* The rows of the block's head in `from` [B,n,H*D]. */
template <class S>
static __device__ inline lin_rows<S> lin_of(const lin<S> &p, const lin_block &k,
                                            const lin_side<S> &side, const S *from, const float *by,
                                            float scale)
{
    return { from + (int64_t)k.b * side.n * p.width + k.h * p.dim,
             side.mask ? side.mask + (int64_t)k.b * side.n : NULL,
             by ? by + k.head * side.n : NULL,
             scale,
             side.n,
             p.width };
}

template <class S>
static __device__ inline lin_rows<float> lin_sums_of(const lin<S> &p, const lin_block &k,
                                                     const float *sums)
{
    return { sums + k.head * p.features * p.columns, NULL, NULL, 1.0f, p.features, p.columns };
}

template <class S> static __device__ inline lin_rows<float> lin_projection(const lin<S> &p)
{
    return { p.projection, NULL, NULL, 1.0f, p.features, p.dim };
}

/* u[r][c] = the product of row i + 4 ty + r and feature f0 + 4 tx + c, or the element itself. */
template <class S>
static __device__ inline void lin_products(const lin<S> &p, const lin_rows<S> &x, int i, int f0,
                                           float *stage, float u[4][4])
{
    const int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
    attn_f32_clear(u);
    if (p.projection) {
        attn_f32_product<false>(u, stage, x, i, lin_projection(p), f0, p.dim);
        return;
    }
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++) u[r][c] = x.get(i + 4 * ty + r, f0 + 4 * tx + c, p.dim);
}

/* Products become features; 0 outside and for padding without a projection. */
template <class S>
static __device__ inline void lin_features(const lin<S> &p, const lin_block &k,
                                           const lin_side<S> &side, const lin_rows<S> &x, int i,
                                           int f0, float *stage, float u[4][4])
{
    const int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
    lin_products(p, x, i, f0, stage, u);
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const int row = i + 4 * ty + r;
        const bool inside = row < side.n;
        const bool none = !inside || (!p.projection && x.mask && !x.mask[row]);
        const float shift =
            inside && p.kind == TP_FEATURES_POSITIVE ? side.shift[k.head * side.n + row] : 0.0f;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const float v = u[r][c];
            const float phi = p.kind == TP_FEATURES_POSITIVE ? expf(v - shift) + p.eps
                              : p.kind == TP_FEATURES_RELU   ? (v < 0.0f ? 0.0f : v) + p.eps
                              : v > 0.0f                     ? v + 1.0f
                                                             : expf(v);
            u[r][c] = none || f0 + 4 * tx + c >= p.features ? 0.0f : phi;
        }
    }
}

/* partial = sums over a part's rows of feature times `right`; in the last column, of feature times
 * last[row] (1 if `last` is NULL). */
template <class S>
__global__ void __launch_bounds__(ATTN_F32_THREADS, 1)
    lin_sum_kernel(lin<S> p, lin_side<S> side, const S *right, const float *by, const float *last,
                   float scale, int slabs, int tiles, int step)
{
    TP_SHARED_REST(float, kept);
    float *const stage = kept + ATTN_F32_FLOATS;
    const int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
    const lin_block k(slabs, tiles * p.parts, p.heads);
    const int part = k.tile / tiles, f0 = k.tile % tiles * ATTN_F32_TILE;
    const lin_rows<S> x = lin_of(p, k, side, side.x, NULL, p.scale);
    const lin_rows<S> with = lin_of(p, k, side, right, by, scale);
    const int64_t first = (int64_t)part * step;
    const int stop = (int)min((int64_t)side.n, first + step);
    float acc[4][4], ones[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    attn_f32_clear(acc);
    for (int i = (int)min(first, (int64_t)side.n); i < stop; i += ATTN_F32_TILE) {
        float phi[4][4];
        lin_features(p, k, side, x, i, f0, stage, phi);
        for (int r = 0; r < 4; r++) {
            const int row = i + 4 * ty + r;
            const float w = !last ? 1.0f : row < side.n ? last[k.head * side.n + row] : 0.0f;
            for (int c = 0; c < 4; c++) ones[c] += w * phi[r][c];
        }
        __syncthreads();
        attn_f32_keep<false>(kept, phi);
        attn_f32_load<ATTN_F32_TILE>(stage, with, i, k.x0, p.dim);
        __syncthreads();
        attn_f32_outer(acc, kept, stage, ATTN_F32_TILE);
        __syncthreads();
    }
    float *to = p.partial + (k.head * p.parts + part) * p.features * p.columns;
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++) {
            const int f = f0 + 4 * ty + r, column = k.x0 + 4 * tx + c;
            if (f < p.features && column < p.dim) to[(int64_t)f * p.columns + column] = acc[r][c];
        }
    if (!p.normalise || k.x0 > 0) return;
    for (int c = 0; c < 4; c++) kept[ty * ATTN_F32_TILE + 4 * tx + c] = ones[c];
    __syncthreads();
    const int f = (int)threadIdx.x;
    if (f >= ATTN_F32_TILE || f0 + f >= p.features) return;
    float sum = 0.0f;
    for (int t = 0; t < 16; t++) sum += kept[t * ATTN_F32_TILE + f];
    to[(int64_t)(f0 + f) * p.columns + p.dim] = sum;
}

/* sums = the parts, added in order. */
static __global__ void __launch_bounds__(TP_THREADS)
    lin_join_kernel(int64_t n, int64_t each, int parts, const float *partial, float *sums)
{
    TP_EACH (i, n) {
        const int64_t head = tp_div(i, each);
        const float *from = partial + head * parts * each + i - head * each;
        float sum = 0.0f;
        for (int part = 0; part < parts; part++) sum += from[part * each];
        sums[i] = sum;
    }
}

template <class S>
static tp_code lin_run_sums(const tp_call *c, const tp_lin &g, lin<S> p, const lin_side<S> &side,
                            const S *right, const float *by, const float *last, float scale,
                            float *sums)
{
    const int64_t heads = g.batch * g.heads, each = g.features * g.columns;
    const int slabs = attn_tiles(p.dim, ATTN_F32_TILE);
    const int tiles = attn_tiles(p.features, ATTN_F32_TILE);
    p.parts = (int)tp__lin_parts(&g, side.n, LIN_TASKS);
    const tp_code code =
        tp_launch(c, lin_sum_kernel<S>, (unsigned)(heads * slabs * tiles * p.parts),
                  ATTN_F32_THREADS, ATTN_F32_SHARED, p, side, right, by, last, scale, slabs, tiles,
                  (int)tp__lin_part(side.n, p.parts));
    if (code != TP_OK) return code;
    return tp_launch(c, lin_join_kernel, tp_grid(c, heads * each), TP_THREADS, 0, heads * each,
                     each, p.parts, static_cast<const float *>(p.partial), sums);
}

/* Features times sums: results of queries over stored denominators, or gradients of values. */
template <class S>
__global__ void __launch_bounds__(ATTN_F32_THREADS, 1)
    lin_apply_kernel(lin<S> p, lin_side<S> side, const float *sums, float *denominator,
                     float factor, attn_sink<S> to, int slabs, int tiles)
{
    TP_SHARED_REST(float, kept);
    float *const stage = kept + ATTN_F32_FLOATS;
    const int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
    const lin_block k(slabs, tiles, p.heads);
    const int i = k.tile * ATTN_F32_TILE;
    const lin_rows<S> x = lin_of(p, k, side, side.x, NULL, p.scale);
    const lin_rows<float> s = lin_sums_of(p, k, sums);
    float acc[4][4], total[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    attn_f32_clear(acc);
    for (int f0 = 0; f0 < p.features; f0 += ATTN_F32_TILE) {
        float phi[4][4];
        lin_features(p, k, side, x, i, f0, stage, phi);
        for (int c = 0; denominator && c < 4; c++) {
            const float one = s.get(f0 + 4 * tx + c, p.dim, p.columns);
            for (int r = 0; r < 4; r++) total[r] += phi[r][c] * one;
        }
        __syncthreads();
        attn_f32_keep<true>(kept, phi);
        attn_f32_load<ATTN_F32_TILE>(stage, s, f0, k.x0, p.dim);
        __syncthreads();
        attn_f32_outer(acc, kept, stage, ATTN_F32_TILE);
        __syncthreads();
    }
    for (int r = 0; r < 4; r++) {
        const int row = i + 4 * ty + r;
        const float sum = attn_f32_row<tp_sum_of>(total[r]);
        if (row >= side.n) continue;
        const bool real = !x.mask || x.mask[row];
        const float by = !real ? 0.0f : !denominator ? factor : sum > 0.0f ? 1.0f / sum : 0.0f;
        if (denominator && tx == 0 && k.x0 == 0) denominator[k.head * side.n + row] = sum;
        for (int c = 0; c < 4; c++) {
            const int column = k.x0 + 4 * tx + c;
            if (column < p.dim)
                to.put(((int64_t)k.b * side.n + row) * p.width + k.h * p.dim + column,
                       by == 0.0f ? 0.0f : by * acc[r][c]);
        }
    }
}

template <class S>
static tp_code lin_apply(const tp_call *c, const tp_lin &g, const lin<S> &p,
                         const lin_side<S> &side, const float *sums, float *denominator,
                         float factor, attn_sink<S> to)
{
    const int slabs = attn_tiles(p.dim, ATTN_F32_TILE), tiles = attn_tiles(side.n, ATTN_F32_TILE);
    return tp_launch(c, lin_apply_kernel<S>, (unsigned)(g.batch * g.heads * slabs * tiles),
                     ATTN_F32_THREADS, ATTN_F32_SHARED, p, side, sums, denominator, factor, to,
                     slabs, tiles);
}

/* The projection in f32: the input or a copy in `room`. */
template <class R>
__global__ void __launch_bounds__(TP_THREADS) lin_widen_kernel(int64_t n, const R *from, float *to)
{
    TP_EACH (i, n) to[i] = tp_float(from[i]);
}

static tp_code lin_take_projection(const tp_call *c, float *room, const float **to)
{
    const tp_view *w = &c->x[LIN_PROJECTION];
    *to = NULL;
    if (tp_absent(w)) return TP_OK;
    *to = w->dtype == TP_F32 ? tp_in<float>(w) : room;
    if (w->dtype == TP_F32) return TP_OK;
    return tp_launch(c, lin_widen_kernel<bf16>, tp_grid(c, w->numel), TP_THREADS, 0, w->numel,
                     tp_in<bf16>(w), room);
}

/* c->work: partial sums, a widened projection; forward: two numbers per row; backward: gradients of
 * sums, two numbers per query. */
struct lin_room {
    float *partial, *projection, *rows, *dsums;
    size_t bytes;
};

static lin_room lin_room_of(const tp_call *c, const tp_lin &g)
{
    const int64_t heads = g.batch * g.heads, each = g.features * g.columns;
    const int64_t parts =
        max(tp__lin_parts(&g, g.queries, LIN_TASKS), tp__lin_parts(&g, g.keys, LIN_TASKS));
    const tp_view *w = &c->x[LIN_PROJECTION];
    lin_room room = {};
    char *at = static_cast<char *>(c->work);
    const auto take = [&](int64_t n) {
        float *const p = reinterpret_cast<float *>(at + room.bytes);
        room.bytes += (size_t)(n + 3) / 4 * 16;
        return p;
    };
    room.partial = take(heads * parts * each);
    room.projection = take(!tp_absent(w) && w->dtype == TP_BF16 ? w->numel : 0);
    room.rows = take(2 * heads * max(g.queries, g.keys));
    room.dsums = take(tp_is_backward(c) ? heads * each : 0);
    return room;
}

#endif
