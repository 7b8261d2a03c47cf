/* rel_mma.cuh - common to the tensor core kernels of relative attention: ring and logits.
 *
 *     S[i][j] = q_i k_j + r_w k_j + (q_i + r_r) pos_d      key j + distance d = query i + ahead
 *
 * The two bias terms are logits of a key and of a distance, computed once (p.biases), so that one
 * operand q serves both products. A block holds BLOCK rows of one of three matrices (queries, keys
 * and distances) and steps over another. Rows of the third, called lines, pass through a ring in
 * shared memory: row x of warp w and column c of step t use line
 *
 *     STEP t + c - x + BLOCK - 16 MT w
 *
 * The kernel chooses their order, up or down the tensor. A warp multiplies blocks of lines and
 * skews the products in registers (skew.cuh). */
#ifndef TP_REL_MMA_CUH
#define TP_REL_MMA_CUH

#include "cuda/attention/attention_mma.cuh"
#include "cuda/attention/skew.cuh"

/* Rows of a head with their bias logits; step -1: from the last row to the first. */
struct rel_mma_rows {
    const bf16 *at;
    const float *bias; /* or NULL */
    int count, dim, width, step;
    __device__ float bias_of(int row) const
    {
        return row >= 0 && row < count ? bias[row * step] : 0.0f;
    }
    __device__ rel_mma_rows reversed() const
    {
        return { at + (int64_t)(count - 1) * width, bias + count - 1, count, dim, -width, -step };
    }
};

/* Keys, values, or (b = 0) distances of a block. bias: their bias logits in p.biases, or NULL. */
static __device__ inline rel_mma_rows rel_mma_keys(const attn<bf16> &p, const bf16 *of, int b,
                                                   int h, const float *bias)
{
    return { of + (int64_t)b * p.keys * p.width + h * p.dim,
             bias ? bias + ((int64_t)b * p.heads + h) * p.keys : NULL,
             p.keys,
             p.dim,
             p.width,
             1 };
}
static __device__ inline const float *rel_mma_distance_biases(const attn<bf16> &p)
{
    return p.biases + (int64_t)p.batch * p.heads * p.keys;
}

/* The ring: the lines that a step uses, and those in flight for the next step. */
template <int COLS, int STEP, int BLOCK> struct rel_mma_lines {
    static constexpr int RING = BLOCK + 2 * STEP;
    static constexpr size_t BYTES = (size_t)RING * COLS * sizeof(bf16);
    bf16 *lines;
    float *bias; /* [RING], or NULL */
    rel_mma_rows from;
    int next, put; /* the row to fetch next, and its line */

    /* Begins with row `first` in line 0, and fetches all lines of the first step. */
    __device__ void begin(const rel_mma_rows &rows, int first)
    {
        from = rows;
        for (int k = 0; bias && k < BLOCK + STEP; k += ATTN_MMA_THREADS)
            if (k + (int)threadIdx.x < BLOCK + STEP)
                bias[k + threadIdx.x] = from.bias_of(first + k + (int)threadIdx.x);
        next = first;
        put = 0;
        for (int k = 0; k < BLOCK + STEP; k += STEP) {
            fetch();
            turn();
        }
    }
    __device__ void fetch() const
    {
        tp_tile_copy<COLS, STEP, ATTN_MMA_THREADS>(lines + put * COLS, from.at, next, from.count,
                                                   from.dim, from.width);
    }
    /* The bias of line t in flight; the caller stores it once it has arrived. */
    __device__ float bias_in_flight(int t) const { return from.bias_of(next + t); }
    __device__ void turn()
    {
        next += STEP;
        put = put + STEP < RING ? put + STEP : 0;
    }
    /* The line k after `place` in the ring, for k in (-RING, RING). */
    static __device__ int after(int place, int k)
    {
        const int x = place + k;
        return x < 0 ? x + RING : x < RING ? x : x - RING;
    }
};

/* g += q times 16 rows of a tile. query(a, k) loads depths 16 k .. of the MT blocks of queries. */
template <int COLS, int MT, class A>
static __device__ inline void rel_mma_row_products(float g[MT][2][4], const bf16 *rows,
                                                   const A &query)
{
#pragma unroll
    for (int k = 0; k < COLS / 16; k++) {
        uint32_t a[MT][4], b[4];
        query(a, k);
        tp_frag_b<COLS>(b, rows, 0, k);
#pragma unroll
        for (int m = 0; m < MT; m++) {
            tp_mma_bf16(g[m][0], a[m], b, g[m][0]);
            tp_mma_bf16(g[m][1], a[m], b + 2, g[m][1]);
        }
    }
}

/* g = the products with 16 lines from `line`, and their biases. */
template <int COLS, int MT, class L, class A>
static __device__ inline void rel_mma_line_products(float g[MT][2][4], const L &ring, int line,
                                                    const A &query)
{
    const float *const bias = ring.bias + line + (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) g[m][n][e] = bias[8 * n + e % 2];
    rel_mma_row_products<COLS, MT>(g, ring.lines + line * COLS, query);
}

/* kept = the products with the lines before the first column. */
template <int COLS, int MT, class L, class A>
static __device__ inline void rel_mma_before(float kept[MT][2 * MT][4], const L &ring, int place,
                                             const A &query)
{
#pragma unroll
    for (int c = 0; c < MT; c++) {
        float g[MT][2][4];
        rel_mma_line_products<COLS, MT>(g, ring, L::after(place, 16 * (c - MT)), query);
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int n = 0; n < 2; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) kept[m][2 * c + n][e] = g[m][n][e];
    }
}

/* Computes the logits of queries and 8 N keys, unscaled, and updates kept, the products with the
 * previous lines. */
template <int COLS, int MT, int N, class L, class A>
static __device__ inline void rel_mma_logits(float s[MT][N][4], float kept[MT][2 * MT][4],
                                             const L &ring, int place, const bf16 *keys,
                                             const float *bias, const A &query)
{
    bias += (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int c = 0; c < N / 2; c++) {
        float g[MT][2][4], x[MT][2][4];
        rel_mma_line_products<COLS, MT>(g, ring, L::after(place, 16 * c), query);
        tp_skew_step<MT>(x, kept, g);
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int n = 0; n < 2; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) x[m][n][e] += bias[16 * c + 8 * n + e % 2];
        rel_mma_row_products<COLS, MT>(x, keys + 16 * c * COLS, query);
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int n = 0; n < 2; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) s[m][2 * c + n][e] = x[m][n][e];
    }
}

#endif
