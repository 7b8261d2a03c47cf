/* lsla_attention_mma.cu - light self-limited attention forward on tensor cores, bf16, for windows
 * of up to 8 x 8.
 *
 * A block keeps a head's scale and biases in shared memory and processes its windows in order. All
 * keys are in one tile of 64, so the softmax needs no running maximum and is normalised before the
 * outer bias is added, and one product gives both terms of the result. A warp has 16 queries.
 *
 * Reads q, k and v and writes y once, 8 D bytes per token and head (6 D if values are the keys); 4
 * n D operations. Sixteen queries of a warp take 32 mma (heads over 32: 64) and 32 2^x per lane,
 * and about as many instructions as can issue while the bytes are moved.
 *
 *     budget: lsla_mma_kernel<32, false> sm_90 660 instructions
 *     budget: lsla_mma_kernel<64, false> sm_90 780 instructions
 */
#include "cuda/attention/lsla_mma.cuh"

/* Shared memory of a block: tables of its head, map cells of the window's tokens (-1: none). */
struct lsla_mma_forward_room {
    lsla_mma_tables of_head;
    int *cell;
    bf16 *tiles; /* q, k, v */
};

template <int COLS> static constexpr size_t lsla_mma_forward_shared()
{
    return 3 * LSLA_MMA_TABLE * sizeof(tp_pack<float>) + 3 * LSLA_MMA_ROWS * COLS * sizeof(bf16) +
           LSLA_MMA_ROWS * sizeof(int);
}

/* Adds the outer bias to a row; HIDES: except to pairs with bits set in `apart`. */
template <int N, bool HIDES>
static __device__ inline void lsla_mma_add_outer(const lsla_mma_forward_room &m, int half,
                                                 uint32_t apart, float s[N][4])
{
    tp_pack<float> outer;
#pragma unroll
    for (int i = 0; i < 2 * N; i++) {
        const int n = i / 2, k = 2 * half + i % 2;
        if (i % 4 == 0) outer = tp_load(lsla_mma_pair(m.of_head.outer, half, n));
        if (!HIDES || !(apart >> (4 * n + k) & 1u)) s[n][k] += outer.at[i % 4];
    }
}

/* Turns scores s of sixteen queries into weights. mixed: some pairs join two regions and have bits
 * set in `apart`; hides: these get no outer bias. lse: of the lane's two queries, natural. */
template <int N, bool DROPS>
static __device__ inline void lsla_mma_forward_weights(const lsla<bf16> &p,
                                                       const lsla_mma_forward_room &m, bool mixed,
                                                       bool hides, uint32_t apart, uint32_t dropped,
                                                       float s[N][4], float lse[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        tp_pack<float> scale, inner;
        float top = -INFINITY, sum = 0.0f;
#pragma unroll
        for (int i = 0; i < 2 * N; i++) {
            const int n = i / 2, k = 2 * half + i % 2;
            if (i % 4 == 0) scale = tp_load(lsla_mma_pair(m.of_head.scale, half, n));
            if (i % 4 == 0) inner = tp_load(lsla_mma_pair(m.of_head.inner, half, n));
            s[n][k] = scale.at[i % 4] * s[n][k] + inner.at[i % 4];
        }
        if (mixed)
#pragma unroll
            for (int i = 0; i < 2 * N; i++)
                if (apart >> (4 * (i / 2) + 2 * half + i % 2) & 1u)
                    s[i / 2][2 * half + i % 2] -= 100.0f * ATTN_MMA_LOG2E;
#pragma unroll
        for (int i = 0; i < 2 * N; i++) top = fmaxf(top, s[i / 2][2 * half + i % 2]);
        top = tp_quad<tp_max_of>(top);
#pragma unroll
        for (int i = 0; i < 2 * N; i++) {
            float &x = s[i / 2][2 * half + i % 2];
            x = tp_exp2(x - top);
            sum += x;
        }
        sum = tp_quad<tp_sum_of>(sum);
        lse[half] = top / ATTN_MMA_LOG2E + logf(sum);
        const float unit = (DROPS ? p.drop.scale : 1.0f) / sum;
#pragma unroll
        for (int i = 0; i < 2 * N; i++) {
            const int n = i / 2, k = 2 * half + i % 2;
            const bool drop = DROPS && (dropped >> (4 * n + k) & 1u);
            s[n][k] = drop ? 0.0f : unit * s[n][k];
        }
        if (hides)
            lsla_mma_add_outer<N, true>(m, half, apart, s);
        else
            lsla_mma_add_outer<N, false>(m, half, apart, s);
    }
}

/* Copies the window's rows of x to a tile; other rows become zero. */
template <int COLS>
static __device__ inline void lsla_mma_forward_gather(const lsla<bf16> &p, bf16 *tile,
                                                      const int *cell, const bf16 *x)
{
    constexpr int CHUNKS = COLS / 8, STEP = ATTN_MMA_THREADS / CHUNKS;
    const int c = (int)threadIdx.x % CHUNKS, first = (int)threadIdx.x / CHUNKS;
    tile += tp_tile_at<COLS>(first, c);
#pragma unroll
    for (int k = 0; k < LSLA_MMA_ROWS; k += STEP) {
        const int at = cell[first + k];
        tp_copy_async_if(at >= 0 && 8 * c < p.g.dim, tile + k * COLS,
                         x + at * (int)p.g.width + 8 * c);
    }
}

template <int COLS, int N, bool DROPS>
static __device__ inline void lsla_mma_forward_window(const lsla<bf16> &p, const lsla_place &t,
                                                      const lsla_mma_forward_room &m,
                                                      const lsla_mma_apart &bits)
{
    constexpr int TILE = LSLA_MMA_ROWS * COLS;
    const int n = (int)p.g.n, lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16;
    const int64_t cells = p.g.size[0] * p.g.size[1];
    const int64_t begin = t.b * cells * p.g.width + t.h * p.g.dim;
    const bool low = t.y + p.g.window == p.g.size[0], right = t.x + p.g.window == p.g.size[1];
    if (threadIdx.x < LSLA_MMA_ROWS) {
        const int i = (int)threadIdx.x;
        const unsigned w = (unsigned)p.g.window, across = (unsigned)p.g.size[1];
        const unsigned y = (unsigned)(t.y + p.g.shift) + (unsigned)i / w;
        const unsigned x = (unsigned)(t.x + p.g.shift) + (unsigned)i % w;
        m.cell[i] = i < n ? (int)(y % (unsigned)p.g.size[0] * across + x % across) : -1;
    }
    __syncthreads();
    lsla_mma_forward_gather<COLS>(p, m.tiles, m.cell, p.q + begin);
    lsla_mma_forward_gather<COLS>(p, m.tiles + TILE, m.cell, p.k + begin);
    if (p.v != p.k) lsla_mma_forward_gather<COLS>(p, m.tiles + 2 * TILE, m.cell, p.v + begin);
    tp_copy_commit();
    tp_copy_wait<0>();
    __syncthreads();
    if (row < n) {
        uint32_t q[COLS / 16][4];
        float s[N][4], o[COLS / 8][4], lse[2];
        uint32_t dropped = 0;
        if (DROPS) {
            const int at[2] = { m.cell[row + lane / 4], m.cell[row + lane / 4 + 8] };
            dropped = lsla_mma_dropped<N>(p, tp__lsla_row(&p.g, t.b, t.h, 0), at);
        }
#pragma unroll
        for (int k = 0; k < COLS / 16; k++) tp_frag_a<COLS>(q[k], m.tiles, row, k);
        attn_mma_clear<N>(s);
        attn_mma_clear<COLS / 8>(o);
        attn_mma_products<COLS, N>(s, q, m.tiles + TILE);
        lsla_mma_forward_weights<N, DROPS>(p, m, t.mixed, t.mixed && p.mask_outer,
                                           (low ? bits.y : 0u) | (right ? bits.x : 0u), dropped, s,
                                           lse);
        attn_mma_mix<COLS, N>(o, s, m.tiles + (p.v == p.k ? 1 : 2) * TILE);
        for (int half = 0; half < 2; half++) {
            const int a = row + lane / 4 + 8 * half;
            if (a >= n) continue;
            const int cell = m.cell[a];
            if (lane % 4 == 0) p.lse[(t.b * p.g.heads + t.h) * cells + cell] = lse[half];
            bf16 *const y = p.out + begin + cell * (int)p.g.width + lane % 4 * 2;
#pragma unroll
            for (int x = 0; x < COLS / 8; x++)
                if (8 * x < p.g.dim)
                    *reinterpret_cast<uint32_t *>(y + 8 * x) =
                        tp_pack_bf16(o[x][2 * half], o[x][2 * half + 1]);
        }
    }
    __syncthreads();
}

/* Block: head blockIdx.x % H, windows at a constant stride. */
template <int COLS, bool DROPS>
__global__ void __launch_bounds__(ATTN_MMA_THREADS, COLS == 32 ? 3 : 2)
    lsla_mma_kernel(lsla<bf16> p)
{
    TP_SHARED_REST(tp_pack<float>, shared);
    const int h = (int)(blockIdx.x % (unsigned)p.g.heads);
    lsla_mma_forward_room m;
    m.of_head = { shared, shared + LSLA_MMA_TABLE, shared + 2 * LSLA_MMA_TABLE };
    m.tiles = reinterpret_cast<bf16 *>(shared + 3 * LSLA_MMA_TABLE);
    m.cell = reinterpret_cast<int *>(m.tiles + 3 * LSLA_MMA_ROWS * COLS);
    const lsla_mma_apart bits = lsla_mma_set_head(p, h, m.of_head);
    const int64_t windows = p.g.batch * p.g.down * p.g.across, step = gridDim.x / p.g.heads;
    for (int64_t i = blockIdx.x / (unsigned)p.g.heads; i < windows; i += step)
        lsla_mma_forward_window<COLS, 8, DROPS>(p, lsla_window(p, i, h), m, bits);
}

/* Heads of multiples of 8 up to 64. */
bool tp__lsla_mma_serves(const lsla<bf16> &p)
{
    return p.g.n <= LSLA_MMA_ROWS && p.g.dim % 8 == 0 && p.g.dim > 0 && p.g.dim <= 64 &&
           p.g.size[0] * p.g.size[1] * p.g.width < INT32_MAX && tp_aligned(p.q, p.k, p.v, p.out);
}

template <int COLS> static tp_code launch(const tp_call *c, const lsla<bf16> &p)
{
    const int64_t windows = p.g.batch * p.g.down * p.g.across;
    const int64_t limit = max(1, 8 * tp__cuda_processors(c->dev) / (int)p.g.heads);
    return tp_launch(c, p.drop.below ? lsla_mma_kernel<COLS, true> : lsla_mma_kernel<COLS, false>,
                     (unsigned)(min(windows, limit) * p.g.heads), ATTN_MMA_THREADS,
                     lsla_mma_forward_shared<COLS>(), p);
}

tp_code tp__lsla_mma_fwd(const tp_call *c, const lsla<bf16> &p)
{
    return p.g.dim <= 32 ? launch<32>(c, p) : launch<64>(c, p);
}
