/* window_attention_mma.cu - attention over maps forward on tensor cores, bf16.
 *
 * A block owns 64 queries of a chunk, a warp 16 of them. The chunk's keys are listed once: low
 * keys, global tokens, cells of its rectangles. Keys and values are gathered by the list, 64 at a
 * time, while the next 64 are copied. Logits start from the biases, indexed in shared memory by
 * difference of positions.
 *
 * Reads each key and value once per 64 queries, mostly from cache: 8 D bytes of device memory per
 * query and head. 4 D operations and one 2^x per pair; bound by 2^x for heads of 32. A step of 16
 * by 64 of a warp takes 32 mma (heads over 32: 64), 16 (32) ldmatrix and 32 2^x per lane; biases,
 * not in the budget, take 72 more instructions.
 *
 *     budget: win_mma_kernel<32> sm_90 310 instructions
 *     budget: win_mma_kernel<64> sm_90 405 instructions
 */
#include "cuda/attention/attention_mma_fwd.cuh"
#include "cuda/attention/window_mma.cuh"

constexpr int WIN_MMA_N = WIN_MMA_ROWS / 8;

/* Divides by the sums and stores results and log-sum-exps of the two queries of a lane. */
template <int COLS>
static __device__ inline void win_mma_finish(const win_mma &p, const win_mma_chunk &t,
                                             const attn_mma_queries<COLS, 1> &w, const int cell[2])
{
    const attn_sink<bf16> out = { p.out, false };
    int64_t row[2];
    float k[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float sum = tp_quad<tp_sum_of>(w.sum[0][half]);
        const bool seen = sum > 0.0f && cell[half] >= 0 && win_mma_shown(p, t.b, cell[half]);
        k[half] = seen ? 1.0f / sum : 0.0f;
        row[half] = cell[half] < 0 ? -1 : t.b * p.g.cells + cell[half];
        if (cell[half] >= 0 && threadIdx.x % 4 == 0)
            p.lse[(t.b * p.g.heads + t.h) * p.g.cells + cell[half]] =
                seen ? p.scale * w.top[0][half] + logf(sum) : 0.0f;
    }
    win_mma_store<COLS>(p, out, t.h, row, k, w.o[0]);
}

template <int COLS>
static __host__ __device__ inline size_t win_mma_forward_shared(const win_mma &p)
{
    return (size_t)(5 * WIN_MMA_ROWS * COLS) * sizeof(bf16) + (size_t)(p.biases + 2 * p.keys) * 4;
}

template <int COLS>
__global__ void __launch_bounds__(ATTN_MMA_THREADS, COLS == 32 ? 4 : 3) win_mma_kernel(win_mma p)
{
    constexpr int TILE = WIN_MMA_ROWS * COLS;
    TP_SHARED_REST(bf16, room);
    TP_SHARED(int, query, [WIN_MMA_ROWS]);
    TP_SHARED(win_mma_rect, rect, [TP_WINDOW_RECTS]);
    float *const bias = reinterpret_cast<float *>(room + 5 * TILE);
    int *const list = reinterpret_cast<int *>(bias + p.biases), *const place = list + p.keys;
    const unsigned item = blockIdx.x / (unsigned)p.g.heads, chunk = item / (unsigned)p.tiles;
    const win_mma_chunk t =
        win_mma_chunk_at(p, chunk, (int)(blockIdx.x - item * (unsigned)p.g.heads));
    const int first = (int)(item - chunk * (unsigned)p.tiles) * WIN_MMA_ROWS, count = t.queries();
    const int lane = (int)threadIdx.x % 32, i = first + (int)threadIdx.x / 32 * 16;
    if (first >= count) return;
    if (threadIdx.x < WIN_MMA_ROWS) {
        const int at = first + (int)threadIdx.x, cell = win_mma_query_at(p, t, at).cell;
        const bool shown = at < count && win_mma_shown(p, t.b, cell);
        query[threadIdx.x] = shown ? ((int)p.g.global + cell) * (int)p.g.width : -1;
    }
    win_mma_load_biases(p, t.h, bias);
    int keys = win_mma_list_keys(p, t, rect, list, place);
    __syncthreads();
    if (p.mask && !win_mma_any(query)) keys = 0;

    const win_mma_source source = win_mma_keys_of(p, t);
    const win_mma_source own = { p.q + t.b * p.g.tokens * p.g.width + t.h * p.g.dim, NULL, NULL,
                                 NULL };
    int cell[2], part[2];
    for (int half = 0; half < 2; half++) {
        const int at = i + lane / 4 + 8 * half;
        const win_mma_query q = win_mma_query_at(p, t, min(at, count - 1));
        cell[half] = at < count ? q.cell : -1;
        part[half] = q.part;
    }
    if (keys > 0) win_mma_gather<COLS, WIN_MMA_ROWS>(p, room, query, own);
    bf16 *now = room + TILE, *other = now + 2 * TILE;
    attn_mma_queries<COLS, 1> w;
    w.clear();
    if (keys > 0) win_mma_gather<COLS, WIN_MMA_ROWS>(p, now, list, source);
    tp_copy_commit();
    for (int j = 0; j < keys; j += WIN_MMA_ROWS) {
        tp_copy_wait<0>();
        __syncthreads();
        if (j + WIN_MMA_ROWS < keys)
            win_mma_gather<COLS, WIN_MMA_ROWS>(p, other, list + j + WIN_MMA_ROWS, source);
        tp_copy_commit();
        if (j == 0)
#pragma unroll
            for (int k = 0; k < COLS / 16; k++) tp_frag_a<COLS>(w.q[0][k], room, i - first, k);
        if (i < count) {
            float s[WIN_MMA_N][4];
            win_mma_start<WIN_MMA_N>(p, s, bias, place + j, part,
                                     !p.mask && j >= p.g.extra && j + WIN_MMA_ROWS <= keys);
            attn_mma_products<COLS, WIN_MMA_N>(s, w.q[0], now);
            attn_mma_fold<COLS, WIN_MMA_N>(s, w.o[0], w.top[0], w.sum[0], p.scale * ATTN_MMA_LOG2E);
            attn_mma_mix<COLS, WIN_MMA_N>(w.o[0], s, now + TILE);
        }
        bf16 *const swap = now;
        now = other;
        other = swap;
    }
    if (i < count) win_mma_finish<COLS>(p, t, w, cell);
}

/* Heads of multiples of 8 up to 64, no dropout; a chunk's keys and biases must fit in shared
 * memory. The scale must be positive, or maxima would become minima. */
bool tp__window_mma_serves(const win<bf16> &call)
{
    const tp_window &g = call.g;
    if (call.drop.below > 0) return false;
    if (g.dim % 8 != 0 || g.dim < 8 || g.dim > 64 || call.scale <= 1e-6f || g.keys < 1 ||
        !tp_aligned(call.q, call.k, call.v, call.low_k, call.low_v, call.out))
        return false;
    const int64_t limit = 1 << 12; /* more than fits; the products below do not overflow */
    if (g.keys > limit || g.chunk[0] > limit || g.chunk[1] > limit || g.global > limit)
        return false;
    const int64_t queries = g.chunks[0] * g.chunks[1] * g.chunk[0] * g.chunk[1];
    const win_mma p = win_mma_problem(call);
    return g.batch * g.heads * queries < INT32_MAX && (g.low + g.tokens) * g.width < INT32_MAX &&
           win_mma_forward_shared<64>(p) <= WIN_MMA_ROOM;
}

template <int COLS> static tp_code launch(const tp_call *c, const win_mma &p)
{
    const int64_t blocks = p.g.batch * p.g.chunks[0] * p.g.chunks[1] * p.tiles * p.g.heads;
    return tp_launch(c, win_mma_kernel<COLS>, (unsigned)blocks, ATTN_MMA_THREADS,
                     win_mma_forward_shared<COLS>(p), p);
}

tp_code tp__window_mma_fwd(const tp_call *c, const win<bf16> &call)
{
    const win_mma p = win_mma_problem(call);
    return p.g.dim <= 32 ? launch<32>(c, p) : launch<64>(c, p);
}
