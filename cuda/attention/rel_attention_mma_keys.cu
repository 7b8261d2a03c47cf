/* rel_attention_mma_keys.cu - gradients of relative attention on tensor cores, bf16: dk and dv by
 * the owners of 64 keys, dpos by the owners of 64 distances (layout: rel_mma_bwd.cuh).
 *
 * Both use their own rows as rows and queries as columns, so nothing is transposed through memory.
 * In the pass over distances, keys and distances swap roles, as in the f32 kernels. The biases
 * added to q contribute rank-one terms: c r_w to dk and e r_r to dpos, where c and e are sums of dS
 * over queries.
 *
 * Six products for each query and key; a product with lines counts twice, since it multiplies 32
 * lines for 16 queries and uses half of the results. For heads of 64 a step of 16 by 32 is 96 mma,
 * 44 and 48 ldmatrix and 16 2^x per lane: bound by mma and the reads of shared memory.
 *
 *     budget: rel_mma_column_grad<64, false> sm_90 830 instructions
 *     budget: rel_mma_column_grad<64, true> sm_90 880 instructions
 */
#include "cuda/attention/rel_mma_bwd.cuh"

/* s += lines times 8 N queries: row x and query c use the line of their distance, c - x from
 * `place` on. OWN: also adds the product of the warp's rows with the queries. */
template <bool OWN, int COLS, int N, class L>
static __device__ inline void line_products(float s[N][4], const attn_mma_held<COLS> &own,
                                            const bf16 *queries, const L &ring, int place)
{
    constexpr int PAIRS = N / 2; /* of blocks of 8 queries, each against 32 lines */
    const int lane = (int)threadIdx.x % 32;
    float x[PAIRS][2][2][4];
    int line[PAIRS + 1];
#pragma unroll
    for (int t = 0; t <= PAIRS; t++) line[t] = L::after(place, 16 * t - 16);
#pragma unroll
    for (int m = 0; m < PAIRS; m++)
#pragma unroll
        for (int t = 0; t < 2; t++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                x[m][t][0][e] = x[m][t][1][e] =
                    ring.bias ? ring.bias[line[m + t] + lane / 4 + e / 2 * 8] : 0.0f;
#pragma unroll
    for (int k = 0; k < COLS / 16; k++) {
        uint32_t a[PAIRS + 1][4], now[4];
        if (OWN) own.operand(now, k);
#pragma unroll
        for (int t = 0; t <= PAIRS; t++) tp_frag_a<COLS>(a[t], ring.lines + line[t] * COLS, 0, k);
#pragma unroll
        for (int m = 0; m < PAIRS; m++) {
            uint32_t b[4];
            tp_frag_b<COLS>(b, queries, 16 * m, k);
#pragma unroll
            for (int n = 0; n < 2; n++) {
                if (OWN) tp_mma_bf16(s[2 * m + n], now, b + 2 * n, s[2 * m + n]);
                tp_mma_bf16(x[m][0][n], a[m], b + 2 * n, x[m][0][n]);
                tp_mma_bf16(x[m][1][n], a[m + 1], b + 2 * n, x[m][1][n]);
            }
        }
    }
#pragma unroll
    for (int m = 0; m < PAIRS; m++)
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const auto eight = [&](int k) { return x[m][k / 2][n] + k % 2 * 2; }; /* lines */
            float y[4];
            tp_skew_columns(y, eight(2 + n), eight(1 + n));
            tp_skew_columns(y + 2, eight(1 + n), eight(n));
#pragma unroll
            for (int e = 0; e < 4; e++) s[2 * m + n][e] += y[e];
        }
}

/* Adds sum times the bias, a vector of a head, to each row. */
template <int COLS>
static __device__ inline void add_bias(const attn<bf16> &p, float o[COLS / 8][4],
                                       const float sum[2], const bf16 *bias)
{
    const int q2 = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < COLS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (8 * n < p.dim) o[n][e] += sum[e / 2] * tp_float(bias[8 * n + q2 + e % 2]);
}

/* A warp's rows (keys or distances) of a column block, and their gradients. */
template <int COLS, bool DISTANCES> struct column_warp {
    static constexpr int STEP = ATTN_MMA_STEPS<COLS>, N = ATTN_MMA_BLOCKS<COLS>, TILE = STEP * COLS;
    attn_mma_held<COLS> own, v;
    float dk[COLS / 8][4], dv[COLS / 8][4]; /* dk is dpos for distances */
    float own_bias[2], sum[2]; /* bias logits; sums of dS, for the gradient of the bias */

    __device__ void clear()
    {
        attn_mma_clear<COLS / 8>(dk);
        attn_mma_clear<COLS / 8>(dv);
        sum[0] = sum[1] = 0.0f;
    }
    /* Queues copies of the block's rows from `first`, then values, to room; loads the bias
     * logits. */
    __device__ void fetch(const attn<bf16> &p, bf16 *room, const rel_mma_rows &rows,
                          const rel_mma_rows &values, int first)
    {
        const int row = first + (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4;
        tp_tile_copy<COLS, ATTN_MMA_ROWS, ATTN_MMA_THREADS>(room, rows.at, first, p.keys, p.dim,
                                                            p.width);
        if (!DISTANCES)
            tp_tile_copy<COLS, ATTN_MMA_ROWS, ATTN_MMA_THREADS>(
                room + ATTN_MMA_ROWS * COLS, values.at, first, p.keys, p.dim, p.width);
        for (int half = 0; half < 2; half++) own_bias[half] = rows.bias_of(row + 8 * half);
    }
    /* Rows from j, queries i .. i + STEP in `tile`, followed by dO; of_query: lse and delta. ring:
     * table (for distances: keys), values: for distances. */
    template <class L>
    __device__ void step(const attn<bf16> &p, const attn_mma_block &at, int j, int i, const L &ring,
                         const L &values, int place, const bf16 *tile, const float2 *of_query)
    {
        const int lane = (int)threadIdx.x % 32, row = j + lane / 4, column = i + lane % 4 * 2;
        const int other = i + p.ahead - j; /* distance of key j, or key at distance j */
        float s[N][4], dp[N][4];
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) s[n][e] = own_bias[e / 2];
        line_products<true, COLS, N>(s, own, tile, ring, place);
        if (i + STEP > p.queries || other < 15 ||
            (p.span && (DISTANCES ? j + 15 : other + STEP - 1) >= p.span))
            attn_mma_mask<true, N, DISTANCES, false>(p, at, row, column, s);
        if (DISTANCES) {
            attn_mma_clear<N>(dp);
            line_products<false, COLS, N>(dp, own, tile + TILE, values, place);
        } else {
            v.template scores<REL_MMA_UNROLL<COLS>>(dp, tile + TILE);
        }
        attn_mma_gradients<N>(p, attn_mma_dropped<true, N, DISTANCES>(p, at, row, column), s, dp,
                              [&](int n, int e) { return of_query[8 * n + lane % 4 * 2 + e % 2]; });
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) sum[e / 2] += s[n][e];
        if (!DISTANCES) attn_mma_mix<COLS, N>(dv, dp, tile + TILE);
        attn_mma_mix<COLS, N>(dk, s, tile);
    }
    __device__ void store(const attn<bf16> &p, const attn_mma_block &owner, int j)
    {
        for (int half = 0; half < 2; half++) sum[half] = tp_quad<tp_sum_of>(sum[half]);
        add_bias<COLS>(p, dk, sum, (DISTANCES ? p.r_r : p.r_w) + owner.h * p.dim);
        const float scale[2] = { p.scale, p.scale }, one[2] = { 1.0f, 1.0f };
        const attn_sink<bf16> dpos = { p.dpos, true }, to = DISTANCES ? dpos : p.dk;
        if (to.to) attn_mma_store<COLS>(p, to, owner, p.keys, p.width, j, scale, dk);
        if (!DISTANCES && p.dv.to)
            attn_mma_store<COLS>(p, p.dv, owner, p.keys, p.width, j, one, dv);
    }
};

/* The owner of 64 keys: dk and dv. The owner of 64 distances: dpos of some rows of the batch. */
template <int COLS, bool DISTANCES>
__global__ void __launch_bounds__(ATTN_MMA_THREADS, 2) rel_mma_column_grad(attn<bf16> p)
{
    constexpr int STEP = ATTN_MMA_STEPS<COLS>, TILE = STEP * COLS;
    typedef rel_mma_ring<COLS> lines;
    TP_SHARED_REST(bf16, room);
    TP_SHARED(float, line_bias, [lines::RING]);
    TP_SHARED(float2, of_query, [2][STEP]);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const attn_mma_block owner(p.heads, DISTANCES ? p.splits : p.batch);
    attn_mma_block at = owner;
    const int first = at.tile * ATTN_MMA_ROWS, j = first + 16 * warp;
    const int begin = attn_begin_query(p, first);
    const int end =
        DISTANCES ? p.queries : attn_end_query(p, min(first + ATTN_MMA_ROWS, p.keys) - 1);
    const bool hidden = begin >= end || (DISTANCES && p.span && first >= p.span);
    const int b0 = DISTANCES ? (int)((int64_t)owner.b * p.batch / p.splits) : owner.b;
    const int b1 = DISTANCES ? (int)((int64_t)(owner.b + 1) * p.batch / p.splits) : owner.b + 1;
    const rel_mma_rows table = rel_mma_keys(p, p.pos, 0, at.h, rel_mma_distance_biases(p));
    bf16 *const more = room + (DISTANCES ? 1 : 2) * ATTN_MMA_ROWS * COLS;
    attn_mma_ring<COLS> tiles = { more, more + 2 * TILE };
    lines ring = { more + 4 * TILE, line_bias, {}, 0, 0 };
    lines values = { ring.lines + lines::RING * COLS, NULL, {}, 0, 0 }; /* DISTANCES */
    column_warp<COLS, DISTANCES> w;
    w.clear();
    for (at.b = b0; at.b < b1 && !hidden; at.b++) {
        const int64_t rows = (int64_t)at.b * p.queries * p.width + at.h * p.dim;
        const rel_mma_rows k = rel_mma_keys(p, p.k, at.b, at.h, p.biases);
        const rel_mma_rows of_v = rel_mma_keys(p, p.v, at.b, at.h, NULL);
        const rel_mma_rows of_own = DISTANCES ? table : k;
        int place = ATTN_MMA_ROWS - 16 * warp, slot = 0;
        __syncthreads(); /* all warps have finished the previous batch row */
        if (at.b == b0) {
            w.fetch(p, room, of_own, of_v, first);
        }
        tiles.fetch(tiles.now, p, p.q + rows, p.dout + rows, begin, p.queries, p.width);
        ring.begin(DISTANCES ? k : table, begin + p.ahead - first - ATTN_MMA_ROWS);
        if (DISTANCES) values.begin(of_v, begin + p.ahead - first - ATTN_MMA_ROWS);
        tp_copy_commit();
        const float2 ours = attn_mma_row_values<STEP>(p, at, begin);
        if (threadIdx.x < STEP) of_query[0][threadIdx.x] = ours;
        for (int i = begin; i < end; i += STEP, slot ^= 1) {
            tp_copy_wait<0>();
            __syncthreads();
            if (i + STEP < end) {
                tiles.fetch(tiles.other, p, p.q + rows, p.dout + rows, i + STEP, p.queries,
                            p.width);
                ring.fetch();
                if (DISTANCES) values.fetch();
            }
            tp_copy_commit();
            const float2 next = attn_mma_row_values<STEP>(p, at, i + STEP); /* arrive meanwhile */
            const float next_bias = warp == 1 ? ring.bias_in_flight(lane) : 0.0f;
            if (at.b == b0 && i == begin) {
                w.own.take(room + 16 * warp * COLS);
                if (!DISTANCES) w.v.take(room + (ATTN_MMA_ROWS + 16 * warp) * COLS);
            }
            if (j < p.keys && j < i + STEP + p.ahead)
                w.step(p, at, j, i, ring, values, place, tiles.now, of_query[slot]);
            if (threadIdx.x < STEP) of_query[slot ^ 1][threadIdx.x] = next;
            if (warp == 1 && lane < STEP) line_bias[ring.put + lane] = next_bias;
            place = ring.after(place, STEP);
            ring.turn();
            values.turn();
            tiles.turn();
        }
    }
    w.store(p, owner, j);
}

tp_code tp__rel_attention_mma_keys(const tp_call *c, const attn<bf16> &p)
{
    return attn_mma_by_columns(p, [&](auto columns) {
        constexpr int COLS = decltype(columns)::value;
        const int blocks = attn_tiles(p.keys, ATTN_MMA_ROWS) * p.heads;
        tp_code code = TP_OK;
        if (p.dk.to || p.dv.to)
            code = tp_launch(c, rel_mma_column_grad<COLS, false>, (unsigned)(blocks * p.batch),
                             ATTN_MMA_THREADS, rel_mma_shared<COLS>(2, 1), p);
        if (code == TP_OK && p.dpos)
            code = tp_launch(c, rel_mma_column_grad<COLS, true>, (unsigned)(blocks * p.splits),
                             ATTN_MMA_THREADS, rel_mma_shared<COLS>(1, 2), p);
        return code;
    });
}
