/* window_attention_mma.cu - attention over maps forward on tensor cores, bf16.
 *
 * A block owns 64 queries of a chunk, a warp 16 of them. The chunk's keys are listed once: low
 * keys, global tokens, cells of its rectangles. Keys and values are gathered by the list, 64 at a
 * time, while the next 64 are copied. Logits start from the biases, indexed in shared memory by
 * difference of positions.
 *
 * Reads each key and value once per 64 queries, mostly from cache: 8 D bytes of device memory per
 * query and head. 4 D operations and one 2^x per pair; bound by 2^x for heads of 32. A step of 16
 * by 64 of a warp takes 32 mma (heads up to 64: 64, wider: 128), 16 (32) ldmatrix and 32 2^x per
 * lane; biases, not in the budget, take 72 more instructions. Dropout takes 120 and 74 for each
 * block of random words, of which a lane draws at least 8 a step; the budget has one.
 *
 *     budget: win_mma_kernel<32, false, false> sm_90 310 instructions
 *     budget: win_mma_kernel<64, false, false> sm_90 405 instructions
 *     budget: win_mma_kernel<32, true, false> sm_90 510 instructions
 *     budget: win_mma_kernel<64, true, false> sm_90 605 instructions
 */
#include "cuda/attention/attention_mma_fwd.cuh"
#include "cuda/attention/window_mma.cuh"

constexpr int WIN_MMA_N = WIN_MMA_ROWS / 8;

/* o += the kept ones of the probabilities s times the values. bits: drawn by lanes 2 r and 2 r + 1
 * for half of row r each. A half at a time needs fewer registers. */
template <int COLS>
static __device__ inline void win_mma_mix_kept(float o[COLS / 8][4], float s[WIN_MMA_N][4],
                                               uint32_t bits, const bf16 *values)
{
    constexpr int N = WIN_MMA_N / 2;
#pragma unroll
    for (int side = 0; side < 2; side++) {
        win_mma_dropped<N> dropped;
        dropped.take(bits, side);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (dropped.at(n, e)) s[N * side + n][e] = 0.0f;
        attn_mma_mix<COLS, N>(o, s + N * side, values + 8 * N * side * COLS);
    }
}

/* Divides by the sums and stores results and log-sum-exps of the two queries of a lane, whose cells
 * are cells[0] and cells[8]. */
template <int COLS>
static __device__ inline void win_mma_finish(const win_mma &p, const win_mma_chunk &t,
                                             const attn_mma_queries<COLS, 1> &w, const int *cells)
{
    const attn_sink<bf16> out = { p.out, false };
    int64_t row[2];
    float k[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float sum = tp_quad<tp_sum_of>(w.sum[0][half]);
        const int cell = cells[8 * half];
        const bool seen = sum > 0.0f && cell >= 0 && win_mma_shown(p, t.b, cell);
        k[half] = seen ? p.drop.scale / sum : 0.0f;
        row[half] = cell < 0 ? -1 : t.b * p.g.cells + cell;
        if (cell >= 0 && threadIdx.x % 4 == 0)
            p.lse[(t.b * p.g.heads + t.h) * p.g.cells + cell] =
                seen ? p.scale * w.top[0][half] + logf(sum) : 0.0f;
    }
    win_mma_store<COLS>(p, out, t.h, row, k, w.o[0]);
}

static inline size_t win_mma_forward_shared(const win_mma &p)
{
    return (size_t)(5 * WIN_MMA_ROWS * win_mma_columns(p.g)) * sizeof(bf16) +
           (size_t)(p.biases + win_mma_listed(p)) * 4;
}

template <int COLS, bool DROP, bool PACKED>
__global__ void __launch_bounds__(ATTN_MMA_THREADS, COLS == 32   ? 4
                                                    : COLS == 64 ? 3
                                                                 : 2) win_mma_kernel(win_mma all)
{
    constexpr int TILE = WIN_MMA_ROWS * COLS;
    TP_SHARED_REST(bf16, room);
    TP_SHARED(int, query, [WIN_MMA_ROWS]);
    TP_SHARED(int, cells, [WIN_MMA_ROWS]);
    TP_SHARED(win_mma_rect, rect, [TP_WINDOW_RECTS]);
    float *const bias = reinterpret_cast<float *>(room + 5 * TILE);
    const win_mma_lists list(all, bias + all.biases);
    const unsigned item = blockIdx.x / (unsigned)all.g.heads, chunk = item / (unsigned)all.tiles;
    win_mma_chunk t =
        win_mma_chunk_at(all, chunk, (int)(blockIdx.x - item * (unsigned)all.g.heads));
    const win_mma_part<PACKED> p = win_mma_sequence<PACKED>(all, t.b);
    if (PACKED) t.end(p);
    const int first = (int)(item - chunk * (unsigned)p.tiles) * WIN_MMA_ROWS, count = t.queries();
    const int lane = (int)threadIdx.x % 32, i = first + (int)threadIdx.x / 32 * 16;
    if (first >= count) return;
    if (threadIdx.x < WIN_MMA_ROWS) {
        const int at = first + (int)threadIdx.x, cell = win_mma_query_at(p, t, at).cell;
        const bool shown = at < count && win_mma_shown(p, t.b, cell);
        query[threadIdx.x] = shown ? ((int)p.g.global + cell) * (int)p.g.width : -1;
        cells[threadIdx.x] = at < count ? cell : -1;
    }
    win_mma_load_biases(p, t.h, bias);
    int keys = win_mma_list_keys<DROP>(p, t, rect, list);
    __syncthreads();
    if (p.mask && !win_mma_any(query)) keys = 0;

    const win_mma_source source = win_mma_keys_of(p, t);
    const win_mma_source own = { p.q + t.b * p.g.tokens * p.g.width + t.h * p.g.dim, NULL, NULL,
                                 NULL };
    int part[2];
    for (int half = 0; half < 2; half++)
        part[half] = win_mma_query_at(p, t, min(i + lane / 4 + 8 * half, count - 1)).part;
    if (keys > 0) win_mma_gather<COLS, WIN_MMA_ROWS>(p, room, query, own);
    bf16 *now = room + TILE, *other = now + 2 * TILE;
    attn_mma_queries<COLS, 1> w;
    w.clear();
    if (keys > 0) win_mma_gather<COLS, WIN_MMA_ROWS>(p, now, list.row, source);
    tp_copy_commit();
    for (int j = 0; j < keys; j += WIN_MMA_ROWS) {
        tp_copy_wait<0>();
        __syncthreads();
        if (j + WIN_MMA_ROWS < keys)
            win_mma_gather<COLS, WIN_MMA_ROWS>(p, other, list.row + j + WIN_MMA_ROWS, source);
        tp_copy_commit();
        if (j == 0)
#pragma unroll
            for (int k = 0; k < COLS / 16; k++) tp_frag_a<COLS>(w.q[0][k], room, i - first, k);
        if (i < count) {
            float s[WIN_MMA_N][4];
            uint32_t bits = 0;
            if (DROP) {
                const int row = (int)threadIdx.x / 2;
                const int64_t element = win_mma_element(p, t.b, t.h, cells[row]);
                bits = win_mma_draw<32>(p, element, list.column + j + lane % 2 * 32);
            }
            win_mma_start<WIN_MMA_N>(p, s, bias, list.place + j, part,
                                     !all.mask && j >= p.g.extra && j + WIN_MMA_ROWS <= keys);
            attn_mma_products<COLS, WIN_MMA_N>(s, w.q[0], now);
            attn_mma_fold<COLS, WIN_MMA_N>(s, w.o[0], w.top[0], w.sum[0], p.scale * ATTN_MMA_LOG2E);
            if (DROP)
                win_mma_mix_kept<COLS>(w.o[0], s, bits, now + TILE);
            else
                attn_mma_mix<COLS, WIN_MMA_N>(w.o[0], s, now + TILE);
        }
        bf16 *const swap = now;
        now = other;
        other = swap;
    }
    if (i < count) /* not p, which would take registers until here */
        win_mma_finish<COLS>(win_mma_sequence<PACKED>(all, t.b), t, w,
                             cells + i - first + lane / 4);
}

/* Heads of multiples of 8 up to 128; a chunk's keys (with dropout four bytes more each) and biases
 * must fit in shared memory. The scale must be positive, or maxima would become minima. */
bool tp__window_mma_serves(const win<bf16> &call)
{
    const tp_window &g = call.g;
    if (g.dim % 8 != 0 || g.dim < 8 || g.dim > 128 || call.scale <= 1e-6f || g.keys < 1 ||
        !tp_aligned(call.q, call.k, call.v, call.low_k, call.low_v, call.out))
        return false;
    const int64_t limit = 1 << 12; /* more than fits; the products below do not overflow */
    if (g.keys > limit || g.chunk[0] > limit || g.chunk[1] > limit || g.global > limit)
        return false;
    const int64_t queries = g.chunks[0] * g.chunks[1] * g.chunk[0] * g.chunk[1];
    const win_mma p = win_mma_problem(call);
    return g.batch * g.heads * queries < INT32_MAX && (g.low + g.tokens) * g.width < INT32_MAX &&
           win_mma_forward_shared(p) <= WIN_MMA_ROOM;
}

template <int COLS, bool DROP, bool PACKED>
static tp_code launch(const tp_call *c, const win_mma &p)
{
    const int64_t blocks = p.g.batch * p.g.chunks[0] * p.g.chunks[1] * p.tiles * p.g.heads;
    return tp_launch(c, win_mma_kernel<COLS, DROP, PACKED>, (unsigned)blocks, ATTN_MMA_THREADS,
                     win_mma_forward_shared(p), p);
}

tp_code tp__window_mma_fwd(const tp_call *c, const win<bf16> &call)
{
    const win_mma p = win_mma_problem(call);
    return win_mma_by_kind(
        p, [&](auto cols, auto drop, auto packed) { return launch<cols, drop, packed>(c, p); });
}
