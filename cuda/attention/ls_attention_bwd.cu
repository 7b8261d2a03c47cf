/* ls_attention_bwd.cu - long-short attention, backward: recomputes the probabilities from the
 * log-sum-exp: P = exp(S - lse), dS = P (M dy V^T - delta), delta = sum of dy y. The dropout
 * factors M also multiply the P of dV.
 *
 * Every element of a result has one owner, so no sum depends on the order of blocks:
 *
 *     queries      dq = dS (K + R)                            a tile of queries walks its columns
 *     keys         dK = dS^T (q + r_w), dV = P^T dy, c        a tile of keys walks its queries
 *     distances    dR = dS^T (q + r_r), e                     keys and table swap roles
 *     biases       dr_w = sum of c K, dr_r = sum of e R
 *
 * c and e are the sums of dS over queries. Sums for the tables, which all batch rows share, are cut
 * into fixed runs of queries and added in order. Bound by the products of the first three, 10 D
 * operations each per visible pair, on tensor cores (ls_mma_bwd.cuh) or at f32 rate
 * (ls_plain.cuh). */
#include "cuda/attention/ls_mma_bwd.cuh"

/* Turns logits into probabilities after dropout, and gradients dp into those of the logits. */
template <bool TABLE, class S>
static __device__ inline void ls_probabilities(const ls_call<S> &p, const ls_grad<S> &g, int part,
                                               const ls_tile &t, int64_t head, float s[4][4],
                                               float dp[4][4])
{
    float keep[4][4];
    if (p.drop.below > 0) ls_keep<TABLE>(p, part, t, head, keep);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = t.t0 + ls_row() + i;
        const float lse = row < p.N ? g.lse[head * p.N + row] : 0.0f;
        const float delta = row < p.N ? g.delta[head * p.N + row] : 0.0f;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float each = expf(s[i][j] - lse), f = p.drop.below > 0 ? keep[i][j] : 1.0f;
            s[i][j] = f * each;
            dp[i][j] = each * (f * dp[i][j] - delta);
        }
    }
}

static __device__ inline void ls_zero(float acc[4][4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) acc[i][j] = 0.0f;
}

/* ---- queries ---- */

/* acc[i] += sum over columns of ds[column][i] times the line of query i and the column. */
template <ls_way WAY>
static __device__ inline void ls_add_skewed(const ls_tile &t, int x0, const float *ds,
                                            const float *lines, float acc[4][4])
{
#pragma unroll 2
    for (int k = 0; k < LS_TILE; k++) {
        const tp_pack<float> a = tp_load(ds + k * LS_LINE + ls_row());
        tp_pack<float> v = {};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int x = t.last - t.reach[i] + k - x0;
            if (WAY != LS_ANY ? i == 0 || WAY == LS_DIAGONAL : (unsigned)x < LS_SKEW)
                v = tp_load(lines + x * LS_LINE + ls_col());
            const float f = WAY != LS_ANY || (unsigned)x < LS_SKEW ? a.at[i] : 0.0f;
#pragma unroll
            for (int c = 0; c < 4; c++) acc[i][c] += f * v.at[c];
        }
    }
}

template <ls_way WAY, class S>
static __device__ inline void ls_query_walk(const ls_call<S> &p, const ls_grad<S> &g, int part,
                                            int t0, int b, int h, int d0, float *pool,
                                            float acc[4][4])
{
    float *square = pool, *rows = pool + LS_SQUARE, *lines = rows + LS_SQUARE;
    const int64_t head = (int64_t)b * p.H + h;
    const ls_rows<S> q = ls_queries(p, p.q, b, h), k = ls_keys(p, p.k[part], part, b, h);
    const ls_rows<S> v = ls_keys(p, p.v[part], part, b, h), r = ls_table(p, part, h);
    const ls_rows<S> dy = ls_queries(p, g.dy, b, h);
    const int last = ls_reach(p, part, min(t0 + LS_TILE, p.N) - 1);
    for (int c0 = ls_first(p, part, t0); c0 <= last; c0 += LS_TILE) {
        const ls_tile t = ls_tile_of(p, part, t0, c0);
        float s[4][4], ds[4][4];
        ls_product<true, WAY>(p, t, q, p.scale, k, r, rows, s);
        ls_product<true, LS_NONE>(p, t, dy, 1.0f, v, v, rows, ds);
        ls_finish_logits<false>(p, part, t, k.bias, r.bias, s);
        ls_probabilities<false>(p, g, part, t, head, s, ds);
        __syncthreads();
        ls_put_columns(square, ds);
        ls_stage(p, rows, LS_TILE, k, c0, 1, d0);
        for (int x0 = 0; x0 == 0 || (WAY == LS_ANY && x0 < t.lines); x0 += LS_SKEW) {
            ls_stage(p, lines, LS_SKEW, r, t.last - c0 - x0, -1, d0);
            __syncthreads();
            if (x0 == 0) ls_add_product(square, rows, acc);
            ls_add_skewed<WAY>(t, x0, square, lines, acc);
            __syncthreads();
        }
    }
}

template <ls_way VECTORS, class S>
__global__ void __launch_bounds__(LS_THREADS, 1)
    ls_query_kernel(ls_call<S> p, ls_grad<S> g, int tiles, int pieces, ls_out dq)
{
    TP_SHARED_REST(float, pool);
    const int64_t item = tp_div(blockIdx.x, pieces);
    const int heads = p.B * p.H, head = (int)(item % heads), b = head / p.H, h = head % p.H;
    const int t0 = (tiles - 1 - (int)(item / heads)) * LS_TILE;
    const int d0 = (int)(blockIdx.x - item * pieces) * LS_TILE;
    float acc[4][4];
    ls_zero(acc);
    if (p.keys[LS_WINDOW_PART] > 0)
        ls_query_walk<LS_DIAGONAL>(p, g, LS_WINDOW_PART, t0, b, h, d0, pool, acc);
    if (p.keys[LS_VECTOR_PART] > 0)
        ls_query_walk<VECTORS>(p, g, LS_VECTOR_PART, t0, b, h, d0, pool, acc);
    for (int i = 0; i < 4; i++) {
        const int t = t0 + ls_row() + i;
        const int64_t at = ((int64_t)b * p.N + t) * p.width + (int64_t)h * p.D;
#pragma unroll
        for (int c = 0; c < 4; c++)
            if (t < p.N && d0 + ls_col() + c < p.D)
                ls_put(dq, at + d0 + ls_col() + c, p.scale * acc[i][c]);
    }
}

/* ---- keys, distances ---- */

template <bool TABLE, ls_way WAY, class S>
__global__ void __launch_bounds__(LS_THREADS, 1)
    ls_column_kernel(ls_call<S> p, ls_grad<S> g, ls_columns o)
{
    TP_SHARED_REST(float, pool);
    float *rows = pool, *ps = pool + LS_SQUARE, *dss = ps + LS_SQUARE;
    const ls_column c = ls_column_of<TABLE>(p, o, blockIdx.x);
    const int h = c.h, c0 = c.c0, d0 = c.piece * LS_TILE;
    const S *bias = o.part == LS_VECTOR_PART ? NULL : (TABLE ? p.r_r : p.r_w) + h * p.D;
    float dx[4][4], dv[4][4], sum[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    ls_zero(dx);
    ls_zero(dv);
    for (int64_t m = c.begin; (m = ls_next_tile<TABLE>(p, o, c, m)) < c.end; m++) {
        const int b = ls_batch_of<TABLE>(o, c, m), t0 = ls_query_of<TABLE>(o, m);
        const ls_tile t = ls_tile_of(p, o.part, t0, c0);
        const ls_rows<S> q = ls_queries(p, p.q, b, h), dy = ls_queries(p, g.dy, b, h);
        const ls_rows<S> k = ls_keys(p, p.k[o.part], o.part, b, h);
        const ls_rows<S> v = ls_keys(p, p.v[o.part], o.part, b, h), r = ls_table(p, o.part, h);
        const int64_t head = (int64_t)b * p.H + h;
        float s[4][4], ds[4][4];
        ls_product<true, WAY>(p, t, q, p.scale, TABLE ? r : k, TABLE ? k : r, rows, s);
        ls_product<!TABLE, TABLE ? WAY : LS_NONE>(p, t, dy, 1.0f, v, v, rows, ds);
        ls_finish_logits<TABLE>(p, o.part, t, TABLE ? r.bias : k.bias, TABLE ? k.bias : r.bias, s);
        ls_probabilities<TABLE>(p, g, o.part, t, head, s, ds);
        __syncthreads();
        ls_put_rows(dss, ds);
        if (!TABLE) {
            ls_put_rows(ps, s);
            ls_stage(p, rows, LS_TILE, dy, t0, 1, d0);
            __syncthreads();
            ls_add_product(ps, rows, dv);
            __syncthreads();
        }
        ls_stage(p, rows, LS_TILE, q, t0, 1, d0, p.scale, bias);
        __syncthreads();
        ls_add_product(dss, rows, dx);
        for (int i = 0; o.sum && i < LS_TILE; i++) {
            const tp_pack<float> a = tp_load(dss + i * LS_LINE + ls_row());
#pragma unroll
            for (int k4 = 0; k4 < 4; k4++) sum[k4] += a.at[k4];
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = c0 + ls_row() + i;
        if (row >= c.n) continue;
        const int64_t at = ((int64_t)c.split * c.n + row) * p.width + (int64_t)h * p.D;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int d = d0 + ls_col() + j;
            if (d >= p.D) continue;
            if (o.dx.at) ls_put(o.dx, at + d, dx[i][j]);
            if (!TABLE && o.dv.at) ls_put(o.dv, at + d, dv[i][j]);
        }
        if (o.sum && d0 == 0 && ls_col() == 0)
            o.sum[((int64_t)c.split * p.H + h) * c.n + row] = sum[i];
    }
}

/* ---- sums ---- */

/* part[block][column] = sum of f[row][head] x[row][column] over the rows of a block, out of `rows`,
 * n in each batch row; x advances by `step` per batch row, f is [batch,H,n]. */
template <class S> struct ls_weighed {
    int64_t rows, blocks, step;
    int n, clamp;
    const float *f;
    const S *x;
    float *part;
};

template <class S> struct ls_weighed_pair {
    ls_weighed<S> at[2];
};

template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    ls_weigh_kernel(int width, int H, int D, ls_weighed_pair<S> pair, int64_t blocks)
{
    TP_EACH (i, blocks * width) {
        const int64_t all = tp_div(i, width), col = i - all * width, h = col / D;
        const bool second = all >= pair.at[0].blocks;
        const ls_weighed<S> q = second ? pair.at[1] : pair.at[0]; /* in registers */
        const int64_t block = all - (second ? pair.at[0].blocks : 0), first = block * LS_SUM_ROWS;
        float sum = 0.0f;
        for (int64_t row = first; row < min(first + LS_SUM_ROWS, q.rows); row++) {
            const int64_t b = tp_div(row, q.n), k = row - b * q.n;
            sum += q.f[(b * H + h) * q.n + k] *
                   tp_float(q.x[b * q.step + min(k, (int64_t)q.clamp) * width + col]);
        }
        q.part[block * width + col] = sum;
    }
}

/* Rows of a gradient from `part` [splits,n,width]: row i sums the splits of row i and, if i is the
 * clamp, of all rows beyond it. A bias has one row. The threads before `end` own the elements of
 * this gradient or an earlier one. */
struct ls_splits {
    const float *part;
    int64_t splits, end;
    int n, clamp;
    ls_out dx;
};

enum { LS_SUMS = 4 }; /* gradients: of both tables and both biases */

struct ls_sum_list {
    int count;
    ls_splits at[LS_SUMS];
};

__global__ void __launch_bounds__(TP_THREADS)
    ls_sums_kernel(int width, ls_sum_list list, int64_t numel)
{
    TP_EACH (e, numel) {
        int g = 0;
        while (e >= list.at[g].end) g++;
        const ls_splits &q = list.at[g];
        const int64_t i = e - (g > 0 ? list.at[g - 1].end : 0);
        const int64_t row = tp_div(i, width), col = i - row * width;
        const int64_t end = row < q.clamp ? row + 1 : row > q.clamp ? 0 : q.n;
        double sum = 0.0;
        for (int64_t k = row; k < min(end, (int64_t)q.n); k++)
            for (int64_t s = 0; s < q.splits; s++)
                sum += (double)q.part[(s * q.n + k) * width + col];
        ls_put(q.dx, i, (float)sum);
    }
}

/* ---- launches ---- */

static const ls_out NOWHERE = { NULL, true };

/* One launch per part. */
template <bool TABLE, class S>
static tp_code ls_launch_plain_columns(const tp_call *c, const ls_call<S> &p, const ls_grad<S> &g,
                                       const ls_column_parts &parts)
{
    tp_code code = TP_OK;
    for (int part = 0; part < LS_PARTS && code == TP_OK; part++) {
        const auto kernel = part == LS_WINDOW_PART        ? ls_column_kernel<TABLE, LS_DIAGONAL, S>
                            : ls_vector_way(p) == LS_SAME ? ls_column_kernel<TABLE, LS_SAME, S>
                                                          : ls_column_kernel<TABLE, LS_ANY, S>;
        ls_columns o = parts.at[part];
        o.pieces = (int)ls_tiles(p.D);
        code = tp_launch(c, kernel, (unsigned)(o.blocks * o.pieces), LS_THREADS,
                         3 * LS_SQUARE * sizeof(float), p, g, o);
    }
    return code;
}

template <bool TABLE>
static tp_code ls_launch_columns(const tp_call *c, const ls_call<float> &p, const ls_grad<float> &g,
                                 const ls_column_parts &parts)
{
    return ls_launch_plain_columns<TABLE>(c, p, g, parts);
}

template <bool TABLE, int D>
static tp_code ls_mma_launch_columns(const tp_call *c, const ls_call<bf16> &p,
                                     const ls_grad<bf16> &g, const ls_column_parts &parts)
{
    const auto kernel =
        p.drop.below > 0 ? ls_mma_column_grad<D, TABLE, true> : ls_mma_column_grad<D, TABLE, false>;
    const int64_t blocks = parts.at[LS_WINDOW_PART].blocks + parts.at[LS_VECTOR_PART].blocks;
    return tp_launch(c, kernel, (unsigned)blocks, LS_MMA_THREADS,
                     sizeof(ls_mma_column_shared<D, TABLE>), p, g, parts);
}

template <bool TABLE>
static tp_code ls_launch_columns(const tp_call *c, const ls_call<bf16> &p, const ls_grad<bf16> &g,
                                 const ls_column_parts &parts)
{
    if (!ls_mma_serves_bwd(p, g.dy)) return ls_launch_plain_columns<TABLE>(c, p, g, parts);
    if (p.D == 64) return ls_mma_launch_columns<TABLE, 64>(c, p, g, parts);
    return ls_mma_launch_columns<TABLE, 32>(c, p, g, parts);
}

/* The columns of a part: distances or, unless TABLE, keys. */
template <bool TABLE, class S>
static ls_columns ls_columns_of(const ls_call<S> &p, int part, bool wanted, ls_out dx, ls_out dv,
                                float *sum)
{
    const int splits = TABLE ? p.splits[part] : p.B;
    const int64_t tiles = ls_tiles(TABLE ? p.distances[part] : p.keys[part]);
    return { part, (int)ls_tiles(p.N), 1, splits, wanted ? tiles * p.H * splits : 0, dx, dv, sum };
}

/* Gradients of keys and values, as far as wanted; cs: sums of dS, or NULL. */
template <class S>
static tp_code ls_launch_keys(const tp_call *c, const ls_call<S> &p, const ls_grad<S> &g, float *cs)
{
    ls_column_parts parts;
    for (int part = 0; part < LS_PARTS; part++) {
        const bool window = part == LS_WINDOW_PART;
        const tp_view *dk = &c->dx[window ? LS_K_WIN : LS_K_CMP];
        const tp_view *dv = &c->dx[window ? LS_V_WIN : LS_V_CMP];
        float *const sum = window ? cs : NULL;
        parts.at[part] = ls_columns_of<false>(p, part, dk->data || dv->data || sum, ls_out_of(dk),
                                              ls_out_of(dv), sum);
    }
    return ls_launch_columns<false>(c, p, g, parts);
}

/* Parts of the gradients of the tables, as far as wanted; es: sums of dS, or NULL. */
template <class S>
static tp_code ls_launch_tables(const tp_call *c, const ls_call<S> &p, const ls_grad<S> &g,
                                float *es)
{
    ls_column_parts parts;
    for (int part = 0; part < LS_PARTS; part++) {
        const bool window = part == LS_WINDOW_PART;
        float *const sum = window ? es : NULL;
        const bool wanted = c->dx[window ? LS_POS_WIN : LS_POS_CMP].data || sum;
        parts.at[part] =
            ls_columns_of<true>(p, part, wanted, { p.work + p.table[part], true }, NOWHERE, sum);
    }
    return ls_launch_columns<true>(c, p, g, parts);
}

/* Terms of the gradients of the biases. */
template <class S>
static tp_code ls_launch_weigh(const tp_call *c, const ls_call<S> &p, bool keys, bool distances)
{
    const int part = LS_WINDOW_PART, n = p.keys[part], span = p.distances[part];
    const int64_t rows = (int64_t)p.B * n, spans = (int64_t)p.splits[part] * span;
    const int64_t key_blocks = keys ? tp__ls_sum_blocks(rows) : 0;
    const int64_t blocks = key_blocks + (distances ? tp__ls_sum_blocks(spans) : 0);
    const ls_weighed_pair<S> pair = { {
        { rows, key_blocks, (int64_t)n * p.width, n, n, p.work + p.c, p.k[part],
          p.work + p.sums[0] },
        { spans, blocks - key_blocks, 0, span, p.clamp[part], p.work + p.e, p.table_at[part],
          p.work + p.sums[1] },
    } };
    return tp_launch(c, ls_weigh_kernel<S>, tp_grid(c, blocks * p.width), TP_THREADS, 0, p.width,
                     p.H, p.D, pair, blocks);
}

/* Adds a gradient, unless it is not wanted. */
static void ls_append(const tp_view *dx, ls_sum_list *list, ls_splits q)
{
    if (!dx->data) return;
    q.end = dx->numel + (list->count > 0 ? list->at[list->count - 1].end : 0);
    q.dx = ls_out_of(dx);
    list->at[list->count++] = q;
}

/* Adds the parts of the gradients of tables and biases. */
template <class S> static tp_code ls_launch_sums(const tp_call *c, const ls_call<S> &p)
{
    const int64_t rows = (int64_t)p.B * p.keys[LS_WINDOW_PART];
    const int64_t spans = (int64_t)p.splits[LS_WINDOW_PART] * p.distances[LS_WINDOW_PART];
    ls_sum_list list = {};
    for (int part = 0; part < LS_PARTS; part++)
        ls_append(&c->dx[part == LS_WINDOW_PART ? LS_POS_WIN : LS_POS_CMP], &list,
                  { p.work + p.table[part], p.splits[part], 0, p.distances[part], p.clamp[part],
                    NOWHERE });
    ls_append(&c->dx[LS_R_W], &list,
              { p.work + p.sums[0], tp__ls_sum_blocks(rows), 0, 1, 1, NOWHERE });
    ls_append(&c->dx[LS_R_R], &list,
              { p.work + p.sums[1], tp__ls_sum_blocks(spans), 0, 1, 1, NOWHERE });
    const int64_t numel = list.count > 0 ? list.at[list.count - 1].end : 0;
    return tp_launch(c, ls_sums_kernel, tp_grid(c, numel), TP_THREADS, 0, p.width, list, numel);
}

template <class S>
static tp_code ls_launch_plain_queries(const tp_call *c, const ls_call<S> &p, const ls_grad<S> &g)
{
    const int tiles = (int)ls_tiles(p.N), pieces = (int)ls_tiles(p.D);
    const auto kernel =
        ls_vector_way(p) == LS_SAME ? ls_query_kernel<LS_SAME, S> : ls_query_kernel<LS_ANY, S>;
    return tp_launch(c, kernel, (unsigned)((int64_t)tiles * p.B * p.H * pieces), LS_THREADS,
                     (2 * LS_SQUARE + LS_SKEW * LS_LINE) * sizeof(float), p, g, tiles, pieces,
                     ls_out_of(&c->dx[LS_Q]));
}

static tp_code ls_launch_queries(const tp_call *c, const ls_call<float> &p, const ls_grad<float> &g)
{
    return ls_launch_plain_queries(c, p, g);
}

template <int D>
static tp_code ls_mma_launch_queries(const tp_call *c, const ls_call<bf16> &p,
                                     const ls_grad<bf16> &g)
{
    const int tiles = (int)ls_tiles(p.N);
    const auto kernel = p.drop.below > 0 ? ls_mma_query_grad<D, true> : ls_mma_query_grad<D, false>;
    return tp_launch(c, kernel, (unsigned)((int64_t)tiles * p.B * p.H), LS_MMA_THREADS,
                     2 * sizeof(ls_mma_query_stage<D>), p, g, tiles, ls_out_of(&c->dx[LS_Q]));
}

static tp_code ls_launch_queries(const tp_call *c, const ls_call<bf16> &p, const ls_grad<bf16> &g)
{
    if (!ls_mma_serves_bwd(p, g.dy)) return ls_launch_plain_queries(c, p, g);
    return p.D == 64 ? ls_mma_launch_queries<64>(c, p, g) : ls_mma_launch_queries<32>(c, p, g);
}

template <class S> static tp_code ls_attention_bwd(const tp_call *c)
{
    const ls_call<S> p = ls_call_of<S>(c);
    const ls_grad<S> g = { tp_in<S>(&c->dy[0]), tp_in<float>(&c->y[1]), p.work + p.delta };
    float *const cs = c->dx[LS_R_W].data ? p.work + p.c : NULL;
    float *const es = c->dx[LS_R_R].data ? p.work + p.e : NULL;
    tp_code code = ls_dot_products(c, p);
    if (code == TP_OK && c->dx[LS_Q].data) code = ls_launch_queries(c, p, g);
    if (code == TP_OK) code = ls_launch_keys(c, p, g, cs);
    if (code == TP_OK) code = ls_launch_tables(c, p, g, es);
    if (code == TP_OK) code = ls_launch_weigh(c, p, cs, es);
    return code == TP_OK ? ls_launch_sums(c, p) : code;
}

TP_CUDA_KERNEL(ls_attention_bwd)
