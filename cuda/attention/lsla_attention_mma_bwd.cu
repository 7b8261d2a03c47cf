/* lsla_attention_mma_bwd.cu - gradients of light self-limited attention on tensor cores, bf16, for
 * windows of up to 8 x 8.
 *
 *     A = softmax(E s + inner)   W = A + outer     s = q k^T, dW = dy v^T
 *     dz = A (dW - rowsum A dW)  ds = E dz         dq = ds k, dk = ds^T q, dv = W^T dy
 *
 * or, with the factors M of dropout, W = M A + outer and dz = A (M dW - rowsum A M dW).
 *
 * A block processes the windows of a head's slice in order, copying the next while it computes one.
 * A warp has 16 queries. Values shared by all windows are stored in the order in which lanes read
 * them: scale and biases in shared memory, sums of their gradients (dz s, dz and dW) in registers
 * until the slice ends. W and ds go through shared memory in bf16 to the warps, which then own 16
 * keys each. Slices depend only on shapes; their sums are added in order.
 *
 * Reads q, k, v and dy and writes dq, dk and dv once, 14 D bytes per token and head; 10 n D
 * operations. With windows of 7 x 7 and heads of 32, a warp's sixteen queries take 76 mma and 28
 * 2^x per lane, and as many instructions as can issue while these bytes are moved.
 *
 *     budget: lsla_mma_grad<32, 7, false> sm_90 930 instructions
 *     budget: lsla_mma_grad<64, 7, false> sm_90 1200 instructions
 *
 * With dropout a lane also draws 7 blocks of four random words, 55 instructions each and counted
 * once.
 *
 *     budget: lsla_mma_grad<32, 7, true> sm_90 1270 instructions
 *     budget: lsla_mma_grad<64, 7, true> sm_90 1560 instructions
 */
#include "cuda/attention/lsla_mma.cuh"

constexpr float LSLA_MMA_LN2 = 0.6931471805599453f;

/* Shared memory of a block. */
struct lsla_mma_room {
    lsla_mma_tables of_head;
    bf16 *weights, *ds; /* [64 queries][LSLA_MMA_LD keys] */
    bf16 *tiles;        /* per stage q, dy, k, v: [64][COLS + 8] */
};

/* Row stride of tiles: the rows that ldmatrix reads are in different banks, and a lane's addresses
 * differ by constants. */
constexpr int LSLA_MMA_LD = LSLA_MMA_ROWS + 8;
template <int COLS> constexpr int lsla_mma_tile = LSLA_MMA_ROWS *(COLS + 8);

/* Map sizes in 32 bits; image: elements of one image in q. */
struct lsla_mma_map {
    int down, across, cells, window, shift, heads, width, image;
};

/* The corner of a window in the map, before wrapping around. */
struct lsla_mma_window {
    int b, y, x;
};

static __device__ inline lsla_mma_window lsla_mma_window_at(const tp_lsla &g, int64_t i)
{
    const int64_t row = tp_div(i, g.across), b = tp_div(row, g.down);
    return { (int)b, (int)((row - b * g.down) * g.window + g.shift),
             (int)((i - row * g.across) * g.window + g.shift) };
}

static __device__ inline void lsla_mma_next(const lsla_mma_map &g, lsla_mma_window *t)
{
    t->x += g.window;
    if (t->x < g.across + g.shift) return;
    t->x = g.shift;
    t->y += g.window;
    if (t->y < g.down + g.shift) return;
    t->y = g.shift;
    t->b++;
}

/* Row and column of token i of a window in one word; -1: there is no such token. */
static __device__ inline int lsla_mma_token(const tp_lsla &g, int i)
{
    const int w = (int)g.window;
    return i < (int)g.n ? i / w << 8 | i % w : -1;
}

/* The token's cell in the map; arbitrary without a token. */
static __device__ inline int lsla_mma_cell(const lsla_mma_map &g, const lsla_mma_window &t,
                                           int token)
{
    const unsigned y = (unsigned)(t.y + (token >> 8)), x = (unsigned)(t.x + (token & 255));
    return (int)(min(y, y - (unsigned)g.down) * (unsigned)g.across +
                 min(x, x - (unsigned)g.across));
}

/* A thread's state: the tokens it copies, the queries (and keys) for which it stores results, and
 * their log-sum-exps (base 2). */
template <int COLS> struct lsla_mma_thread {
    int copied[COLS / 16], own[2];
    int cell[2];
    float lse[2];
    lsla_mma_apart apart;
};

/* Gradients by pair of query and key: of scale and inner, times ln 2, and of the outer bias. */
template <int N> struct lsla_mma_sums {
    float scale[N][4], inner[N][4], outer[N][4];
};

template <int COLS>
static __device__ inline void lsla_mma_start(const lsla<bf16> &p, int h, const lsla_mma_room &m,
                                             lsla_mma_thread<COLS> *t)
{
    const int chunk = (int)threadIdx.x % (COLS / 8), row = (int)threadIdx.x / (COLS / 8);
    for (int i = 0; i < COLS / 16; i++)
        t->copied[i] =
            8 * chunk < p.g.dim ? lsla_mma_token(p.g, row + i * (8 * ATTN_MMA_THREADS / COLS)) : -1;
    for (int half = 0; half < 2; half++)
        t->own[half] = lsla_mma_token(p.g, lsla_mma_query(2 * half));
    t->apart = lsla_mma_set_head(p, h, m.of_head);
}

/* The offset of the head's slice of the window's image. */
static __device__ inline int64_t lsla_mma_begin(const lsla<bf16> &p, const lsla_mma_map &g, int h,
                                                const lsla_mma_window &t)
{
    return (int64_t)t.b * g.image + h * (int)p.g.dim;
}

/* Queues copies of a window's q, dy, k and v; missing rows become zero. */
template <int COLS>
static __device__ inline void lsla_mma_gather(const lsla<bf16> &p, const lsla_mma_map &g, int h,
                                              const lsla_mma_window &t,
                                              const lsla_mma_thread<COLS> &own, bf16 *tiles)
{
    constexpr int CHUNKS = COLS / 8, STEP = ATTN_MMA_THREADS / CHUNKS, TILE = lsla_mma_tile<COLS>;
    const int c = (int)threadIdx.x % CHUNKS;
    const int64_t begin = lsla_mma_begin(p, g, h, t) + 8 * c;
    bf16 *const to = tiles + (int)threadIdx.x / CHUNKS * (COLS + 8) + 8 * c;
#pragma unroll
    for (int i = 0; i < COLS / 16; i++) {
        const bool ok = own.copied[i] >= 0;
        const int64_t at = begin + lsla_mma_cell(g, t, own.copied[i]) * g.width;
        bf16 *const row = to + i * STEP * (COLS + 8);
        tp_copy_async_if(ok, row, p.q + at);
        tp_copy_async_if(ok, row + TILE, p.dout + at);
        tp_copy_async_if(ok, row + 2 * TILE, p.k + at);
        if (p.v != p.k) tp_copy_async_if(ok, row + 3 * TILE, p.v + at);
    }
    tp_copy_commit();
}

/* The cells of a window's queries and their log-sum-exps. */
template <int COLS>
static __device__ inline void lsla_mma_enter(const lsla<bf16> &p, const lsla_mma_map &g, int h,
                                             const lsla_mma_window &t, lsla_mma_thread<COLS> *own)
{
    const float *const lse = p.lse + (int64_t)(t.b * g.heads + h) * g.cells;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        own->cell[half] = lsla_mma_cell(g, t, own->own[half]);
        own->lse[half] = own->own[half] < 0 ? 0.0f : ATTN_MMA_LOG2E * lse[own->cell[half]];
    }
}

/* The offset a lane passes to ldmatrix, for rows of `ld`: the four matrices first one below the
 * other, then side by side; and vice versa. */
static __device__ inline int lsla_mma_below(int ld)
{
    const int lane = (int)threadIdx.x % 32;
    return lane % 16 * ld + lane / 16 * 8;
}
static __device__ inline int lsla_mma_beside(int ld)
{
    const int lane = (int)threadIdx.x % 32;
    return (lane / 16 * 8 + lane % 8) * ld + lane / 8 % 2 * 8;
}

/* s = 16 rows of a tile times the rows of another. */
template <int COLS, int N>
static __device__ inline void lsla_mma_products(float s[N][4], const bf16 *rows, const bf16 *tile)
{
    constexpr int LD = COLS + 8;
    rows += lsla_mma_below(LD);
    tile += lsla_mma_beside(LD);
    attn_mma_clear<N>(s);
#pragma unroll
    for (int k = 0; k < COLS / 16; k++) {
        uint32_t a[4];
        tp_ldmatrix(a, rows + 16 * k);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[4];
            tp_ldmatrix(b, tile + 8 * n * LD + 16 * k);
            tp_mma_bf16(s[n], a, b, s[n]);
            if (n + 1 < N) tp_mma_bf16(s[n + 1], a, b + 2, s[n + 1]);
        }
    }
}

/* Stores a row of W, from marked probabilities a, in shared memory, and adds dw to its sums. HIDES:
 * pairs with bits set in `apart` have no outer bias. */
template <int N, bool HIDES, bool DROPS>
static __device__ inline void lsla_mma_outer(const lsla<bf16> &p, const lsla_mma_room &m, int half,
                                             uint32_t apart, const float a[N][2],
                                             const float dw[N][4], lsla_mma_sums<N> *sums)
{
    bf16 *const to = m.weights + lsla_mma_query(2 * half) * LSLA_MMA_LD + lsla_mma_key(0, 0);
    tp_pack<float> outer;
#pragma unroll
    for (int n = 0; n < N; n++) {
        float w[2];
        if (n % 2 == 0) outer = tp_load(lsla_mma_pair(m.of_head.outer, half, n));
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int k = 2 * half + e;
            const bool hidden = HIDES && (apart >> (4 * n + k) & 1u);
            w[e] = (DROPS ? p.drop.scale : 1.0f) * lsla_mma_kept<DROPS>(a[n][e]);
            if (!hidden) w[e] += outer.at[2 * (n % 2) + e];
            if (!hidden) sums->outer[n][k] += dw[n][k];
        }
        *reinterpret_cast<uint32_t *>(to + 8 * n) = tp_pack_bf16(w[0], w[1]);
    }
}

/* From scores s and dw = dy v^T, adds to the sums and stores W and ds in shared memory. mixed: some
 * pairs join two regions and have bits set in `apart`. */
template <int N, bool DROPS>
static __device__ inline void lsla_mma_weights(const lsla<bf16> &p, const lsla_mma_room &m,
                                               bool mixed, uint32_t apart, uint32_t dropped,
                                               const float lse[2], const float s[N][4],
                                               const float dw[N][4], lsla_mma_sums<N> *sums)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float unit = DROPS ? LSLA_MMA_LN2 * p.drop.scale : LSLA_MMA_LN2;
        bf16 *const to = m.ds + lsla_mma_query(2 * half) * LSLA_MMA_LD + lsla_mma_key(0, 0);
        float a[N][2], delta = 0.0f;
        tp_pack<float> scale, inner;
#pragma unroll
        for (int n = 0; n < N; n++) {
            if (n % 2 == 0) scale = tp_load(lsla_mma_pair(m.of_head.scale, half, n));
            if (n % 2 == 0) inner = tp_load(lsla_mma_pair(m.of_head.inner, half, n));
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int i = 2 * (n % 2) + e;
                a[n][e] = scale.at[i] * s[n][2 * half + e] + (inner.at[i] - lse[half]);
            }
        }
        if (mixed)
#pragma unroll
            for (int i = 0; i < 2 * N; i++)
                if (apart >> (4 * (i / 2) + 2 * half + i % 2) & 1u)
                    a[i / 2][i % 2] -= 100.0f * ATTN_MMA_LOG2E;
#pragma unroll
        for (int i = 0; i < 2 * N; i++) {
            const int n = i / 2, k = 2 * half + i % 2;
            a[n][i % 2] = lsla_mma_mark<DROPS>(dropped, n, k, tp_exp2(a[n][i % 2]));
            delta += lsla_mma_kept<DROPS>(a[n][i % 2]) * dw[n][k];
        }
        if (mixed && p.mask_outer)
            lsla_mma_outer<N, true, DROPS>(p, m, half, apart, a, dw, sums);
        else
            lsla_mma_outer<N, false, DROPS>(p, m, half, apart, a, dw, sums);
        delta = unit * tp_quad<tp_sum_of>(delta);
#pragma unroll
        for (int n = 0; n < N; n++) {
            float d[2];
            if (n % 2 == 0) scale = tp_load(lsla_mma_pair(m.of_head.scale, half, n));
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int k = 2 * half + e;
                const float kept = lsla_mma_kept<DROPS>(a[n][e]), all = fabsf(a[n][e]);
                const float dz = DROPS ? unit * (kept * dw[n][k]) - all * delta
                                       : a[n][e] * (unit * dw[n][k] - delta);
                sums->inner[n][k] += dz;
                sums->scale[n][k] += dz * s[n][k];
                d[e] = dz * scale.at[2 * (n % 2) + e];
            }
            *reinterpret_cast<uint32_t *>(to + 8 * n) = tp_pack_bf16(d[0], d[1]);
        }
    }
}

/* o = m x or, if TRANSPOSED, m^T x, for the warp's 16 rows; m is 64 by 64. */
template <int COLS, bool TRANSPOSED>
static __device__ inline void lsla_mma_mix(float o[COLS / 8][4], const bf16 *m, const bf16 *tile)
{
    constexpr int LD = COLS + 8;
    const int first = (int)threadIdx.x / 32 * 16;
    m += TRANSPOSED ? first + lsla_mma_beside(LSLA_MMA_LD)
                    : first * LSLA_MMA_LD + lsla_mma_below(LSLA_MMA_LD);
    tile += lsla_mma_below(LD);
    attn_mma_clear<COLS / 8>(o);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t a[4];
        if (TRANSPOSED)
            tp_ldmatrix_t(a, m + 16 * k * LSLA_MMA_LD);
        else
            tp_ldmatrix(a, m + 16 * k);
#pragma unroll
        for (int n = 0; n < COLS / 8; n += 2) {
            uint32_t b[4];
            tp_ldmatrix_t(b, tile + 16 * k * LD + 8 * n);
            tp_mma_bf16(o[n], a, b, o[n]);
            tp_mma_bf16(o[n + 1], a, b + 2, o[n + 1]);
        }
    }
}

/* Stores the warp's 16 rows in cells of the map, 16 bytes at a time through its rows of a tile. */
template <int COLS>
static __device__ inline void lsla_mma_store(const lsla<bf16> &p, const lsla_mma_map &g,
                                             const attn_sink<bf16> &sink, int64_t begin,
                                             const int own[2], const int cell[2], bf16 *rows,
                                             const float o[COLS / 8][4])
{
    constexpr int LD = COLS + 8;
    const int lane = (int)threadIdx.x % 32, first = lane % 4 * 8;
    bf16 *const to = static_cast<bf16 *>(sink.to) + begin + first;
    rows += lane / 4 * LD;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < COLS / 8; n++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            *reinterpret_cast<uint32_t *>(rows + 8 * half * LD + 8 * n + lane % 4 * 2) =
                tp_pack_bf16(o[n][2 * half], o[n][2 * half + 1]);
    __syncwarp();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        bf16 *const at = to + cell[half] * g.width;
#pragma unroll
        for (int c = 0; c < COLS; c += 32) {
            const tp_pack<bf16> v = tp_load(rows + 8 * half * LD + first + c);
            if (sink.to && own[half] >= 0 && first + c < (int)p.g.dim) tp_store(at + c, v);
        }
    }
}

/* Processes one window; its tiles have arrived. */
template <int COLS, int N, bool DROPS>
static __device__ inline void lsla_mma_grad_window(const lsla<bf16> &p, const lsla_mma_map &g,
                                                   int h, const lsla_mma_window &t,
                                                   const lsla_mma_thread<COLS> &own,
                                                   const lsla_mma_room &m, const int cell[2],
                                                   const float lse[2], bf16 *tiles,
                                                   lsla_mma_sums<N> *sums)
{
    constexpr int TILE = lsla_mma_tile<COLS>;
    const int rows = (int)threadIdx.x / 32 * 16 * (COLS + 8);
    bf16 *const q = tiles, *const dout = tiles + TILE, *const k = tiles + 2 * TILE;
    const bf16 *const v = p.v == p.k ? k : tiles + 3 * TILE;
    const bool low = t.y + g.window > g.down, right = t.x + g.window > g.across;
    const uint32_t apart = (low ? own.apart.y : 0u) | (right ? own.apart.x : 0u);
    const int64_t begin = lsla_mma_begin(p, g, h, t);
    float o[COLS / 8][4];
    {
        float s[N][4], dw[N][4];
        lsla_mma_products<COLS, N>(s, q + rows, k);
        lsla_mma_products<COLS, N>(dw, dout + rows, v);
        const int64_t row = (int64_t)(t.b * g.heads + h) * g.cells * p.g.n;
        const uint32_t dropped = DROPS ? lsla_mma_dropped<N>(p, row, cell) : 0u;
        lsla_mma_weights<N, DROPS>(p, m, low || right, apart, dropped, lse, s, dw, sums);
    }
    __syncwarp();
    lsla_mma_mix<COLS, false>(o, m.ds, k);
    __syncthreads();
    lsla_mma_store<COLS>(p, g, p.dq, begin, own.own, cell, k + rows, o);
    lsla_mma_mix<COLS, true>(o, m.ds, q);
    lsla_mma_store<COLS>(p, g, p.dk, begin, own.own, cell, k + rows, o);
    lsla_mma_mix<COLS, true>(o, m.weights, dout);
    lsla_mma_store<COLS>(p, g, p.dv, begin, own.own, cell, k + rows, o);
}

/* Stores the sums [3][n][n] of a slice of a head. */
template <int N>
static __device__ inline void lsla_mma_leave(const lsla<bf16> &p, const lsla_mma_sums<N> &sums,
                                             float *to)
{
    const int n = (int)p.g.n;
#pragma unroll
    for (int k = 0; k < N; k++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int a = lsla_mma_query(e), b = lsla_mma_key(k, e);
            if (a >= n || b >= n) continue;
            to[a * n + b] = ATTN_MMA_LOG2E * sums.scale[k][e];
            to[(n + a) * n + b] = ATTN_MMA_LOG2E * sums.inner[k][e];
            to[(2 * n + a) * n + b] = sums.outer[k][e];
        }
}

/* Block: slice blockIdx.x % slices of head blockIdx.x / slices. */
template <int COLS, int N, bool DROPS>
__global__ void __launch_bounds__(ATTN_MMA_THREADS, 2)
    lsla_mma_grad(lsla<bf16> p, lsla_mma_map g, int stages)
{
    TP_SHARED_REST(tp_pack<float>, shared);
    const int slices = (int)p.g.slices, h = (int)blockIdx.x / slices;
    const int64_t windows = p.g.batch * p.g.down * p.g.across, slice = (int)blockIdx.x % slices;
    lsla_mma_room m;
    m.of_head = { shared, shared + LSLA_MMA_TABLE, shared + 2 * LSLA_MMA_TABLE };
    m.weights = reinterpret_cast<bf16 *>(shared + 3 * LSLA_MMA_TABLE);
    m.ds = m.weights + LSLA_MMA_ROWS * LSLA_MMA_LD;
    m.tiles = m.ds + LSLA_MMA_ROWS * LSLA_MMA_LD;
    for (int e = (int)threadIdx.x; e < 2 * LSLA_MMA_ROWS * LSLA_MMA_LD; e += ATTN_MMA_THREADS)
        tp_put(m.weights + e, 0.0f); /* the padding columns stay zero */
    lsla_mma_thread<COLS> own;
    lsla_mma_sums<N> sums = {};
    int left = (int)(windows * (slice + 1) / slices - windows * slice / slices);
    lsla_mma_window t = {};
    lsla_mma_start<COLS>(p, h, m, &own);
    if (left > 0) {
        t = lsla_mma_window_at(p.g, windows * slice / slices);
        lsla_mma_gather<COLS>(p, g, h, t, own, m.tiles);
        lsla_mma_enter<COLS>(p, g, h, t, &own);
    }
    bf16 *now = m.tiles,
         *other = m.tiles + (stages - 1) * (p.v == p.k ? 3 : 4) * lsla_mma_tile<COLS>;
    for (; left > 0; left--) {
        const lsla_mma_window at = t;
        const int cell[2] = { own.cell[0], own.cell[1] };
        const float lse[2] = { own.lse[0], own.lse[1] };
        lsla_mma_next(g, &t);
        tp_copy_wait<0>();
        __syncthreads();
        if (left > 1) {
            if (stages == 2) lsla_mma_gather<COLS>(p, g, h, t, own, other);
            lsla_mma_enter<COLS>(p, g, h, t, &own);
        }
        lsla_mma_grad_window<COLS, N, DROPS>(p, g, h, at, own, m, cell, lse, now, &sums);
        if (stages == 1 && left > 1) {
            __syncthreads();
            lsla_mma_gather<COLS>(p, g, h, t, own, other);
        }
        bf16 *const swap = now;
        now = other;
        other = swap;
    }
    lsla_mma_leave<N>(p, sums, p.work + (int64_t)blockIdx.x * 5 * p.g.n * p.g.n);
}

/* Bytes for one or two stages. */
static size_t lsla_mma_shared(const lsla<bf16> &p, int stages)
{
    const int columns = p.g.dim <= 32 ? 40 : 72, tiles = (p.v == p.k ? 3 : 4) * stages;
    return 3 * LSLA_MMA_TABLE * sizeof(tp_pack<float>) +
           (size_t)LSLA_MMA_ROWS * (2 * LSLA_MMA_LD + tiles * columns) * sizeof(bf16);
}

bool tp__lsla_mma_serves_bwd(const lsla<bf16> &p)
{
    return tp__lsla_mma_serves(p) && tp_aligned(p.dout, p.dq.to, p.dk.to, p.dv.to) && !p.dq.f32 &&
           !p.dk.f32 && !p.dv.f32 && lsla_mma_shared(p, 1) <= (size_t)(99 << 10);
}

template <int COLS, int N> static tp_code launch(const tp_call *c, const lsla<bf16> &p)
{
    const int stages = lsla_mma_shared(p, 2) <= (size_t)(99 << 10) ? 2 : 1;
    const int down = (int)p.g.size[0], across = (int)p.g.size[1], width = (int)p.g.width;
    const lsla_mma_map g = { down,           across,         down * across, (int)p.g.window,
                             (int)p.g.shift, (int)p.g.heads, width,         down * across * width };
    return tp_launch(c, p.drop.below ? lsla_mma_grad<COLS, N, true> : lsla_mma_grad<COLS, N, false>,
                     (unsigned)(p.g.heads * p.g.slices), ATTN_MMA_THREADS,
                     lsla_mma_shared(p, stages), p, g, stages);
}

tp_code tp__lsla_mma_bwd(const tp_call *c, const lsla<bf16> &p)
{
    if (p.g.n <= 56) return p.g.dim <= 32 ? launch<32, 7>(c, p) : launch<64, 7>(c, p);
    return p.g.dim <= 32 ? launch<32, 8>(c, p) : launch<64, 8>(c, p);
}
