/* tiles.cuh - tiles of bf16 rows in shared memory for mma: layout, copies, fragments.
 *
 * A tile has rows of COLS elements (32, 64 or 128), cut into chunks of 16 bytes. A row's chunks are
 * swizzled by its index, so that the eight rows that ldmatrix reads together are in different
 * banks. In every address the row is a constant plus a per-lane constant, and the chunk a constant
 * XORed with one: in unrolled loops an address costs one addition. */
#ifndef TP_TILES_CUH
#define TP_TILES_CUH

#include "cuda/kit/ptx.cuh"

/* The offset of chunk c of a row, in elements. */
template <int COLS> static __device__ inline int tp_tile_at(int row, int c)
{
    static_assert(COLS == 32 || COLS == 64 || COLS == 128, "a row is 64, 128 or 256 bytes");
    return row * COLS + (c ^ (COLS == 32 ? row >> 1 & 3 : row & 7)) * 8;
}

/* Queues copies of rows first .. first + ROWS into the tile. Rows outside [0, count) and columns
 * outside [0, cols) become zero. from: row 0, with rows `width` elements apart; cols and width are
 * multiples of 8, from is 16-byte aligned. All THREADS threads must call it. */
template <int COLS, int ROWS, int THREADS>
static __device__ inline void tp_tile_copy(bf16 *tile, const bf16 *from, int first, int count,
                                           int cols, int width)
{
    constexpr int CHUNKS = COLS / 8, STEP = THREADS / CHUNKS;
    static_assert(ROWS % STEP == 0 && STEP % 8 == 0, "threads share the rows evenly");
    const int c = (int)threadIdx.x % CHUNKS, row = (int)threadIdx.x / CHUNKS;
    bf16 *to = tile + tp_tile_at<COLS>(row, c);
    from += (int64_t)(first + row) * width + 8 * c;
#pragma unroll
    for (int k = 0; k < ROWS; k += STEP) {
        const bool ok = first + row + k >= 0 && first + row + k < count && 8 * c < cols;
        tp_copy_async_if(ok, to + k * COLS, from + (int64_t)k * width);
    }
}

/* The A operand [16,16] at row `row` (a multiple of 8) and column 16 k of a tile. */
template <int COLS>
static __device__ inline void tp_frag_a(uint32_t a[4], const bf16 *tile, int row, int k)
{
    const int lane = (int)threadIdx.x % 32;
    tp_ldmatrix(a, tile + row * COLS + tp_tile_at<COLS>(lane % 16, 2 * k + lane / 16));
}

/* B operands of two blocks of 8 columns: B[k][n] = tile[row + n][16 k + ..], n < 16. Words 0, 1
 * are the first block, 2, 3 the second. */
template <int COLS>
static __device__ inline void tp_frag_b(uint32_t b[4], const bf16 *tile, int row, int k)
{
    const int lane = (int)threadIdx.x % 32;
    tp_ldmatrix(b, tile + row * COLS +
                       tp_tile_at<COLS>(lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
}

/* The same without the transposition: B[k][n] = tile[row + k][16 n0 + n], k < 16, n < 16. */
template <int COLS>
static __device__ inline void tp_frag_bt(uint32_t b[4], const bf16 *tile, int row, int n0)
{
    const int lane = (int)threadIdx.x % 32;
    tp_ldmatrix_t(b, tile + row * COLS + tp_tile_at<COLS>(lane % 16, 2 * n0 + lane / 16));
}

/* Packs accumulators of two blocks of 8 columns as the A operand [16,16] of the next product. */
static __device__ inline void tp_frag_of(uint32_t a[4], const float x[4], const float y[4])
{
    a[0] = tp_pack_bf16(x[0], x[1]);
    a[1] = tp_pack_bf16(x[2], x[3]);
    a[2] = tp_pack_bf16(y[0], y[1]);
    a[3] = tp_pack_bf16(y[2], y[3]);
}

/* Reduces over the four lanes (a quad) that hold parts of the same rows of an accumulator. */
template <class Op> static __device__ inline float tp_quad(float v)
{
    v = Op::join(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return Op::join(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

#endif
