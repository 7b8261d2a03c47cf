/* rel_attention_mma_bwd.cu - gradients of relative attention on tensor cores, bf16.
 *
 * Three passes, each the owner of its results, with the probabilities computed again from the
 * log-sum-exp: 64 queries (dq, parts of dr_w and dr_r), 64 keys (dk, dv), 64 distances (parts of
 * dpos, for some rows of the batch). What their own rows meet with a step lies in a ring
 * (attention_rel.cuh). Queries multiply a line of it once; dS is shifted back for the product
 * with positions, which runs 16 columns behind. Owners of keys and distances have them as rows, so
 * nothing is transposed through memory: keys and distances change places, as in the plain kernels.
 * The gradients of the biases beyond q are rank one: c r_w in dk and e r_r in dpos, where c and e
 * are sums of dS over queries.
 *
 * Products a query and key: five for dq, six for dk and dv, six for dpos. The last two multiply 32
 * lines for 16 queries, of which half meet. For heads of 64 a step of 16 by 32 is 80, 96 and 96
 * mma, 40, 44 and 48 ldmatrix and 16 2^x a lane: bound by mma and the reads of shared memory.
 *
 *     budget: rel_query_grad_mma<64> sm_90 715 instructions
 *     budget: rel_column_grad_mma<64, false> sm_90 830 instructions
 *     budget: rel_column_grad_mma<64, true> sm_90 880 instructions
 */
#include "cuda/attention/attention_mma_bwd.cuh"
#include "cuda/attention/attention_rel.cuh"

template <int COLS> using lines_of = am_lines<COLS, AM_STEPS<COLS>, AM_ROWS>;
/* Of products with rows held: at 128 columns all registers are taken. */
template <int COLS> constexpr int UNROLL = COLS == 128 ? 1 : COLS / 16;

/* ---- queries ---- */

/* acc += dS by distance times its lines: for the 16 columns before `place` and all but the last 16
 * of s. late: dS of those before. */
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
        am_mix<COLS, 2>(acc, g, ring.lines + L::after(place, 16 * k - 16) * COLS);
    }
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) late[n][e] = all[N + n][e];
}

/* Sums of a warp's 16 rows to to[0..COLS). */
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

/* The owner of 64 queries: dq, and its part of dr_w and dr_r. */
template <int COLS>
__global__ void __launch_bounds__(AM_THREADS, 2) rel_query_grad_mma(attn<bf16> p)
{
    constexpr int STEP = AM_STEPS<COLS>, N = AM_BLOCKS<COLS>, TILE = STEP * COLS;
    TP_SHARED_REST(bf16, room);
    TP_SHARED(float, line_bias, [lines_of<COLS>::RING]);
    TP_SHARED(float, key_bias, [2][STEP]);
    TP_SHARED(float2, of_query, [AM_ROWS]);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const am_block at(p.heads, p.batch);
    const int blocks = attn_tiles(p.queries, AM_ROWS), block = blocks - 1 - at.tile;
    const int first = block * AM_ROWS, i = first + 16 * warp, row = i + lane / 4;
    const int begin = attn_begin_key(p, first);
    const int end = attn_end_key(p, min(first + AM_ROWS, p.queries) - 1);
    const int stop = min(i + 16 + p.ahead, end); /* of this warp */
    const int64_t rows = (int64_t)at.b * p.queries * p.width + at.h * p.dim;
    const am_rows k = am_keys(p, p.k, at.b, at.h, p.biases), v = am_keys(p, p.v, at.b, at.h, NULL);
    am_ring<COLS> tiles = { room + 2 * AM_ROWS * COLS, room + 2 * AM_ROWS * COLS + 2 * TILE };
    lines_of<COLS> ring = { tiles.now + 4 * TILE, line_bias, {}, 0, 0 };
    int place = AM_ROWS - 16 * warp, slot = 0;
    am_held<COLS> q, dout;
    float by_key[COLS / 8][4], by_position[COLS / 8][4], kept[1][2][4], late[2][4];
    const auto query = [&](uint32_t a[1][4], int depth) { q.operand(a[0], depth); };
    am_clear<COLS / 8>(by_key);
    am_clear<COLS / 8>(by_position);
    am_clear<2>(late);
    const float2 ours = am_row_values<AM_ROWS>(p, at, first);
    if (threadIdx.x < AM_ROWS) of_query[threadIdx.x] = ours;
    tp_tile_copy<COLS, AM_ROWS, AM_THREADS>(room, p.q + rows, first, p.queries, p.dim, p.width);
    tp_tile_copy<COLS, AM_ROWS, AM_THREADS>(room + AM_ROWS * COLS, p.dout + rows, first, p.queries,
                                            p.dim, p.width);
    tiles.fetch(tiles.now, p, k.at, v.at, begin, p.keys);
    ring.begin(am_keys(p, p.pos, 0, at.h, am_distance_biases(p)).reversed(),
               p.queries - 1 - first - AM_ROWS + begin);
    tp_copy_commit();
    if (threadIdx.x < STEP) key_bias[0][lane] = k.bias_of(begin + lane);
    for (int j = begin; j < end; j += STEP, slot ^= 1) {
        tp_copy_wait<0>();
        __syncthreads();
        if (j + STEP < end) {
            tiles.fetch(tiles.other, p, k.at, v.at, j + STEP, p.keys);
            ring.fetch();
        }
        tp_copy_commit();
        const float next_bias = warp == 0   ? k.bias_of(j + STEP + lane)
                                : warp == 1 ? ring.bias_in_flight(lane)
                                            : 0.0f; /* arrives while this step runs */
        if (j == begin) {
            q.take(room + 16 * warp * COLS);
            dout.take(room + (AM_ROWS + 16 * warp) * COLS);
            am_before<COLS, 1>(kept, ring, place, query);
        }
        if (i < p.queries && j < stop) {
            const int column = j + lane % 4 * 2;
            float s[1][N][4], dp[N][4];
            am_rel_logits<COLS, 1, N>(s, kept, ring, place, tiles.now, key_bias[slot], query);
            if (j + STEP - 1 > i + p.ahead || (p.span && j < i + 16 + p.ahead - p.span) ||
                i + 16 > p.queries)
                am_mask<false, N>(p, at, row, column, s[0]);
            dout.template scores<UNROLL<COLS>>(dp, tiles.now + TILE);
            am_gradients<N>(p, am_dropped<false, N>(p, at, row, column), s[0], dp,
                            [&](int, int e) { return of_query[row - first + e / 2 * 8]; });
            am_mix<COLS, N>(by_key, s[0], tiles.now);
            grad_lines<COLS, N>(by_position, late, s[0], ring, place);
            if (j + STEP >= stop) { /* what is late */
                const float none[2][4] = {};
                grad_lines<COLS, 2>(by_position, late, none, ring, ring.after(place, STEP));
            }
        }
        if (warp == 0 && lane < STEP) key_bias[slot ^ 1][lane] = next_bias;
        if (warp == 1 && lane < STEP) line_bias[ring.put + lane] = next_bias;
        place = ring.after(place, STEP);
        ring.turn();
        tiles.turn();
    }
    if (p.dr) {
        float *const sums = reinterpret_cast<float *>(room);
        float *const dr =
            p.dr + 2 * ((int64_t)at.b * blocks + block) * p.width + (int64_t)at.h * p.dim;
        __syncthreads();
        sum_rows<COLS>(sums + warp * COLS, by_key);
        sum_rows<COLS>(sums + (AM_WARPS + warp) * COLS, by_position);
        __syncthreads();
        for (int x = (int)threadIdx.x; x < 2 * COLS; x += AM_THREADS) {
            const float *const of = sums + x / COLS * AM_WARPS * COLS + x % COLS;
            if (x % COLS < p.dim)
                dr[(int64_t)(x / COLS) * p.width + x % COLS] =
                    p.scale * (of[0] + of[COLS] + of[2 * COLS] + of[3 * COLS]);
        }
    }
    const float scale[2] = { p.scale, p.scale };
#pragma unroll
    for (int n = 0; n < COLS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) by_key[n][e] += by_position[n][e];
    if (p.dq.to) am_store<COLS>(p, p.dq, at, p.queries, i, scale, by_key);
}

/* ---- keys, distances ---- */

/* s += lines times 8 N queries, each row and query with the line in which they meet; OWN: and the
 * rows of the warp times them. */
template <bool OWN, int COLS, int N, class L>
static __device__ inline void lean_products(float s[N][4], const am_held<COLS> &own,
                                            const bf16 *queries, const L &ring, int place)
{
    constexpr int PAIRS = N / 2; /* of blocks of 8 queries: they meet 32 lines */
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

/* sum times the bias, a vector of a head, for each row. */
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

/* The owner of 64 keys: dk and dv. The owner of 64 distances: dpos of some rows of the batch. */
template <int COLS, bool DISTANCES>
__global__ void __launch_bounds__(AM_THREADS, 2) rel_column_grad_mma(attn<bf16> p)
{
    constexpr int STEP = AM_STEPS<COLS>, N = AM_BLOCKS<COLS>, TILE = STEP * COLS;
    typedef lines_of<COLS> lines;
    TP_SHARED_REST(bf16, room);
    TP_SHARED(float, line_bias, [lines::RING]);
    TP_SHARED(float2, of_query, [2][STEP]);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const am_block owner(p.heads, DISTANCES ? p.splits : p.batch);
    am_block at = owner;
    const int first = at.tile * AM_ROWS, j = first + 16 * warp, row = j + lane / 4;
    const int begin = attn_begin_query(p, first);
    const int end = DISTANCES ? p.queries : attn_end_query(p, min(first + AM_ROWS, p.keys) - 1);
    const bool hidden = begin >= end || (DISTANCES && p.span && first >= p.span);
    const int b0 = DISTANCES ? (int)((int64_t)owner.b * p.batch / p.splits) : owner.b;
    const int b1 = DISTANCES ? (int)((int64_t)(owner.b + 1) * p.batch / p.splits) : owner.b + 1;
    const am_rows table = am_keys(p, p.pos, 0, at.h, am_distance_biases(p));
    bf16 *const more = room + (DISTANCES ? 1 : 2) * AM_ROWS * COLS;
    am_ring<COLS> tiles = { more, more + 2 * TILE };
    lines ring = { more + 4 * TILE, line_bias, {}, 0, 0 };
    lines values = { ring.lines + lines::RING * COLS, NULL, {}, 0, 0 }; /* DISTANCES */
    am_held<COLS> own, v;
    float dk[COLS / 8][4], dv[COLS / 8][4], own_bias[2], sum[2] = { 0.0f, 0.0f };
    am_clear<COLS / 8>(dk);
    am_clear<COLS / 8>(dv);
    for (at.b = b0; at.b < b1 && !hidden; at.b++) {
        const int64_t rows = (int64_t)at.b * p.queries * p.width + at.h * p.dim;
        const am_rows k = am_keys(p, p.k, at.b, at.h, p.biases);
        const am_rows of_v = am_keys(p, p.v, at.b, at.h, NULL);
        const am_rows of_own = DISTANCES ? table : k;
        int place = AM_ROWS - 16 * warp, slot = 0;
        __syncthreads(); /* the row of the batch before is done */
        if (at.b == b0) {
            tp_tile_copy<COLS, AM_ROWS, AM_THREADS>(room, of_own.at, first, p.keys, p.dim, p.width);
            if (!DISTANCES)
                tp_tile_copy<COLS, AM_ROWS, AM_THREADS>(room + AM_ROWS * COLS, of_v.at, first,
                                                        p.keys, p.dim, p.width);
            for (int half = 0; half < 2; half++) own_bias[half] = of_own.bias_of(row + 8 * half);
        }
        tiles.fetch(tiles.now, p, p.q + rows, p.dout + rows, begin, p.queries);
        ring.begin(DISTANCES ? k : table, begin + p.ahead - first - AM_ROWS);
        if (DISTANCES) values.begin(of_v, begin + p.ahead - first - AM_ROWS);
        tp_copy_commit();
        const float2 ours = am_row_values<STEP>(p, at, begin);
        if (threadIdx.x < STEP) of_query[0][threadIdx.x] = ours;
        for (int i = begin; i < end; i += STEP, slot ^= 1) {
            tp_copy_wait<0>();
            __syncthreads();
            if (i + STEP < end) {
                tiles.fetch(tiles.other, p, p.q + rows, p.dout + rows, i + STEP, p.queries);
                ring.fetch();
                if (DISTANCES) values.fetch();
            }
            tp_copy_commit();
            const float2 next = am_row_values<STEP>(p, at, i + STEP); /* arrive meanwhile */
            const float next_bias = warp == 1 ? ring.bias_in_flight(lane) : 0.0f;
            if (at.b == b0 && i == begin) {
                own.take(room + 16 * warp * COLS);
                if (!DISTANCES) v.take(room + (AM_ROWS + 16 * warp) * COLS);
            }
            if (j < p.keys && j < i + STEP + p.ahead) {
                const int column = i + lane % 4 * 2, meet = i + p.ahead - j; /* key or distance */
                float s[N][4], dp[N][4];
#pragma unroll
                for (int n = 0; n < N; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) s[n][e] = own_bias[e / 2];
                lean_products<true, COLS, N>(s, own, tiles.now, ring, place);
                if (i + STEP > p.queries || meet < 15 ||
                    (p.span && (DISTANCES ? j + 15 : meet + STEP - 1) >= p.span))
                    am_mask<true, N, DISTANCES>(p, at, row, column, s);
                if (DISTANCES) {
                    am_clear<N>(dp);
                    lean_products<false, COLS, N>(dp, own, tiles.now + TILE, values, place);
                } else {
                    v.template scores<UNROLL<COLS>>(dp, tiles.now + TILE);
                }
                am_gradients<N>(
                    p, am_dropped<true, N, DISTANCES>(p, at, row, column), s, dp,
                    [&](int n, int e) { return of_query[slot][8 * n + lane % 4 * 2 + e % 2]; });
#pragma unroll
                for (int n = 0; n < N; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) sum[e / 2] += s[n][e];
                if (!DISTANCES) am_mix<COLS, N>(dv, dp, tiles.now + TILE);
                am_mix<COLS, N>(dk, s, tiles.now);
            }
            if (threadIdx.x < STEP) of_query[slot ^ 1][threadIdx.x] = next;
            if (warp == 1 && lane < STEP) line_bias[ring.put + lane] = next_bias;
            place = ring.after(place, STEP);
            ring.turn();
            values.turn();
            tiles.turn();
        }
    }
    for (int half = 0; half < 2; half++) sum[half] = tp_quad<tp_sum_of>(sum[half]);
    add_bias<COLS>(p, dk, sum, (DISTANCES ? p.r_r : p.r_w) + at.h * p.dim);
    const float scale[2] = { p.scale, p.scale }, one[2] = { 1.0f, 1.0f };
    const attn_sink<bf16> dpos = { p.dpos, true }, to = DISTANCES ? dpos : p.dk;
    if (to.to) am_store<COLS>(p, to, owner, p.keys, j, scale, dk);
    if (!DISTANCES && p.dv.to) am_store<COLS>(p, p.dv, owner, p.keys, j, one, dv);
}

tp_code tp__rel_attention_mma_bwd(const tp_call *c, const attn<bf16> &p)
{
    const tp_code code = tp__rel_attention_mma_biases(c, p);
    if (code != TP_OK) return code;
    return am_by_columns(p, [&](auto columns) {
        constexpr int COLS = decltype(columns)::value;
        const size_t rows = AM_ROWS * COLS * sizeof(bf16), lines = lines_of<COLS>::BYTES;
        const size_t tiles = (size_t)4 * AM_STEPS<COLS> * COLS * sizeof(bf16);
        const int of_queries = attn_tiles(p.queries, AM_ROWS) * p.heads;
        const int of_keys = attn_tiles(p.keys, AM_ROWS) * p.heads;
        tp_code code = TP_OK;
        if (p.dq.to || p.dr)
            code = tp_launch(c, rel_query_grad_mma<COLS>, (unsigned)(of_queries * p.batch),
                             AM_THREADS, 2 * rows + tiles + lines, p);
        if (code == TP_OK && (p.dk.to || p.dv.to))
            code = tp_launch(c, rel_column_grad_mma<COLS, false>, (unsigned)(of_keys * p.batch),
                             AM_THREADS, 2 * rows + tiles + lines, p);
        if (code == TP_OK && p.dpos)
            code = tp_launch(c, rel_column_grad_mma<COLS, true>, (unsigned)(of_keys * p.splits),
                             AM_THREADS, rows + tiles + 2 * lines, p);
        return code;
    });
}
