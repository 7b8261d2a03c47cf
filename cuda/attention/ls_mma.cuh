/* ls_mma.cuh - long-short attention on tensor cores: products with tiles (tiles.cuh), dropout and
 * supported calls.
 *
 * A lane's address in a fragment is one offset. Moving 16 columns in depth is an exclusive or;
 * moving 16 rows adds a constant. */
#ifndef TP_LS_MMA_CUH
#define TP_LS_MMA_CUH

#include "cuda/attention/drop_mma.cuh"
#include "cuda/attention/ls_plain.cuh"
#include "cuda/attention/skew.cuh"
#include "cuda/kit/tiles.cuh"

static __device__ inline int ls_mma_lane()
{
    return (int)threadIdx.x % 32;
}
static __device__ inline int ls_mma_warp()
{
    return (int)threadIdx.x / 32;
}

/* This lane's offsets in fragments of 16 rows from `row`, as operand B: the rows are its columns
 * (two blocks of 8) or its depth. */
template <int D> static __device__ inline int ls_mma_at_columns(int row)
{
    const int l = ls_mma_lane();
    return tp_tile_at<D>(row + l / 16 * 8 + l % 8, l / 8 % 2);
}
template <int D> static __device__ inline int ls_mma_at_depth(int row)
{
    const int l = ls_mma_lane();
    return tp_tile_at<D>(row + l % 16, l / 16);
}

/* Two blocks of 8 columns += a b. */
static __device__ inline void ls_mma_multiply(float c[2][4], const uint32_t a[4],
                                              const uint32_t b[4])
{
    tp_mma_bf16(c[0], a, b, c[0]);
    tp_mma_bf16(c[1], a, b + 2, c[1]);
}

/* c[n] += a x^T, where 16 rows of x are columns; `at` is ls_mma_at_columns of the first. */
template <int D, int MT>
static __device__ inline void ls_mma_multiply_rows(float c[MT][2][4],
                                                   const uint32_t a[MT][D / 16][4],
                                                   const bf16 *tile, int at)
{
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t b[4];
        tp_ldmatrix(b, tile + (at ^ k * 16));
#pragma unroll
        for (int m = 0; m < MT; m++) ls_mma_multiply(c[m], a[m][k], b);
    }
}

/* o += p x, where 16 rows of x are depth; `at` is ls_mma_at_depth of the first. */
template <int D, int MT>
static __device__ inline void ls_mma_multiply_depth(float o[MT][D / 8][4], const uint32_t p[MT][4],
                                                    const bf16 *tile, int at)
{
#pragma unroll
    for (int n = 0; n < D / 16; n++) {
        uint32_t b[4];
        tp_ldmatrix_t(b, tile + (at ^ n * 16));
#pragma unroll
        for (int m = 0; m < MT; m++) ls_mma_multiply(o[m] + 2 * n, p[m], b);
    }
}

/* Loads 16 rows of one head from `row` as operand A, from device memory; missing rows are zeros. */
template <int D>
static __device__ inline void ls_mma_load_a(uint32_t a[D / 16][4], const ls_rows<bf16> &x,
                                            int width, int row)
{
    const int g = ls_mma_lane() / 4, q = ls_mma_lane() % 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int r = row + g + i % 2 * 8;
#pragma unroll
        for (int k = 0; k < D / 16; k++) {
            a[k][i] = 0;
            if (r < x.n)
                memcpy(&a[k][i], x.at + (int64_t)r * width + 16 * k + i / 2 * 8 + 2 * q, 4);
        }
    }
}

/* Copies N rows of x, row, row + STEP, ..., to the rows of a tile from `to`, a multiple of 8;
 * missing rows become zeros. */
template <int D, int THREADS, int N, int STEP>
static __device__ inline void ls_mma_copy_rows(bf16 *tile, int to, const ls_rows<bf16> &x,
                                               int width, int row)
{
    constexpr int PIECES = D / 8, ROUND = THREADS / PIECES;
    static_assert(N % ROUND == 0 && ROUND % 8 == 0, "whole rounds, that keep the order of pieces");
    const int piece = (int)threadIdx.x % PIECES, line = (int)threadIdx.x / PIECES;
    bf16 *const at = tile + to * D + tp_tile_at<D>(line, piece);
#pragma unroll
    for (int i = 0; i < N / ROUND; i++) {
        const int r = row + STEP * (line + i * ROUND);
        const bool ok = (unsigned)r < (unsigned)x.n;
        tp_copy_async_if(ok, at + i * ROUND * D,
                         x.at + (int64_t)min(ok ? r : 0, x.clamp) * width + piece * 8);
    }
}

/* ---- dropout ---- */

/* The mask of p, its random stream advanced once for all steps: some kernels spill without it,
 * others with it. */
static __device__ inline tp_mask ls_mma_drop_of(const ls_call<bf16> &p)
{
    tp_mask m = p.drop;
    if (m.random.advance) m.random.offset += *m.random.advance;
    m.random.advance = NULL;
    return m;
}

/* The dropout elements of a query. */
static __device__ inline int64_t ls_mma_elements(const ls_call<bf16> &p)
{
    return (int64_t)p.keys[LS_VECTOR_PART] + p.keys[LS_WINDOW_PART];
}

/* The dropout element of key 0 of a part for this lane's first row, if the warp's is query t. */
static __device__ inline int64_t ls_mma_element(const ls_call<bf16> &p, int part, int64_t head,
                                                int t)
{
    return (head * p.N + t + ls_mma_lane() / 4) * ls_mma_elements(p) +
           (part == LS_WINDOW_PART ? p.keys[LS_VECTOR_PART] : 0);
}

/* The bit of ls_mma_dropped for element i % 2 of an accumulator's row and column block n. */
template <int WORDS> static __device__ constexpr int ls_mma_drop_bit(int row, int n, int i)
{
    return n % 4 * 8 + 2 * (row * WORDS + n / 4) + i % 2;
}

/* Which elements of this lane's ROWS accumulator rows, 8 apart, are dropped. A row has 32 WORDS
 * adjacent elements, from `first` for the first row, 4 `step` further for the next. REVERSED: the
 * last is column 0.
 *
 * Each lane of a quad draws every fourth block of the rows, and one of those in which rows that
 * begin within a block end: a block for four of the lane's elements, and one more. */
template <int ROWS, int WORDS, bool REVERSED>
static __device__ inline uint32_t ls_mma_dropped(const tp_mask &m, int64_t first, int64_t step)
{
    static_assert(ROWS * WORDS <= 4, "a bit for each element");
    const int q = ls_mma_lane() % 4, shift = (int)(first & 3);
    const int64_t block = first >> 2;
    uint32_t bits[ROWS * WORDS + 1], dropped = 0;
#pragma unroll
    for (int k = 0; k < ROWS * WORDS; k++) {
        const int64_t at = block + k / WORDS * step + k % WORDS * 8 + q;
        bits[k] = (drop_mma_block(m, at) | drop_mma_block(m, at + 4) << 16) << 4 * q;
    }
    bits[ROWS * WORDS] = drop_mma_block(m, block + q % ROWS * step + 8 * WORDS) << q % ROWS * 4;
#pragma unroll
    for (int k = 0; k <= ROWS * WORDS; k++) {
        bits[k] |= __shfl_xor_sync(0xffffffffu, bits[k], 1);
        bits[k] |= __shfl_xor_sync(0xffffffffu, bits[k], 2);
    }
#pragma unroll
    for (int k = 0; k < ROWS * WORDS; k++) {
        const int row = k / WORDS, word = k % WORDS;
        const uint32_t end = bits[ROWS * WORDS] >> 4 * row;
        const uint64_t next = word + 1 < WORDS ? bits[k + 1] : end, both = next << 32 | bits[k];
        const int to = 2 * (row * WORDS + (REVERSED ? WORDS - 1 - word : word));
        const uint32_t own = REVERSED ? __brev((uint32_t)(both >> shift)) >> 2 * q
                                      : (uint32_t)(both >> (shift + 2 * q));
        dropped |= (own & 0x03030303u) << to;
    }
    return dropped;
}

/* ---- calls ---- */

/* Returns whether kernels support this call: with blocks of 16 queries in one chunk, and with
 * `queries` queries that need at most `lines` more rows of the table than one. */
static inline bool ls_mma_serves(const ls_call<float> &, int, int)
{
    return false;
}
static inline bool ls_mma_serves(const ls_call<bf16> &p, int queries, int lines)
{
    const bool vectors = p.l % 16 == 0 && ((int64_t)queries + p.l - 2) / p.l * p.r <= lines;
    return (p.D == 64 || p.D == 32) && (p.keys[LS_VECTOR_PART] == 0 || vectors) &&
           p.distances[LS_WINDOW_PART] <= 4096 &&
           tp_aligned(p.q, p.k[0], p.k[1], p.v[0], p.v[1], p.table_at[0], p.table_at[1]);
}

#endif
