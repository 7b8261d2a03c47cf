/* attention_mma.cu - full attention forward on tensor cores, bf16.
 *
 * A warp holds 32 queries (16 for heads over 64, or if queries are few), with results and running
 * maxima in registers. Keys and values pass through shared memory, 32 at a time, while the next 32
 * are copied. Reads keys and values once per 128 (64) queries. A step of 32 queries and 32 keys of
 * 64 columns takes 64 mma, 16 ldmatrix, 32 2^x and one barrier. If no key is masked, dropped or
 * rescaled, a step of 330 instructions would be bound by mma and 2^x instead of issue; currently
 *
 *     budget: attn_mma_kernel<64, 2, false> sm_90 480 instructions
 *     budget: attn_mma_kernel<64, 1, false> sm_90 290 instructions
 */
#include "cuda/attention/attention_mma_fwd.cuh"

template <int COLS, int ROWS, bool PACKED>
static __device__ inline void step(const attn<bf16> &p, const attn_mma_block &at,
                                   attn_mma_queries<COLS, ROWS> &w, int i, int j, const bf16 *keys,
                                   const bf16 *values)
{
    const bool edge = p.mask || p.biased || j + ATTN_MMA_STEP > p.keys ||
                      (p.causal && j + ATTN_MMA_STEP - 1 > i + p.ahead);
    float s[ROWS][ATTN_MMA_N][4];
#pragma unroll
    for (int r = 0; r < ROWS; r++) attn_mma_clear<ATTN_MMA_N>(s[r]);
#pragma unroll
    for (int k = 0; k < COLS / 16; k++)
#pragma unroll
        for (int n = 0; n < ATTN_MMA_N; n += 2) {
            uint32_t b[4];
            tp_frag_b<COLS>(b, keys, 8 * n, k);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                tp_mma_bf16(s[r][n], w.q[r][k], b, s[r][n]);
                tp_mma_bf16(s[r][n + 1], w.q[r][k], b + 2, s[r][n + 1]);
            }
        }
    attn_mma_values<COLS, ROWS, true, PACKED>(p, at, w, s, i, j, edge, values);
}

template <int COLS, int ROWS, bool PACKED>
__global__ void __launch_bounds__(ATTN_MMA_THREADS, 2) attn_mma_kernel(attn<bf16> all)
{
    constexpr int BLOCK = 16 * ROWS * ATTN_MMA_WARPS, TILE = ATTN_MMA_STEP * COLS;
    TP_SHARED_REST(bf16, room);
    bf16 *const ring = room + BLOCK * COLS; /* keys and values of two steps */
    const attn_mma_block at(all.heads, all.batch);
    const attn_part<PACKED, bf16> p = attn_document<PACKED>(all, at.b);
    const int first = (attn_tiles(p.queries, BLOCK) - 1 - at.tile) * BLOCK; /* the longest first */
    if (PACKED && first < 0) return;
    const int i = first + (int)threadIdx.x / 32 * 16 * ROWS;
    const int end = attn_end_key(p, min(first + BLOCK, p.queries) - 1);
    const int64_t head = (int64_t)at.b * p.room * p.kv_width + at.h / p.group * p.dim;
    attn_mma_queries<COLS, ROWS> w;
    w.clear();
    const auto fetch = [&](int j, bf16 *to) {
        tp_tile_copy<COLS, ATTN_MMA_STEP, ATTN_MMA_THREADS>(to, p.k + head, j, p.keys, p.dim,
                                                            p.kv_width);
        tp_tile_copy<COLS, ATTN_MMA_STEP, ATTN_MMA_THREADS>(to + TILE, p.v + head, j, p.keys, p.dim,
                                                            p.kv_width);
    };
    if (end > 0) {
        const int64_t rows = (int64_t)at.b * p.queries * p.width + at.h * p.dim;
        tp_tile_copy<COLS, BLOCK, ATTN_MMA_THREADS>(room, p.q + rows, first, p.queries, p.dim,
                                                    p.width);
        fetch(0, ring);
        tp_copy_commit();
    }
    bf16 *now = ring, *other = ring + 2 * TILE;
    for (int j = 0; j < end; j += ATTN_MMA_STEP) {
        tp_copy_wait<0>();
        __syncthreads();
        if (j + ATTN_MMA_STEP < end) fetch(j + ATTN_MMA_STEP, other);
        tp_copy_commit();
        if (j == 0)
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int k = 0; k < COLS / 16; k++)
                    tp_frag_a<COLS>(w.q[r][k], room, i - first + 16 * r, k);
        if (i < p.queries && (!p.causal || j < i + 16 * ROWS + p.ahead))
            step<COLS, ROWS, PACKED>(p, at, w, i, j, now, now + TILE);
        bf16 *const swap = now;
        now = other;
        other = swap;
    }
    /* Not p, whose pointers would take registers until here. */
    attn_mma_finish(attn_document<PACKED>(all, at.b), at, w, i);
}

template <int COLS, int ROWS> static tp_code launch(const tp_call *c, const attn<bf16> &p)
{
    constexpr int BLOCK = 16 * ROWS * ATTN_MMA_WARPS;
    return tp_launch(
        c, p.packed ? attn_mma_kernel<COLS, ROWS, true> : attn_mma_kernel<COLS, ROWS, false>,
        (unsigned)(attn_tiles(p.queries, BLOCK) * p.batch * p.heads), ATTN_MMA_THREADS,
        (size_t)(BLOCK + 4 * ATTN_MMA_STEP) * COLS * sizeof(bf16), p);
}

/* Both block sizes compute identical rows; the smaller is used when the larger would leave
 * multiprocessors idle. */
tp_code tp__attention_mma_fwd(const tp_call *c, const attn<bf16> &p)
{
    const int large = attn_tiles(p.queries, 32 * ATTN_MMA_WARPS) * p.batch * p.heads;
    const bool few = large < 2 * tp__cuda_processors(c->dev);
    return attn_mma_by_columns(p, [&](auto columns) {
        constexpr int COLS = decltype(columns)::value, MOST = COLS == 128 ? 1 : 2;
        return few ? launch<COLS, 1>(c, p) : launch<COLS, MOST>(c, p);
    });
}
