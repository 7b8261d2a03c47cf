/* window_attention_mma_bwd.cu - gradients of attention over maps on tensor cores, bf16: queries and
 * biases.
 *
 * As in forward, a block owns 64 queries of a chunk and gathers the listed keys, 32 at a time. For
 * gradients of biases, a block processes the tiles of a slice in order: dS of up to 256 keys (heads
 * over 64: 128) is stored in shared memory, where each thread sums the pairs of its differences of
 * positions. The slices' sums are added in order. Slices depend only on shapes.
 *
 * Three products per pair: 6 D operations, one 2^x, and for the gradients of biases a write and
 * a read of bf16 and an addition. A step of 16 by 32 of a warp is 24 mma (heads up to 64: 48,
 * wider: 96), 12 (24) ldmatrix and 16 2^x per lane; 240 (300) instructions if all keys are in
 * the map and biases need no gradient. */
#include "cuda/attention/window_mma_bwd.cuh"

/* Keys in the stash, and its row stride, which puts the rows of a fragment in different banks. */
template <int COLS> constexpr int WIN_MMA_STASH = COLS == 128 ? 128 : 256;
template <int COLS> constexpr int WIN_MMA_LD = WIN_MMA_STASH<COLS> + 8;

/* The layout of shared memory behind the tiles. */
struct win_mma_room {
    float *bias, *sums;
    win_mma_lists list;
    bf16 *stash; /* [64][WIN_MMA_LD] of dS */
};

static size_t win_mma_query_shared(const win_mma &p, bool biases)
{
    const int columns = win_mma_columns(p.g);
    const int stride = columns == 128 ? WIN_MMA_LD<128> : WIN_MMA_LD<64>;
    return (size_t)((2 * WIN_MMA_ROWS + 4 * WIN_MMA_STEP) * columns) * sizeof(bf16) +
           (size_t)((biases ? 2 : 1) * p.biases + win_mma_listed(p)) * 4 +
           (biases ? (size_t)(WIN_MMA_ROWS * stride) * sizeof(bf16) : 0);
}

/* sums += dS of keys j0..j1 and 64 queries from `first`, by difference of positions and by global
 * token; each sum is owned by one thread. */
template <int LD>
static __device__ inline void win_mma_add_biases(const win_mma &p, const win_mma_chunk &t,
                                                 const win_mma_rect *rect, const win_mma_room &m,
                                                 int first, int j0, int j1)
{
    const int last = min(first + WIN_MMA_ROWS, t.queries());
    for (int d = (int)threadIdx.x; d < p.differences; d += ATTN_MMA_THREADS) {
        const int down = d / p.side[1] - p.reach[0], across = d % p.side[1] - p.reach[1];
        float sum = 0.0f;
        for (int r = 0, key = (int)p.g.extra; r < TP_WINDOW_RECTS; key += rect[r++].cells()) {
            const win_mma_rect &in = rect[r];
            const int left = max(0, in.x + across), right = min(t.cols, in.x + in.cols + across);
            const int top = max(first / t.cols, in.y + down);
            const int bottom = min((last - 1) / t.cols + 1, in.y + in.rows + down);
            for (int y = top; y < bottom; y++) {
                /* The row of the stash, and the column from which x counts. */
                const int query = y * t.cols - first;
                const int column = key - j0 + (y - down - in.y) * in.cols - across - in.x;
                const int begin = max(left, max(-query, -column));
                const int end = min(right, min(last - first - query, j1 - j0 - column));
                for (int x = begin; x < end; x++)
                    sum += tp_float(m.stash[(query + x) * LD + column + x]);
            }
        }
        m.sums[d] += sum;
    }
    for (int i = (int)threadIdx.x; i < p.g.global; i += ATTN_MMA_THREADS) {
        const int j = (int)p.g.low + i;
        for (int r = 0; r < last - first && j >= j0 && j < j1; r++)
            m.sums[p.differences + i] += tp_float(m.stash[r * LD + j - j0]);
    }
}

/* Stores 16 x 32 of dS in the stash. */
template <int LD>
static __device__ inline void win_mma_leave(bf16 *stash, const float s[WIN_MMA_STEP_N][4])
{
    const int lane = (int)threadIdx.x % 32;
    bf16 *const to = stash + lane / 4 * LD + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < WIN_MMA_STEP_N; n++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            *reinterpret_cast<uint32_t *>(to + 8 * half * LD + 8 * n) =
                tp_pack_bf16(s[n][2 * half], s[n][2 * half + 1]);
}

/* Processes 64 queries of a chunk from `first` and stores dq. BIASES: also sums their dS. */
template <int COLS, bool BIASES, bool DROP>
static __device__ inline void win_mma_grad_tile(const win_mma &p, const win_mma_chunk &t, int first,
                                                bf16 *tiles, const win_mma_room &m)
{
    constexpr int TILE = WIN_MMA_STEP * COLS, STASH = WIN_MMA_STASH<COLS>, LD = WIN_MMA_LD<COLS>;
    TP_SHARED(int, query, [WIN_MMA_ROWS]);
    TP_SHARED(win_mma_rect, rect, [TP_WINDOW_RECTS]);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, count = t.queries();
    const int i = first + 16 * warp;
    if (threadIdx.x < WIN_MMA_ROWS) {
        const int at = first + (int)threadIdx.x, cell = win_mma_query_at(p, t, at).cell;
        query[threadIdx.x] = at < count && win_mma_shown(p, t.b, cell) ? cell * (int)p.g.width : -1;
    }
    int keys = win_mma_list_keys<DROP>(p, t, rect, m.list);
    __syncthreads();
    if (p.mask && !win_mma_any(query)) keys = 0;
    const win_mma_source source = win_mma_keys_of(p, t);
    win_mma_held<COLS> q(tiles, 16 * warp), dout(tiles + WIN_MMA_ROWS * COLS, 16 * warp);
    float dq[COLS / 8][4];
    float2 of_row[2];
    int64_t row[2];
    int part[2];
    for (int half = 0; half < 2; half++) {
        const int at = i + lane / 4 + 8 * half;
        const win_mma_query own = win_mma_query_at(p, t, min(at, count - 1));
        of_row[half] = win_mma_of_query(p, t.b, t.h, at < count ? own.cell : -1);
        row[half] = at < count ? t.b * p.g.tokens + p.g.global + own.cell : -1;
        part[half] = own.part;
    }
    const int drawn = DROP ? win_mma_query_at(p, t, min(i + lane / 2, count - 1)).cell : 0;
    const int64_t element = win_mma_element(p, t.b, t.h, drawn);
    attn_mma_clear<COLS / 8>(dq);
    bf16 *now = tiles + 2 * WIN_MMA_ROWS * COLS, *other = now + 2 * TILE;
    if (keys > 0)
        win_mma_gather<COLS, WIN_MMA_ROWS>(p, tiles, query, win_mma_queries_of(p, t.b, t.h));
    if (keys > 0) win_mma_gather<COLS, WIN_MMA_STEP>(p, now, m.list.row, source);
    tp_copy_commit();
    for (int j = 0; j < keys; j += WIN_MMA_STEP) {
        tp_copy_wait<0>();
        __syncthreads();
        if (j + WIN_MMA_STEP < keys)
            win_mma_gather<COLS, WIN_MMA_STEP>(p, other, m.list.row + j + WIN_MMA_STEP, source);
        tp_copy_commit();
        if (j == 0) {
            q.take();
            dout.take();
        }
        if (i < count) {
            float s[WIN_MMA_STEP_N][4], dp[WIN_MMA_STEP_N][4];
            win_mma_dropped<WIN_MMA_STEP_N> dropped;
            if (DROP) {
                const int side = lane % 2 * 16;
                const uint32_t bits = win_mma_draw<16>(p, element, m.list.column + j + side)
                                      << side;
                dropped.take(bits | __shfl_xor_sync(0xffffffffu, bits, 1), 0);
            }
            win_mma_start<WIN_MMA_STEP_N>(p, s, m.bias, m.list.place + j, part,
                                          !p.mask && j >= p.g.extra && j + WIN_MMA_STEP <= keys);
            q.template add_products<WIN_MMA_STEP_N>(s, now);
            attn_mma_clear<WIN_MMA_STEP_N>(dp);
            dout.template add_products<WIN_MMA_STEP_N>(dp, now + TILE);
            win_mma_gradients<DROP, WIN_MMA_STEP_N>(
                p, s, dp, [&](int, int e) { return of_row[e / 2]; }, dropped);
            attn_mma_mix<COLS, WIN_MMA_STEP_N>(dq, s, now);
            if (BIASES) win_mma_leave<LD>(m.stash + 16 * warp * LD + j % STASH, s);
        }
        if (BIASES && ((j + WIN_MMA_STEP) % STASH == 0 || j + WIN_MMA_STEP >= keys)) {
            __syncthreads();
            win_mma_add_biases<LD>(p, t, rect, m, first, j / STASH * STASH,
                                   min(j + WIN_MMA_STEP, keys));
        }
        bf16 *const swap = now;
        now = other;
        other = swap;
    }
    const float scale[2] = { p.scale, p.scale };
    if (i < count && p.dq.to) win_mma_store<COLS>(p, p.dq, t.h, row, scale, dq);
    __syncthreads();
}

/* Block: slice blockIdx.x / H of the tiles of head blockIdx.x % H. BIASES: writes parts,
 * [slices][H][biases]; packed sequences have none. */
template <int COLS, bool BIASES, bool DROP, bool PACKED>
__global__ void __launch_bounds__(ATTN_MMA_THREADS, COLS == 32 ? 3 : 2)
    win_mma_grad_queries(win_mma all, int64_t slices, float *parts)
{
    TP_SHARED_REST(bf16, tiles);
    float *const bias =
        reinterpret_cast<float *>(tiles + (2 * WIN_MMA_ROWS + 4 * WIN_MMA_STEP) * COLS);
    float *const lists = bias + (BIASES ? 2 : 1) * all.biases;
    const win_mma_room m = { bias, bias + all.biases, win_mma_lists(all, lists),
                             reinterpret_cast<bf16 *>(lists + (DROP ? 3 : 2) * all.keys) };
    const int64_t slice = blockIdx.x / (unsigned)all.g.heads;
    const int h = (int)(blockIdx.x % (unsigned)all.g.heads);
    const int64_t items = all.g.batch * all.g.chunks[0] * all.g.chunks[1] * all.tiles;
    win_mma_load_biases(all, h, m.bias);
    for (int i = (int)threadIdx.x; BIASES && i < all.biases; i += ATTN_MMA_THREADS)
        m.sums[i] = 0.0f;
    for (int64_t i = items * slice / slices; i < items * (slice + 1) / slices; i++) {
        const int64_t chunk = tp_div(i, all.tiles);
        win_mma_chunk t = win_mma_chunk_at(all, (unsigned)chunk, h);
        const win_mma_part<PACKED> p = win_mma_sequence<PACKED>(all, t.b);
        if (PACKED) t.end(p);
        const int first = (int)(i - chunk * all.tiles) * WIN_MMA_ROWS;
        if (first < t.queries()) win_mma_grad_tile<COLS, BIASES, DROP>(p, t, first, tiles, m);
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; BIASES && i < all.biases; i += ATTN_MMA_THREADS)
        parts[(int64_t)blockIdx.x * all.biases + i] = m.sums[i];
}

/* The sum over slices of entry i of head h. */
static __device__ inline float win_mma_sum_parts(const win_mma &p, const float *parts, int64_t h,
                                                 int64_t i)
{
    float sum = 0.0f;
    for (int64_t s = 0; s < p.room.slices; s++) sum += parts[(s * p.g.heads + h) * p.biases + i];
    return sum;
}

/* Several differences share a row of the table if its stride is small. */
__global__ void __launch_bounds__(TP_THREADS) win_mma_sum_table(win_mma p, const float *parts)
{
    TP_EACH (e, p.g.rows * p.g.heads) {
        const int64_t row = tp_div(e, p.g.heads), h = e - row * p.g.heads;
        float sum = 0.0f;
        for (int y = 0; y < p.side[0]; y++) {
            const int64_t x =
                row - (y - p.reach[0] + p.g.reach[0]) * p.g.stride - p.g.reach[1] + p.reach[1];
            if (x >= 0 && x < p.side[1]) sum += win_mma_sum_parts(p, parts, h, y * p.side[1] + x);
        }
        p.dtable.put(e, sum);
    }
}

__global__ void __launch_bounds__(TP_THREADS) win_mma_sum_bias(win_mma p, const float *parts)
{
    TP_EACH (e, p.g.heads * p.g.global) {
        const int64_t h = tp_div(e, p.g.global);
        p.dbias.put(e, win_mma_sum_parts(p, parts, h, p.differences + e - h * p.g.global));
    }
}

bool tp__window_mma_serves_bwd(const win<bf16> &call)
{
    return tp__window_mma_serves(call) &&
           tp_aligned(call.dout, call.dq.to, call.dk.to, call.dv.to, call.dlow_k.to,
                      call.dlow_v.to) &&
           win_mma_query_shared(win_mma_problem(call), call.dtable.to || call.dbias.to) <=
               WIN_MMA_ROOM;
}

template <int COLS, bool DROP, bool PACKED>
static tp_code grad_queries(const tp_call *c, const win_mma &p, float *parts)
{
    const int64_t items = p.g.batch * p.g.chunks[0] * p.g.chunks[1] * p.tiles;
    const int64_t slices = parts ? p.room.slices : items;
    auto kernel = win_mma_grad_queries<COLS, false, DROP, PACKED>;
    if constexpr (!PACKED)
        if (parts) kernel = win_mma_grad_queries<COLS, true, DROP, false>;
    return tp_launch(c, kernel, (unsigned)(slices * p.g.heads), ATTN_MMA_THREADS,
                     win_mma_query_shared(p, parts != NULL), p, slices, parts);
}

tp_code tp__window_mma_bwd(const tp_call *c, const win<bf16> &call)
{
    const win_mma p = win_mma_problem(call);
    const bool biases = p.dtable.to || p.dbias.to;
    float *const parts = biases ? static_cast<float *>(c->work) + p.room.table : NULL;
    tp_code code = TP_OK;
    if (p.dq.to || biases)
        code = win_mma_by_kind(p, [&](auto cols, auto drop, auto packed) {
            return grad_queries<cols, drop, packed>(c, p, parts);
        });
    if (code == TP_OK && p.dtable.to)
        code = tp_launch(c, win_mma_sum_table, tp_grid(c, p.g.rows * p.g.heads), TP_THREADS, 0, p,
                         parts);
    if (code == TP_OK && p.dbias.to)
        code = tp_launch(c, win_mma_sum_bias, tp_grid(c, p.g.heads * p.g.global), TP_THREADS, 0, p,
                         parts);
    return code == TP_OK ? tp__window_mma_grad_keys(c, call) : code;
}
