/* window_attention_mma_keys.cu - gradients of attention over maps on tensor cores, bf16: keys and
 * values.
 *
 * A block owns 64 keys of a chunk and walks over the queries that see them, 32 at a time: those of
 * each neighbouring chunk, once for each of its rectangles of keys that lies in this chunk. Logits
 * are transposed, so that keys are the rows and nothing is transposed through memory. Low keys and
 * global tokens are seen by all queries: a block takes 64 of them and a span of the map; the spans'
 * sums are added in order.
 *
 * Four products per pair: 8 D operations and one 2^x. A step of 16 by 32 of a warp is 32 mma (heads
 * over 32: 64), 16 (32) ldmatrix and 16 2^x per lane; the warp that fetches log-sum-exps has 60
 * instructions more than the budget.
 *
 *     budget: window_grad_keys_mma<32> sm_90 310 instructions
 *     budget: window_grad_keys_mma<64> sm_90 405 instructions
 */
#include "cuda/attention/window_mma_bwd.cuh"

constexpr int WM_ITEMS = 9 * TP_WINDOW_RECTS; /* neighbouring chunks, rectangles of each */

/* Queries begin..end of a chunk that see keys through a rectangle, whose position is relative to the
 * first of them. */
struct wm_item {
    int top, left, cols, begin, end;
    wm_rect rect;
};

/* Item k for the keys of chunk t; false: there is none. */
static __device__ inline bool wm_item_at(const wm &p, const wm_chunk &t, int k, wm_item *item)
{
    int64_t down, across;
    const int64_t cy = win_first_chunk(p.g, 0, t.top, &down);
    const int64_t cx = win_first_chunk(p.g, 1, t.left, &across);
    const unsigned near = (unsigned)k / TP_WINDOW_RECTS, n = (unsigned)across;
    if (near >= down * across) return false;
    const unsigned rows = (unsigned)p.g.chunks[0], cols = (unsigned)p.g.chunks[1];
    const unsigned y = ((unsigned)cy + near / n) % rows, x = ((unsigned)cx + near % n) % cols;
    const wm_chunk from = wm_chunk_at(p, ((unsigned)t.b * rows + y) * cols + x, t.h);
    const wm_rect r = wm_rect_of(p, from, k % TP_WINDOW_RECTS);
    const int sy = from.top + r.y + r.dy, sx = from.left + r.x + r.dx;
    *item = { from.top, from.left, from.cols, 0, from.queries(), r };
    return sy < t.top + t.rows && sy + r.rows > t.top && sx < t.left + t.cols &&
           sx + r.cols > t.left;
}

/* Lists the items in order and returns their number. Has one barrier; the caller adds another before
 * the list is read. */
static __device__ inline int wm_list_items(const wm &p, const wm_chunk &t, wm_item *items)
{
    TP_SHARED(int, listed, [WM_ITEMS]);
    const int k = (int)threadIdx.x;
    wm_item item;
    int before = 0, n = 0;
    const bool mine = k < WM_ITEMS && wm_item_at(p, t, k, &item);
    if (k < WM_ITEMS) listed[k] = mine;
    __syncthreads();
    for (int i = 0; i < WM_ITEMS; i++) {
        n += listed[i];
        if (i < k) before += listed[i];
    }
    if (mine) items[before] = item;
    return n;
}

/* A warp's 16 keys and their gradients. */
template <int COLS> struct wm_held_keys {
    uint32_t k[COLS / 16][4], v[COLS / 16][4];
    float dk[COLS / 8][4], dv[COLS / 8][4];
};

/* A step: 32 queries of an item. */
struct wm_step {
    int item, i;
    __device__ wm_step next(const wm_item *items, int n) const
    {
        if (i + WM_STEP < items[item].end) return { item, i + WM_STEP };
        return { item + 1, item + 1 < n ? items[item + 1].begin : 0 };
    }
};

/* Queues copies of the step's rows of q and dO, zeros for hidden ones. */
template <int COLS>
static __device__ inline void wm_fetch(const wm &p, int b, bf16 *tile, const wm_item &item, int i,
                                       const wm_source &from)
{
    constexpr int CHUNKS = COLS / 8, STEP = AM_THREADS / CHUNKS;
    const int c = (int)threadIdx.x % CHUNKS, first = (int)threadIdx.x / CHUNKS;
    bf16 *const to = tile + tp_tile_at<COLS>(first, c);
#pragma unroll
    for (int k = 0; k < WM_STEP; k += STEP) {
        const int at = i + first + k;
        const int cell = wm_query_at(p, item.top, item.left, item.cols, min(at, item.end - 1)).cell;
        const bool ok = at < item.end && 8 * c < p.g.dim && wm_shown(p, b, cell);
        const int begin = cell * (int)p.g.width + 8 * c;
        tp_copy_async_if(ok, to + k * COLS, from.x + begin);
        tp_copy_async_if(ok, to + (WM_STEP + k) * COLS, from.y + begin);
    }
}

/* Values of a step's queries: log-sum-exp and delta, part of differences. */
struct wm_queries {
    float2 row[WM_STEP];
    int part[WM_STEP];
};

/* The index of the bias of a row's pairs: bias[base + (part & mask)]. */
struct wm_base {
    int base, mask;
};

/* Sums the gradients of a block's 64 keys. at(item, half) gives the index of the biases of a row of
 * this lane. tiles: keys, values, then the ring. */
template <int COLS, class F>
static __device__ inline void wm_walk(const wm &p, int b, int h, const int *list,
                                      const wm_source &keys, const float *bias,
                                      const wm_item *items, int n, bool mine, bf16 *tiles,
                                      wm_held_keys<COLS> &w, F at)
{
    constexpr int TILE = WM_STEP * COLS;
    TP_SHARED(wm_queries, queries, [2]);
    const int column = (int)threadIdx.x % 4 * 2, warp = (int)threadIdx.x / 32;
    const wm_source from = wm_queries_of(p, b, h);
    bf16 *now = tiles + 2 * WM_ROWS * COLS, *other = now + 2 * TILE;
    /* Threads below WM_STEP load the values of one query each. */
    const auto values = [&](const wm_step &s, wm_queries *to) {
        if (threadIdx.x >= WM_STEP) return;
        const wm_item &item = items[s.item];
        const int i = s.i + (int)threadIdx.x;
        const wm_query q = wm_query_at(p, item.top, item.left, item.cols, min(i, item.end - 1));
        to->row[threadIdx.x] = wm_of_query(p, b, h, i < item.end ? q.cell : -1);
        to->part[threadIdx.x] = q.part;
    };
    am_clear<COLS / 8>(w.dk);
    am_clear<COLS / 8>(w.dv);
    if (n == 0) return;
    wm_gather<COLS, WM_ROWS>(p, tiles, list, keys);
    wm_step step = { 0, items[0].begin };
    wm_fetch<COLS>(p, b, now, items[0], step.i, from);
    tp_copy_commit();
    values(step, &queries[0]);
    wm_base base[2];
    for (int slot = 0, item = -1; step.item < n; slot ^= 1) {
        const wm_step next = step.next(items, n);
        tp_copy_wait<0>();
        __syncthreads();
        if (next.item < n) wm_fetch<COLS>(p, b, other, items[next.item], next.i, from);
        tp_copy_commit();
        if (next.item < n) values(next, &queries[slot ^ 1]);
        if (item < 0) {
            wm_hold<COLS>(w.k, tiles, 16 * warp);
            wm_hold<COLS>(w.v, tiles + WM_ROWS * COLS, 16 * warp);
        }
        if (item != step.item)
            for (int half = 0; half < 2; half++) base[half] = at(items[step.item], half);
        item = step.item;
        const wm_queries &of = queries[slot];
        const bool seen = !p.mask || __any_sync(0xffffffffu, of.row[threadIdx.x % 32].x < INFINITY);
        if (mine && seen) {
            float s[WM_STEP_N][4], dp[WM_STEP_N][4];
#pragma unroll
            for (int m = 0; m < WM_STEP_N; m++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    s[m][e] = bias[base[e / 2].base +
                                   (of.part[8 * m + column + e % 2] & base[e / 2].mask)];
            am_products<COLS, WM_STEP_N>(s, w.k, now);
            am_clear<WM_STEP_N>(dp);
            am_products<COLS, WM_STEP_N>(dp, w.v, now + TILE);
            wm_gradients<WM_STEP_N>(p, s, dp,
                                    [&](int m, int e) { return of.row[8 * m + column + e % 2]; });
            am_mix<COLS, WM_STEP_N>(w.dv, dp, now + TILE);
            am_mix<COLS, WM_STEP_N>(w.dk, s, now);
        }
        step = next;
        bf16 *const swap = now;
        now = other;
        other = swap;
    }
}

template <int COLS> static size_t wm_key_shared(const wm &p)
{
    return (size_t)(2 * WM_ROWS + 4 * WM_STEP) * COLS * sizeof(bf16) + (size_t)p.biases * 4;
}

/* Keys of the map, blocks as in forward. */
template <int COLS>
__global__ void __launch_bounds__(AM_THREADS, COLS == 32 ? 3 : 2) window_grad_keys_mma(wm p)
{
    TP_SHARED_REST(bf16, tiles);
    TP_SHARED(wm_item, items, [WM_ITEMS]);
    TP_SHARED(int, list, [WM_ROWS]);
    float *const bias = reinterpret_cast<float *>(tiles + (2 * WM_ROWS + 4 * WM_STEP) * COLS);
    const unsigned tile = blockIdx.x / (unsigned)p.g.heads, chunk = tile / (unsigned)p.tiles;
    const wm_chunk t = wm_chunk_at(p, chunk, (int)(blockIdx.x - tile * (unsigned)p.g.heads));
    const int first = (int)(tile - chunk * (unsigned)p.tiles) * WM_ROWS, count = t.queries();
    const int i = first + (int)threadIdx.x / 32 * 16;
    if (first >= count) return;
    if (threadIdx.x < WM_ROWS) {
        const int at = first + (int)threadIdx.x, cell = wm_query_at(p, t, at).cell;
        const bool shown = at < count && wm_shown(p, t.b, cell);
        list[threadIdx.x] = shown ? ((int)p.g.global + cell) * (int)p.g.width : -1;
    }
    wm_load_biases(p, t.h, bias);
    int n = wm_list_items(p, t, items);
    __syncthreads();
    if (p.mask && !wm_any(list)) n = 0;
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
    wm_held_keys<COLS> w;
    wm_walk<COLS>(p, t.b, t.h, list, wm_keys_of(p, t), bias, items, n, i < count, tiles, w,
                  [&](const wm_item &item, int half) {
                      const wm_rect &r = item.rect;
                      const int down = y[half] - r.dy - item.top,
                                across = x[half] - r.dx - item.left;
                      const bool seen = shown[half] && down >= r.y && down < r.y + r.rows &&
                                        across >= r.x && across < r.x + r.cols;
                      const int place = seen ? wm_place(p, down, across) : ~wm_hidden(p);
                      return wm_base{ place < 0 ? ~place : place, place < 0 ? 0 : -1 };
                  });
    const float scale[2] = { p.scale, p.scale }, one[2] = { 1.0f, 1.0f };
    if (i < count && p.dk.to) wm_store<COLS>(p, p.dk, t.h, row, scale, w.dk);
    if (i < count && p.dv.to) wm_store<COLS>(p, p.dv, t.h, row, one, w.dv);
}

/* Low keys and global tokens. Block: (64 of them, span, batch row, head). parts:
 * [B][H][spans][extra][2][D]. */
template <int COLS>
__global__ void __launch_bounds__(AM_THREADS, COLS == 32 ? 3 : 2)
    window_grad_extra_mma(wm p, float *parts)
{
    TP_SHARED_REST(bf16, tiles);
    TP_SHARED(wm_item, items, [1]);
    TP_SHARED(int, list, [WM_ROWS]);
    float *const bias = reinterpret_cast<float *>(tiles + (2 * WM_ROWS + 4 * WM_STEP) * COLS);
    const int extra = (int)p.g.extra, low = (int)p.g.low, width = (int)p.g.width;
    const int64_t part = blockIdx.x / (unsigned)attn_tiles(extra, WM_ROWS);
    const int first = (int)(blockIdx.x % (unsigned)attn_tiles(extra, WM_ROWS)) * WM_ROWS;
    const int64_t head = part / p.room.spans, b = head / p.g.heads;
    const int span = (int)(part - head * p.room.spans), h = (int)(head - b * p.g.heads);
    const int i = first + (int)threadIdx.x / 32 * 16;
    wm_chunk t = {};
    t.b = (int)b;
    t.h = h;
    if (threadIdx.x < WM_ROWS) {
        const int j = first + (int)threadIdx.x;
        const bool shown = j < low ? win_low_shown(p, b, j) : j < extra && win_shown(p, b, j - low);
        list[threadIdx.x] = !shown ? -1 : j < low ? -2 - j * width : (j - low) * width;
    }
    if (threadIdx.x == 0) {
        const int begin = span * WIN_SPAN;
        const wm_item all = {
            0, 0, (int)p.g.size[1], begin, (int)min(p.g.cells, (int64_t)begin + WIN_SPAN), {}
        };
        items[0] = all;
    }
    wm_load_biases(p, h, bias);
    __syncthreads();
    const int row = i + (int)threadIdx.x % 32 / 4;
    wm_held_keys<COLS> w;
    wm_walk<COLS>(p, t.b, h, list, wm_keys_of(p, t), bias, items, 1, i < extra, tiles, w,
                  [&](const wm_item &, int half) {
                      const int j = row + 8 * half;
                      const int at = list[j - first] == -1 ? wm_hidden(p)
                                     : j < low             ? wm_none(p)
                                                           : p.differences + j - low;
                      return wm_base{ at, 0 };
                  });
    for (int half = 0; half < 2; half++) {
        const int j = row + 8 * half;
        float *const to = parts + (part * extra + j) * 2 * p.g.dim + threadIdx.x % 4 * 2;
#pragma unroll
        for (int n = 0; n < COLS / 8; n++)
            for (int e = 0; e < 2 && j < extra && 8 * n < p.g.dim; e++) {
                to[8 * n + e] = p.scale * w.dk[n][2 * half + e];
                to[p.g.dim + 8 * n + e] = w.dv[n][2 * half + e];
            }
    }
}

/* Adds the spans into dk or dlow_k, dv or dlow_v. */
__global__ void __launch_bounds__(TP_THREADS) window_sum_extra(wm p, const float *parts)
{
    const int64_t D = p.g.dim, size = p.g.extra * 2 * D;
    TP_EACH (e, p.g.batch * p.g.heads * size) {
        const int64_t head = tp_div(e, size), j = tp_div(e - head * size, 2 * D);
        const int64_t b = tp_div(head, p.g.heads), x = e - head * size - j * 2 * D;
        const bool low = j < p.g.low, key = x < D;
        const attn_sink<bf16> to = low ? key ? p.dlow_k : p.dlow_v : key ? p.dk : p.dv;
        const int64_t row = low ? b * p.g.low + j : b * p.g.tokens + j - p.g.low;
        float sum = 0.0f;
        for (int64_t s = 0; s < p.room.spans; s++)
            sum += parts[(head * p.room.spans + s) * size + j * 2 * D + x];
        if (to.to) to.put(row * p.g.width + (head - b * p.g.heads) * D + (key ? x : x - D), sum);
    }
}

/* Keys of the map. Without a window no query sees them, and their gradients are zero. */
template <int COLS> static tp_code grad_keys(const tp_call *c, const wm &p)
{
    const int64_t blocks = p.g.batch * p.g.chunks[0] * p.g.chunks[1] * p.tiles * p.g.heads;
    return tp_launch(c, window_grad_keys_mma<COLS>, (unsigned)blocks, AM_THREADS,
                     wm_key_shared<COLS>(p), p);
}

template <int COLS> static tp_code grad_extra(const tp_call *c, const wm &p, float *parts)
{
    const int64_t tiles = attn_tiles((int)p.g.extra, WM_ROWS);
    const tp_code code = tp_launch(c, window_grad_extra_mma<COLS>,
                                   (unsigned)(p.g.batch * p.g.heads * p.room.spans * tiles),
                                   AM_THREADS, wm_key_shared<COLS>(p), p, parts);
    if (code != TP_OK) return code;
    return tp_launch(c, window_sum_extra, tp_grid(c, p.g.batch * p.g.extra * p.g.width * 2),
                     TP_THREADS, 0, p, parts);
}

tp_code tp__window_mma_grad_keys(const tp_call *c, const win<bf16> &call)
{
    const wm p = wm_problem(call);
    float *const parts = static_cast<float *>(c->work) + p.room.keys;
    tp_code code = TP_OK;
    if (p.dk.to || p.dv.to) code = p.g.dim <= 32 ? grad_keys<32>(c, p) : grad_keys<64>(c, p);
    if (code != TP_OK || p.g.extra == 0 || !(p.dk.to || p.dv.to || p.dlow_k.to || p.dlow_v.to))
        return code;
    return p.g.dim <= 32 ? grad_extra<32>(c, p, parts) : grad_extra<64>(c, p, parts);
}
