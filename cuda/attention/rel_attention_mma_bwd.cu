/* rel_attention_mma_bwd.cu - gradients of relative attention on tensor cores, bf16: dq, dr_w and
 * dr_r, by the owners of 64 queries (layout: rel_mma_bwd.cuh).
 *
 * The product with each line of the table is computed once and kept for the step that follows. dS
 * is unskewed for its product with the lines, which therefore runs 16 columns behind.
 *
 * Five products for each query and key. For heads of 64 a step of 16 by 32 is 80 mma, 40 ldmatrix
 * and 16 2^x per lane: bound by mma and the reads of shared memory.
 *
 *     budget: rel_mma_query_grad<64> sm_90 715 instructions
 */
#include "cuda/attention/rel_mma_bwd.cuh"

/* acc += unskewed dS times its lines, for the 16 columns before `place` and all but the last 16 of
 * s. late: dS of the previous 16; set to the last 16 of s. */
template <int COLS, int N, class L>
static __device__ inline void grad_lines(float acc[COLS / 8][4], float late[2][4],
                                         const float s[N][4], const L &ring, int place)
{
    float all[N + 2][4];
#pragma unroll
    for (int n = 0; n < N + 2; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) all[n][e] = n < 2 ? late[n][e] : s[n - 2][e];
#pragma unroll
    for (int k = 0; k < N / 2; k++) {
        float g[2][4];
#pragma unroll
        for (int n = 0; n < 2; n++) {
            tp_unskew(g[n], all[2 * k + n], all[2 * k + n + 1]);
            tp_unskew(g[n] + 2, all[2 * k + n + 1] + 2, all[2 * k + n + 2] + 2);
        }
        attn_mma_mix<COLS, 2>(acc, g, ring.lines + L::after(place, 16 * k - 16) * COLS);
    }
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) late[n][e] = all[N + n][e];
}

/* to[0..COLS) = the sums of a warp's 16 rows. */
template <int COLS> static __device__ inline void sum_rows(float *to, const float acc[COLS / 8][4])
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < COLS / 8; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float sum = acc[n][e] + acc[n][e + 2];
#pragma unroll
            for (int d = 4; d < 32; d *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
            if (lane < 4) to[8 * n + 2 * lane + e] = sum;
        }
}

/* Stores the block's part of dr_w and dr_r: its sums of dq by keys and by positions. */
template <int COLS>
static __device__ inline void store_bias_sums(const attn<bf16> &p, const attn_mma_block &at,
                                              int block, int blocks, float *sums,
                                              const float by_key[COLS / 8][4],
                                              const float by_position[COLS / 8][4])
{
    const int warp = (int)threadIdx.x / 32;
    float *const dr = p.dr + 2 * ((int64_t)at.b * blocks + block) * p.width + (int64_t)at.h * p.dim;
    __syncthreads();
    sum_rows<COLS>(sums + warp * COLS, by_key);
    sum_rows<COLS>(sums + (ATTN_MMA_WARPS + warp) * COLS, by_position);
    __syncthreads();
    for (int x = (int)threadIdx.x; x < 2 * COLS; x += ATTN_MMA_THREADS) {
        const float *const of = sums + x / COLS * ATTN_MMA_WARPS * COLS + x % COLS;
        if (x % COLS < p.dim)
            dr[(int64_t)(x / COLS) * p.width + x % COLS] =
                p.scale * (of[0] + of[COLS] + of[2 * COLS] + of[3 * COLS]);
    }
}

/* A warp's rows of a query block, and their accumulators. */
template <int COLS> struct query_warp {
    static constexpr int STEP = ATTN_MMA_STEPS<COLS>, N = ATTN_MMA_BLOCKS<COLS>, TILE = STEP * COLS;
    attn_mma_held<COLS> q, dout;
    float by_key[COLS / 8][4], by_position[COLS / 8][4]; /* sum of dS k, sum of dS pos */
    float kept[1][2][4], late[2][4];                     /* of the last 16 columns: G, dS */

    __device__ void clear()
    {
        attn_mma_clear<COLS / 8>(by_key);
        attn_mma_clear<COLS / 8>(by_position);
        attn_mma_clear<2>(late);
    }
    /* room: the block's q, then its dO. */
    template <class L> __device__ void begin(const bf16 *room, int warp, const L &ring, int place)
    {
        const auto query = [&](uint32_t a[1][4], int depth) { q.operand(a[0], depth); };
        q.take(room + 16 * warp * COLS);
        dout.take(room + (ATTN_MMA_ROWS + 16 * warp) * COLS);
        rel_mma_before<COLS, 1>(kept, ring, place, query);
    }
    /* Queries from i, keys j .. j + STEP in `tile`, followed by values; of_query: lse and delta of
     * the warp's rows. */
    template <class L>
    __device__ void step(const attn<bf16> &p, const attn_mma_block &at, int i, int j, const L &ring,
                         int place, const bf16 *tile, const float *key_bias, const float2 *of_query)
    {
        const int lane = (int)threadIdx.x % 32, row = i + lane / 4, column = j + lane % 4 * 2;
        const auto query = [&](uint32_t a[1][4], int depth) { q.operand(a[0], depth); };
        float s[1][N][4], dp[N][4];
        rel_mma_logits<COLS, 1, N>(s, kept, ring, place, tile, key_bias, query);
        if (j + STEP - 1 > i + p.ahead || (p.span && j < i + 16 + p.ahead - p.span) ||
            i + 16 > p.queries)
            attn_mma_mask<false, N, false, false>(p, at, row, column, s[0]);
        dout.template scores<REL_MMA_UNROLL<COLS>>(dp, tile + TILE);
        attn_mma_gradients<N>(p, attn_mma_dropped<false, N>(p, at, row, column), s[0], dp,
                              [&](int, int e) { return of_query[lane / 4 + e / 2 * 8]; });
        attn_mma_mix<COLS, N>(by_key, s[0], tile);
        grad_lines<COLS, N>(by_position, late, s[0], ring, place);
    }
    /* Completes the product with positions after the last step. */
    template <class L> __device__ void finish(const L &ring, int place)
    {
        const float none[2][4] = {};
        grad_lines<COLS, 2>(by_position, late, none, ring, ring.after(place, STEP));
    }
};

/* The owner of 64 queries: dq, and its part of dr_w and dr_r. */
template <int COLS>
__global__ void __launch_bounds__(ATTN_MMA_THREADS, 2) rel_mma_query_grad(attn<bf16> p)
{
    constexpr int STEP = ATTN_MMA_STEPS<COLS>, TILE = STEP * COLS;
    TP_SHARED_REST(bf16, room);
    TP_SHARED(float, line_bias, [rel_mma_ring<COLS>::RING]);
    TP_SHARED(float, key_bias, [2][STEP]);
    TP_SHARED(float2, of_query, [ATTN_MMA_ROWS]);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const attn_mma_block at(p.heads, p.batch);
    const int blocks = attn_tiles(p.queries, ATTN_MMA_ROWS), block = blocks - 1 - at.tile;
    const int first = block * ATTN_MMA_ROWS, i = first + 16 * warp;
    const int begin = attn_begin_key(p, first);
    const int end = attn_end_key(p, min(first + ATTN_MMA_ROWS, p.queries) - 1);
    const int stop = min(i + 16 + p.ahead, end); /* of this warp */
    const int64_t rows = (int64_t)at.b * p.queries * p.width + at.h * p.dim;
    const rel_mma_rows k = rel_mma_keys(p, p.k, at.b, at.h, p.biases);
    const rel_mma_rows v = rel_mma_keys(p, p.v, at.b, at.h, NULL);
    attn_mma_ring<COLS> tiles = { room + 2 * ATTN_MMA_ROWS * COLS,
                                  room + 2 * ATTN_MMA_ROWS * COLS + 2 * TILE };
    rel_mma_ring<COLS> ring = { tiles.now + 4 * TILE, line_bias, {}, 0, 0 };
    int place = ATTN_MMA_ROWS - 16 * warp, slot = 0;
    query_warp<COLS> w;
    w.clear();
    const float2 ours = attn_mma_row_values<ATTN_MMA_ROWS>(p, at, first);
    if (threadIdx.x < ATTN_MMA_ROWS) of_query[threadIdx.x] = ours;
    tp_tile_copy<COLS, ATTN_MMA_ROWS, ATTN_MMA_THREADS>(room, p.q + rows, first, p.queries, p.dim,
                                                        p.width);
    tp_tile_copy<COLS, ATTN_MMA_ROWS, ATTN_MMA_THREADS>(room + ATTN_MMA_ROWS * COLS, p.dout + rows,
                                                        first, p.queries, p.dim, p.width);
    tiles.fetch(tiles.now, p, k.at, v.at, begin, p.keys, p.width);
    ring.begin(rel_mma_keys(p, p.pos, 0, at.h, rel_mma_distance_biases(p)).reversed(),
               p.queries - 1 - first - ATTN_MMA_ROWS + begin);
    tp_copy_commit();
    if (threadIdx.x < STEP) key_bias[0][lane] = k.bias_of(begin + lane);
    for (int j = begin; j < end; j += STEP, slot ^= 1) {
        tp_copy_wait<0>();
        __syncthreads();
        if (j + STEP < end) {
            tiles.fetch(tiles.other, p, k.at, v.at, j + STEP, p.keys, p.width);
            ring.fetch();
        }
        tp_copy_commit();
        const float next_bias = warp == 0   ? k.bias_of(j + STEP + lane)
                                : warp == 1 ? ring.bias_in_flight(lane)
                                            : 0.0f; /* arrives while this step runs */
        if (j == begin) w.begin(room, warp, ring, place);
        if (i < p.queries && j < stop) {
            w.step(p, at, i, j, ring, place, tiles.now, key_bias[slot], of_query + 16 * warp);
            if (j + STEP >= stop) w.finish(ring, place);
        }
        if (warp == 0 && lane < STEP) key_bias[slot ^ 1][lane] = next_bias;
        if (warp == 1 && lane < STEP) line_bias[ring.put + lane] = next_bias;
        place = ring.after(place, STEP);
        ring.turn();
        tiles.turn();
    }
    if (p.dr)
        store_bias_sums<COLS>(p, at, block, blocks, reinterpret_cast<float *>(room), w.by_key,
                              w.by_position);
    const float scale[2] = { p.scale, p.scale };
#pragma unroll
    for (int n = 0; n < COLS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) w.by_key[n][e] += w.by_position[n][e];
    if (p.dq.to) attn_mma_store<COLS>(p, p.dq, at, p.queries, p.width, i, scale, w.by_key);
}

tp_code tp__rel_attention_mma_bwd(const tp_call *c, const attn<bf16> &p)
{
    tp_code code = tp__rel_attention_mma_biases(c, p);
    if (code == TP_OK && (p.dq.to || p.dr))
        code = attn_mma_by_columns(p, [&](auto columns) {
            constexpr int COLS = decltype(columns)::value;
            const int blocks = attn_tiles(p.queries, ATTN_MMA_ROWS) * p.heads * p.batch;
            return tp_launch(c, rel_mma_query_grad<COLS>, (unsigned)blocks, ATTN_MMA_THREADS,
                             rel_mma_shared<COLS>(2, 1), p);
        });
    return code == TP_OK ? tp__rel_attention_mma_keys(c, p) : code;
}
