/* ls_mma_bwd.cuh - long-short attention backward on tensor cores, bf16, head sizes 64 and 32: tiles
 * of 64 queries by 64 columns, by four warps of 16 queries.
 *
 * 128 lines of the skewed operand (ls_plain.cuh) are staged; line x has index `top` - x. In the
 * window, query i and column j use line j - i + 64: a warp multiplies the 80 lines it needs and
 * skews the products (skew.cuh); for dq, dS is unskewed and multiplied by the same lines. In the
 * part of the vectors, the queries of a chunk and column j use line j + offset.
 *
 * Owners of columns transpose P and dS through shared memory in bf16. Sums over queries are
 * products with ones. The next tile is copied during computation if there is room.
 *
 * A warp's tile of 16 x 64 (head 64) takes 176 mma for dq, 172 for keys and 148 for distances of
 * the window. Instructions, counting the loop of the last products once, not four times:
 *
 *     budget: ls_mma_query_grad<64, false> sm_90 1110 instructions
 *     budget: ls_mma_column_grad<64, false, false> sm_90 970 instructions
 *     budget: ls_mma_column_grad<64, true, false> sm_90 1110 instructions
 *     budget: ls_mma_query_grad<64, true> sm_90 1770 instructions
 *     budget: ls_mma_column_grad<64, false, true> sm_90 1730 instructions
 *     budget: ls_mma_column_grad<64, true, true> sm_90 1800 instructions
 *
 * Half of these are addresses and masks, not yet optimised. */
#ifndef TP_LS_MMA_BWD_CUH
#define TP_LS_MMA_BWD_CUH

#include "cuda/attention/ls_grads.cuh"
#include "cuda/attention/ls_mma.cuh"

enum { LS_MMA_THREADS = 128 };

/* ---- logits of a tile ---- */

/* A warp's 16 queries against a tile of 64 columns. lines: the line of column 0 and the first
 * query, before skewing; top: the index of line 0. */
struct ls_mma_warp_tile {
    int lines, top;
};

template <bool WINDOW>
static __device__ inline ls_mma_warp_tile ls_mma_warp_tile_of(const ls_call<bf16> &p, int t0,
                                                              int c0)
{
    constexpr int part = WINDOW ? LS_WINDOW_PART : LS_VECTOR_PART;
    const int last = ls_reach(p, part, t0 + LS_TILE - 1);
    if (WINDOW) return { LS_TILE - 16 - 16 * ls_mma_warp(), p.Wc + t0 + LS_TILE - c0 };
    return { last - ls_reach(p, part, t0 + 16 * ls_mma_warp()), last - c0 };
}

/* c = a lines^T + bias; each pair of query and column uses the line of its distance. */
template <int D, bool WINDOW>
static __device__ inline void ls_mma_skewed_product(float c[8][4], const uint32_t a[1][D / 16][4],
                                                    const ls_mma_warp_tile &w, const bf16 *lines,
                                                    const float *bias)
{
    const int q2 = ls_mma_lane() % 4 * 2;
    float kept[1][2][4] = {};
    const int at = ls_mma_at_columns<D>(WINDOW ? 0 : w.lines);
    const bf16 *const from = lines + (WINDOW ? w.lines * D : 0);
#pragma unroll
    for (int k = 0; k < (WINDOW ? 5 : 4); k++) {
        float x[1][2][4] = {};
        if (WINDOW && bias)
#pragma unroll
            for (int n = 0; n < 2; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    x[0][n][i] = bias[w.lines + 16 * k + 8 * n + q2 + i % 2];
        ls_mma_multiply_rows<D, 1>(x, a, from + 16 * k * D, at);
        if (WINDOW) {
            float s[1][2][4];
            tp_skew_step<1>(s, kept, x);
#pragma unroll
            for (int n = 0; n < 2 && k > 0; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) c[2 * (k - 1) + n][i] = s[0][n][i];
        } else {
#pragma unroll
            for (int n = 0; n < 2; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) c[2 * k + n][i] = x[0][n][i];
        }
    }
}

/* c += a rows^T + bias for the 64 rows of a tile. */
template <int D>
static __device__ inline void ls_mma_straight_product(float c[8][4], const uint32_t a[1][D / 16][4],
                                                      const bf16 *rows, const float *bias)
{
    const int at = ls_mma_at_columns<D>(0), q2 = ls_mma_lane() % 4 * 2;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float x[1][2][4];
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[0][n][i] = c[2 * k + n][i] + (bias ? bias[16 * k + 8 * n + q2 + i % 2] : 0.0f);
        ls_mma_multiply_rows<D, 1>(x, a, rows + 16 * k * D, at);
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) c[2 * k + n][i] = x[0][n][i];
    }
}

/* ls_mma_dropped for this warp's queries and the tile's columns. If these are distances, keys go
 * down. */
template <bool WINDOW, bool TABLE>
static __device__ inline uint32_t ls_mma_tile_dropped(const ls_call<bf16> &p, const tp_mask &drop,
                                                      int64_t head, int t0, int c0)
{
    constexpr int part = WINDOW ? LS_WINDOW_PART : LS_VECTOR_PART;
    const int t = t0 + 16 * ls_mma_warp(), reach = ls_reach(p, part, t + ls_mma_lane() / 4);
    const int64_t element = ls_mma_element(p, part, head, t), step = 2 * ls_mma_elements(p);
    if (!TABLE) return ls_mma_dropped<2, 2, false>(drop, element + c0, step);
    return ls_mma_dropped<2, 2, true>(drop, element + reach - c0 - LS_TILE + 1,
                                      step + (WINDOW ? 2 : 0));
}

/* Turns logits, divided by the scale, into probabilities, and gradients ds into those of logits.
 * DROP: probabilities that are `dropped` become 0. */
template <bool WINDOW, bool TABLE, bool DROP>
static __device__ inline void ls_mma_tile_probabilities(const ls_call<bf16> &p,
                                                        const ls_grad<bf16> &g, int64_t head,
                                                        int t0, int c0, uint32_t dropped,
                                                        float s[8][4], float ds[8][4])
{
    constexpr int part = WINDOW ? LS_WINDOW_PART : LS_VECTOR_PART;
    const int q2 = ls_mma_lane() % 4 * 2;
    const float scale2 = p.scale * 1.44269504f;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const int row = t0 + 16 * ls_mma_warp() + ls_mma_lane() / 4 + 8 * e;
        const bool valid = row < p.N;
        const int first = ls_first(p, part, valid ? row : 0), reach = ls_reach(p, part, row);
        const int lo = TABLE ? 0 : first - c0; /* the columns that the query sees */
        const int hi = valid ? (TABLE ? reach - first : reach) - c0 : -1;
        const float lse2 = valid ? g.lse[head * p.N + row] * 1.44269504f : 0.0f;
        const float delta = valid ? g.delta[head * p.N + row] : 0.0f;
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 2 * e; i < 2 * e + 2; i++) {
                const int column = 8 * n + q2 + i % 2;
                const bool seen = column >= lo && column <= hi;
                s[n][i] = seen ? tp_exp2(s[n][i] * scale2 - lse2) : 0.0f;
                if (!DROP) {
                    ds[n][i] = s[n][i] * (ds[n][i] - delta);
                } else if (dropped >> ls_mma_drop_bit<2>(e, n, i) & 1u) {
                    ds[n][i] = s[n][i] * -delta;
                    s[n][i] = 0.0f;
                } else {
                    ds[n][i] = s[n][i] * (p.drop.scale * ds[n][i] - delta);
                }
            }
    }
}

/* Copies the bias logits of the rows from `row`, STEP apart, as floats. */
template <int N, int STEP>
static __device__ inline void ls_mma_copy_bias(float *to, const ls_rows<bf16> &x, int row,
                                               float unscale)
{
    for (int i = threadIdx.x; i < N; i += LS_MMA_THREADS) {
        const int r = row + STEP * i;
        to[i] = (unsigned)r < (unsigned)x.n ? x.bias[r] * unscale : 0.0f;
    }
}

/* ---- queries ---- */

/* A stage for dq: keys, values, lines of the table; bias logits of both. */
template <int D> struct ls_mma_query_stage {
    bf16 k[LS_TILE * D], v[LS_TILE * D], lines[LS_SKEW * D];
    float a[LS_TILE], b[LS_SKEW];
};

/* acc += ds (keys + table). */
template <int D, bool WINDOW>
static __device__ inline void ls_mma_query_products(float acc[1][D / 8][4],
                                                    const ls_mma_warp_tile &w, const float ds[8][4],
                                                    const ls_mma_query_stage<D> &x)
{
    const int at = ls_mma_at_depth<D>(0), shifted = ls_mma_at_depth<D>(w.lines);
    const float zero[4] = {};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t a[1][4];
        tp_frag_of(a[0], ds[2 * k], ds[2 * k + 1]);
        ls_mma_multiply_depth<D, 1>(acc, a, x.k + 16 * k * D, at);
        if (!WINDOW) ls_mma_multiply_depth<D, 1>(acc, a, x.lines + 16 * k * D, shifted);
    }
#pragma unroll
    for (int k = 0; k < (WINDOW ? 5 : 0); k++) {
        uint32_t a[1][4];
        float g[2][4];
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const int b = 2 * k + n;
            tp_unskew(g[n], b >= 2 ? ds[b - 2] : zero, b >= 1 && b <= 8 ? ds[b - 1] : zero);
            tp_unskew(g[n] + 2, (b >= 1 && b <= 8 ? ds[b - 1] : zero) + 2,
                      (b < 8 ? ds[b] : zero) + 2);
        }
        tp_frag_of(a[0], g[0], g[1]);
        ls_mma_multiply_depth<D, 1>(acc, a, x.lines + (w.lines + 16 * k) * D, at);
    }
}

template <int D, bool WINDOW, bool DROP>
static __device__ inline void ls_mma_query_steps(const ls_call<bf16> &p, const ls_grad<bf16> &g,
                                                 int t0, int b, int h, ls_mma_query_stage<D> *stage,
                                                 const uint32_t q[1][D / 16][4],
                                                 const uint32_t dy[1][D / 16][4],
                                                 float acc[1][D / 8][4])
{
    constexpr int part = WINDOW ? LS_WINDOW_PART : LS_VECTOR_PART;
    const ls_rows<bf16> k = ls_keys(p, p.k[part], part, b, h);
    const ls_rows<bf16> v = ls_keys(p, p.v[part], part, b, h), r = ls_table(p, part, h);
    const int first = ls_first(p, part, t0), last = ls_reach(p, part, min(t0 + LS_TILE, p.N) - 1);
    const int64_t head = (int64_t)b * p.H + h;
    const tp_mask drop = ls_mma_drop_of(p);
    const auto fetch = [&](int c0, ls_mma_query_stage<D> &x) {
        const int top = ls_mma_warp_tile_of<WINDOW>(p, t0, c0).top;
        ls_mma_copy_rows<D, LS_MMA_THREADS, LS_TILE, 1>(x.k, 0, k, p.width, c0);
        ls_mma_copy_rows<D, LS_MMA_THREADS, LS_TILE, 1>(x.v, 0, v, p.width, c0);
        ls_mma_copy_rows<D, LS_MMA_THREADS, LS_SKEW, -1>(x.lines, 0, r, p.width, top);
        tp_copy_commit();
        if (!WINDOW) return;
        ls_mma_copy_bias<LS_TILE, 1>(x.a, k, c0, 1.0f / p.scale);
        ls_mma_copy_bias<LS_SKEW, -1>(x.b, r, top, 1.0f / p.scale);
    };
    __syncthreads();
    if (first <= last) fetch(first, stage[0]);
    for (int c0 = first, j = 0; c0 <= last; c0 += LS_TILE, j ^= 1) {
        const ls_mma_query_stage<D> &x = stage[j];
        tp_copy_wait<0>();
        __syncthreads();
        if (c0 + LS_TILE <= last) fetch(c0 + LS_TILE, stage[j ^ 1]);
        const ls_mma_warp_tile w = ls_mma_warp_tile_of<WINDOW>(p, t0, c0);
        const uint32_t dropped =
            DROP ? ls_mma_tile_dropped<WINDOW, false>(p, drop, head, t0, c0) : 0;
        float s[8][4], ds[8][4] = {};
        ls_mma_skewed_product<D, WINDOW>(s, q, w, x.lines, x.b);
        ls_mma_straight_product<D>(s, q, x.k, WINDOW ? x.a : NULL);
        ls_mma_straight_product<D>(ds, dy, x.v, NULL);
        ls_mma_tile_probabilities<WINDOW, false, DROP>(p, g, head, t0, c0, dropped, s, ds);
        ls_mma_query_products<D, WINDOW>(acc, w, ds, x);
    }
}

template <int D, bool DROP>
__global__ void __launch_bounds__(LS_MMA_THREADS)
    ls_mma_query_grad(ls_call<bf16> p, ls_grad<bf16> g, int tiles, ls_out dq)
{
    TP_SHARED_REST(ls_mma_query_stage<D>, stage);
    const int heads = p.B * p.H, head = (int)blockIdx.x % heads, b = head / p.H, h = head % p.H;
    const int t0 = (tiles - 1 - (int)blockIdx.x / heads) * LS_TILE, t = t0 + 16 * ls_mma_warp();
    uint32_t q[1][D / 16][4], dy[1][D / 16][4];
    float acc[1][D / 8][4] = {};
    ls_mma_load_a<D>(q[0], ls_queries(p, p.q, b, h), p.width, t);
    ls_mma_load_a<D>(dy[0], ls_queries(p, g.dy, b, h), p.width, t);
    if (p.keys[LS_WINDOW_PART] > 0)
        ls_mma_query_steps<D, true, DROP>(p, g, t0, b, h, stage, q, dy, acc);
    if (p.keys[LS_VECTOR_PART] > 0)
        ls_mma_query_steps<D, false, DROP>(p, g, t0, b, h, stage, q, dy, acc);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = t + ls_mma_lane() / 4 + i / 2 * 8;
        const int64_t at =
            ((int64_t)b * p.N + row) * p.width + (int64_t)h * D + ls_mma_lane() % 4 * 2 + i % 2;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            if (row < p.N) ls_put(dq, at + 8 * n, acc[0][n][i] * p.scale);
    }
}

/* ---- keys, distances ---- */

/* A stage of queries and their lines: of the table or, with TABLE, of keys and values. */
template <int D, bool TABLE> struct ls_mma_column_stage {
    bf16 q[LS_TILE * D], dy[LS_TILE * D], lines[LS_SKEW * D], values[TABLE ? LS_SKEW * D : 8];
    float b[LS_SKEW];
};

/* The columns, and P (only for keys) and dS by query. Two stages for tables would exceed 99 KiB,
 * which every GPU has. */
template <int D, bool TABLE> struct ls_mma_column_shared {
    static constexpr int STAGES = TABLE ? 1 : 2;
    ls_mma_column_stage<D, TABLE> stage[STAGES];
    bf16 k[LS_TILE * D], v[TABLE ? 8 : LS_TILE * D], ds[LS_TILE * LS_TILE];
    bf16 p[TABLE ? 8 : LS_TILE * LS_TILE];
    float a[LS_TILE];
};

/* Stores 16 rows of this warp in a tile of 64 columns in bf16. */
static __device__ inline void ls_mma_put_tile(bf16 *to, const float x[8][4])
{
    const int row = 16 * ls_mma_warp() + ls_mma_lane() / 4, q = ls_mma_lane() % 4;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const uint32_t u = tp_pack_bf16(x[n][2 * e], x[n][2 * e + 1]);
            memcpy(to + tp_tile_at<64>(row + 8 * e, n) + 2 * q, &u, 4);
        }
}

/* acc += x^T rows for this warp's 16 columns of x [64,64]; sums, unless NULL, += those of x. */
template <int D>
static __device__ inline void ls_mma_column_product(float acc[1][D / 8][4], float *sums,
                                                    const bf16 *x, const bf16 *rows)
{
    const int at = ls_mma_at_columns<64>(0) ^ ls_mma_warp() * 16, depth = ls_mma_at_depth<D>(0);
    const uint32_t ones[2] = { 0x3f803f80u, 0x3f803f80u };
#pragma unroll 1
    for (int k = 0; k < 4; k++) {
        uint32_t a[1][4];
        tp_ldmatrix_t(a[0], x + 16 * k * 64 + at);
        ls_mma_multiply_depth<D, 1>(acc, a, rows + 16 * k * D, depth);
        if (sums) tp_mma_bf16(sums, a[0], ones, sums);
    }
}

/* Queues the copies of a stage: queries from t0 of batch row b, and their lines. */
template <int D, bool TABLE, bool WINDOW>
static __device__ inline void ls_mma_fetch_columns(const ls_call<bf16> &p, const ls_grad<bf16> &g,
                                                   int h, int c0, int b, int t0, float unscale,
                                                   ls_mma_column_stage<D, TABLE> &x)
{
    constexpr int part = WINDOW ? LS_WINDOW_PART : LS_VECTOR_PART;
    const int top = ls_mma_warp_tile_of<WINDOW>(p, t0, c0).top;
    const ls_rows<bf16> k = ls_keys(p, p.k[part], part, b, h), r = ls_table(p, part, h);
    ls_mma_copy_rows<D, LS_MMA_THREADS, LS_TILE, 1>(x.q, 0, ls_queries(p, p.q, b, h), p.width, t0);
    ls_mma_copy_rows<D, LS_MMA_THREADS, LS_TILE, 1>(x.dy, 0, ls_queries(p, g.dy, b, h), p.width,
                                                    t0);
    ls_mma_copy_rows<D, LS_MMA_THREADS, LS_SKEW, -1>(x.lines, 0, TABLE ? k : r, p.width, top);
    if (TABLE)
        ls_mma_copy_rows<D, LS_MMA_THREADS, LS_SKEW, -1>(
            x.values, 0, ls_keys(p, p.v[part], part, b, h), p.width, top);
    tp_copy_commit();
    if (WINDOW) ls_mma_copy_bias<LS_SKEW, -1>(x.b, TABLE ? k : r, top, unscale);
}

/* Stores dx and dv, which is multiplied by `scale`, of the block's columns. sums: of dS over
 * queries, for the bias term of dx. */
template <int D, bool TABLE, bool WINDOW>
static __device__ inline void ls_mma_store_columns(const ls_call<bf16> &p, const ls_columns &o,
                                                   const ls_column &c, const float dx[D / 8][4],
                                                   float scale, const float dv[D / 8][4],
                                                   const float sums[4])
{
    const bf16 *const bias = WINDOW ? (TABLE ? p.r_r : p.r_w) + c.h * D : NULL;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = c.c0 + 16 * ls_mma_warp() + ls_mma_lane() / 4 + i / 2 * 8,
                  q = ls_mma_lane() % 4 * 2 + i % 2;
        const int64_t at = ((int64_t)c.split * c.n + row) * p.width + (int64_t)c.h * D + q;
        if (row >= c.n) continue;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            const float rest = WINDOW ? sums[i] * tp_float(bias[8 * n + q]) : 0.0f;
            if (o.dx.at) ls_put(o.dx, at + 8 * n, dx[n][i] * p.scale + rest);
            if (!TABLE && o.dv.at) ls_put(o.dv, at + 8 * n, dv[n][i] * scale);
        }
        if (o.sum && q == 0) o.sum[((int64_t)c.split * p.H + c.h) * c.n + row] = sums[i];
    }
}

/* The same as ls_column_kernel, for a whole head. */
template <int D, bool TABLE, bool WINDOW, bool DROP>
static __device__ inline void ls_mma_columns(const ls_call<bf16> &p, const ls_grad<bf16> &g,
                                             const ls_columns &o, int64_t block,
                                             ls_mma_column_shared<D, TABLE> *shared)
{
    typedef ls_mma_column_shared<D, TABLE> Shared;
    constexpr int part = WINDOW ? LS_WINDOW_PART : LS_VECTOR_PART;
    const ls_column c = ls_column_of<TABLE>(p, o, block);
    const float unscale = 1.0f / p.scale;
    float dx[1][D / 8][4] = {}, dv[1][D / 8][4] = {}, sums[4] = {};
    const auto fetch = [&](int64_t m, ls_mma_column_stage<D, TABLE> &x) {
        ls_mma_fetch_columns<D, TABLE, WINDOW>(p, g, c.h, c.c0, ls_batch_of<TABLE>(o, c, m),
                                               ls_query_of<TABLE>(o, m), unscale, x);
    };
    const ls_rows<bf16> own =
        TABLE ? ls_table(p, part, c.h) : ls_keys(p, p.k[part], part, c.split, c.h);
    int64_t m = ls_next_tile<TABLE>(p, o, c, c.begin);
    ls_mma_copy_rows<D, LS_MMA_THREADS, LS_TILE, 1>(shared->k, 0, own, p.width, c.c0);
    if (!TABLE)
        ls_mma_copy_rows<D, LS_MMA_THREADS, LS_TILE, 1>(
            shared->v, 0, ls_keys(p, p.v[part], part, c.split, c.h), p.width, c.c0);
    tp_copy_commit(); /* a separate group: if no query sees the tile, nothing else is fetched */
    if (WINDOW) ls_mma_copy_bias<LS_TILE, 1>(shared->a, own, c.c0, unscale);
    if (m < c.end) fetch(m, shared->stage[0]);
    for (int j = 0; m < c.end; j ^= Shared::STAGES - 1) {
        const ls_mma_column_stage<D, TABLE> &x = shared->stage[j];
        const int64_t next = ls_next_tile<TABLE>(p, o, c, m + 1);
        tp_copy_wait<0>();
        __syncthreads();
        if (Shared::STAGES == 2 && next < c.end) fetch(next, shared->stage[j ^ 1]);
        const int b = ls_batch_of<TABLE>(o, c, m), t0 = ls_query_of<TABLE>(o, m);
        const ls_mma_warp_tile w = ls_mma_warp_tile_of<WINDOW>(p, t0, c.c0);
        const int at = ls_mma_at_depth<D>(16 * ls_mma_warp());
        uint32_t dropped = 0;
        uint32_t a[1][D / 16][4];
        float s[8][4], ds[8][4] = {};
        if (DROP)
            dropped =
                ls_mma_tile_dropped<WINDOW, TABLE>(p, p.drop, (int64_t)b * p.H + c.h, t0, c.c0);
#pragma unroll
        for (int k = 0; k < D / 16; k++) tp_ldmatrix(a[0][k], x.q + (at ^ k * 16));
        ls_mma_skewed_product<D, WINDOW>(s, a, w, x.lines, x.b);
        ls_mma_straight_product<D>(s, a, shared->k, WINDOW ? shared->a : NULL);
#pragma unroll
        for (int k = 0; k < D / 16; k++) tp_ldmatrix(a[0][k], x.dy + (at ^ k * 16));
        if (TABLE)
            ls_mma_skewed_product<D, WINDOW>(ds, a, w, x.values, NULL);
        else
            ls_mma_straight_product<D>(ds, a, shared->v, NULL);
        ls_mma_tile_probabilities<WINDOW, TABLE, DROP>(p, g, (int64_t)b * p.H + c.h, t0, c.c0,
                                                       dropped, s, ds);
        ls_mma_put_tile(shared->ds, ds);
        if (!TABLE) ls_mma_put_tile(shared->p, s);
        __syncthreads();
        ls_mma_column_product<D>(dx, WINDOW ? sums : NULL, shared->ds, x.q);
        if (!TABLE) ls_mma_column_product<D>(dv, NULL, shared->p, x.dy);
        if (Shared::STAGES == 1) {
            __syncthreads();
            if (next < c.end) fetch(next, shared->stage[0]);
        }
        m = next;
    }
    tp_copy_wait<0>();
    ls_mma_store_columns<D, TABLE, WINDOW>(p, o, c, dx[0], DROP ? p.drop.scale : 1.0f, dv[0], sums);
}

/* The blocks of the window come first: their columns have the most queries. */
template <int D, bool TABLE, bool DROP>
__global__ void __launch_bounds__(LS_MMA_THREADS, 1)
    ls_mma_column_grad(ls_call<bf16> p, ls_grad<bf16> g, ls_column_parts o)
{
    typedef ls_mma_column_shared<D, TABLE> Shared;
    TP_SHARED_REST(Shared, shared);
    const ls_columns &window = o.at[LS_WINDOW_PART];
    const int64_t block = (int64_t)blockIdx.x - window.blocks;
    if (block < 0)
        ls_mma_columns<D, TABLE, true, DROP>(p, g, window, blockIdx.x, shared);
    else
        ls_mma_columns<D, TABLE, false, DROP>(p, g, o.at[LS_VECTOR_PART], block, shared);
}

static inline bool ls_mma_serves_bwd(const ls_call<bf16> &p, const bf16 *dy)
{
    return ls_mma_serves(p, LS_TILE, LS_TILE) && tp_aligned(dy);
}

#endif
