/* attention_mma_bwd.cu - gradients of full attention on tensor cores, bf16.
 *
 * Two passes recompute the probabilities from the log-sum-exp. Owners of 64 queries compute dq
 * (three products per query and key). Owners of 64 keys compute dk and dv (four products; logits
 * are transposed, so that keys are rows and nothing is transposed through memory). A warp holds 16
 * rows; 32 columns (16 for heads over 64) at a time pass through shared memory while the next are
 * copied. P and dS are rounded to bf16 for the products; sums are in f32. For heads of 64 a step of
 * 16 by 32 takes 48 mma (dk, dv: 64), 24 (32) ldmatrix and 16 2^x per lane. If no key is masked or
 * dropped, 210 (320) instructions would be bound by mma and shared memory reads; currently
 *
 *     budget: attn_mma_query_grad<64, false> sm_90 275 instructions
 *     budget: attn_mma_key_grad<64, false, false> sm_90 330 instructions
 */
#include "cuda/attention/attention_mma_bwd.cuh"

/* The owner of 64 queries computes dq. */
template <int COLS, bool PACKED>
__global__ void __launch_bounds__(ATTN_MMA_THREADS, 2) attn_mma_query_grad(attn<bf16> all)
{
    TP_SHARED_REST(bf16, room);
    constexpr int STEPS = ATTN_MMA_STEPS<COLS>, N = ATTN_MMA_BLOCKS<COLS>, TILE = STEPS * COLS;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const attn_mma_block at(all.heads, all.batch);
    const attn_part<PACKED, bf16> p = attn_document<PACKED>(all, at.b);
    const int first = (attn_tiles(p.queries, ATTN_MMA_ROWS) - 1 - at.tile) * ATTN_MMA_ROWS;
    if (PACKED && first < 0) return;
    const int i = first + 16 * warp;
    const int row = i + lane / 4, end = attn_end_key(p, min(first + ATTN_MMA_ROWS, p.queries) - 1);
    const int64_t rows = (int64_t)at.b * p.queries * p.width + at.h * p.dim;
    const int64_t head = (int64_t)at.b * p.room * p.kv_width + at.h / p.group * p.dim;
    attn_mma_ring<COLS> tiles = { room + 2 * ATTN_MMA_ROWS * COLS,
                                  room + 2 * ATTN_MMA_ROWS * COLS + 2 * TILE };
    attn_mma_held<COLS> q, dout;
    float dq[COLS / 8][4];
    float2 of_row[2];
    attn_mma_clear<COLS / 8>(dq);
    for (int half = 0; half < 2; half++) {
        const int64_t r = attn_row(p, at.b, at.h, min(row + 8 * half, p.queries - 1));
        of_row[half].x = p.lse[r] * ATTN_MMA_LOG2E;
        of_row[half].y = p.delta[r];
    }
    if (end > 0) {
        tp_tile_copy<COLS, ATTN_MMA_ROWS, ATTN_MMA_THREADS>(room, p.q + rows, first, p.queries,
                                                            p.dim, p.width);
        tp_tile_copy<COLS, ATTN_MMA_ROWS, ATTN_MMA_THREADS>(
            room + ATTN_MMA_ROWS * COLS, p.dout + rows, first, p.queries, p.dim, p.width);
        tiles.fetch(tiles.now, p, p.k + head, p.v + head, 0, p.keys, p.kv_width);
        tp_copy_commit();
    }
    for (int j = 0; j < end; j += STEPS, tiles.turn()) {
        tp_copy_wait<0>();
        __syncthreads();
        if (j + STEPS < end)
            tiles.fetch(tiles.other, p, p.k + head, p.v + head, j + STEPS, p.keys, p.kv_width);
        tp_copy_commit();
        if (j == 0) {
            q.take(room + 16 * warp * COLS);
            dout.take(room + (ATTN_MMA_ROWS + 16 * warp) * COLS);
        }
        if (i >= p.queries || (p.causal && j >= i + 16 + p.ahead)) continue;
        const int column = j + lane % 4 * 2;
        float s[N][4], dp[N][4];
        q.scores(s, tiles.now);
        if (p.mask || p.biased || j + STEPS > p.keys || (p.causal && j + STEPS - 1 > i + p.ahead))
            attn_mma_mask<false, N>(p, at, row, column, s);
        dout.scores(dp, tiles.now + TILE);
        attn_mma_gradients<N>(p, attn_mma_dropped<false, N, false, PACKED>(p, at, row, column), s,
                              dp, [&](int, int e) { return of_row[e / 2]; });
        attn_mma_mix<COLS, N>(dq, s, tiles.now);
    }
    const float scale[2] = { p.scale, p.scale };
    attn_mma_store<COLS>(p, p.dq, at, p.queries, p.width, i, scale, dq);
}

/* The owner of 64 keys computes dk and dv; GROUPED: over the query heads that share them. */
template <int COLS, bool GROUPED, bool PACKED>
__global__ void __launch_bounds__(ATTN_MMA_THREADS, 2) attn_mma_key_grad(attn<bf16> all)
{
    TP_SHARED_REST(bf16, room);
    constexpr int STEPS = ATTN_MMA_STEPS<COLS>, N = ATTN_MMA_BLOCKS<COLS>, TILE = STEPS * COLS;
    constexpr int UNROLL = PACKED && COLS == 128 ? 2 : COLS / 16; /* registers are scarce */
    TP_SHARED(float2, of_query, [2][STEPS]);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const attn_mma_block own(all.heads / all.group, all.batch);
    const attn_part<PACKED, bf16> p = attn_document<PACKED>(all, own.b);
    const int first = own.tile * ATTN_MMA_ROWS, j = first + 16 * warp, row = j + lane / 4;
    if (PACKED && first >= p.keys) return;
    const int begin = attn_begin_query(p, first);
    attn_mma_ring<COLS> tiles = { room + 2 * ATTN_MMA_ROWS * COLS,
                                  room + 2 * ATTN_MMA_ROWS * COLS + 2 * TILE };
    attn_mma_held<COLS> k, v;
    float dk[COLS / 8][4], dv[COLS / 8][4];
    int slot = 0;
    attn_mma_clear<COLS / 8>(dk);
    attn_mma_clear<COLS / 8>(dv);
    if (begin < p.queries) {
        const int64_t head = (int64_t)own.b * p.room * p.kv_width + own.h * p.dim;
        tp_tile_copy<COLS, ATTN_MMA_ROWS, ATTN_MMA_THREADS>(room, p.k + head, first, p.keys, p.dim,
                                                            p.kv_width);
        tp_tile_copy<COLS, ATTN_MMA_ROWS, ATTN_MMA_THREADS>(room + ATTN_MMA_ROWS * COLS, p.v + head,
                                                            first, p.keys, p.dim, p.kv_width);
    }
    attn_mma_block at = own;
    if (GROUPED) at.h *= p.group;
    for (bool more = begin < p.queries; more; more = GROUPED && ++at.h < (own.h + 1) * p.group) {
        const int64_t rows = (int64_t)at.b * p.queries * p.width + at.h * p.dim;
        tiles.fetch(tiles.now, p, p.q + rows, p.dout + rows, begin, p.queries, p.width);
        tp_copy_commit();
        const float2 values = attn_mma_row_values<STEPS>(p, at, begin);
        if (threadIdx.x < STEPS) of_query[slot][threadIdx.x] = values;
        for (int i = begin; i < p.queries; i += STEPS, tiles.turn(), slot ^= 1) {
            tp_copy_wait<0>();
            __syncthreads();
            if (i + STEPS < p.queries)
                tiles.fetch(tiles.other, p, p.q + rows, p.dout + rows, i + STEPS, p.queries,
                            p.width);
            tp_copy_commit();
            const float2 next =
                attn_mma_row_values<STEPS>(p, at, i + STEPS); /* arrives while this step runs */
            if (i == begin) {
                k.take(room + 16 * warp * COLS);
                v.take(room + (ATTN_MMA_ROWS + 16 * warp) * COLS);
            }
            if (j < p.keys && !(p.causal && j > i + STEPS - 1 + p.ahead)) {
                const int column = i + lane % 4 * 2;
                float s[N][4], dp[N][4];
                k.template scores<UNROLL>(s, tiles.now);
                if (p.mask || p.biased || (p.causal && j + 15 > i + p.ahead))
                    attn_mma_mask<true, N>(p, at, row, column, s);
                v.template scores<UNROLL>(dp, tiles.now + TILE);
                attn_mma_gradients<N>(
                    p, attn_mma_dropped<true, N, false, PACKED>(p, at, row, column), s, dp,
                    [&](int n, int e) { return of_query[slot][8 * n + lane % 4 * 2 + e % 2]; });
                attn_mma_mix<COLS, N>(dv, dp, tiles.now + TILE);
                attn_mma_mix<COLS, N>(dk, s, tiles.now);
            }
            if (threadIdx.x < STEPS) of_query[slot ^ 1][threadIdx.x] = next;
        }
    }
    for (int half = 0; half < 2; half++) /* rows of a cache that take no part */
        for (int n = 0; n < COLS / 8 && row + 8 * half >= p.keys; n++)
            dk[n][2 * half] = dk[n][2 * half + 1] = dv[n][2 * half] = dv[n][2 * half + 1] = 0.0f;
    const float scale[2] = { p.scale, p.scale }, one[2] = { 1.0f, 1.0f };
    /* Not p's, which would take registers until here. */
    const attn_part<PACKED, bf16> to = attn_document<PACKED>(all, own.b);
    if (to.dk.to) attn_mma_store<COLS>(to, to.dk, own, to.room, to.kv_width, j, scale, dk);
    if (to.dv.to) attn_mma_store<COLS>(to, to.dv, own, to.room, to.kv_width, j, one, dv);
}

template <int COLS, bool PACKED> static tp_code gradients(const tp_call *c, const attn<bf16> &p)
{
    const size_t shared =
        (size_t)(2 * ATTN_MMA_ROWS + 4 * ATTN_MMA_STEPS<COLS>)*COLS * sizeof(bf16);
    const int heads = p.batch * p.heads;
    tp_code code = TP_OK;
    if (p.dq.to)
        code = tp_launch(c, attn_mma_query_grad<COLS, PACKED>,
                         (unsigned)(attn_tiles(p.queries, ATTN_MMA_ROWS) * heads), ATTN_MMA_THREADS,
                         shared, p);
    if (code == TP_OK && (p.dk.to || p.dv.to))
        code = tp_launch(c,
                         p.group > 1 ? attn_mma_key_grad<COLS, true, PACKED>
                                     : attn_mma_key_grad<COLS, false, PACKED>,
                         (unsigned)(attn_tiles(p.room, ATTN_MMA_ROWS) * heads / p.group),
                         ATTN_MMA_THREADS, shared, p);
    return code;
}

tp_code tp__attention_mma_bwd(const tp_call *c, const attn<bf16> &p)
{
    return attn_mma_by_columns(p, [&](auto columns) {
        return p.packed ? gradients<columns, true>(c, p) : gradients<columns, false>(c, p);
    });
}
