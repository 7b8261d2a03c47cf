/* linear_attention_bwd.cu - gradients of linear attention by feature sums.
 *
 *     [dphi(q) | dsums] from dy / denominator and -(dy y) / denominator;  [dphi(k) | dv] from dsums
 *
 * Every row and every sum has one owner; each pass recomputes the features. Bound by 14 M D
 * operations per row, at f32 rate. */
#include "cuda/attention/linear.cuh"

/* by = 1 / denominator or the factor, last = -by (dy y); one warp per query of a head. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    lin_query_rows(lin<S> p, int64_t n, int64_t rows, const S *y, const S *dy, float *by,
                   float *last)
{
    const int lane = (int)threadIdx.x % 32;
    for (int64_t r = tp_warp_number(); r < rows; r += tp_warps()) {
        const int64_t token = tp_div(r, p.heads), b = tp_div(token, n);
        const int64_t at = (b * p.heads + r - token * p.heads) * n + token - b * n;
        float dot = 0.0f;
        for (int64_t i = r * p.dim + lane; p.normalise && i < (r + 1) * p.dim; i += 32)
            dot += tp_float(y[i]) * tp_float(dy[i]);
        dot = tp_warp<tp_sum_of>(dot);
        if (lane > 0) continue;
        const float sum = p.normalise ? p.denominator[at] : 0.0f;
        const float factor = !p.normalise ? p.factor : sum > 0.0f ? 1.0f / sum : 0.0f;
        by[at] = factor;
        last[at] = -factor * dot;
    }
}

/* Computes dx of 64 rows via their features, which were multiplied by `right` sums^T, with `last`
 * (1 if NULL) in the last column. */
template <class S, class D>
__global__ void __launch_bounds__(ATTN_F32_THREADS, 1)
    lin_grad_kernel(lin<S> p, lin_side<S> side, const S *right, const float *by, const float *last,
                    const float *sums, D *dx, int slabs, int tiles)
{
    TP_SHARED_REST(float, kept);
    float *const stage = kept + ATTN_F32_FLOATS;
    const int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
    const lin_block k(slabs, tiles, p.heads);
    const int i = k.tile * ATTN_F32_TILE;
    const lin_rows<S> x = lin_of(p, k, side, side.x, NULL, p.scale);
    const lin_rows<S> with = lin_of(p, k, side, right, by, 1.0f);
    const lin_rows<float> s = lin_sums_of(p, k, sums);
    const int first = p.projection ? 0 : k.x0, end = p.projection ? p.features : k.x0 + 1;
    float acc[4][4], total[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    attn_f32_clear(acc);
    for (int f0 = first; f0 < end; f0 += ATTN_F32_TILE) {
        float phi[4][4], du[4][4];
        lin_features(p, k, side, x, i, f0, stage, phi);
        attn_f32_clear(du);
        attn_f32_product<false>(du, stage, with, i, s, f0, p.dim);
        for (int r = 0; r < 4; r++) {
            const int row = i + 4 * ty + r;
            const float w = !last ? 1.0f : row < side.n ? last[k.head * side.n + row] : 0.0f;
            for (int c = 0; c < 4; c++) {
                const float v = phi[r][c];
                if (p.normalise) du[r][c] += w * s.get(f0 + 4 * tx + c, p.dim, p.columns);
                du[r][c] *= p.kind == TP_FEATURES_POSITIVE ? v - p.eps
                            : p.kind == TP_FEATURES_RELU   ? (v > p.eps ? 1.0f : 0.0f)
                                                           : (v > 1.0f ? 1.0f : v);
                total[r] += du[r][c];
                if (!p.projection) acc[r][c] = du[r][c];
            }
        }
        if (!p.projection) continue;
        __syncthreads();
        attn_f32_keep<true>(kept, du);
        attn_f32_load<ATTN_F32_TILE>(stage, lin_projection(p), f0, k.x0, p.dim);
        __syncthreads();
        attn_f32_outer(acc, kept, stage, ATTN_F32_TILE);
        __syncthreads();
    }
    for (int r = 0; r < 4; r++) {
        const int row = i + 4 * ty + r;
        const float sum = attn_f32_row<tp_sum_of>(total[r]);
        if (row >= side.n) continue;
        const bool real = !x.mask || x.mask[row];
        for (int c = 0; c < 4; c++) {
            const int column = k.x0 + 4 * tx + c;
            if (column >= p.dim) continue;
            if (p.kind == TP_FEATURES_POSITIVE) acc[r][c] -= sum * x.get(row, column, p.dim);
            tp_put(dx + ((int64_t)k.b * side.n + row) * p.width + k.h * p.dim + column,
                   real ? p.scale * acc[r][c] : 0.0f);
        }
    }
}

/* dx in S, or in f32 if it belongs to a parameter. */
template <class S>
static tp_code lin_gradient(const tp_call *c, const tp_lin &g, const lin<S> &p,
                            const lin_side<S> &side, const S *right, const float *by,
                            const float *last, const float *sums, const tp_view *dx)
{
    const int slabs = attn_tiles(p.dim, ATTN_F32_TILE), tiles = attn_tiles(side.n, ATTN_F32_TILE);
    if (!dx->data) return TP_OK;
    return tp_with_type(c, dx->dtype, [&](auto d) {
        using D = decltype(d);
        return tp_launch(c, lin_grad_kernel<S, D>, (unsigned)(g.batch * g.heads * slabs * tiles),
                         ATTN_F32_THREADS, ATTN_F32_SHARED, p, side, right, by, last, sums,
                         tp_out<D>(dx), slabs, tiles);
    });
}

template <class S> static tp_code linear_attention_bwd(const tp_call *c)
{
    const tp_lin g = tp__lin(c->x, static_cast<const tp_linear_attn_cfg *>(c->attr));
    const lin_room room = lin_room_of(c, g);
    if (g.batch == 0 || g.width == 0) return TP_OK;
    const int64_t heads = g.batch * g.heads, rows = heads * g.queries;
    lin<S> p = lin_problem<S>(g, c);
    const lin_side<S> q = lin_queries<S>(g, c), k = lin_keys<S>(g, c);
    const S *dy = tp_in<S>(&c->dy[LIN_Y]), *v = tp_in<S>(&c->x[LIN_V]);
    float *const by = room.rows, *const last = room.rows + rows;
    const tp_view *dk = &c->dx[LIN_K], *dv = &c->dx[LIN_V];
    p.partial = room.partial;
    tp_code code = lin_take_projection(c, room.projection, &p.projection);
    if (code == TP_OK)
        code = tp_launch(c, lin_query_rows<S>, tp_grid(c, 32 * rows), TP_THREADS, 0, p, g.queries,
                         rows, tp_in<S>(&c->y[LIN_Y]), dy, by, last);
    if (code == TP_OK) code = lin_gradient(c, g, p, q, dy, by, last, p.sums, &c->dx[LIN_Q]);
    if (code != TP_OK || (!dk->data && !dv->data)) return code;
    code = lin_run_sums(c, g, p, q, dy, by, last, 1.0f, room.dsums);
    if (code == TP_OK) code = lin_gradient(c, g, p, k, v, NULL, NULL, room.dsums, dk);
    if (code == TP_OK && dv->data)
        code = lin_apply(c, g, p, k, room.dsums, NULL, 1.0f, attn_sink_of<S>(dv));
    return code;
}

static size_t linear_attention_work(const tp_call *c)
{
    const tp_lin g = tp__lin(c->x, static_cast<const tp_linear_attn_cfg *>(c->attr));
    return lin_room_of(c, g).bytes;
}

TP_CUDA_WORK(linear_attention_work)
TP_CUDA_KERNEL(linear_attention_bwd)
