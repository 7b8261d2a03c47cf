/* window_mma.cuh - common to the tensor core kernels of attention over maps: chunks, lists of their
 * keys, biases by difference of positions, gathered tiles, products, dropout.
 *
 * A key has a row in memory and a place, which determines its bias. For keys of the map the place
 * is minus the key's part of the difference of positions, to which a query adds its part. For all
 * others it is negative: the complement of the bias's index. The bias is -inf for differences
 * beyond the reach, padding of a list, and masked keys. Rows of hidden keys and queries are not
 * read but are zeros. Biases are divided by the scale: they initialise the logits.
 *
 * With dropout (DROP) a key also has a column: 4 j + n for column j of [B,H,N,r+g+N] if the next n
 * <= 3 keys have the columns after j. One block of random words then serves n + 1 pairs. A warp
 * draws all bits of a step before its products, none twice, and exchanges them by shuffles. Scales
 * of kept probabilities are applied to the sums. */
#ifndef TP_WINDOW_MMA_CUH
#define TP_WINDOW_MMA_CUH

#include "cuda/attention/attention_mma.cuh"
#include "cuda/attention/window.cuh"

/* Rows of a block; lists of keys are padded to a multiple of this. */
constexpr int WIN_MMA_ROWS = TP_WINDOW_QUERIES;

struct win_mma : win<bf16> {
    win_room room;
    int tiles;             /* of the queries of a chunk                      */
    int keys;              /* most keys of a chunk, padded                   */
    int reach[2], side[2]; /* largest differences of positions; 2 reach + 1  */
    int differences;       /* side[0] side[1], or 0: nothing depends on them */
    int biases;            /* those, global tokens, zero, -inf; padded       */
};

static inline win_mma win_mma_problem(const win<bf16> &call)
{
    win_mma p = {};
    static_cast<win<bf16> &>(p) = call;
    p.room = win_room_of(p.g, p.g.packed ? p.rows.rows : p.g.batch * p.g.cells);
    for (int i = 0; i < 2; i++) {
        p.reach[i] = (int)p.room.reach[i];
        p.side[i] = 2 * p.reach[i] + 1;
    }
    p.tiles = (int)p.room.tiles;
    p.keys = attn_tiles((int)p.g.keys, WIN_MMA_ROWS) * WIN_MMA_ROWS;
    p.differences = (int)p.room.differences;
    p.biases = (int)p.room.biases;
    return p;
}

/* The bias indices of all other keys (zero) and of the padding. */
static __device__ inline int win_mma_none(const win_mma &p)
{
    return p.differences + (int)p.g.global;
}
static __device__ inline int win_mma_hidden(const win_mma &p)
{
    return win_mma_none(p) + 1;
}

/* Loads the biases of a head. */
static __device__ inline void win_mma_load_biases(const win_mma &p, int h, float *bias)
{
    const float unscale = 1.0f / p.scale;
    const int heads = (int)p.g.heads, global = (int)p.g.global;
    for (int i = (int)threadIdx.x; i < p.differences; i += ATTN_MMA_THREADS) {
        const int down = i / p.side[1] - p.reach[0], across = i % p.side[1] - p.reach[1];
        const bool far = max(down, -down) > p.g.halo[0] || max(across, -across) > p.g.halo[1];
        const int64_t row = (down + p.g.reach[0]) * p.g.stride + across + p.g.reach[1];
        bias[i] = p.g.exact && far ? -INFINITY
                  : p.table        ? unscale * tp_float(p.table[row * heads + h])
                                   : 0.0f;
    }
    for (int i = (int)threadIdx.x; i < global + 2; i += ATTN_MMA_THREADS)
        bias[p.differences + i] = i > global ? -INFINITY
                                  : i < global && p.bias
                                      ? unscale * tp_float(p.bias[h * global + i])
                                      : 0.0f;
}

/* If PACKED, sequence b as row b of a batch of its length, otherwise the whole problem. */
template <bool PACKED>
using win_mma_part = typename std::conditional<PACKED, const win_mma, const win_mma &>::type;

template <bool PACKED>
static __device__ inline win_mma_part<PACKED> win_mma_sequence(const win_mma &all, int64_t b)
{
    if constexpr (PACKED) {
        const tp_rows at = tp__document(&all.rows, b);
        const int64_t before = at.first - b * at.count; /* rows before such a batch, if positive */
        win_mma p = all;
        p.g.cells = p.g.tokens = p.g.size[1] = at.count;
        p.g.chunks[1] = tp__ceil_div(at.count, p.g.chunk[1]);
        if (p.mask) p.mask += before;
        p.q += before * p.g.width;
        p.k += before * p.g.width;
        p.v += before * p.g.width;
        p.out += before * p.g.width;
        p.lse += before * p.g.heads;
        if (p.dout) p.dout += before * p.g.width, p.delta += before * p.g.heads;
        p.dq.move(before * p.g.width);
        p.dk.move(before * p.g.width);
        p.dv.move(before * p.g.width);
        return p;
    } else {
        return all;
    }
}

/* A chunk of queries of one batch row and head. */
struct win_mma_chunk {
    int b, h, cy, cx, top, left, rows, cols;
    __device__ int queries() const { return rows * cols; }
    /* Ends with the packed sequence p. */
    __device__ void end(const win_mma &p) { cols = min(cols, max((int)p.g.cells - left, 0)); }
};

/* Chunk i of [B, chunks, chunks]. */
static __device__ inline win_mma_chunk win_mma_chunk_at(const win_mma &p, unsigned i, int h)
{
    const unsigned row = i / (unsigned)p.g.chunks[1], b = row / (unsigned)p.g.chunks[0];
    win_mma_chunk t;
    t.b = (int)b;
    t.h = h;
    t.cy = (int)(row - b * (unsigned)p.g.chunks[0]);
    t.cx = (int)(i - row * (unsigned)p.g.chunks[1]);
    t.top = t.cy * (int)p.g.chunk[0];
    t.left = t.cx * (int)p.g.chunk[1];
    t.rows = min((int)p.g.chunk[0], (int)p.g.size[0] - t.top);
    t.cols = min((int)p.g.chunk[1], (int)p.g.size[1] - t.left);
    return t;
}

/* Query i of a chunk: its cell in the map and its part of differences. */
struct win_mma_query {
    int cell, part;
};

static __device__ inline win_mma_query win_mma_query_at(const win_mma &p, int top, int left,
                                                        int cols, int i)
{
    const int y = (int)((unsigned)i / (unsigned)cols), x = i - y * cols;
    return { (top + y) * (int)p.g.size[1] + left + x, y * p.side[1] + x };
}
static __device__ inline win_mma_query win_mma_query_at(const win_mma &p, const win_mma_chunk &t,
                                                        int i)
{
    return win_mma_query_at(p, t.top, t.left, t.cols, i);
}

/* The place of the key at row y and column x relative to the chunk's first query. */
static __device__ inline int win_mma_place(const win_mma &p, int y, int x)
{
    return p.differences ? (p.reach[0] - y) * p.side[1] + p.reach[1] - x : ~win_mma_none(p);
}

/* A rectangle: its position relative to the chunk's first query, and the origin of its cells. */
struct win_mma_rect {
    int y, x, rows, cols, dy, dx;
    __device__ int cells() const { return rows * cols; }
};

/* The padded head size. */
static inline int win_mma_columns(const tp_window &g)
{
    return g.dim <= 32 ? 32 : g.dim <= 64 ? 64 : 128;
}

/* Calls f(COLS, DROP, PACKED). */
template <class F> static tp_code win_mma_by_kind(const win_mma &p, F f)
{
    const auto of_columns = [&](auto drop, auto packed) {
        const int columns = win_mma_columns(p.g);
        return columns == 32   ? f(std::integral_constant<int, 32>(), drop, packed)
               : columns == 64 ? f(std::integral_constant<int, 64>(), drop, packed)
                               : f(std::integral_constant<int, 128>(), drop, packed);
    };
    const std::true_type yes;
    const std::false_type no;
    if (p.drop.below > 0) return p.g.packed ? of_columns(yes, yes) : of_columns(yes, no);
    return p.g.packed ? of_columns(no, yes) : of_columns(no, no);
}

/* The lists of keys: rows, places and, with dropout, columns. */
struct win_mma_lists {
    int *row, *place, *column;
    __device__ win_mma_lists(const win_mma &p, void *at)
        : row(static_cast<int *>(at)), place(row + p.keys), column(place + p.keys)
    {
    }
};

static __host__ __device__ inline int win_mma_listed(const win_mma &p)
{
    return (p.drop.below > 0 ? 3 : 2) * p.keys;
}

/* Key j of r + g and those of the map, in order of columns; `adjacent` keys follow it. */
static __device__ inline int win_mma_column(int j, int adjacent)
{
    return 4 * j + min(adjacent, 3);
}

/* Dynamic shared memory left beside two lists of a block's queries and the rectangles. */
constexpr size_t WIN_MMA_ROOM =
    (99 << 10) - 2 * WIN_MMA_ROWS * sizeof(int) - TP_WINDOW_RECTS * sizeof(win_mma_rect);

/* Rectangle b of chunk t; empty if there is none. */
static __device__ inline win_mma_rect win_mma_rect_of(const win_mma &p, const win_mma_chunk &t,
                                                      int b)
{
    tp_rect r;
    win_mma_rect to = {};
    if (tp__window_rect(&p.g, t.cy, t.cx, b, &r))
        to = {
            (int)r.y - t.top, (int)r.x - t.left, (int)r.rows, (int)r.cols, (int)r.dy, (int)r.dx
        };
    return to;
}

/* Is the query of that cell visible? */
static __device__ inline bool win_mma_shown(const win_mma &p, int b, int cell)
{
    return win_shown(p, b, p.g.global + cell);
}

/* Is any row of a block's list read? The same in all threads. */
static __device__ inline bool win_mma_any(const int *list)
{
    const int lane = (int)threadIdx.x % 32;
    static_assert(WIN_MMA_ROWS == 64, "two rows a lane");
    return __any_sync(0xffffffffu, list[lane] >= 0 || list[lane + 32] >= 0);
}

/* Lists the chunk's rectangles and keys, padded, and returns the number of keys. row: the offset of
 * a key in k; -2 minus its offset in low_k; -1: zeros. Keys outside the map have arbitrary columns,
 * those in it adjacent ones along a row of a rectangle. Has one barrier; the caller adds another
 * before the lists are read. */
template <bool DROP>
static __device__ inline int win_mma_list_keys(const win_mma &p, const win_mma_chunk &t,
                                               win_mma_rect *rect, const win_mma_lists &to)
{
    if (threadIdx.x < TP_WINDOW_RECTS) rect[threadIdx.x] = win_mma_rect_of(p, t, (int)threadIdx.x);
    __syncthreads();
    const int extra = (int)p.g.extra, low = (int)p.g.low, width = (int)p.g.width;
    int n = extra;
    for (int r = 0; r < TP_WINDOW_RECTS; r++) n += rect[r].cells();
    for (int j = (int)threadIdx.x; j < attn_tiles(n, WIN_MMA_ROWS) * WIN_MMA_ROWS;
         j += ATTN_MMA_THREADS) {
        int from = -1, at = ~win_mma_hidden(p), column = win_mma_column(0, 3);
        if (j < extra) {
            column = win_mma_column(j, extra - 1 - j);
            if (j < low ? win_low_shown(p, t.b, j) : win_shown(p, t.b, j - low)) {
                from = j < low ? -2 - j * width : (j - low) * width;
                at = ~(j < low ? win_mma_none(p) : p.differences + j - low);
            }
        } else if (j < n) {
            int k = j - extra, r = 0;
            for (; k >= rect[r].cells(); r++) k -= rect[r].cells();
            const win_mma_rect &in = rect[r];
            const int down = (int)((unsigned)k / (unsigned)in.cols), y = in.y + down;
            const int across = k - down * in.cols, x = in.x + across;
            const int sy = t.top + y + in.dy, sx = t.left + x + in.dx;
            const int cell = sy * (int)p.g.size[1] + sx;
            const bool inside = sy < p.g.size[0] && sx < p.g.size[1];
            column = win_mma_column(extra + cell, in.cols - 1 - across);
            if (!inside || win_mma_shown(p, t.b, cell)) at = win_mma_place(p, y, x);
            if (inside && win_mma_shown(p, t.b, cell)) from = ((int)p.g.global + cell) * width;
        }
        to.row[j] = from;
        to.place[j] = at;
        if (DROP) to.column[j] = column;
    }
    return n;
}

/* The head's slices of the first rows of two tensors, and of two low ones or NULL. */
struct win_mma_source {
    const bf16 *x, *y, *low_x, *low_y;
};

static __device__ inline win_mma_source win_mma_keys_of(const win_mma &p, const win_mma_chunk &t)
{
    const int64_t at = t.b * p.g.tokens * p.g.width + t.h * p.g.dim;
    const int64_t low = t.b * p.g.low * p.g.width + t.h * p.g.dim;
    return { p.k + at, p.v + at, p.low_k ? p.low_k + low : NULL, p.low_v ? p.low_v + low : NULL };
}

/* Queues copies of the listed ROWS rows of x to a tile and, unless y is NULL, those of y to the
 * next tile. */
template <int COLS, int ROWS>
static __device__ inline void win_mma_gather(const win_mma &p, bf16 *tile, const int *list,
                                             const win_mma_source &from)
{
    constexpr int CHUNKS = COLS / 8, STEP = ATTN_MMA_THREADS / CHUNKS;
    static_assert(ROWS % STEP == 0 && STEP % 8 == 0, "threads share the rows evenly");
    const int c = (int)threadIdx.x % CHUNKS, first = (int)threadIdx.x / CHUNKS;
    bf16 *const to = tile + tp_tile_at<COLS>(first, c);
#pragma unroll
    for (int k = 0; k < ROWS; k += STEP) {
        const int row = list[first + k], at = (row < -1 ? -2 - row : row) + 8 * c;
        const bool ok = row != -1 && 8 * c < p.g.dim;
        tp_copy_async_if(ok, to + k * COLS, (row < -1 ? from.low_x : from.x) + at);
        if (from.y)
            tp_copy_async_if(ok, to + (ROWS + k) * COLS, (row < -1 ? from.low_y : from.y) + at);
    }
}

/* s = the biases of the keys at place[0..8 N) for the queries with parts part[2]. plain: all keys
 * are visible cells of the map, which saves a test. */
template <int N>
static __device__ inline void win_mma_start(const win_mma &p, float s[N][4], const float *bias,
                                            const int *place, const int part[2], bool plain)
{
    const int column = (int)threadIdx.x % 4 * 2;
    if (plain && !p.differences) {
        attn_mma_clear<N>(s);
        return;
    }
    if (!plain) {
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int at = place[8 * n + column + e % 2];
                s[n][e] = bias[at >= 0 ? at + part[e / 2] : ~at];
            }
        return;
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
        const tp_pack<int, 2> at = tp_load_n<int, 2>(place + 8 * n + column);
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] = bias[at.at[e % 2] + part[e / 2]];
    }
}

/* The element of the pair of a query and column 0. */
static __device__ inline int64_t win_mma_element(const win_mma &p, int b, int h, int cell)
{
    return ((b * p.g.heads + h) * p.longest + cell) * (p.g.extra + p.longest);
}

/* Bit i: the pair of a query and key i is dropped. */
template <int KEYS>
static __device__ inline uint32_t win_mma_draw(const win_mma &p, int64_t first, const int *column)
{
    static_assert(KEYS <= 32, "a bit for each key");
    const tp_random &r = p.drop.random;
    const tp_random random = { r.seed, r.offset + (r.advance ? *r.advance : 0), NULL };
    const tp_mask m = { random, p.drop.below, p.drop.scale };
    uint32_t bits = 0;
#pragma unroll 1
    for (int i = 0; i < KEYS;) {
        const int64_t e = first + column[i] / 4;
        const int skip = (int)(e & 3), n = min(4 - skip, column[i] % 4 + 1);
        bits |= (drop_mma_block(m, e / 4) >> skip & ((1u << n) - 1)) << i;
        i += n;
    }
    return bits;
}

/* Which elements of this lane's accumulators of 16 queries and 8 N keys are dropped: the bits of
 * row r were drawn by lane 2 r + side. */
template <int N> struct win_mma_dropped {
    uint32_t bits[2] = {};
    __device__ void take(uint32_t drawn, int side)
    {
        const int lane = (int)threadIdx.x % 32;
        for (int half = 0; half < 2; half++)
            bits[half] =
                __shfl_sync(0xffffffffu, drawn, 2 * (lane / 4 + 8 * half) + side) >> lane % 4 * 2;
    }
    __device__ bool at(int n, int e) const { return bits[e / 2] >> (8 * n + e % 2) & 1u; }
};

/* Stores sixteen rows of a head, times k, in this lane's rows row[2] (-1: none) of [...,H*D]. */
template <int COLS>
static __device__ inline void win_mma_store(const win_mma &p, const attn_sink<bf16> &to, int h,
                                            const int64_t row[2], const float k[2],
                                            const float o[COLS / 8][4])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int64_t first = row[half] * p.g.width + h * p.g.dim + threadIdx.x % 4 * 2;
#pragma unroll
        for (int n = 0; n < COLS / 8; n++) {
            if (row[half] < 0 || 8 * n >= p.g.dim) continue;
            const float x = k[half] * o[n][2 * half], y = k[half] * o[n][2 * half + 1];
            if (to.f32) {
                to.put(first + 8 * n, x);
                to.put(first + 8 * n + 1, y);
            } else {
                *reinterpret_cast<uint32_t *>(static_cast<bf16 *>(to.to) + first + 8 * n) =
                    tp_pack_bf16(x, y);
            }
        }
    }
}

#endif
