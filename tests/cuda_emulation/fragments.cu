/* fragments.cu - operations on tensor-core fragments, one at a time, for
 * tests/cuda/test_fragments.c. */
#include "cuda_emulation/fragments.h"

#include "cuda/attention/drop_mma.cuh"
#include "cuda/attention/skew.cuh"
#include "cuda/kit/tiles.cuh"

/* Loads 16 x 8 block b of x [16,40] as an accumulator. */
static __device__ void load_block(float d[4], const float *x, int b)
{
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; i++)
        d[i] = x[(lane / 4 + i / 2 * 8) * 40 + 8 * b + lane % 4 * 2 + i % 2];
}

__global__ void skew_kernel(bool back, const float *x, float *y)
{
    const int lane = threadIdx.x % 32;
    float g[5][4], out[4];
    for (int b = 0; b < 5; b++) load_block(g[b], x, b);
    for (int b = 0; b < 3; b++) {
        if (back) {
            tp_unskew(out, g[b], g[b + 1]);
            tp_unskew(out + 2, g[b + 1] + 2, g[b + 2] + 2);
        } else {
            tp_skew(out, g[b + 2], g[b + 1]);
            tp_skew(out + 2, g[b + 1] + 2, g[b] + 2);
        }
        for (int i = 0; i < 4; i++)
            y[(lane / 4 + i / 2 * 8) * 24 + 8 * b + lane % 4 * 2 + i % 2] = out[i];
    }
}

__global__ void lean_kernel(const float *x, float *y)
{
    const int lane = threadIdx.x % 32, column = lane % 4 * 2;
    float g[3][2], out[4];
    for (int b = 0; b < 3; b++)
        for (int e = 0; e < 2; e++) g[b][e] = x[(8 * b + lane / 4) * 8 + column + e];
    tp_skew_columns(out, g[2], g[1]);
    tp_skew_columns(out + 2, g[1], g[0]);
    for (int i = 0; i < 4; i++) y[(lane / 4 + i / 2 * 8) * 8 + column + i % 2] = out[i];
}

/* Loads x^T as fragments of mma's A. */
__global__ void transposed_kernel(const float *x, float *y)
{
    TP_SHARED(bf16, tile, [16][16]);
    const int lane = threadIdx.x % 32, m = lane / 8;
    for (int i = lane; i < 256; i += 32) tp_put(&tile[i / 16][i % 16], x[i]);
    __syncwarp();
    uint32_t a[4];
    tp_ldmatrix_t(a, &tile[lane % 8 + m / 2 * 8][m % 2 * 8]);
    for (int k = 0; k < 4; k++) {
        bf16 pair[2];
        memcpy(pair, a + k, 4);
        const int row = lane / 4 + k % 2 * 8, col = lane % 4 * 2 + k / 2 * 8;
        y[row * 16 + col] = tp_float(pair[0]);
        y[row * 16 + col + 1] = tp_float(pair[1]);
    }
}

__global__ void narrow_kernel(int n, const float *x, bf16 *y)
{
    for (int i = threadIdx.x; i < n; i += 32) tp_put(y + i, x[i]);
}

/* Two warps copy A and B; the first multiplies. */
__global__ void tiles_kernel(const bf16 *x, float *y)
{
    constexpr int COLS = 64;
    TP_SHARED(uint4, room, [2 * 16 * COLS / 8]);
    bf16 *const a = reinterpret_cast<bf16 *>(room), *const b = a + 16 * COLS;
    const int lane = threadIdx.x % 32, row = lane / 4, column = lane % 4 * 2;
    tp_tile_copy<COLS, 16, 64>(a, x, 0, 12, 40, 40);
    tp_tile_copy<COLS, 16, 64>(b, x + 12 * 40, 0, 12, 40, 40);
    tp_copy_commit();
    tp_copy_wait<0>();
    __syncthreads();
    if (threadIdx.x >= 32) return;
    float z[2][4] = {}, out[COLS / 8][4] = {};
    for (int k = 0; k < COLS / 16; k++) {
        uint32_t fa[4], fb[4];
        tp_frag_a<COLS>(fa, a, 0, k);
        tp_frag_b<COLS>(fb, b, 0, k);
        for (int n = 0; n < 2; n++) tp_mma_bf16(z[n], fa, fb + 2 * n, z[n]);
    }
    uint32_t fz[4];
    tp_frag_of(fz, z[0], z[1]);
    for (int n = 0; n < COLS / 16; n++) {
        uint32_t fb[4];
        tp_frag_bt<COLS>(fb, b, 0, n);
        for (int k = 0; k < 2; k++) tp_mma_bf16(out[2 * n + k], fz, fb + 2 * k, out[2 * n + k]);
    }
    for (int i = 0; i < 4; i++) {
        const int r = row + i / 2 * 8, c = column + i % 2;
        for (int n = 0; n < 2; n++) y[r * 16 + 8 * n + c] = z[n][i];
        for (int n = 0; n < COLS / 8; n++) y[256 + r * COLS + 8 * n + c] = out[n][i];
    }
}

__global__ void shuffle_kernel(const float *x, float *y)
{
    const int lane = threadIdx.x % 32;
    y[lane] = __shfl_down_sync(0xffffffffu, x[lane], 3);
    y[32 + lane] = __shfl_up_sync(0xffffffffu, x[lane], 5);
    y[64 + lane] = (float)(__ballot_sync(0xffffffffu, x[lane] > 16.0f) >> 16);
    y[96 + lane] = (float)__any_sync(0xffffffffu, x[lane] > 31.5f);
    y[128 + lane] = (float)__all_sync(0xffffffffu, x[lane] > 1.5f);
}

static __device__ void store_bits(float *y, int tiles, uint32_t bits)
{
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 4 * tiles; i++)
        y[(lane / 4 + i / 2 % 2 * 8) * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2] =
            (float)(bits >> i & 1u);
}

__global__ void drops_kernel(tp_mask m, const float *x, float *y)
{
    const int64_t a = (int64_t)x[0], b = (int64_t)x[1], row = threadIdx.x / 4;
    const int64_t first[2] = { a + row * b, a + (row + 8) * b };
    store_bits(y, 7, drop_mma_rows<7>(m, first, 56));
    store_bits(y + 1024, 4, drop_mma_rows<4>(m, first, 32));
    store_bits(y + 2048, 4, drop_mma_columns<4, false>(m, a, b));
    store_bits(y + 3072, 2, drop_mma_columns<2, false>(m, a, b));
    store_bits(y + 4096, 2, drop_mma_columns<2, true>(m, a, b));
    store_bits(y + 5120, 8, drop_mma_columns<8, true>(m, a, b));
}

extern "C" tp_code fragments_run(const tp_call *c, fragment what)
{
    const float *x = tp_in<float>(&c->x[0]);
    float *y = tp_out<float>(&c->y[0]);
    if (what == LEAN) return tp_launch(c, lean_kernel, 1, 32, 0, x, y);
    if (what == TRANSPOSED) return tp_launch(c, transposed_kernel, 1, 32, 0, x, y);
    if (what == TILES) { /* the bf16 inputs follow the results */
        bf16 *narrow = reinterpret_cast<bf16 *>(y + 256 + 16 * 64);
        const tp_code code = tp_launch(c, narrow_kernel, 1, 32, 0, 2 * 12 * 40, x, narrow);
        return code == TP_OK ? tp_launch(c, tiles_kernel, 1, 64, 0, narrow, y) : code;
    }
    if (what == DROPS) return tp_launch(c, drops_kernel, 1, 32, 0, tp_mask_of(c, 0.5), x, y);
    if (what == SHUFFLES) return tp_launch(c, shuffle_kernel, 1, 32, 0, x, y);
    return tp_launch(c, skew_kernel, 1, 32, 0, what == UNSKEW, x, y);
}
