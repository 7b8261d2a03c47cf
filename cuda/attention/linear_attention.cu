/* linear_attention.cu - linear attention by feature sums, forward.
 *
 * Positive features first need the largest products of each query and of all keys of a head. Then
 * keys are summed in parts, a block for 64 features of a part, and added in order; then a block
 * takes 64 queries and loops over the features. Bound by 4 M D operations per row (6 M D with
 * positive features), at f32 rate. */
#include "cuda/attention/linear.cuh"

/* shift = |x|^2 / 2, tops = the largest product, of 64 rows. */
template <class S>
__global__ void __launch_bounds__(ATTN_F32_THREADS, 1)
    lin_shift_kernel(lin<S> p, lin_side<S> side, float *tops, int tiles)
{
    TP_SHARED_REST(float, stage);
    const int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
    const lin_block k(1, tiles, p.heads);
    const int i = k.tile * ATTN_F32_TILE;
    const lin_rows<S> x = lin_of(p, k, side, side.x, NULL, p.scale);
    float top[4] = { -INFINITY, -INFINITY, -INFINITY, -INFINITY };
    for (int f0 = 0; f0 < p.features; f0 += ATTN_F32_TILE) {
        float u[4][4];
        lin_products(p, x, i, f0, stage, u);
        for (int r = 0; r < 4; r++)
            for (int c = 0; c < 4; c++)
                if (f0 + 4 * tx + c < p.features) top[r] = tp_max_of::join(top[r], u[r][c]);
    }
    for (int r = 0; r < 4; r++) {
        const int row = i + 4 * ty + r;
        float square = 0.0f;
        for (int d = tx; d < p.dim; d += 16) square += x.get(row, d, p.dim) * x.get(row, d, p.dim);
        square = attn_f32_row<tp_sum_of>(square);
        const float largest = attn_f32_row<tp_max_of>(top[r]);
        if (tx > 0 || row >= side.n) continue;
        side.shift[k.head * side.n + row] = 0.5f * square;
        tops[k.head * side.n + row] = largest;
    }
}

/* Adds to each shift the largest product of its row, or of all rows of the head. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    lin_add_tops(lin_side<S> side, int64_t heads, bool of_all, const float *tops)
{
    TP_EACH_BLOCK (head, heads) {
        float top = -INFINITY;
        for (int i = (int)threadIdx.x; of_all && i < side.n; i += TP_THREADS)
            top = tp_max_of::join(top, tops[head * side.n + i]);
        top = tp_block<tp_max_of>(top);
        for (int i = (int)threadIdx.x; i < side.n; i += TP_THREADS)
            side.shift[head * side.n + i] += of_all ? top : tops[head * side.n + i];
    }
}

template <class S>
static tp_code lin_find_shifts(const tp_call *c, const tp_lin &g, const lin<S> &p,
                               const lin_side<S> &side, bool of_all, float *tops)
{
    const int tiles = attn_tiles(side.n, ATTN_F32_TILE);
    const int64_t heads = g.batch * g.heads;
    if (p.kind != TP_FEATURES_POSITIVE) return TP_OK;
    const tp_code code = tp_launch(c, lin_shift_kernel<S>, (unsigned)(heads * tiles),
                                   ATTN_F32_THREADS, ATTN_F32_SHARED, p, side, tops, tiles);
    if (code != TP_OK) return code;
    return tp_launch(c, lin_add_tops<S>, tp_grid(c, heads, 1), TP_THREADS, 0, side, heads, of_all,
                     static_cast<const float *>(tops));
}

template <class S> static tp_code linear_attention_fwd(const tp_call *c)
{
    const tp_lin g = tp__lin(c->x, static_cast<const tp_linear_attn_cfg *>(c->attr));
    const lin_room room = lin_room_of(c, g);
    if (g.batch == 0 || g.width == 0) return TP_OK;
    lin<S> p = lin_problem<S>(g, c);
    const lin_side<S> q = lin_queries<S>(g, c), k = lin_keys<S>(g, c);
    p.partial = room.partial;
    tp_code code = lin_take_projection(c, room.projection, &p.projection);
    if (code == TP_OK) code = lin_find_shifts(c, g, p, k, true, room.rows);
    if (code == TP_OK)
        code = lin_run_sums(c, g, p, k, tp_in<S>(&c->x[LIN_V]), NULL, NULL, 1.0f, p.sums);
    if (code == TP_OK) code = lin_find_shifts(c, g, p, q, false, room.rows);
    if (code != TP_OK) return code;
    return lin_apply(c, g, p, q, p.sums, p.normalise ? p.denominator : NULL, p.factor,
                     attn_sink_of<S>(&c->y[LIN_Y]));
}

TP_CUDA_KERNEL(linear_attention_fwd)
