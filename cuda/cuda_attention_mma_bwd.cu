/* cuda_attention_mma_bwd.cu - gradients of full attention on tensor cores, bf16.
 *
 * Two passes, each the owner of its results, with the probabilities computed again from the
 * log-sum-exp: dq for 64 queries (three products a query and key), dk and dv for 64 keys (four;
 * logits turned, so that keys are the rows and nothing is transposed through memory). A warp holds
 * 16 rows, 32 columns (16 for heads over 64) pass through shared memory at a time, the next in
 * flight. P and dS are rounded to bf16 for the products, sums are in f32. For heads of 64 a step of
 * 16 by 32 is 48 mma (dk, dv: 64), 24 (32) ldmatrix and 16 2^x a lane; the budget is 210 (320)
 * instructions where nothing is hidden or dropped: bound by mma and the reads of shared memory. */
#include "cuda/attention_mma.cuh"

constexpr int ROWS = 16 * AM_WARPS; /* of a block */
/* Columns of a step, and their blocks of 8. */
template <int COLS> constexpr int STEP = COLS == 128 ? 16 : 32;
template <int COLS> constexpr int BLOCKS = STEP<COLS> / 8;

/* Sixteen rows of a tile as A operands: kept in registers up to 64 columns, else read again. */
template <int COLS> struct held {
    static constexpr bool kept = COLS <= 64;
    static constexpr int N = BLOCKS<COLS>;
    uint32_t a[kept ? COLS / 16 : 1][4];
    const bf16 *tile;
    __device__ void take(const bf16 *from)
    {
        tile = from;
#pragma unroll
        for (int k = 0; kept && k < COLS / 16; k++) tp_frag_a<COLS>(a[k], from, 0, k);
    }
    /* s = these rows times the rows of another tile */
    __device__ void scores(float s[N][4], const bf16 *other) const
    {
        am_clear<N>(s);
#pragma unroll
        for (int k = 0; k < COLS / 16; k++) {
            uint32_t now[4];
            if constexpr (kept)
                for (int x = 0; x < 4; x++) now[x] = a[k][x];
            else
                tp_frag_a<COLS>(now, tile, 0, k);
#pragma unroll
            for (int n = 0; n < N; n += 2) {
                uint32_t b[4];
                tp_frag_b<COLS>(b, other, 8 * n, k);
                tp_mma_bf16(s[n], now, b, s[n]);
                tp_mma_bf16(s[n + 1], now, b + 2, s[n + 1]);
            }
        }
    }
};

/* From logits s, dp = dO V^T, and the log-sum-exp (base 2) and delta of each element's query: s
 * becomes dS, dp the probabilities after dropout. of(n, e): where the two stand. */
template <int N, class F>
static __device__ inline void gradients(const attn<bf16> &p, uint32_t dropped, float s[N][4],
                                        float dp[N][4], F of)
{
    const float c = p.scale * AM_LOG2E;
    am_drop<N>(p, dp, dropped);
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float2 row = of(n, e); /* lse, delta */
            const float probability = tp_exp2(c * s[n][e] - row.x);
            s[n][e] = probability * (dp[n][e] - row.y);
            dp[n][e] = probability;
        }
    am_drop<N>(p, dp, dropped);
}

/* A ring of two steps of two tiles, copied while the other step is used. */
template <int COLS> struct ring {
    static constexpr int TILE = STEP<COLS> * COLS;
    bf16 *now, *other;
    __device__ void fetch(bf16 *to, const attn<bf16> &p, const bf16 *x, const bf16 *y, int first,
                          int count) const
    {
        tp_tile_copy<COLS, STEP<COLS>, AM_THREADS>(to, x, first, count, p.dim, p.width);
        tp_tile_copy<COLS, STEP<COLS>, AM_THREADS>(to + TILE, y, first, count, p.dim, p.width);
    }
    __device__ void turn()
    {
        bf16 *const swap = now;
        now = other;
        other = swap;
    }
};

/* The owner of 64 queries: dq. */
template <int COLS> __global__ void __launch_bounds__(AM_THREADS, 2) query_pull_mma(attn<bf16> p)
{
    TP_SHARED_REST(bf16, room);
    constexpr int STEPS = STEP<COLS>, N = BLOCKS<COLS>, TILE = STEPS * COLS;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const am_block at(p.heads, p.batch);
    const int first = (attn_tiles(p.queries, ROWS) - 1 - at.tile) * ROWS, i = first + 16 * warp;
    const int row = i + lane / 4, end = attn_end_key(p, min(first + ROWS, p.queries) - 1);
    const int64_t rows = (int64_t)at.b * p.queries * p.width + at.h * p.dim;
    const int64_t head = (int64_t)at.b * p.keys * p.width + at.h * p.dim;
    ring<COLS> tiles = { room + 2 * ROWS * COLS, room + 2 * ROWS * COLS + 2 * TILE };
    held<COLS> q, dout;
    float dq[COLS / 8][4];
    float2 of_row[2];
    am_clear<COLS / 8>(dq);
    for (int half = 0; half < 2; half++) {
        const int64_t r = attn_row(p, at.b, at.h, min(row + 8 * half, p.queries - 1));
        of_row[half].x = p.lse[r] * AM_LOG2E;
        of_row[half].y = p.delta[r];
    }
    if (end > 0) {
        tp_tile_copy<COLS, ROWS, AM_THREADS>(room, p.q + rows, first, p.queries, p.dim, p.width);
        tp_tile_copy<COLS, ROWS, AM_THREADS>(room + ROWS * COLS, p.dout + rows, first, p.queries,
                                             p.dim, p.width);
        tiles.fetch(tiles.now, p, p.k + head, p.v + head, 0, p.keys);
        tp_copy_commit();
    }
    for (int j = 0; j < end; j += STEPS, tiles.turn()) {
        tp_copy_wait<0>();
        __syncthreads();
        if (j + STEPS < end) tiles.fetch(tiles.other, p, p.k + head, p.v + head, j + STEPS, p.keys);
        tp_copy_commit();
        if (j == 0) {
            q.take(room + 16 * warp * COLS);
            dout.take(room + (ROWS + 16 * warp) * COLS);
        }
        if (i >= p.queries || (p.causal && j >= i + 16 + p.ahead)) continue;
        const int column = j + lane % 4 * 2;
        float s[N][4], dp[N][4];
        q.scores(s, tiles.now);
        if (p.mask || p.bias || j + STEPS > p.keys || (p.causal && j + STEPS - 1 > i + p.ahead))
            am_mask<false, N>(p, at, row, column, s);
        dout.scores(dp, tiles.now + TILE);
        gradients<N>(p, am_dropped<false, N>(p, at, row, column), s, dp,
                     [&](int, int e) { return of_row[e / 2]; });
        am_mix<COLS, N>(dq, s, tiles.now);
    }
    const float scale[2] = { p.scale, p.scale };
    am_store<COLS>(p, p.dq, at, p.queries, i, scale, dq);
}

/* Log-sum-exp (base 2) and delta of the queries of a step: thread t has those of query i + t. */
template <int STEPS>
static __device__ inline float2 row_values(const attn<bf16> &p, const am_block &at, int i)
{
    const int row = i + (int)threadIdx.x;
    float2 v = { 0.0f, 0.0f };
    if (threadIdx.x < STEPS && row < p.queries) {
        const int64_t r = attn_row(p, at.b, at.h, row);
        v.x = p.lse[r] * AM_LOG2E;
        v.y = p.delta[r];
    }
    return v;
}

/* The owner of 64 keys: dk and dv. */
template <int COLS> __global__ void __launch_bounds__(AM_THREADS, 2) key_pull_mma(attn<bf16> p)
{
    TP_SHARED_REST(bf16, room);
    constexpr int STEPS = STEP<COLS>, N = BLOCKS<COLS>, TILE = STEPS * COLS;
    TP_SHARED(float2, of_query, [2][STEPS]);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const am_block at(p.heads, p.batch);
    const int first = at.tile * ROWS, j = first + 16 * warp, row = j + lane / 4;
    const int begin = attn_begin_query(p, first);
    const int64_t rows = (int64_t)at.b * p.queries * p.width + at.h * p.dim;
    const int64_t head = (int64_t)at.b * p.keys * p.width + at.h * p.dim;
    ring<COLS> tiles = { room + 2 * ROWS * COLS, room + 2 * ROWS * COLS + 2 * TILE };
    held<COLS> k, v;
    float dk[COLS / 8][4], dv[COLS / 8][4];
    int slot = 0;
    am_clear<COLS / 8>(dk);
    am_clear<COLS / 8>(dv);
    if (begin < p.queries) {
        tp_tile_copy<COLS, ROWS, AM_THREADS>(room, p.k + head, first, p.keys, p.dim, p.width);
        tp_tile_copy<COLS, ROWS, AM_THREADS>(room + ROWS * COLS, p.v + head, first, p.keys, p.dim,
                                             p.width);
        tiles.fetch(tiles.now, p, p.q + rows, p.dout + rows, begin, p.queries);
        tp_copy_commit();
        const float2 values = row_values<STEPS>(p, at, begin);
        if (threadIdx.x < STEPS) of_query[0][threadIdx.x] = values;
    }
    for (int i = begin; i < p.queries; i += STEPS, tiles.turn(), slot ^= 1) {
        tp_copy_wait<0>();
        __syncthreads();
        if (i + STEPS < p.queries)
            tiles.fetch(tiles.other, p, p.q + rows, p.dout + rows, i + STEPS, p.queries);
        tp_copy_commit();
        const float2 next = row_values<STEPS>(p, at, i + STEPS); /* arrives while this step runs */
        if (i == begin) {
            k.take(room + 16 * warp * COLS);
            v.take(room + (ROWS + 16 * warp) * COLS);
        }
        if (j < p.keys && !(p.causal && j > i + STEPS - 1 + p.ahead)) {
            const int column = i + lane % 4 * 2;
            float s[N][4], dp[N][4];
            k.scores(s, tiles.now);
            if (p.mask || p.bias || (p.causal && j + 15 > i + p.ahead))
                am_mask<true, N>(p, at, row, column, s);
            v.scores(dp, tiles.now + TILE);
            gradients<N>(p, am_dropped<true, N>(p, at, row, column), s, dp, [&](int n, int e) {
                return of_query[slot][8 * n + lane % 4 * 2 + e % 2];
            });
            am_mix<COLS, N>(dv, dp, tiles.now + TILE);
            am_mix<COLS, N>(dk, s, tiles.now);
        }
        if (threadIdx.x < STEPS) of_query[slot ^ 1][threadIdx.x] = next;
    }
    const float scale[2] = { p.scale, p.scale }, one[2] = { 1.0f, 1.0f };
    if (p.dk.to) am_store<COLS>(p, p.dk, at, p.keys, j, scale, dk);
    if (p.dv.to) am_store<COLS>(p, p.dv, at, p.keys, j, one, dv);
}

tp_code tp__attention_mma_bwd(const tp_call *c, const attn<bf16> &p)
{
    return am_by_columns(p, [&](auto columns) {
        constexpr int COLS = decltype(columns)::value;
        const size_t shared = (size_t)(2 * ROWS + 4 * STEP<COLS>)*COLS * sizeof(bf16);
        const int heads = p.batch * p.heads;
        tp_code code = TP_OK;
        if (p.dq.to)
            code =
                tp_launch(c, query_pull_mma<COLS>, (unsigned)(attn_tiles(p.queries, ROWS) * heads),
                          AM_THREADS, shared, p);
        if (code == TP_OK && (p.dk.to || p.dv.to))
            code = tp_launch(c, key_pull_mma<COLS>, (unsigned)(attn_tiles(p.keys, ROWS) * heads),
                             AM_THREADS, shared, p);
        return code;
    });
}
