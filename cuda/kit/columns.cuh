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

/* Finishing functors map a sum to the stored value. */
struct tp_as_it_is {
    __device__ float operator()(float sum, int64_t) const { return sum; }
};
template <class Out> struct tp_add_to { /* add: accumulates onto the old value */
    const Out *old;
    bool add;
    __device__ float operator()(float sum, int64_t i) const
    {
        return add ? tp_float(old[i]) + sum : sum;
    }
};

/* Destinations of sums: to(i, sum) stores that of column i of all sets. */
template <class Out, class F> struct tp_finished {
    Out *out;
    F finish;
    __device__ void operator()(int64_t i, float sum) const { tp_put(out + i, finish(sum, i)); }
};

/* A gradient of either type; add: accumulates onto the old value. */
struct tp_grad_out {
    void *at;
    bool wide, add;
};

static inline tp_grad_out tp_grad_out_of(const tp_call *c, int input)
{
    return { c->dx[input].data, c->dx[input].dtype == TP_F32, (c->add >> input & 1u) != 0 };
}

static __device__ inline void tp_add_grad(const tp_grad_out &o, int64_t i, float sum)
{
    if (o.wide) {
        float *const to = static_cast<float *>(o.at) + i;
        *to = o.add ? *to + sum : sum;
    } else {
        bf16 *const to = static_cast<bf16 *>(o.at) + i;
        tp_put(to, o.add ? tp_float(*to) + sum : sum);
    }
}

struct tp_to_grads { /* the first n columns are one gradient, the others a second */
    int64_t n;
    tp_grad_out first, second;
    __device__ void operator()(int64_t i, float sum) const
    {
        if (i < n)
            tp_add_grad(first, i, sum);
        else
            tp_add_grad(second, i - n, sum);
    }
};

/* Stores the sums over the blocks of part [sets][blocks][ld] for n columns of each set. A block
 * adds 32 columns: warp w adds the parts w, w + warps, ..., and warp 0 adds their sums. */
template <class To>
__global__ void __launch_bounds__(1024) tp_add_parts_kernel(int64_t sets, int64_t n, int64_t blocks,
                                                            int64_t ld, const float *part, To to)
{
    TP_SHARED(double, sum, [32][32]);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int64_t across = (n + 31) / 32;
    TP_EACH_BLOCK (tile, sets * across) {
        const int64_t set = tp_div(tile, across), i = (tile - set * across) * 32 + lane;
        const float *const of = part + set * blocks * ld;
        double v = 0.0;
        if (i < n) {
#pragma unroll 8
            for (int64_t k = warp; k < blocks; k += warps) v += (double)of[k * ld + i];
        }
        sum[warp][lane] = v;
        __syncthreads();
        if (warp == 0 && i < n) {
            for (int w = 1; w < warps; w++) v += sum[w][lane];
            to(set * n + i, (float)v);
        }
        __syncthreads();
    }
}

static inline int tp_part_threads(int64_t blocks)
{
    return 32 * (int)max((int64_t)1, min(blocks, (int64_t)32));
}

template <class To>
static tp_code tp_launch_parts(const tp_call *c, int64_t sets, int64_t n, int64_t blocks,
                               int64_t ld, const float *part, To to)
{
    return tp_launch(c, tp_add_parts_kernel<To>, tp_grid(c, sets * ((n + 31) / 32), 1),
                     tp_part_threads(blocks), 0, sets, n, blocks, ld, part, to);
}

/* out [sets][n] = the finished sums over the blocks of part [sets][blocks][ld]. */
template <class Out, class F>
static tp_code tp_add_sets(const tp_call *c, int64_t sets, int64_t n, int64_t blocks, int64_t ld,
                           const float *part, Out *out, F finish)
{
    return tp_launch_parts(c, sets, n, blocks, ld, part, tp_finished<Out, F>{ out, finish });
}

/* dx[input][i] = or += the sum over blocks of part[block * ld + i], i < n. */
static inline tp_code tp_add_parts(const tp_call *c, int64_t n, int64_t blocks, int64_t ld,
                                   const float *part, int input)
{
    const tp_grad_out to = tp_grad_out_of(c, input);
    if (!to.at) return TP_OK;
    return tp_launch_parts(c, 1, n, blocks, ld, part, tp_to_grads{ n, to, {} });
}

/* The same for inputs 1 and 2, scale and shift of n channels, in one launch: part is
 * [blocks][2][n]. Either may be unwanted; RMS norm has no input 2. */
static inline tp_code tp_add_affine(const tp_call *c, int64_t n, int64_t blocks, const float *part)
{
    const bool w = c->dx[1].data, b = c->nx > 2 && c->dx[2].data;
    if (!w || !b)
        return w || b ? tp_add_parts(c, n, blocks, 2 * n, w ? part : part + n, w ? 1 : 2) : TP_OK;
    return tp_launch_parts(c, 1, 2 * n, blocks, 2 * n, part,
                           tp_to_grads{ n, tp_grad_out_of(c, 1), tp_grad_out_of(c, 2) });
}

/* ---- tiles ---- */

/* Images of `image` rows each, cut into blocks of `size` rows; an image's last may have fewer. */
struct tp_matrix {
    int64_t rows, C, size, image;
};

static inline tp_matrix tp_matrix_of(const tp_view *x, int64_t C)
{
    const int64_t rows = C > 0 ? x->numel / C : 0;
    return { rows, C, tp_block_rows(rows, TP_TILE_ROWS), rows > 0 ? rows : 1 };
}

/* Blocks of an image. */
static __host__ __device__ inline int64_t tp_spans(const tp_matrix &a)
{
    return (a.image + a.size - 1) / a.size;
}

enum { TP_TILE_LANES = 8, TP_TILE_GROUPS = TP_THREADS / TP_TILE_LANES };

/* Tile t of a, in packs of N columns. This thread has columns j .. j + N and rows first, first +
 * TP_TILE_GROUPS, ... below last, which is 0 if it has no columns. */
template <int N> struct tp_tile {
    int64_t block, image, left, j, first, last;

    __device__ tp_tile(const tp_matrix &a, int64_t t)
    {
        const int64_t across = (a.C + TP_TILE_LANES * N - 1) / (TP_TILE_LANES * N);
        block = tp_div(t, across);
        left = (t - block * across) * TP_TILE_LANES * N;
        j = left + (int64_t)(threadIdx.x % TP_TILE_LANES) * N;
        const int64_t spans = tp_spans(a);
        image = tp_div(block, spans);
        const int64_t top = image * a.image + (block - image * spans) * a.size;
        first = top + threadIdx.x / TP_TILE_LANES;
        last = j < a.C ? min(top + a.size, (image + 1) * a.image) : 0;
    }
};

static __host__ __device__ inline int64_t tp_tiles(const tp_matrix &a, int N)
{
    const int64_t width = (int64_t)TP_TILE_LANES * N;
    return a.rows / a.image * tp_spans(a) * ((a.C + width - 1) / width);
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
