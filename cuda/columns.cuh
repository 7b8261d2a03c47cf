/* columns.cuh - sums over the rows of a matrix: parts of blocks of rows, added in order.
 *
 * Blocks of rows are those of tensor/row_blocks.h for a card, cut by the number of rows alone, so
 * that bits do not depend on the grid. A block of threads writes the part of a block of rows to
 * c->work, [blocks][ld] floats; the kernel here adds the parts: few bytes, soon read again, so they
 * mostly stay in the second cache. */
#ifndef TP_COLUMNS_CUH
#define TP_COLUMNS_CUH

#include "cuda/kernel.cuh"
#include "tensor/row_blocks.h"

/* A block adds 32 columns: warp w the parts w, w + warps, ..., the first warp what these give. */
template <class Out>
__global__ void __launch_bounds__(1024)
    tp_add_parts_kernel(int64_t n, int64_t blocks, int64_t ld, const float *part, Out *out)
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
            tp_put(out + i, (float)v);
        }
        __syncthreads();
    }
}

/* to[i] = sum over blocks of part[block * ld + i], i < n. */
static tp_code tp_add_parts(const tp_call *c, int64_t n, int64_t blocks, int64_t ld,
                            const float *part, const tp_view *to)
{
    const int warps = (int)max((int64_t)1, min(blocks, (int64_t)32));
    return tp_with_type(c, to->dtype, [&](auto s) {
        typedef decltype(s) Out;
        return tp_launch(c, tp_add_parts_kernel<Out>, tp_grid(c, n, 32), 32 * warps, 0, n, blocks,
                         ld, part, tp_out<Out>(to));
    });
}

#endif
