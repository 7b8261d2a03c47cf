/* planted.cu - kernels with deliberate errors, to test that the emulation finds them: y = x
 * reversed within blocks of 64 elements. Correct versions are the control. */
#include "cuda_emulation/planted.h"

#include "cuda/kit/move.cuh"
#include "cuda/kit/ptx.cuh"

enum { BLOCK = 64 };

__global__ void reverse_kernel(planted mistake, int64_t n, const float *x, float *y)
{
    TP_SHARED(float, part, [BLOCK]);
    const int64_t first = (int64_t)blockIdx.x * BLOCK;
    const int t = threadIdx.x, m = (int)min((int64_t)BLOCK, n - first);
    if (t < m) part[mistake == PAST_SHARED && t == BLOCK - 1 ? BLOCK : t] = x[first + t];
    if (mistake == BARRIER_IN_BRANCH ? t < m : mistake != MISSING_BARRIER) __syncthreads();
    const bool skip = (mistake == UNWRITTEN && first + t == 5) ||
                      (mistake == WRONG_TAIL && first + t >= n / 4 * 4);
    if (mistake == BLOCKS_IN_TURN && first > 0) part[m - 1 - t] += 0.0f * y[first - 1 - t];
    if (t < m && !skip) y[first + t] = part[m - 1 - t];
    if (mistake == PAST_THE_END && first + t == n - 1) y[n] = 0.0f;
}

/* Lane 0 skips the sum, so not all lanes reach the collective. */
__global__ void warp_kernel(planted mistake, float *y)
{
    float v = (float)threadIdx.x;
    if (mistake != LANE_MISSING || threadIdx.x > 0) v = tp_warp<tp_sum_of>(v);
    y[threadIdx.x] = v;
}

/* Uses a copy to shared memory before it has arrived. */
__global__ void copy_kernel(planted mistake, const float *x, float *y)
{
    TP_SHARED(float, part, [128]);
    tp_copy_async(part + 4 * threadIdx.x,
                  x + 4 * threadIdx.x + (mistake == MISALIGNED && threadIdx.x == 0));
    if (mistake != NOT_COMMITTED) tp_copy_commit();
    if (mistake != NOT_WAITED && mistake != USED_EARLY) tp_copy_wait<0>();
    __syncthreads();
    for (int i = threadIdx.x; i < 128; i += 32) y[i] = part[127 - i];
    if (mistake == USED_EARLY) tp_copy_wait<0>();
}

/* Copies the second block of 64 elements over the first. */
__global__ void rounds_kernel(planted mistake, const float *x, float *y)
{
    TP_SHARED(float, part, [BLOCK]);
    const int t = threadIdx.x, at = 32 * (t / 32) + 4 * (t % 8);
    const bool copies = t % 32 < 8;
    part[t] = x[t];
    __syncthreads();
    if (mistake == COPIED_EARLY && copies) tp_copy_async(part + at, x + BLOCK + at);
    y[t] = part[BLOCK - 1 - t];
    __syncwarp();
    if (mistake != WARP_AHEAD) __syncthreads();
    if (mistake != COPIED_EARLY && copies) tp_copy_async(part + at, x + BLOCK + at);
    tp_copy_commit();
    tp_copy_wait<0>();
    __syncthreads();
    y[BLOCK + t] = part[BLOCK - 1 - t];
}

/* Errors that no order of threads and blocks reveals: every order gives the right result. y = x
 * reversed in blocks of 64 or 32. */
__global__ void race_kernel(planted mistake, const float *x, float *y)
{
    TP_SHARED(float, part, [BLOCK]);
    const int64_t first = (int64_t)blockIdx.x * BLOCK;
    const int t = threadIdx.x, in_warp = mistake == LANES_IN_ORDER || mistake == LANES_UNORDERED;
    part[t] = x[first + t];
    if (!in_warp) __syncthreads();
    if (mistake == LANES_IN_ORDER) __syncwarp();
    if (mistake == LANES_UNORDERED) tp_warp<tp_sum_of>(part[t]);
    y[first + t] = part[in_warp ? t ^ 31 : BLOCK - 1 - t];
    if (mistake == READ_AND_OVERWRITTEN) { /* with its existing value */
        __syncwarp();
        part[t] = x[first + t];
    }
    if (mistake == TWO_BLOCKS_WRITE && t == 0) y[0] = x[BLOCK - 1];
    if (mistake == BLOCK_READS && t == 0 && !(y[BLOCK] < 1e9f)) y[first] = part[BLOCK - 1];
}

/* y[0] = the number of threads, as an integer. */
__global__ void count_kernel(planted mistake, uint32_t *y)
{
    if (mistake == COUNTED)
        atomicAdd(y, 1u);
    else
        y[0] = y[0] + 1;
}

/* y = x, copied in 16-byte words. */
__global__ void words_kernel(planted mistake, const float *x, float *y)
{
    if (mistake != WORDS && threadIdx.x == 31) return;
    const int at = 4 * (int)threadIdx.x + (mistake != WORDS);
    tp_store(y + at, tp_load(x + at));
}

/* D = A B^T for A [16,16] and B [8,16], by the tensor core wrapper. */
__global__ void mma_kernel(const float *x, float *y)
{
    TP_SHARED(bf16, a, [16][16]);
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    for (int i = lane; i < 256; i += 32) tp_put(&a[i / 16][i % 16], x[i]);
    __syncwarp();
    uint32_t fa[4], fb[2];
    float d[4], zero[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    tp_ldmatrix(fa, &a[lane % 16][lane / 16 * 8]);
    for (int i = 0; i < 2; i++) {
        bf16 pair[2];
        tp_put(pair, x[256 + g * 16 + 8 * i + 2 * t]);
        tp_put(pair + 1, x[256 + g * 16 + 8 * i + 2 * t + 1]);
        memcpy(fb + i, pair, 4);
    }
    tp_mma_bf16(d, fa, fb, zero);
    for (int i = 0; i < 4; i++) y[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}

/* Declares 1 KiB of shared memory in addition to the dynamic memory of the launch. */
__global__ void shared_kernel(float *y)
{
    TP_SHARED(float, part, [256]);
    TP_SHARED_REST(float, rest);
    part[threadIdx.x] = rest[threadIdx.x] = 0.0f;
    y[threadIdx.x] = part[threadIdx.x] + rest[threadIdx.x];
}

/* Stores a pack to shared memory. */
__global__ void stored_kernel(const float *x, float *y)
{
    TP_SHARED(float, part, [128]);
    tp_store(part + 4 * threadIdx.x, tp_load(x + 4 * threadIdx.x));
    __syncwarp();
    tp_store(y + 4 * threadIdx.x, tp_load(part + 4 * threadIdx.x));
}

/* Adds the lane's count of wrong quotients to y[lane]. Dividends are near multiples of d and of all
 * magnitudes. */
__global__ void divide_kernel(tp_divisor by, float *y)
{
    const int64_t most = INT64_MAX, lane = threadIdx.x, k = most / by.d;
    const int64_t some[] = { most >> lane,
                             most >> lane >> 32,
                             (k >> lane) * by.d,
                             (k >> lane) * by.d - (k >> lane > 0),
                             (k >> 32 >> lane) * by.d,
                             (k >> 32 >> lane) * by.d + by.d - 1 };
    for (const int64_t i : some) y[lane] += tp_over(by, i) != i / by.d;
}

/* y[lane] = the lane's count of words that differ from the CPU's, for seeds, offsets and blocks of
 * all magnitudes. */
__global__ void philox_kernel(float *y)
{
    const uint64_t lane = threadIdx.x,
                   some[] = { 0,          UINT64_MAX,      lane,
                              lane << 32, ~(lane << lane), 0x9ce0f053ull << lane };
    y[lane] = 0.0f;
    for (const uint64_t seed : some)
        for (const uint64_t offset : some)
            for (const uint64_t block : some) {
                const tp_random r = { seed, offset, NULL };
                const tp_philox w = tp_random_block(r, block),
                                exact = tp__philox(seed, offset, block);
                for (int k = 0; k < 4; k++) y[lane] += w.w[k] != exact.w[k];
            }
}

static tp_code divide(const tp_call *c, float *y)
{
    tp_code code = tp__cuda_zero(c, y, 32 * sizeof *y);
    for (int s = 0; s < 62; s++)
        for (int64_t d = ((int64_t)1 << s) - 1; d <= ((int64_t)1 << s) + 1; d++)
            if (d > 0 && code == TP_OK) code = tp_launch(c, divide_kernel, 1, 32, 0, tp_by(d), y);
    return code;
}

/* Launches a kernel without the checks of tp_launch. */
static tp_code launch_alone(const tp_call *c, dim3 grid, size_t shared, float *y)
{
    emulated_launch(grid, dim3(32), shared, tp__cuda_stream(c->dev), shared_kernel, y);
    return tp__cuda_launched(c);
}

/* Lowers a kernel's limit to 32 KiB after a launch with 60, and launches it with 40. */
static tp_code launch_lowered(const tp_call *c, float *y)
{
    const tp_code code = tp_launch(c, shared_kernel, 1, 32, 60 << 10, y);
    cudaFuncSetAttribute(shared_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 32 << 10);
    return code == TP_OK ? launch_alone(c, dim3(1), 40 << 10, y) : code;
}

static tp_code record_lowered(const tp_call *c, float *y)
{
    const cudaStream_t s = tp__cuda_stream(c->dev);
    tp_cuda_graph *g = tp__cuda_graph_begin(s);
    const tp_code code = tp_launch(c, shared_kernel, 1, 32, 60 << 10, y);
    cudaError_t e = tp__cuda_graph_end(g, s);
    cudaFuncSetAttribute(shared_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 32 << 10);
    if (e == cudaSuccess) e = tp__cuda_graph_launch(g, s);
    tp__cuda_graph_free(g);
    return code == TP_OK && e ? TP_E_CUDA : code;
}

/* Launches on a GPU that is not the current one. */
static tp_code launch_elsewhere(const tp_call *c, float *y)
{
    const cudaStream_t s = tp__cuda_stream(c->dev);
    cudaSetDevice(1);
    emulated_launch(dim3(1), dim3(32), 1 << 10, s, shared_kernel, y);
    return tp__cuda_launched(c);
}

/* Copies to the memory of another GPU. */
static tp_code copy_elsewhere(const tp_call *c, const float *x)
{
    void *p = NULL;
    cudaSetDevice(1);
    cudaMalloc(&p, 128);
    const tp_code code = tp__cuda_copy(c, p, x, 128);
    cudaFree(p);
    return code;
}

extern "C" tp_code planted_run(const tp_call *c, planted mistake)
{
    const float *x = tp_in<float>(&c->x[0]);
    float *y = tp_out<float>(&c->y[0]);
    const int64_t n = c->x[0].numel;
    if (mistake == WARP || mistake == LANE_MISSING)
        return tp_launch(c, warp_kernel, 1, 32, 0, mistake, y);
    if (mistake == ROUNDS || mistake == WARP_AHEAD || mistake == COPIED_EARLY)
        return tp_launch(c, rounds_kernel, 1, BLOCK, 0, mistake, x, y);
    if (mistake == COPY || mistake == NOT_WAITED || mistake == NOT_COMMITTED ||
        mistake == USED_EARLY || mistake == MISALIGNED)
        return tp_launch(c, copy_kernel, 1, 32, 0, mistake, x, y);
    if (mistake >= RACELESS && mistake <= BLOCK_READS)
        return tp_launch(c, race_kernel, (unsigned)(n / BLOCK), BLOCK, 0, mistake, x, y);
    if (mistake == COUNTED || mistake == COUNTED_PLAINLY) {
        const tp_code code = tp__cuda_zero(c, y, 4);
        return code == TP_OK
                   ? tp_launch(c, count_kernel, 2, 32, 0, mistake, reinterpret_cast<uint32_t *>(y))
                   : code;
    }
    if (mistake == WORDS || mistake == WORDS_MISALIGNED)
        return tp_launch(c, words_kernel, 1, 32, 0, mistake, x, y);
    if (mistake == MMA) return tp_launch(c, mma_kernel, 1, 32, 0, x, y);
    if (mistake == PHILOX) return tp_launch(c, philox_kernel, 1, 32, 0, y);
    if (mistake == DIVIDE) return divide(c, y);
    if (mistake == ANOTHER_GPU) return launch_elsewhere(c, y);
    if (mistake == MEMORY_ELSEWHERE) return copy_elsewhere(c, x);
    if (mistake == NO_BLOCKS) return launch_alone(c, dim3(0), 1 << 10, y);
    if (mistake == TOO_MANY_DOWN) return launch_alone(c, dim3(1, 65536), 1 << 10, y);
    if (mistake == SHARED_NOT_ASKED) return launch_alone(c, dim3(1), 48 << 10, y);
    if (mistake == SHARED_FITS || mistake == SHARED_TOO_MUCH)
        return tp_launch(c, shared_kernel, 1, 32, (mistake == SHARED_FITS ? 48 : 99) << 10, y);
    if (mistake == SHARED_LOWERED) return launch_lowered(c, y);
    if (mistake == SHARED_LOWERED_RECORDED) return record_lowered(c, y);
    if (mistake == SHARED_STORED) return tp_launch(c, stored_kernel, 1, 32, 0, x, y);
    return tp_launch(c, reverse_kernel, (unsigned)((n + BLOCK - 1) / BLOCK), BLOCK, 0, mistake, n,
                     x, y);
}
