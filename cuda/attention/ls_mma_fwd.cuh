/* ls_mma_fwd.cuh - long-short attention forward on tensor cores, bf16, head sizes 64 and 32.
 *
 * Warp i of a block owns R queries from t = T + R i; in step j it takes the 32 keys from column 32
 * j of its band, key Wc + t - reach + column. So all warps use the same rows of the table in a
 * step, distance = reach - u, and share keys and values in a ring of slots, read at different
 * positions. A step computes 32 new columns of the position product G[i][u], which are skewed by
 * the row (skew.cuh) to initialise the logits
 *
 *     S[i][c] = G[i][c - i] + a[key] + q K^T
 *
 * Vectors follow in steps of 32: 16 queries share a chunk, so their table is a row offset. Both
 * parts share one running maximum and sum; logits are divided by the scale, which 2^x multiplies
 * in.
 *
 * DROP: the sum is that of all probabilities; those kept are scaled at the end.
 *
 * Keys, values and tables come from cache; a warp's step of 32 x 32 (head 64) takes 96 mma.
 * Instructions of a window step if no key is masked and no maximum moves (620 by design):
 *
 *     budget: ls_mma_forward<64, 2, 4, false> sm_90 610 instructions
 *     budget: ls_mma_forward<64, 1, 4, false> sm_90 390 instructions
 *     budget: ls_mma_forward<32, 2, 4, false> sm_90 510 instructions
 *     budget: ls_mma_forward<64, 2, 4, true> sm_90 1020 instructions
 *     budget: ls_mma_forward<64, 1, 4, true> sm_90 760 instructions
 *     budget: ls_mma_forward<32, 2, 4, true> sm_90 900 instructions
 */
#ifndef TP_LS_MMA_FWD_CUH
#define TP_LS_MMA_FWD_CUH

#include "cuda/attention/ls_mma.cuh"

enum { LS_MMA_STEP = 32 }; /* keys */

/* A warp owns MT blocks of 16 queries. */
template <int D, int MT, int WARPS> struct ls_mma_forward_shape {
    static constexpr int R = 16 * MT, QUERIES = R * WARPS, THREADS = 32 * WARPS;
    /* Slots by which the last warp reads ahead of the first; all slots, one of them in flight. */
    static constexpr int AHEAD = (QUERIES - R + LS_MMA_STEP - 1) / LS_MMA_STEP, SLOTS = AHEAD + 2;
    static constexpr int RING = SLOTS * LS_MMA_STEP, TABLE = 4 * LS_MMA_STEP;
};

/* Columns of a warp's band before its first query: all distances, in whole steps. */
static inline __host__ __device__ int ls_mma_band(int distances)
{
    return (distances + LS_MMA_STEP - 1) / LS_MMA_STEP * LS_MMA_STEP;
}

template <int D, int MT, int WARPS> static size_t ls_mma_forward_shared(const tp__ls_plan &p)
{
    typedef ls_mma_forward_shape<D, MT, WARPS> F;
    const int columns = ls_mma_band(p.distances[LS_WINDOW_PART]) + LS_MMA_STEP;
    return (size_t)(2 * F::RING + F::TABLE) * D * sizeof(bf16) +
           (size_t)(2 * columns + F::QUERIES) * sizeof(float);
}

/* The state of a warp: queries, output, and for each row the largest logit and this lane's sum. */
template <int D, int MT> struct ls_mma_warp_state {
    uint32_t q[MT][D / 16][4];
    float o[MT][D / 8][4], top[MT][2], sum[MT][2];
};

/* Stores 16 of the 32 columns of S. */
template <int MT>
static __device__ inline void ls_mma_put_half(float s[MT][4][4], int half, const float x[MT][2][4])
{
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) s[m][2 * half + n][i] = x[m][n][i];
}

/* Turns S of 32 columns into probabilities and adds their product with the values in rows at0,
 * at1. DROP: except for those that are `dropped`. */
template <int D, int MT, bool DROP>
static __device__ inline void ls_mma_soft_values(ls_mma_warp_state<D, MT> &w, float s[MT][4][4],
                                                 uint32_t dropped, float scale2, const bf16 *values,
                                                 int at0, int at1)
{
    float f[MT][2];
    bool moved = false;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float next = w.top[m][e];
#pragma unroll
            for (int n = 0; n < 4; n++)
                next = fmaxf(next, fmaxf(s[m][n][2 * e], s[m][n][2 * e + 1]));
            next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 1));
            next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 2));
            f[m][e] = tp_exp2((w.top[m][e] - next) * scale2);
            moved |= next > w.top[m][e];
            w.top[m][e] = next;
        }
    if (__any_sync(0xffffffffu, moved)) {
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (i % 2 == 0) w.sum[m][i / 2] *= f[m][i / 2];
#pragma unroll
                for (int n = 0; n < D / 8; n++) w.o[m][n][i] *= f[m][i / 2];
            }
    }
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float shift = w.top[m][i / 2] * scale2;
#pragma unroll
            for (int n = 0; n < 4; n++) {
                s[m][n][i] = tp_exp2(s[m][n][i] * scale2 - shift);
                w.sum[m][i / 2] += s[m][n][i];
                if (DROP && dropped >> ls_mma_drop_bit<1>(2 * m + i / 2, n, i) & 1u)
                    s[m][n][i] = 0.0f;
            }
        }
#pragma unroll
    for (int k = 0; k < 2; k++) {
        uint32_t p[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++) tp_frag_of(p[m], s[m][2 * k], s[m][2 * k + 1]);
        ls_mma_multiply_depth<D, MT>(w.o, p, values, k == 0 ? at0 : at1);
    }
}

/* ---- the window ---- */

/* Sets invisible pairs to -INFINITY: s holds keys from `key` on, rows from t. */
template <int MT>
static __device__ inline void ls_mma_mask_window(const ls_call<bf16> &p, float s[MT][4][4], int t,
                                                 int key)
{
    const int g = ls_mma_lane() / 4, q = ls_mma_lane() % 4;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int row = t + 16 * m + 8 * e + g, last = p.Wc + row - key - 2 * q;
            const int first = ls_first(p, LS_WINDOW_PART, row) - key - 2 * q;
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (8 * n + i < first || 8 * n + i > last) s[m][n][2 * e + i] = -INFINITY;
        }
}

/* Computes a block's unscaled bias logits: bs[i] of distance band - i, as[i] of key key0 + i. */
template <class F>
static __device__ inline void ls_mma_window_biases(float *bs, float *as, const ls_rows<bf16> &keys,
                                                   const ls_rows<bf16> &table, int band, int key0,
                                                   int columns, float unscale)
{
    for (int i = threadIdx.x; i < columns; i += F::THREADS) {
        const int distance = band - i;
        bs[i] = distance < table.n ? table.bias[distance] * unscale : 0.0f;
    }
    for (int i = threadIdx.x; i < columns + F::QUERIES - F::R; i += F::THREADS) {
        const int key = key0 + i;
        as[i] = key >= 0 && key < keys.n ? keys.bias[key] * unscale : 0.0f;
    }
}

/* Logits of 16 keys in `rows`: the skewed product with 16 lines of the table, then that with the
 * keys. ap and bp: bias logits of the lane's first key and line. kept: products with the lines
 * before. */
template <int D, int MT>
static __device__ inline void ls_mma_window_logits(float x[MT][2][4], float kept[MT][2 * MT][4],
                                                   const uint32_t q[MT][D / 16][4],
                                                   const bf16 *table, const bf16 *rows,
                                                   const float *ap, const float *bp, int at)
{
    float g[MT][2][4];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) g[m][n][i] = bp[8 * n + i % 2];
    ls_mma_multiply_rows<D, MT>(g, q, table, at);
    tp_skew_step<MT>(x, kept, g);
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) x[m][n][i] += ap[8 * n + i % 2];
    ls_mma_multiply_rows<D, MT>(x, q, rows, at);
}

template <int D, int MT, int WARPS, bool DROP>
static __device__ inline void ls_mma_window_steps(const ls_call<bf16> &p, int T, int b, int h,
                                                  bf16 *ring, ls_mma_warp_state<D, MT> &w)
{
    typedef ls_mma_forward_shape<D, MT, WARPS> F;
    const int band = ls_mma_band(p.distances[LS_WINDOW_PART]), steps = band / LS_MMA_STEP + 1;
    const int t = T + F::R * ls_mma_warp(), lane = ls_mma_lane(), q2 = lane % 4 * 2;
    const int key0 = p.Wc + T - band; /* of column 0 of the block */
    const ls_rows<bf16> k = ls_keys(p, p.k[LS_WINDOW_PART], LS_WINDOW_PART, b, h);
    const ls_rows<bf16> v = ls_keys(p, p.v[LS_WINDOW_PART], LS_WINDOW_PART, b, h);
    const ls_rows<bf16> r = ls_table(p, LS_WINDOW_PART, h);
    bf16 *const values = ring + F::RING * D, *const table = values + F::RING * D;
    float *const bs = reinterpret_cast<float *>(table + F::TABLE * D);
    float *const as = bs + steps * LS_MMA_STEP;
    /* Skips steps before the first visible key, except one that fills the kept columns. */
    const int dead = ls_first(p, LS_WINDOW_PART, T) - key0 - (F::QUERIES - F::R) - LS_MMA_STEP;
    const int begin = max(0, dead / LS_MMA_STEP);
    const int all_from = ls_first(p, LS_WINDOW_PART, t + F::R - 1); /* seen by all of the warp */
    const float unscale = 1.0f / p.scale, scale2 = p.scale * 1.44269504f;
    ls_mma_window_biases<F>(bs, as, k, r, band, key0, steps * LS_MMA_STEP, unscale);
    /* Keys and values of 32 columns. */
    const auto fetch = [&](int to, int key) {
        ls_mma_copy_rows<D, F::THREADS, LS_MMA_STEP, 1>(ring, to, k, p.width, key);
        ls_mma_copy_rows<D, F::THREADS, LS_MMA_STEP, 1>(values, to, v, p.width, key);
    };
    const auto fetch_table = [&](int j) {
        ls_mma_copy_rows<D, F::THREADS, LS_MMA_STEP, -1>(table, j % 2 * LS_MMA_STEP, r, p.width,
                                                         band - j * LS_MMA_STEP);
    };
    for (int i = 0; i <= F::AHEAD; i++) fetch(i * LS_MMA_STEP, key0 + (begin + i) * LS_MMA_STEP);
    fetch_table(begin);
    tp_copy_commit();
    int slot = (F::AHEAD + 1) * LS_MMA_STEP; /* the next row of the ring to write */
    const int columns_at = ls_mma_at_columns<D>(0), depth_at = ls_mma_at_depth<D>(0);
    const tp_mask drop = D == 32 ? ls_mma_drop_of(p) : p.drop;
    const int64_t element = ls_mma_element(p, LS_WINDOW_PART, (int64_t)b * p.H + h, t);
    float kept[MT][2 * MT][4] = {};
    int place = F::R * ls_mma_warp(); /* the row of the ring that this warp reads */
    for (int j = begin; j < steps; j++) {
        tp_copy_wait<0>();
        __syncthreads();
        if (j + 1 < steps) {
            fetch(slot, key0 + (j + 1 + F::AHEAD) * LS_MMA_STEP);
            fetch_table(j + 1);
            tp_copy_commit();
            slot = slot + LS_MMA_STEP < F::RING ? slot + LS_MMA_STEP : 0;
        }
        const int key = p.Wc + t - band + j * LS_MMA_STEP;
        const int row0 = place * D, row1 = (place + 16 < F::RING ? place + 16 : 0) * D;
        const float *const ap = as + F::R * ls_mma_warp() + j * LS_MMA_STEP + q2;
        const float *const bp = bs + j * LS_MMA_STEP + q2;
        float s[MT][4][4];
        place = place + LS_MMA_STEP < F::RING ? place + LS_MMA_STEP : place + LS_MMA_STEP - F::RING;
        if (t >= p.N) continue;
        const uint32_t dropped =
            DROP ? ls_mma_dropped<2 * MT, 1, false>(drop, element + key, 2 * ls_mma_elements(p))
                 : 0;
#pragma unroll
        for (int c = 0; c < 2; c++) {
            float x[MT][2][4];
            ls_mma_window_logits<D, MT>(x, kept, w.q, table + (j % 2 * LS_MMA_STEP + 16 * c) * D,
                                        ring + (c == 0 ? row0 : row1), ap + 16 * c, bp + 16 * c,
                                        columns_at);
            ls_mma_put_half<MT>(s, c, x);
        }
        if (key < all_from || key + LS_MMA_STEP - 1 > p.Wc + t)
            ls_mma_mask_window<MT>(p, s, t, key);
        ls_mma_soft_values<D, MT, DROP>(w, s, dropped, scale2, values, row0 + depth_at,
                                        row1 + depth_at);
    }
    __syncthreads();
}

/* ---- the vectors ---- */

template <int D, int MT, int WARPS, bool DROP>
static __device__ inline void ls_mma_vector_steps(const ls_call<bf16> &p, int T, int b, int h,
                                                  bf16 *ring, ls_mma_warp_state<D, MT> &w)
{
    typedef ls_mma_forward_shape<D, MT, WARPS> F;
    constexpr int LINES = F::TABLE / 2; /* rows of the table in a step */
    const int part = LS_VECTOR_PART, t = T + F::R * ls_mma_warp(), q2 = ls_mma_lane() % 4 * 2;
    const int first = p.first[part], end = ls_reach(p, part, min(T + F::QUERIES, p.N) - 1) + 1;
    const int steps = (end - first + LS_MMA_STEP - 1) / LS_MMA_STEP;
    const ls_rows<bf16> k = ls_keys(p, p.k[part], part, b, h);
    const ls_rows<bf16> v = ls_keys(p, p.v[part], part, b, h);
    const ls_rows<bf16> r = ls_table(p, part, h);
    bf16 *const values = ring + F::RING * D, *const table = values + F::RING * D;
    const float scale2 = p.scale * 1.44269504f;
    const auto fetch = [&](int j) {
        const int to = j % 2 * LS_MMA_STEP, key = first + j * LS_MMA_STEP;
        ls_mma_copy_rows<D, F::THREADS, LS_MMA_STEP, 1>(ring, to, k, p.width, key);
        ls_mma_copy_rows<D, F::THREADS, LS_MMA_STEP, 1>(values, to, v, p.width, key);
        ls_mma_copy_rows<D, F::THREADS, LINES, -1>(table, j % 2 * LINES, r, p.width, end - 1 - key);
        tp_copy_commit();
    };
    int seen[MT], table_at[MT]; /* end of the keys that 16 queries see; start of their table */
#pragma unroll
    for (int m = 0; m < MT; m++) {
        seen[m] = t + 16 * m < p.N ? ls_reach(p, part, t + 16 * m) + 1 : 0;
        table_at[m] = ls_mma_at_columns<D>(t + 16 * m < p.N ? end - seen[m] : 0);
    }
    const int columns_at = ls_mma_at_columns<D>(0), depth_at = ls_mma_at_depth<D>(0);
    const int64_t element = ls_mma_element(p, part, (int64_t)b * p.H + h, t);
    if (steps > 0) fetch(0);
    for (int j = 0; j < steps; j++) {
        tp_copy_wait<0>();
        __syncthreads();
        if (j + 1 < steps) fetch(j + 1);
        const int key = first + j * LS_MMA_STEP, row = j % 2 * LS_MMA_STEP * D;
        float s[MT][4][4];
        if (key >= seen[MT - 1] && key >= seen[0]) continue;
        const uint32_t dropped =
            DROP ? ls_mma_dropped<2 * MT, 1, false>(p.drop, element + key, 2 * ls_mma_elements(p))
                 : 0;
#pragma unroll
        for (int c = 0; c < 2; c++) {
            float x[MT][2][4] = {};
#pragma unroll
            for (int m = 0; m < MT; m++)
                ls_mma_multiply_rows<D, 1>(x + m, w.q + m, table + (j % 2 * LINES + 16 * c) * D,
                                           table_at[m]);
            ls_mma_multiply_rows<D, MT>(x, w.q, ring + row + 16 * c * D, columns_at);
            ls_mma_put_half<MT>(s, c, x);
        }
#pragma unroll
        for (int m = 0; m < MT; m++)
            if (key + LS_MMA_STEP > seen[m])
#pragma unroll
                for (int n = 0; n < 4; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        if (key + 8 * n + q2 + i % 2 >= seen[m]) s[m][n][i] = -INFINITY;
        ls_mma_soft_values<D, MT, DROP>(w, s, dropped, scale2, values, row + depth_at,
                                        row + 16 * D + depth_at);
    }
}

/* ---- the kernel ---- */

/* Block: (tile of queries, the last first; batch row; head). */
template <int D, int MT, int WARPS, bool DROP>
__global__ void __launch_bounds__(32 * WARPS)
    ls_mma_forward(ls_call<bf16> p, int tiles, bf16 *y, float *lse)
{
    typedef ls_mma_forward_shape<D, MT, WARPS> F;
    TP_SHARED_REST(bf16, ring);
    const int heads = p.B * p.H, head = (int)blockIdx.x % heads, b = head / p.H, h = head % p.H;
    const int T = (tiles - 1 - (int)blockIdx.x / heads) * F::QUERIES, t = T + F::R * ls_mma_warp();
    ls_mma_warp_state<D, MT> w;
#pragma unroll
    for (int m = 0; m < MT; m++) {
        ls_mma_load_a<D>(w.q[m], ls_queries(p, p.q, b, h), p.width, t + 16 * m);
#pragma unroll
        for (int e = 0; e < 2; e++) {
            w.top[m][e] = -1e30f; /* finite: a step may be masked for a row */
            w.sum[m][e] = 0.0f;
        }
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) w.o[m][n][i] = 0.0f;
    }
    if (p.keys[LS_WINDOW_PART] > 0) ls_mma_window_steps<D, MT, WARPS, DROP>(p, T, b, h, ring, w);
    if (p.keys[LS_VECTOR_PART] > 0) ls_mma_vector_steps<D, MT, WARPS, DROP>(p, T, b, h, ring, w);
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int row = t + 16 * m + 8 * e + ls_mma_lane() / 4, q = ls_mma_lane() % 4;
            float sum = w.sum[m][e];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            if (row >= p.N) continue;
            const float f = sum > 0.0f ? (DROP ? p.drop.scale : 1.0f) / sum : 0.0f;
            bf16 *const to = y + ((int64_t)b * p.N + row) * p.width + (int64_t)h * D + 2 * q;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                const uint32_t u = tp_pack_bf16(w.o[m][n][2 * e] * f, w.o[m][n][2 * e + 1] * f);
                memcpy(to + 8 * n, &u, 4);
            }
            if (q == 0)
                lse[(int64_t)head * p.N + row] =
                    sum > 0.0f ? w.top[m][e] * p.scale + logf(sum) : 0.0f;
        }
}

template <int D, int MT>
static tp_code ls_mma_launch_forward(const tp_call *c, const ls_call<bf16> &p)
{
    const int queries = ls_mma_forward_shape<D, MT, 4>::QUERIES;
    const int tiles = (p.N + queries - 1) / queries;
    const auto kernel =
        p.drop.below > 0 ? ls_mma_forward<D, MT, 4, true> : ls_mma_forward<D, MT, 4, false>;
    return tp_launch(c, kernel, (unsigned)((int64_t)tiles * p.B * p.H), 128,
                     ls_mma_forward_shared<D, MT, 4>(p), p, tiles, tp_out<bf16>(&c->y[0]),
                     tp_out<float>(&c->y[1]));
}

#endif
