/* window_attention_mma_keys.cu - gradients of attention over maps on tensor cores, bf16: keys and
 * values.
 *
 * A block owns 64 keys of a chunk and iterates over the queries that see them, 32 at a time (16 for
 * heads over 64): those of each neighbouring chunk, once per rectangle of its keys that overlaps
 * this chunk. Logits are transposed, so that keys are rows and nothing is transposed through
 * memory. All queries see low keys and global tokens: a block takes 64 of these and a span of the
 * map; the spans' sums are added in order.
 *
 * Four products per pair: 8 D operations and one 2^x. A step of 16 by 32 of a warp is 32 mma (heads
 * over 32: 64), 16 (32) ldmatrix and 16 2^x per lane; the warp that fetches log-sum-exps exceeds
 * the budget by 60 instructions.
 *
 *     budget: win_mma_grad_keys<32, false, false> sm_90 310 instructions
 *     budget: win_mma_grad_keys<64, false, false> sm_90 405 instructions
 *     budget: win_mma_grad_keys<32, true, false> sm_90 375 instructions
 *     budget: win_mma_grad_keys<64, true, false> sm_90 460 instructions
 */
#include "cuda/attention/window_mma_bwd.cuh"

/* Queries of a step, and blocks of 8 queries in it. */
template <int COLS> constexpr int WIN_MMA_STEPS = COLS == 128 ? WIN_MMA_STEP / 2 : WIN_MMA_STEP;
template <int COLS> constexpr int WIN_MMA_BLOCKS = WIN_MMA_STEPS<COLS> / 8;

constexpr int WIN_MMA_ITEMS = 9 * TP_WINDOW_RECTS; /* neighbouring chunks, rectangles of each */

/* Queries begin..end of a chunk that see keys through a rectangle; its position is relative to the
 * first query. */
struct win_mma_item {
    int top, left, cols, begin, end;
    win_mma_rect rect;
};

/* Sets item k for the keys of chunk t; false: none. */
static __device__ inline bool win_mma_item_at(const win_mma &p, const win_mma_chunk &t, int k,
                                              win_mma_item *item)
{
    int64_t down, across;
    const int64_t cy = win_first_chunk(p.g, 0, t.top, &down);
    const int64_t cx = win_first_chunk(p.g, 1, t.left, &across);
    const unsigned near = (unsigned)k / TP_WINDOW_RECTS, n = (unsigned)across;
    if (near >= down * across) return false;
    const unsigned rows = (unsigned)p.g.chunks[0], cols = (unsigned)p.g.chunks[1];
    const unsigned y = ((unsigned)cy + near / n) % rows, x = ((unsigned)cx + near % n) % cols;
    const win_mma_chunk from = win_mma_chunk_at(p, ((unsigned)t.b * rows + y) * cols + x, t.h);
    const win_mma_rect r = win_mma_rect_of(p, from, k % TP_WINDOW_RECTS);
    const int sy = from.top + r.y + r.dy, sx = from.left + r.x + r.dx;
    *item = { from.top, from.left, from.cols, 0, from.queries(), r };
    return sy < t.top + t.rows && sy + r.rows > t.top && sx < t.left + t.cols &&
           sx + r.cols > t.left;
}

/* Lists the items in order and returns their number. Has one barrier; the caller adds another
 * before the list is read. */
static __device__ inline int win_mma_list_items(const win_mma &p, const win_mma_chunk &t,
                                                win_mma_item *items)
{
    TP_SHARED(int, listed, [WIN_MMA_ITEMS]);
    const int k = (int)threadIdx.x;
    win_mma_item item;
    int before = 0, n = 0;
    const bool mine = k < WIN_MMA_ITEMS && win_mma_item_at(p, t, k, &item);
    if (k < WIN_MMA_ITEMS) listed[k] = mine;
    __syncthreads();
    for (int i = 0; i < WIN_MMA_ITEMS; i++) {
        n += listed[i];
        if (i < k) before += listed[i];
    }
    if (mine) items[before] = item;
    return n;
}

/* A warp's 16 keys and their gradients. tiles: keys, then values. */
template <int COLS> struct win_mma_held_keys {
    win_mma_held<COLS> k, v;
    float dk[COLS / 8][4], dv[COLS / 8][4];
    __device__ win_mma_held_keys(const bf16 *tiles)
        : k(tiles, (int)threadIdx.x / 32 * 16),
          v(tiles + WIN_MMA_ROWS * COLS, (int)threadIdx.x / 32 * 16)
    {
    }
};

/* A step: queries of an item. */
struct win_mma_step {
    int item, i;
    template <int STEPS> __device__ win_mma_step next(const win_mma_item *items, int n) const
    {
        if (i + STEPS < items[item].end) return { item, i + STEPS };
        return { item + 1, item + 1 < n ? items[item + 1].begin : 0 };
    }
};

/* Queues copies of the step's rows of q and dO, zeros for hidden ones. */
template <int COLS>
static __device__ inline void win_mma_fetch(const win_mma &p, int b, bf16 *tile,
                                            const win_mma_item &item, int i,
                                            const win_mma_source &from)
{
    constexpr int CHUNKS = COLS / 8, STEP = ATTN_MMA_THREADS / CHUNKS;
    const int c = (int)threadIdx.x % CHUNKS, first = (int)threadIdx.x / CHUNKS;
    bf16 *const to = tile + tp_tile_at<COLS>(first, c);
#pragma unroll
    for (int k = 0; k < WIN_MMA_STEPS<COLS>; k += STEP) {
        const int at = i + first + k;
        const int cell =
            win_mma_query_at(p, item.top, item.left, item.cols, min(at, item.end - 1)).cell;
        const bool ok = at < item.end && 8 * c < p.g.dim && win_mma_shown(p, b, cell);
        const int begin = cell * (int)p.g.width + 8 * c;
        tp_copy_async_if(ok, to + k * COLS, from.x + begin);
        tp_copy_async_if(ok, to + (WIN_MMA_STEPS<COLS> + k) * COLS, from.y + begin);
    }
}

/* Values of a step's queries: log-sum-exp and delta, part of differences, cell (with dropout). */
struct win_mma_queries {
    float2 row[WIN_MMA_STEP];
    int part[WIN_MMA_STEP], cell[WIN_MMA_STEP];
};

/* win_mma_dropped for 16 rows that are keys and 8 N columns that are queries, drawn by lane. */
template <int N> struct win_mma_dropped_keys {
    static constexpr int LANES = 32 / (8 * N), KEYS = 16 / LANES; /* of a query; of a lane */
    uint32_t bits[N][2] = {};
    /* first(i): query i's element of column 0; column: of the keys. */
    template <class F> __device__ void draw(const win_mma &p, F first, const int *column)
    {
        const int lane = (int)threadIdx.x % 32, from = lane / (8 * N) * KEYS;
        uint32_t drawn = win_mma_draw<KEYS>(p, first(lane % (8 * N)), column + from) << from;
        if (LANES == 2) drawn |= __shfl_xor_sync(0xffffffffu, drawn, 16);
        for (int m = 0; m < N; m++)
            for (int e = 0; e < 2; e++)
                bits[m][e] = __shfl_sync(0xffffffffu, drawn, 8 * m + lane % 4 * 2 + e) >> lane / 4;
    }
    __device__ bool at(int m, int e) const { return bits[m][e % 2] >> 8 * (e / 2) & 1u; }
};

/* The index of the bias of a row's pairs: bias[base + (part & mask)]. */
struct win_mma_base {
    int base, mask;
};

/* Sums the gradients of a block's 64 keys; column: of this warp's. at(item, half) returns the bias
 * index of this lane's row. tiles: keys, values, then the ring. */
template <int COLS, bool DROP, class F>
static __device__ inline void win_mma_walk(const win_mma &p, int b, int h, const int *list,
                                           const int *column, const win_mma_source &keys,
                                           const float *bias, const win_mma_item *items, int n,
                                           bool mine, bf16 *tiles, win_mma_held_keys<COLS> &w, F at)
{
    constexpr int STEPS = WIN_MMA_STEPS<COLS>, N = WIN_MMA_BLOCKS<COLS>, TILE = STEPS * COLS;
    TP_SHARED(win_mma_queries, queries, [2]);
    const int first = (int)threadIdx.x % 4 * 2;
    const win_mma_source from = win_mma_queries_of(p, b, h);
    bf16 *now = tiles + 2 * WIN_MMA_ROWS * COLS, *other = now + 2 * TILE;
    /* Threads below STEPS load the values of one query each. */
    const auto values = [&](const win_mma_step &s, win_mma_queries *to) {
        if (threadIdx.x >= STEPS) return;
        const win_mma_item &item = items[s.item];
        const int i = s.i + (int)threadIdx.x;
        const win_mma_query q =
            win_mma_query_at(p, item.top, item.left, item.cols, min(i, item.end - 1));
        to->row[threadIdx.x] = win_mma_of_query(p, b, h, i < item.end ? q.cell : -1);
        to->part[threadIdx.x] = q.part;
        if (DROP) to->cell[threadIdx.x] = q.cell;
    };
    attn_mma_clear<COLS / 8>(w.dk);
    attn_mma_clear<COLS / 8>(w.dv);
    if (n == 0) return;
    win_mma_gather<COLS, WIN_MMA_ROWS>(p, tiles, list, keys);
    win_mma_step step = { 0, items[0].begin };
    win_mma_fetch<COLS>(p, b, now, items[0], step.i, from);
    tp_copy_commit();
    values(step, &queries[0]);
    win_mma_base base[2];
    for (int slot = 0, item = -1; step.item < n; slot ^= 1) {
        const win_mma_step next = step.next<STEPS>(items, n);
        tp_copy_wait<0>();
        __syncthreads();
        if (next.item < n) win_mma_fetch<COLS>(p, b, other, items[next.item], next.i, from);
        tp_copy_commit();
        if (next.item < n) values(next, &queries[slot ^ 1]);
        if (item < 0) {
            w.k.take();
            w.v.take();
        }
        if (item != step.item)
            for (int half = 0; half < 2; half++) base[half] = at(items[step.item], half);
        item = step.item;
        const win_mma_queries &of = queries[slot];
        const bool seen =
            !p.mask || __any_sync(0xffffffffu, of.row[threadIdx.x % STEPS].x < INFINITY);
        if (mine && seen) {
            float s[N][4], dp[N][4];
            win_mma_dropped_keys<N> dropped;
            if (DROP)
                dropped.draw(
                    p, [&](int i) { return win_mma_element(p, b, h, of.cell[i]); }, column);
#pragma unroll
            for (int m = 0; m < N; m++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    s[m][e] = bias[base[e / 2].base +
                                   (of.part[8 * m + first + e % 2] & base[e / 2].mask)];
            w.k.template add_products<N>(s, now);
            attn_mma_clear<N>(dp);
            w.v.template add_products<N>(dp, now + TILE);
            win_mma_gradients<DROP, N>(
                p, s, dp, [&](int m, int e) { return of.row[8 * m + first + e % 2]; }, dropped);
            attn_mma_mix<COLS, N>(w.dv, dp, now + TILE);
            attn_mma_mix<COLS, N>(w.dk, s, now);
        }
        step = next;
        bf16 *const swap = now;
        now = other;
        other = swap;
    }
}

template <int COLS> static size_t win_mma_key_shared(const win_mma &p)
{
    return (size_t)(2 * WIN_MMA_ROWS + 4 * WIN_MMA_STEPS<COLS>)*COLS * sizeof(bf16) +
           (size_t)p.biases * 4;
}

/* Keys of the map, blocks as in forward. */
template <int COLS, bool DROP, bool PACKED>
__global__ void __launch_bounds__(ATTN_MMA_THREADS, COLS == 32 && !PACKED ? 3 : 2)
    win_mma_grad_keys(win_mma all)
{
    TP_SHARED_REST(bf16, tiles);
    TP_SHARED(win_mma_item, items, [WIN_MMA_ITEMS]);
    TP_SHARED(int, list, [WIN_MMA_ROWS]);
    TP_SHARED(int, column, [WIN_MMA_ROWS]);
    float *const bias =
        reinterpret_cast<float *>(tiles + (2 * WIN_MMA_ROWS + 4 * WIN_MMA_STEPS<COLS>)*COLS);
    const unsigned tile = blockIdx.x / (unsigned)all.g.heads, chunk = tile / (unsigned)all.tiles;
    win_mma_chunk t =
        win_mma_chunk_at(all, chunk, (int)(blockIdx.x - tile * (unsigned)all.g.heads));
    const win_mma_part<PACKED> p = win_mma_sequence<PACKED>(all, t.b);
    if (PACKED) t.end(p);
    const int first = (int)(tile - chunk * (unsigned)p.tiles) * WIN_MMA_ROWS, count = t.queries();
    const int i = first + (int)threadIdx.x / 32 * 16;
    if (first >= count) return;
    if (threadIdx.x < WIN_MMA_ROWS) {
        const int at = first + (int)threadIdx.x, cell = win_mma_query_at(p, t, at).cell;
        const bool shown = at < count && win_mma_shown(p, t.b, cell);
        list[threadIdx.x] = shown ? ((int)p.g.global + cell) * (int)p.g.width : -1;
        if (DROP)
            column[threadIdx.x] = win_mma_column((int)p.g.extra + cell, t.cols - 1 - at % t.cols);
    }
    win_mma_load_biases(p, t.h, bias);
    int n = win_mma_list_items(p, t, items);
    __syncthreads();
    if (p.mask && !win_mma_any(list)) n = 0;
    int64_t row[2];
    bool shown[2];
    int y[2], x[2];
    for (int half = 0; half < 2; half++) {
        const int at = i + (int)threadIdx.x % 32 / 4 + 8 * half, down = at / t.cols;
        y[half] = t.top + down;
        x[half] = t.left + at - down * t.cols;
        row[half] = at < count ? t.b * p.g.tokens + p.g.global + y[half] * p.g.size[1] + x[half]
                               : (int64_t)-1;
        shown[half] = row[half] >= 0 && list[at - first] >= 0;
    }
    win_mma_held_keys<COLS> w(tiles);
    win_mma_walk<COLS, DROP>(
        p, t.b, t.h, list, column + i - first, win_mma_keys_of(p, t), bias, items, n, i < count,
        tiles, w, [&](const win_mma_item &item, int half) {
            const win_mma_rect &r = item.rect;
            const int down = y[half] - r.dy - item.top;
            const int across = x[half] - r.dx - item.left;
            const bool seen = shown[half] && down >= r.y && down < r.y + r.rows && across >= r.x &&
                              across < r.x + r.cols;
            const int place = seen ? win_mma_place(p, down, across) : ~win_mma_hidden(p);
            return win_mma_base{ place < 0 ? ~place : place, place < 0 ? 0 : -1 };
        });
    const float scale[2] = { p.scale, p.scale }, keep[2] = { p.drop.scale, p.drop.scale };
    /* Not p's, which would take registers until here. */
    const win_mma_part<PACKED> to = win_mma_sequence<PACKED>(all, t.b);
    if (i < count && to.dk.to) win_mma_store<COLS>(to, to.dk, t.h, row, scale, w.dk);
    if (i < count && to.dv.to) win_mma_store<COLS>(to, to.dv, t.h, row, keep, w.dv);
}

/* The first part of packed sequence b, of parts [...][H]. */
static __device__ inline int64_t win_mma_first_part(const win_mma &all, int64_t b)
{
    return tp__document(&all.rows, b).first / WIN_SPAN + b;
}

/* Low keys and global tokens. Block: (64 of them, span, batch row, head). parts:
 * [B][H][spans][extra][2][D]; packed [parts of all sequences][H][extra][2][D]. */
template <int COLS, bool DROP, bool PACKED>
__global__ void __launch_bounds__(ATTN_MMA_THREADS, COLS == 32 && !PACKED ? 3 : 2)
    win_mma_grad_extra(win_mma all, float *parts)
{
    TP_SHARED_REST(bf16, tiles);
    TP_SHARED(win_mma_item, items, [1]);
    TP_SHARED(int, list, [WIN_MMA_ROWS]);
    TP_SHARED(int, column, [WIN_MMA_ROWS]);
    float *const bias =
        reinterpret_cast<float *>(tiles + (2 * WIN_MMA_ROWS + 4 * WIN_MMA_STEPS<COLS>)*COLS);
    const int extra = (int)all.g.extra, low = (int)all.g.low, width = (int)all.g.width;
    int64_t part = blockIdx.x / (unsigned)attn_tiles(extra, WIN_MMA_ROWS);
    const int first = (int)(blockIdx.x % (unsigned)attn_tiles(extra, WIN_MMA_ROWS)) * WIN_MMA_ROWS;
    const int64_t head = part / all.room.spans, b = head / all.g.heads;
    const int span = (int)(part - head * all.room.spans), h = (int)(head - b * all.g.heads);
    const win_mma_part<PACKED> p = win_mma_sequence<PACKED>(all, b);
    if (PACKED && span * (int64_t)WIN_SPAN >= p.g.cells) return;
    const int i = first + (int)threadIdx.x / 32 * 16;
    win_mma_chunk t = {};
    t.b = (int)b;
    t.h = h;
    if (threadIdx.x < WIN_MMA_ROWS) {
        const int j = first + (int)threadIdx.x;
        const bool shown = j < low ? win_low_shown(p, b, j) : j < extra && win_shown(p, b, j - low);
        list[threadIdx.x] = !shown ? -1 : j < low ? -2 - j * width : (j - low) * width;
        if (DROP) column[threadIdx.x] = win_mma_column(j, 3);
    }
    if (threadIdx.x == 0) {
        const int begin = span * WIN_SPAN;
        const win_mma_item all = {
            0, 0, (int)p.g.size[1], begin, (int)min(p.g.cells, (int64_t)begin + WIN_SPAN), {}
        };
        items[0] = all;
    }
    win_mma_load_biases(p, h, bias);
    __syncthreads();
    const int row = i + (int)threadIdx.x % 32 / 4;
    win_mma_held_keys<COLS> w(tiles);
    win_mma_walk<COLS, DROP>(p, t.b, h, list, column + i - first, win_mma_keys_of(p, t), bias,
                             items, 1, i < extra, tiles, w, [&](const win_mma_item &, int half) {
                                 const int j = row + 8 * half;
                                 const int at = list[j - first] == -1 ? win_mma_hidden(p)
                                                : j < low             ? win_mma_none(p)
                                                                      : p.differences + j - low;
                                 return win_mma_base{ at, 0 };
                             });
    if (PACKED) part = (win_mma_first_part(all, b) + span) * all.g.heads + h;
    for (int half = 0; half < 2; half++) {
        const int j = row + 8 * half;
        float *const to = parts + (part * extra + j) * 2 * p.g.dim + threadIdx.x % 4 * 2;
#pragma unroll
        for (int n = 0; n < COLS / 8; n++)
            for (int e = 0; e < 2 && j < extra && 8 * n < p.g.dim; e++) {
                to[8 * n + e] = p.scale * w.dk[n][2 * half + e];
                to[p.g.dim + 8 * n + e] = p.drop.scale * w.dv[n][2 * half + e];
            }
    }
}

/* Sums the spans into dk or dlow_k, dv or dlow_v. */
template <bool PACKED>
__global__ void __launch_bounds__(TP_THREADS) win_mma_sum_extra(win_mma p, const float *parts)
{
    const int64_t D = p.g.dim, size = p.g.extra * 2 * D;
    TP_EACH (e, p.g.batch * p.g.heads * size) {
        const int64_t head = tp_div(e, size), j = tp_div(e - head * size, 2 * D);
        const int64_t b = tp_div(head, p.g.heads), x = e - head * size - j * 2 * D;
        const bool low = j < p.g.low, key = x < D;
        const attn_sink<bf16> to = low ? key ? p.dlow_k : p.dlow_v : key ? p.dk : p.dv;
        const int64_t row = low ? b * p.g.low + j : b * p.g.tokens + j - p.g.low;
        int64_t part = head * p.room.spans, spans = p.room.spans, step = 1;
        if (PACKED) {
            part = win_mma_first_part(p, b) * p.g.heads + head - b * p.g.heads;
            spans = tp__ceil_div(tp__document(&p.rows, b).count, WIN_SPAN);
            step = p.g.heads;
        }
        float sum = 0.0f;
        for (int64_t s = 0; s < spans; s++) sum += parts[(part + s * step) * size + j * 2 * D + x];
        if (to.to) to.put(row * p.g.width + (head - b * p.g.heads) * D + (key ? x : x - D), sum);
    }
}

/* Keys of the map. Without a window no query sees them; their gradients are zero. */
template <int COLS, bool DROP, bool PACKED>
static tp_code grad_keys(const tp_call *c, const win_mma &p)
{
    const int64_t blocks = p.g.batch * p.g.chunks[0] * p.g.chunks[1] * p.tiles * p.g.heads;
    return tp_launch(c, win_mma_grad_keys<COLS, DROP, PACKED>, (unsigned)blocks, ATTN_MMA_THREADS,
                     win_mma_key_shared<COLS>(p), p);
}

template <int COLS, bool DROP, bool PACKED>
static tp_code grad_extra(const tp_call *c, const win_mma &p, float *parts)
{
    const int64_t tiles = attn_tiles((int)p.g.extra, WIN_MMA_ROWS);
    const tp_code code = tp_launch(c, win_mma_grad_extra<COLS, DROP, PACKED>,
                                   (unsigned)(p.g.batch * p.g.heads * p.room.spans * tiles),
                                   ATTN_MMA_THREADS, win_mma_key_shared<COLS>(p), p, parts);
    if (code != TP_OK) return code;
    return tp_launch(c, win_mma_sum_extra<PACKED>,
                     tp_grid(c, p.g.batch * p.g.extra * p.g.width * 2), TP_THREADS, 0, p, parts);
}

tp_code tp__window_mma_grad_keys(const tp_call *c, const win<bf16> &call)
{
    const win_mma p = win_mma_problem(call);
    float *const parts = static_cast<float *>(c->work) + p.room.keys;
    tp_code code = TP_OK;
    if (p.dk.to || p.dv.to)
        code = win_mma_by_kind(p, [&](auto cols, auto drop, auto packed) {
            return grad_keys<cols, drop, packed>(c, p);
        });
    if (code != TP_OK || p.g.extra == 0 || !(p.dk.to || p.dv.to || p.dlow_k.to || p.dlow_v.to))
        return code;
    return win_mma_by_kind(p, [&](auto cols, auto drop, auto packed) {
        return grad_extra<cols, drop, packed>(c, p, parts);
    });
}
