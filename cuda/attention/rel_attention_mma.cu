/* rel_attention_mma.cu - relative attention forward on tensor cores, bf16.
 *
 * Like full attention (attention_mma.cu), with rows of the position table in a ring (rel_mma.cuh)
 * by decreasing distance. A step of 32 keys adds 32 rows, which all warps use in turn; their
 * products are kept for the following steps, so none is computed twice. A separate kernel first
 * computes the bias logits in one read of keys and table.
 *
 * Reads keys, values and table once per 128 (64) queries. A step of 32 queries and 32 keys of 64
 * columns is 96 mma, 24 ldmatrix, 32 shuffles for the skew and 32 2^x: bound by mma and issue.
 *
 *     budget: rel_mma_kernel<64, 2> sm_90 855 instructions
 */
#include "cuda/attention/attention_mma_fwd.cuh"
#include "cuda/attention/rel_mma.cuh"

/* to[b][h][j] = bias[h] rows[b][j][h], one warp for each. */
__global__ void __launch_bounds__(TP_THREADS)
    rel_mma_bias_kernel(attn<bf16> p, int64_t items, const bf16 *rows, const bf16 *bias, float *to)
{
    const int lane = (int)threadIdx.x % 32;
    for (int64_t r = tp_warp_number(); r < items; r += tp_warps()) {
        const int64_t row = tp_div(r, p.heads), b = tp_div(row, p.keys);
        const int h = (int)(r - row * p.heads);
        const bf16 *const x = rows + r * p.dim, *const y = bias + (int64_t)h * p.dim;
        float sum = 0.0f;
        for (int d = lane; d < p.dim; d += 32) sum += tp_float(x[d]) * tp_float(y[d]);
        sum = tp_warp<tp_sum_of>(sum);
        if (lane == 0) to[(b * p.heads + h) * p.keys + row - b * p.keys] = sum;
    }
}

/* Holds rows first .. first + 16 ROWS of the queries in `room` as A operands. */
template <int COLS, int ROWS>
static __device__ inline void hold_queries(attn_mma_queries<COLS, ROWS> &w, const bf16 *room,
                                           int first)
{
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int depth = 0; depth < COLS / 16; depth++)
            tp_frag_a<COLS>(w.q[r][depth], room, first + 16 * r, depth);
}

template <int COLS, int ROWS>
__global__ void __launch_bounds__(ATTN_MMA_THREADS, 2) rel_mma_kernel(attn<bf16> p)
{
    constexpr int BLOCK = 16 * ROWS * ATTN_MMA_WARPS, TILE = ATTN_MMA_STEP * COLS;
    typedef rel_mma_lines<COLS, ATTN_MMA_STEP, BLOCK> lines;
    TP_SHARED_REST(bf16, room);
    TP_SHARED(float, line_bias, [lines::RING]);
    TP_SHARED(float, key_bias, [2][ATTN_MMA_STEP]);
    bf16 *now = room + BLOCK * COLS, *other = now + 2 * TILE; /* keys and values of a step */
    const attn_mma_block at(p.heads, p.batch);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int first = (attn_tiles(p.queries, BLOCK) - 1 - at.tile) * BLOCK; /* the longest first */
    const int i = first + 16 * ROWS * warp, begin = attn_begin_key(p, first);
    const int end = attn_end_key(p, min(first + BLOCK, p.queries) - 1);
    const int64_t rows = (int64_t)at.b * p.queries * p.width + at.h * p.dim;
    const rel_mma_rows k = rel_mma_keys(p, p.k, at.b, at.h, p.biases);
    const rel_mma_rows v = rel_mma_keys(p, p.v, at.b, at.h, NULL);
    const rel_mma_rows table =
        rel_mma_keys(p, p.pos, 0, at.h, rel_mma_distance_biases(p)).reversed();
    lines ring = { now + 4 * TILE, line_bias, {}, 0, 0 };
    int place = BLOCK - 16 * ROWS * warp, slot = 0;
    float kept[ROWS][2 * ROWS][4];
    attn_mma_queries<COLS, ROWS> w;
    w.clear();
    const auto query = [&](uint32_t a[ROWS][4], int depth) {
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int x = 0; x < 4; x++) a[r][x] = w.q[r][depth][x];
    };
    const auto fetch = [&](int j, bf16 *to) {
        tp_tile_copy<COLS, ATTN_MMA_STEP, ATTN_MMA_THREADS>(to, k.at, j, p.keys, p.dim, p.width);
        tp_tile_copy<COLS, ATTN_MMA_STEP, ATTN_MMA_THREADS>(to + TILE, v.at, j, p.keys, p.dim,
                                                            p.width);
    };
    tp_tile_copy<COLS, BLOCK, ATTN_MMA_THREADS>(room, p.q + rows, first, p.queries, p.dim, p.width);
    fetch(begin, now);
    ring.begin(table, p.queries - 1 - first - BLOCK + begin);
    tp_copy_commit();
    if (threadIdx.x < ATTN_MMA_STEP) key_bias[0][lane] = k.bias_of(begin + lane);
    for (int j = begin; j < end; j += ATTN_MMA_STEP, slot ^= 1) {
        tp_copy_wait<0>();
        __syncthreads();
        if (j + ATTN_MMA_STEP < end) {
            fetch(j + ATTN_MMA_STEP, other);
            ring.fetch();
        }
        tp_copy_commit();
        const float next_bias = warp == 0   ? k.bias_of(j + ATTN_MMA_STEP + lane)
                                : warp == 1 ? ring.bias_in_flight(lane)
                                            : 0.0f; /* arrives while this step runs */
        if (j == begin) {
            hold_queries(w, room, i - first);
            rel_mma_before<COLS, ROWS>(kept, ring, place, query);
        }
        if (i < p.queries && j < i + 16 * ROWS + p.ahead) {
            const bool edge = j + ATTN_MMA_STEP - 1 > i + p.ahead ||
                              (p.span && j < i + 16 * ROWS + p.ahead - p.span);
            float s[ROWS][ATTN_MMA_N][4];
            rel_mma_logits<COLS, ROWS, ATTN_MMA_N>(s, kept, ring, place, now, key_bias[slot],
                                                   query);
            attn_mma_values<COLS, ROWS, false>(p, at, w, s, i, j, edge, now + TILE);
        }
        if (warp == 0) key_bias[slot ^ 1][lane] = next_bias;
        if (warp == 1) line_bias[ring.put + lane] = next_bias;
        place = lines::after(place, ATTN_MMA_STEP);
        ring.turn();
        bf16 *const swap = now;
        now = other;
        other = swap;
    }
    attn_mma_finish(p, at, w, i);
}

template <int COLS, int ROWS> static tp_code launch(const tp_call *c, const attn<bf16> &p)
{
    constexpr int BLOCK = 16 * ROWS * ATTN_MMA_WARPS;
    return tp_launch(c, rel_mma_kernel<COLS, ROWS>,
                     (unsigned)(attn_tiles(p.queries, BLOCK) * p.batch * p.heads), ATTN_MMA_THREADS,
                     (size_t)(BLOCK + 4 * ATTN_MMA_STEP) * COLS * sizeof(bf16) +
                         rel_mma_lines<COLS, ATTN_MMA_STEP, BLOCK>::BYTES,
                     p);
}

tp_code tp__rel_attention_mma_biases(const tp_call *c, const attn<bf16> &p)
{
    const int64_t distances = (int64_t)p.keys * p.heads, keys = p.batch * distances;
    const tp_code code = tp_launch(c, rel_mma_bias_kernel, tp_grid(c, keys, TP_THREADS / 32),
                                   TP_THREADS, 0, p, keys, p.k, p.r_w, p.biases);
    if (code != TP_OK) return code;
    return tp_launch(c, rel_mma_bias_kernel, tp_grid(c, distances, TP_THREADS / 32), TP_THREADS, 0,
                     p, distances, p.pos, p.r_r, p.biases + keys);
}

tp_code tp__rel_attention_mma_fwd(const tp_call *c, const attn<bf16> &p)
{
    const int large = attn_tiles(p.queries, 32 * ATTN_MMA_WARPS) * p.batch * p.heads;
    const bool few = large < 2 * tp__cuda_processors(c->dev);
    const tp_code code = tp__rel_attention_mma_biases(c, p);
    if (code != TP_OK) return code;
    return attn_mma_by_columns(p, [&](auto columns) {
        constexpr int COLS = decltype(columns)::value, MOST = COLS == 128 ? 1 : 2;
        return few ? launch<COLS, 1>(c, p) : launch<COLS, MOST>(c, p);
    });
}
