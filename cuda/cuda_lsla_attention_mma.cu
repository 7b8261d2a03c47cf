/* cuda_lsla_attention_mma.cu - light self-limited attention forward on tensor cores, bf16, for
 * windows of up to 8 x 8.
 *
 * A block keeps the scale and the tables of a head in shared memory and takes windows one after the
 * other: all keys are one tile of 64, so the softmax is made at once and divided before the outer
 * bias is added, and one product gives both terms of the result. A warp has 16 queries.
 *
 * Reads q, k and v and writes y once, 8 D bytes a token and head; 4 n D operations. Sixteen queries
 * of a warp are 32 mma (heads over 32: 64), 32 2^x a lane, and for each of these a scale and two
 * biases to be looked up: instructions are the limit.
 *
 *     budget: lsla_mma_kernel<32> sm_90 1500 instructions
 *     budget: lsla_mma_kernel<64> sm_90 1410 instructions
 */
#include "cuda/attention_mma.cuh"
#include "cuda/lsla.cuh"

constexpr int LM_ROWS = 64, LM_N = LM_ROWS / 8;
constexpr int LM_LD = LM_ROWS + 8; /* of the scale: rows of a fragment lie in different banks */

/* What a block keeps of its head, logits in base 2; and of its window. */
struct lm_room {
    float *scale, *inner, *outer; /* [64][LM_LD], [table], [table] */
    int *place;                   /* [64]: keys' parts of rows of the tables            */
    int *cell, *region;           /* [64]: the map's of tokens, -1: none; their regions */
};

static size_t lm_tables(const tp_lsla &g)
{
    return (size_t)(LM_ROWS * LM_LD + 2 * g.table) * sizeof(float) + 3 * LM_ROWS * sizeof(int);
}

static __device__ inline void lm_load_head(const lsla<bf16> &p, int h, const lm_room &m)
{
    const int n = (int)p.g.n, heads = (int)p.g.heads;
    for (int e = (int)threadIdx.x; e < LM_ROWS * LM_ROWS; e += AM_THREADS) {
        const int a = e / LM_ROWS, b = e % LM_ROWS;
        const float scale = p.scale && a < n && b < n ? tp_float(p.scale[a * n + b]) : p.fixed;
        m.scale[a * LM_LD + b] = AM_LOG2E * scale;
    }
    if (threadIdx.x < LM_ROWS) {
        const int b = (int)threadIdx.x, w = (int)p.g.window;
        m.place[b] = b / w * (2 * w - 1) + b % w;
    }
    for (int e = (int)threadIdx.x; e < p.g.table; e += AM_THREADS) {
        m.inner[e] = p.inner ? AM_LOG2E * tp_float(p.inner[e * heads + h]) : 0.0f;
        m.outer[e] = p.outer ? tp_float(p.outer[e * heads + h]) : 0.0f;
    }
}

/* Sixteen queries from `row`: scores s become weights. lse: of the lane's two, natural. */
static __device__ inline void lm_weights(const lsla<bf16> &p, const lsla_place &t, const lm_room &m,
                                         int row, float s[LM_N][4], float lse[2])
{
    const int column = (int)threadIdx.x % 4 * 2, w = (int)p.g.window, n = (int)p.g.n;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int a = min(row + (int)threadIdx.x % 32 / 4 + 8 * half, n - 1);
        const int part = m.place[a] + 2 * w * (w - 1);
        float top = -INFINITY, sum = 0.0f;
#pragma unroll
        for (int k = 0; k < 2 * LM_N; k++) {
            const int b = 8 * (k / 2) + column + k % 2;
            float &x = s[k / 2][2 * half + k % 2];
            if (b < n) {
                x = m.scale[a * LM_LD + b] * x + m.inner[part - m.place[b]];
                if (t.mixed && m.region[a] != m.region[b]) x -= 100.0f * AM_LOG2E;
            } else {
                x = -INFINITY;
            }
            top = fmaxf(top, x);
        }
        top = tp_quad<tp_max_of>(top);
#pragma unroll
        for (int k = 0; k < 2 * LM_N; k++) {
            float &x = s[k / 2][2 * half + k % 2];
            x = tp_exp2(x - top);
            sum += x;
        }
        sum = tp_quad<tp_sum_of>(sum);
        lse[half] = top / AM_LOG2E + logf(sum);
        const float unit = 1.0f / sum;
#pragma unroll
        for (int k = 0; k < 2 * LM_N; k++) {
            const int b = 8 * (k / 2) + column + k % 2;
            float &x = s[k / 2][2 * half + k % 2];
            const bool apart = p.mask_outer && t.mixed && b < n && m.region[a] != m.region[b];
            x *= unit;
            if (b < n && !apart) x += m.outer[part - m.place[b]];
        }
    }
}

/* Copies the window's rows of x to a tile; the others become zero. */
template <int COLS>
static __device__ inline void lm_gather(const lsla<bf16> &p, bf16 *tile, const int *cell,
                                        const bf16 *x)
{
    constexpr int CHUNKS = COLS / 8, STEP = AM_THREADS / CHUNKS;
    const int c = (int)threadIdx.x % CHUNKS, first = (int)threadIdx.x / CHUNKS;
#pragma unroll
    for (int k = first; k < LM_ROWS; k += STEP)
        tp_copy_async_if(cell[k] >= 0 && 8 * c < p.g.dim, tile + tp_tile_at<COLS>(k, c),
                         x + cell[k] * (int)p.g.width + 8 * c);
}

template <int COLS>
static __device__ inline void lm_window(const lsla<bf16> &p, const lsla_place &t, bf16 *tiles,
                                        const lm_room &m)
{
    constexpr int TILE = LM_ROWS * COLS;
    const int n = (int)p.g.n, lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16;
    const int64_t cells = p.g.size[0] * p.g.size[1];
    const int64_t begin = t.b * cells * p.g.width + t.h * p.g.dim;
    if (threadIdx.x < LM_ROWS) {
        const int i = (int)threadIdx.x;
        const unsigned w = (unsigned)p.g.window, across = (unsigned)p.g.size[1];
        const unsigned y = (unsigned)(t.y + p.g.shift) + (unsigned)i / w;
        const unsigned x = (unsigned)(t.x + p.g.shift) + (unsigned)i % w;
        m.cell[i] = i < n ? (int)(y % (unsigned)p.g.size[0] * across + x % across) : -1;
        m.region[i] = i < n ? lsla_region(p, t, i) : 0;
    }
    __syncthreads();
    lm_gather<COLS>(p, tiles, m.cell, p.q + begin);
    lm_gather<COLS>(p, tiles + TILE, m.cell, p.k + begin);
    lm_gather<COLS>(p, tiles + 2 * TILE, m.cell, p.v + begin);
    tp_copy_commit();
    tp_copy_wait<0>();
    __syncthreads();
    if (row < n) {
        uint32_t q[COLS / 16][4];
        float s[LM_N][4], o[COLS / 8][4], lse[2];
#pragma unroll
        for (int k = 0; k < COLS / 16; k++) tp_frag_a<COLS>(q[k], tiles, row, k);
        am_clear<LM_N>(s);
        am_clear<COLS / 8>(o);
        am_products<COLS, LM_N>(s, q, tiles + TILE);
        lm_weights(p, t, m, row, s, lse);
        am_mix<COLS, LM_N>(o, s, tiles + 2 * TILE);
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

/* Block: head blockIdx.x % H, every so many windows. */
template <int COLS>
__global__ void __launch_bounds__(AM_THREADS, COLS == 32 ? 4 : 3) lsla_mma_kernel(lsla<bf16> p)
{
    TP_SHARED_REST(bf16, tiles);
    const int h = (int)(blockIdx.x % (unsigned)p.g.heads);
    lm_room m;
    m.scale = reinterpret_cast<float *>(tiles + 3 * LM_ROWS * COLS);
    m.inner = m.scale + LM_ROWS * LM_LD;
    m.outer = m.inner + p.g.table;
    m.place = reinterpret_cast<int *>(m.outer + p.g.table);
    m.cell = m.place + LM_ROWS;
    m.region = m.cell + LM_ROWS;
    lm_load_head(p, h, m);
    const int64_t windows = p.g.batch * p.g.down * p.g.across, step = gridDim.x / p.g.heads;
    for (int64_t i = blockIdx.x / (unsigned)p.g.heads; i < windows; i += step)
        lm_window<COLS>(p, lsla_window(p, i, h), tiles, m);
}

/* Heads of multiples of 8 up to 64. */
bool tp__lsla_mma_serves(const lsla<bf16> &p)
{
    return p.g.n <= LM_ROWS && p.g.dim % 8 == 0 && p.g.dim > 0 && p.g.dim <= 64 &&
           p.g.size[0] * p.g.size[1] * p.g.width < INT32_MAX && tp_aligned(p.q, p.k, p.v, p.out);
}

template <int COLS> static tp_code launch(const tp_call *c, const lsla<bf16> &p)
{
    const int64_t windows = p.g.batch * p.g.down * p.g.across;
    const int64_t most = max(1, 8 * tp__cuda_processors(c->dev) / (int)p.g.heads);
    return tp_launch(c, lsla_mma_kernel<COLS>, (unsigned)(min(windows, most) * p.g.heads),
                     AM_THREADS, 3 * LM_ROWS * COLS * sizeof(bf16) + lm_tables(p.g), p);
}

tp_code tp__lsla_mma_fwd(const tp_call *c, const lsla<bf16> &p)
{
    return p.g.dim <= 32 ? launch<32>(c, p) : launch<64>(c, p);
}
