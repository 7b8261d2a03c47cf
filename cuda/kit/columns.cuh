/* columns.cuh - sums over the rows of a matrix, as partial sums of blocks of rows, added in order.
 *
 * There are at most 1024 blocks of rows, of at least 16 rows if a block of threads has all columns
 * and 256 if it has some. They depend only on the number of rows, so results do not depend on the
 * grid. A block of threads writes partial sums of a block of rows to c->work, [blocks][ld] floats,
 * which the kernel here adds. These few bytes mostly stay in the L2 cache. Kernels that do not need
 * whole rows work in tiles: a block of threads covers 8 packs of columns and 32 rows at a time. */
#ifndef TP_COLUMNS_CUH
#define TP_COLUMNS_CUH

#include "cuda/kit/kernel.cuh"

enum { TP_WHOLE_ROWS = 16, TP_TILE_ROWS = 256 }; /* minimum rows of a block */

static inline int64_t tp_block_rows(int64_t rows, int64_t least)
{
    const int64_t n = (rows + 1023) / 1024;
    return n < least ? least : n;
}

static inline int64_t tp_row_blocks(int64_t rows, int64_t least)
{
    const int64_t n = tp_block_rows(rows, least);
    return (rows + n - 1) / n;
}

/* A block adds 32 columns: warp w adds the parts w, w + warps, ..., and warp 0 adds their sums. */
template <class Out>
__global__ void __launch_bounds__(1024) tp_add_parts_kernel(int64_t n, int64_t blocks, int64_t ld,
                                                            const float *part, bool add, Out *out)
{
    TP_SHARED(double, sum, [32][32]);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    TP_EACH_BLOCK (tile, (n + 31) / 32) {
        const int64_t i = tile * 32 + lane;
        double v = 0.0;
        if (i < n) {
#pragma unroll 8
            for (int64_t k = warp; k < blocks; k += warps) v += (double)part[k * ld + i];
        }
        sum[warp][lane] = v;
        __syncthreads();
        if (warp == 0 && i < n) {
            for (int w = 1; w < warps; w++) v += sum[w][lane];
            tp_put(out + i, add ? tp_float(out[i]) + (float)v : (float)v);
        }
        __syncthreads();
    }
}

static inline int tp_part_threads(int64_t blocks)
{
    return 32 * (int)max((int64_t)1, min(blocks, (int64_t)32));
}

/* dx[input][i] = or += the sum over blocks of part[block * ld + i], i < n. */
static tp_code tp_add_parts(const tp_call *c, int64_t n, int64_t blocks, int64_t ld,
                            const float *part, int input)
{
    return tp_with_type(c, c->dx[input].dtype, [&](auto s) {
        typedef decltype(s) Out;
        return tp_launch(c, tp_add_parts_kernel<Out>, tp_grid(c, n, 32), tp_part_threads(blocks), 0,
                         n, blocks, ld, part, (c->add >> input & 1u) != 0,
                         tp_out<Out>(&c->dx[input]));
    });
}

/* ---- tiles ---- */

struct tp_matrix {
    int64_t rows, C, size; /* a tile has `size` rows */
};

static inline tp_matrix tp_matrix_of(const tp_view *x, int64_t C)
{
    const int64_t rows = C > 0 ? x->numel / C : 0;
    return { rows, C, tp_block_rows(rows, TP_TILE_ROWS) };
}

enum { TP_TILE_LANES = 8, TP_TILE_GROUPS = TP_THREADS / TP_TILE_LANES };

/* Tile t of a, in packs of N columns. This thread has columns j .. j + N and rows first, first +
 * TP_TILE_GROUPS, ... below last, which is 0 if it has no columns. */
template <int N> struct tp_tile {
    int64_t block, left, j, first, last;

    __device__ tp_tile(const tp_matrix &a, int64_t t)
    {
        const int64_t across = (a.C + TP_TILE_LANES * N - 1) / (TP_TILE_LANES * N);
        block = tp_div(t, across);
        left = (t - block * across) * TP_TILE_LANES * N;
        j = left + (int64_t)(threadIdx.x % TP_TILE_LANES) * N;
        first = block * a.size + threadIdx.x / TP_TILE_LANES;
        last = j < a.C ? min((block + 1) * a.size, a.rows) : 0;
    }
};

static __host__ __device__ inline int64_t tp_tiles(const tp_matrix &a, int N)
{
    const int64_t width = (int64_t)TP_TILE_LANES * N;
    return (a.rows + a.size - 1) / a.size * ((a.C + width - 1) / width);
}

struct tp_plus {
    __device__ float operator()(float a, float b) const { return a + b; }
};

/* Joins all groups' values for each column of the tile, in order: out(column, joined). All threads
 * of the block must call it. */
template <int N, class T, class Join, class Out>
static __device__ inline void tp_join_groups(const tp_matrix &a, const tp_tile<N> &tile,
                                             const T (&v)[N], Join join, Out out)
{
    TP_SHARED(T, all, [TP_TILE_GROUPS][N][TP_TILE_LANES]);
    const int lane = threadIdx.x % TP_TILE_LANES, k = threadIdx.x / TP_TILE_LANES;
    for (int e = 0; e < N; e++) all[k][e][lane] = v[e];
    __syncthreads();
    if (k < N && tile.left + lane * N + k < a.C) {
        T sum = all[0][k][lane];
        for (int g = 1; g < TP_TILE_GROUPS; g++) sum = join(sum, all[g][k][lane]);
        out(tile.left + lane * N + k, sum);
    }
    __syncthreads();
}

#endif
