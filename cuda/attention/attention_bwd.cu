/* attention_bwd.cu - gradients of full attention and relative-position attention.
 *
 *     P = e^(s - lse)   dP = dO V^T   dS = P (dropout(dP) - delta)   delta = rowsum(dO * O)
 *     dQ = scale (dS K + dS' R)   dK = dS^T Q   dV = dropout(P)^T dO   dR = dS'^T Q   dbias = dS
 *
 * Each block owns its results and recomputes everything else from the log-sum-exp. Each pass
 * assigns to a block 64 queries, 64 keys, 64 distances (S' is S by query and distance) or a tile of
 * the bias. Batch sums are partial sums in c->work, added in order. Bound by 14 D operations per
 * query and key for dQ, dK and dV at f32 rate. */
#include "cuda/attention/attention_f32.cuh"
#include "cuda/attention/attention_mma.cuh"

/* Index of a token in [B,H,N], or in [H,N] of its document; -1: it is in no document. */
template <class S> static __device__ inline int64_t delta_at(const attn<S> &p, int64_t token, int h)
{
    if (p.of_q.offset) {
        const tp_rows at = tp__document(&p.of_q, tp__document_of(&p.of_q, token));
        const int64_t i = token - at.first;
        return i >= 0 && i < at.count ? at.first * p.heads + h * at.count + i : -1;
    }
    const int64_t b = tp_div(token, p.queries);
    return attn_row(p, (int)b, h, (int)(token - b * p.queries));
}

template <class S> __global__ void __launch_bounds__(TP_THREADS) attn_f32_delta(attn<S> p)
{
    const int64_t tokens = p.of_q.offset ? p.of_q.rows : (int64_t)p.batch * p.queries;
    const int64_t rows = tokens * p.heads;
    const int lane = (int)threadIdx.x % 32;
    for (int64_t r = tp_warp_number(); r < rows; r += tp_warps()) {
        const S *o = p.out + r * p.dim, *d = p.dout + r * p.dim;
        float sum = 0.0f;
        for (int x = lane; x < p.dim; x += 32) sum += tp_float(o[x]) * tp_float(d[x]);
        sum = tp_warp<tp_sum_of>(sum);
        const int64_t token = tp_div(r, p.heads);
        const int64_t at = delta_at(p, token, (int)(r - token * p.heads));
        if (lane == 0 && at >= 0) p.delta[at] = sum;
    }
}

/* to[0..n) = the sums of the 64 rows of a tile in registers. room: 16 rows of 64 floats. */
static __device__ inline void sum_rows(const float acc[4][4], float *room, float *to, int n)
{
    const int t = (int)threadIdx.x, ty = t / 16, tx = t % 16;
    __syncthreads();
    for (int c = 0; c < 4; c++)
        room[ty * ATTN_F32_TILE + 4 * tx + c] = acc[0][c] + acc[1][c] + acc[2][c] + acc[3][c];
    __syncthreads();
    if (t >= n) return;
    float sum = 0.0f;
    for (int k = 0; k < 16; k++) sum += room[k * ATTN_F32_TILE + t];
    to[t] = sum;
}

/* The owner of 64 queries computes dq, and its part of dr_w and dr_r. */
template <bool POSITIONS, bool PACKED, class S>
__global__ void __launch_bounds__(ATTN_F32_THREADS, 1) attn_f32_query_grad(attn<S> all, int slabs)
{
    TP_SHARED_REST(float, transposed);
    float *const stage = transposed + ATTN_F32_FLOATS;
    const int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
    const attn_f32_block at(slabs, all.heads, all.batch);
    const attn_part<PACKED, S> p = attn_document<PACKED>(all, at.b);
    const int tiles = attn_tiles(p.queries, ATTN_F32_TILE), tile = tiles - 1 - at.tile;
    attn_f32_tile t = { at.b, at.h, tile * ATTN_F32_TILE, 0 };
    if (PACKED && tile < 0) return;
    const int end = attn_end_key(p, t.i + ATTN_F32_TILE - 1);
    float by_key[4][4], by_position[4][4];
    attn_f32_clear(by_key);
    attn_f32_clear(by_position);
    for (t.j = attn_begin_key(p, t.i); t.j < end; t.j += ATTN_F32_TILE) {
        float ds[4][4], w[4][4];
        attn_f32_gradients<POSITIONS, false>(p, t, stage, ds, w);
        __syncthreads();
        attn_f32_keep<true>(transposed, ds);
        attn_f32_load<ATTN_F32_TILE>(stage, attn_f32_keys(p, p.k, t.b, t.h), t.j, at.x0, p.dim);
        __syncthreads();
        attn_f32_outer(by_key, transposed, stage, ATTN_F32_TILE);
        if (!POSITIONS) continue;
        __syncthreads();
        attn_f32_load<2 * ATTN_F32_TILE>(stage, attn_f32_keys(p, p.pos, 0, t.h),
                                         t.i + p.ahead - t.j - (ATTN_F32_TILE - 1), at.x0, p.dim);
        __syncthreads();
        attn_f32_outer_sheared(by_position, transposed, stage);
    }
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++) {
            const int i = t.i + 4 * ty + r, x = at.x0 + 4 * tx + c;
            by_key[r][c] *= p.scale;
            by_position[r][c] *= p.scale;
            if (p.dq.to && i < p.queries && x < p.dim)
                p.dq.put(attn_f32_element(p, t.b, p.queries, i, t.h, x),
                         by_key[r][c] + by_position[r][c]);
        }
    if (!POSITIONS || !p.dr) return;
    float *dr = p.dr + 2 * ((int64_t)t.b * tiles + tile) * p.width + t.h * p.dim + at.x0;
    sum_rows(by_key, transposed, dr, min(ATTN_F32_TILE, p.dim - at.x0));
    sum_rows(by_position, transposed, dr + p.width, min(ATTN_F32_TILE, p.dim - at.x0));
}

/* acc += T^T rows, for a tile T of rows by columns and 64 columns of the rows from x0. */
template <class S>
static __device__ inline void add_by_column(float acc[4][4], const float tile[4][4], float *kept,
                                            float *stage, const attn_f32_rows<S> &rows, int i,
                                            int x0, int dim)
{
    __syncthreads();
    attn_f32_keep<false>(kept, tile);
    attn_f32_load<ATTN_F32_TILE>(stage, rows, i, x0, dim);
    __syncthreads();
    attn_f32_outer(acc, kept, stage, ATTN_F32_TILE);
}

/* The owner of 64 keys computes dk and dv; the owner of 64 distances, dpos of some rows of the
 * batch. */
template <bool POSITIONS, bool DISTANCES, bool PACKED, class S>
__global__ void __launch_bounds__(ATTN_F32_THREADS, 1) attn_f32_key_grad(attn<S> all, int slabs)
{
    TP_SHARED_REST(float, kept);
    float *const stage = kept + ATTN_F32_FLOATS;
    const int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
    const attn_f32_block at(slabs, all.heads / all.group, DISTANCES ? all.splits : all.batch);
    const attn_part<PACKED, S> p = attn_document<PACKED>(all, at.b);
    attn_f32_tile t = { at.b, at.h * p.group, 0, at.tile * ATTN_F32_TILE };
    if (PACKED && t.j >= p.room) return;
    const int last = min(t.j + ATTN_F32_TILE, p.keys) - 1;
    const int end = !DISTANCES ? attn_end_query(p, last) : p.span && t.j >= p.span ? 0 : p.queries;
    const int first = DISTANCES ? (int)((int64_t)at.b * p.batch / p.splits) : at.b;
    const int stop = DISTANCES ? (int)((int64_t)(at.b + 1) * p.batch / p.splits) : at.b + 1;
    float dk[4][4], dv[4][4];
    attn_f32_clear(dk);
    attn_f32_clear(dv);
    for (t.b = first; t.b < stop; t.b++)
        for (t.h = at.h * p.group; t.h < (at.h + 1) * p.group; t.h++)
            for (t.i = attn_begin_query(p, t.j); t.i < end; t.i += ATTN_F32_TILE) {
                float ds[4][4], w[4][4];
                attn_f32_gradients<POSITIONS, DISTANCES>(p, t, stage, ds, w);
                if (!DISTANCES && p.dv.to)
                    add_by_column(dv, w, kept, stage, attn_f32_results(p, p.dout, t.b, t.h), t.i,
                                  at.x0, p.dim);
                add_by_column(dk, ds, kept, stage,
                              attn_f32_queries(p, t.b, t.h, DISTANCES ? p.r_r : p.r_w), t.i, at.x0,
                              p.dim);
            }
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++) {
            const int j = t.j + 4 * ty + r, x = at.x0 + 4 * tx + c;
            if (j >= p.room || x >= p.dim) continue;
            const int64_t to = ((int64_t)at.b * p.room + j) * p.kv_width + at.h * p.dim + x;
            if (DISTANCES) p.dpos[to] = dk[r][c];
            if (!DISTANCES && p.dk.to) p.dk.put(to, dk[r][c]);
            if (!DISTANCES && p.dv.to) p.dv.put(to, dv[r][c]);
        }
}

/* The owner of a tile of the bias sums dS, over the batch if its rows share one bias. */
template <class S>
__global__ void __launch_bounds__(ATTN_F32_THREADS, 2) attn_f32_bias_grad(attn<S> p, int key_tiles)
{
    TP_SHARED_REST(float, stage);
    const int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
    const bool shared = p.bias_batch == 0;
    const attn_f32_block at(1, p.heads, shared ? 1 : p.batch);
    attn_f32_tile t = { 0, at.h, at.tile / key_tiles * ATTN_F32_TILE,
                        at.tile % key_tiles * ATTN_F32_TILE };
    const bool seen = t.j < attn_end_key(p, t.i + ATTN_F32_TILE - 1);
    float sum[4][4];
    attn_f32_clear(sum);
    for (t.b = shared ? 0 : at.b; seen && t.b < (shared ? p.batch : at.b + 1); t.b++) {
        float ds[4][4], w[4][4];
        attn_f32_gradients<false, false>(p, t, stage, ds, w);
        for (int r = 0; r < 4; r++)
            for (int c = 0; c < 4; c++) sum[r][c] += ds[r][c];
    }
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++) {
            const int i = t.i + 4 * ty + r, j = t.j + 4 * tx + c;
            if (i < p.queries && j < p.keys)
                p.dbias.put(attn_row(p, at.b, t.h, i) * p.keys + j, sum[r][c]);
        }
}

/* The owner of 64 queries sums dS times the distance over the visible keys: a part of the gradient
 * of the slopes. */
template <class S>
__global__ void __launch_bounds__(ATTN_F32_THREADS, 2) attn_f32_slope_grad(attn<S> p)
{
    TP_SHARED_REST(float, stage);
    const int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
    const attn_f32_block at(1, p.heads, p.batch);
    attn_f32_tile t = { at.b, at.h, at.tile * ATTN_F32_TILE, 0 };
    const int end = attn_end_key(p, t.i + ATTN_F32_TILE - 1);
    const int tiles = attn_tiles(p.queries, ATTN_F32_TILE);
    float sum = 0.0f;
    for (; t.j < end; t.j += ATTN_F32_TILE) {
        float ds[4][4], w[4][4];
        attn_f32_gradients<false, false>(p, t, stage, ds, w);
        for (int r = 0; r < 4; r++)
            for (int c = 0; c < 4; c++)
                sum += ds[r][c] * attn_distance(p, t.i + 4 * ty + r, t.j + 4 * tx + c);
    }
    sum = tp_block<tp_sum_of>(sum);
    if (threadIdx.x == 0) p.dslopes[((int64_t)at.b * tiles + at.tile) * p.heads + at.h] = sum;
}

/* out[x] = sum over k of parts[k * step + x] */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    sum_parts(int64_t n, int64_t count, int64_t step, const float *parts, attn_sink<S> out)
{
    TP_EACH (x, n) {
        double sum = 0.0;
        for (int64_t k = 0; k < count; k++) sum += (double)parts[k * step + x];
        out.put(x, (float)sum);
    }
}

/* ---- launches ---- */

template <class... P>
static tp_code launch(const tp_call *c, void (*kernel)(P...), int64_t blocks, bool wide,
                      typename std::common_type<P>::type... args)
{
    const tp_code code = attn_check_blocks(c, blocks);
    if (code != TP_OK) return code;
    return tp_launch(c, kernel, (unsigned)blocks, ATTN_F32_THREADS,
                     wide ? ATTN_F32_SHARED_WIDE : ATTN_F32_SHARED, args...);
}

template <class S> static tp_code grad_parts(const tp_call *c, const attn<S> &p, int64_t parts)
{
    tp_code code = TP_OK;
    for (int k = 0; k < 2 && code == TP_OK; k++)
        if (c->dx[4 + k].data)
            code = tp_launch(c, sum_parts<S>, tp_grid(c, p.width), TP_THREADS, 0, (int64_t)p.width,
                             parts, (int64_t)(2 * p.width), p.dr + k * p.width,
                             attn_sink_of<S>(&c->dx[4 + k]));
    const int64_t n = (int64_t)p.keys * p.width;
    if (code == TP_OK && c->dx[3].data)
        code = tp_launch(c, sum_parts<S>, tp_grid(c, n), TP_THREADS, 0, n, (int64_t)p.splits, n,
                         p.dpos, attn_sink_of<S>(&c->dx[3]));
    return code;
}

/* Offsets of the pieces of c->work, in floats. */
struct attn_room {
    int64_t bias;   /* bf16: [B+1,H,S]: r_w k, then r_r pos; the only piece of forward          */
    int64_t delta;  /* [B,H,N]: rowsum(dO * O)                                                  */
    int64_t dr;     /* [B * tiles of 64 queries][2][H*D]: parts of the gradients of r_w and r_r */
    int64_t dpos;   /* [splits][S][H*D]: parts of the gradient of pos                           */
    int64_t slopes; /* [B][tiles of 64 queries][H]: parts of the gradient of the slopes         */
    int64_t splits; /* of the batch, to get enough tiles of distances                           */
    int64_t total;
};

static attn_room room_of(const tp_call *c, bool positions)
{
    const int64_t heads = static_cast<const tp_attn_cfg *>(c->attr)->heads;
    const int64_t batch = c->x[0].dim[0], n = c->x[0].dim[1], s = c->x[1].dim[1];
    const int64_t width = c->x[0].dim[2], tiles = (s + 63) / 64 * heads;
    const int64_t splits = tiles > 0 ? (512 + tiles - 1) / tiles : 1;
    const bool back = tp_is_backward(c);
    attn_room r = { 0, 0, 0, 0, 0, 1, 0 };
    if (positions && c->x[0].dtype == TP_BF16) r.delta = (batch + 1) * heads * s;
    r.total = r.dpos = r.dr = r.delta + (back ? batch * heads * n : 0);
    r.slopes = r.total;
    if (!positions && back && c->x[4].ndim == 1) r.total += batch * ((n + 63) / 64) * heads;
    if (!positions || !back) return r;
    r.dpos += batch * ((n + 63) / 64) * 2 * width;
    r.splits = splits < batch ? splits : batch > 0 ? batch : 1;
    r.total = r.dpos + r.splits * s * width;
    return r;
}

static size_t attention_work(const tp_call *c)
{
    return (size_t)room_of(c, false).total * sizeof(float);
}
static size_t rel_attention_work(const tp_call *c)
{
    return (size_t)room_of(c, true).total * sizeof(float);
}

/* Points p at its pieces of c->work: bias logits, delta and the partial sums of gradients. */
template <class S> static void place_work(const tp_call *c, attn<S> &p, bool positions)
{
    const attn_room at = room_of(c, positions);
    float *work = static_cast<float *>(c->work);
    p.biases = work + at.bias;
    p.delta = work + at.delta;
    p.dr = positions && (c->dx[4].data || c->dx[5].data) ? work + at.dr : NULL;
    p.dpos = positions && c->dx[3].data ? work + at.dpos : NULL;
    p.dslopes = p.slopes && c->dx[4].data ? work + at.slopes : NULL;
    p.splits = (int)at.splits;
}

template <class S> static tp_code slope_parts(const tp_call *c, const attn<S> &p, int64_t parts)
{
    const tp_code code = launch(c, attn_f32_slope_grad<S>, parts * p.heads, false, p);
    return code != TP_OK
               ? code
               : tp_launch(c, sum_parts<S>, tp_grid(c, p.heads), TP_THREADS, 0, (int64_t)p.heads,
                           parts, (int64_t)p.heads, p.dslopes, attn_sink_of<S>(&c->dx[4]));
}

/* dq, the parts of dr_w and dr_r, dk and dv. */
template <bool POSITIONS, bool PACKED, class S>
static tp_code grad_rows(const tp_call *c, const attn<S> &p, int64_t slabs)
{
    const int64_t heads = slabs * p.heads * p.batch;
    tp_code code = TP_OK;
    if (p.dq.to || p.dr)
        code = launch(c, attn_f32_query_grad<POSITIONS, PACKED, S>,
                      heads * attn_tiles(p.queries, ATTN_F32_TILE), POSITIONS, p, slabs);
    if (code == TP_OK && (p.dk.to || p.dv.to))
        code = launch(c, attn_f32_key_grad<POSITIONS, false, PACKED, S>,
                      heads / p.group * attn_tiles(p.room, ATTN_F32_TILE), POSITIONS, p, slabs);
    return code;
}

/* Also computes the parts of dpos. */
template <bool POSITIONS, class S>
static tp_code grad_inputs(const tp_call *c, const attn<S> &p, int64_t slabs)
{
    if constexpr (std::is_same<S, bf16>::value)
        if (attn_mma_serves(p))
            return POSITIONS ? tp__rel_attention_mma_bwd(c, p) : tp__attention_mma_bwd(c, p);
    tp_code code = grad_rows<POSITIONS, false>(c, p, slabs);
    if (POSITIONS && code == TP_OK && p.dpos)
        code =
            launch(c, attn_f32_key_grad<true, true, false, S>,
                   slabs * p.heads * p.splits * attn_tiles(p.keys, ATTN_F32_TILE), true, p, slabs);
    return code;
}

template <bool POSITIONS, class S> static tp_code backward(const tp_call *c)
{
    attn<S> p = attn_problem<S>(c, POSITIONS);
    const int64_t slabs = max(attn_tiles(p.dim, ATTN_F32_TILE), 1);
    const int64_t rows = attn_tiles(p.queries, ATTN_F32_TILE);
    const int64_t columns = attn_tiles(p.keys, ATTN_F32_TILE);
    place_work(c, p, POSITIONS);
    p.dout = tp_in<S>(&c->dy[0]);
    p.dq = attn_sink_of<S>(&c->dx[0]);
    p.dk = attn_sink_of<S>(&c->dx[1]);
    p.dv = attn_sink_of<S>(&c->dx[2]);
    if (!POSITIONS && p.bias) p.dbias = attn_sink_of<S>(&c->dx[4]);
    tp_code code = tp_launch(c, attn_f32_delta<S>,
                             tp_grid(c, (int64_t)p.batch * p.queries * p.heads, TP_THREADS / 32),
                             TP_THREADS, 0, p);
    if (code == TP_OK) code = grad_inputs<POSITIONS>(c, p, slabs);
    if (code == TP_OK && p.dbias.to)
        code = launch(c, attn_f32_bias_grad<S>,
                      p.heads * (p.bias_batch ? p.batch : 1) * rows * columns, false, p, columns);
    if (code == TP_OK && p.dslopes) code = slope_parts(c, p, p.batch * rows);
    return POSITIONS && code == TP_OK ? grad_parts(c, p, p.batch * rows) : code;
}

/* c->work: delta, [H,N] for each document. */
static size_t packed_attention_work(const tp_call *c)
{
    const int64_t heads = static_cast<const tp_packed_attn *>(c->attr)->cfg.heads;
    return tp_is_backward(c) ? (size_t)(c->x[0].dim[0] * heads) * sizeof(float) : 0;
}

template <class S> static tp_code packed_attention_bwd(const tp_call *c)
{
    attn<S> p = attn_packed_problem<S>(c);
    p.delta = static_cast<float *>(c->work);
    p.dout = tp_in<S>(&c->dy[0]);
    p.dq = attn_sink_of<S>(&c->dx[0]);
    p.dk = attn_sink_of<S>(&c->dx[1]);
    p.dv = attn_sink_of<S>(&c->dx[2]);
    const tp_code code = tp_launch(
        c, attn_f32_delta<S>, tp_grid(c, p.of_q.rows * p.heads, TP_THREADS / 32), TP_THREADS, 0, p);
    if (code != TP_OK) return code;
    if constexpr (std::is_same<S, bf16>::value)
        if (attn_mma_serves(p)) return tp__attention_mma_bwd(c, p);
    return grad_rows<false, true>(c, p, max(attn_tiles(p.dim, ATTN_F32_TILE), 1));
}

template <class S> static tp_code attention_bwd(const tp_call *c)
{
    return backward<false, S>(c);
}
template <class S> static tp_code rel_attention_bwd(const tp_call *c)
{
    return backward<true, S>(c);
}

TP_CUDA_WORK(attention_work)
TP_CUDA_WORK(rel_attention_work)
TP_CUDA_WORK(packed_attention_work)
TP_CUDA_KERNEL(attention_bwd)
TP_CUDA_KERNEL(packed_attention_bwd)
TP_CUDA_KERNEL(rel_attention_bwd)
