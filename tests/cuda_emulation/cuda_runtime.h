/* cuda_runtime.h - the part of CUDA's device language that the kernels use, for a host compiler.
 *
 * A kernel is an ordinary function; each thread of a block runs it on a fiber
 * (emulated_device.cpp). Every wait for other threads goes through emulated_barrier or
 * emulated_exchange. Built-in functions keep CUDA's names; functions that wrap PTX are named
 * emulated_*. */
#ifndef EMULATED_CUDA_RUNTIME_H
#define EMULATED_CUDA_RUNTIME_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#include "cuda_runtime_api.h"

#define __host__
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

using std::max;
using std::min;

/* ---- the scheduler ---- */

typedef void (*emulated_body)(const void *env);
/* The error with which a GPU would refuse this launch, or cudaSuccess. Notes a recorded launch: the
 * kernel's shared memory limit must still allow it when the graph is launched. */
cudaError_t emulated_accepted(const void *kernel, cudaStream_t s, dim3 grid, dim3 block,
                              size_t shared);
/* The dynamic shared memory that cudaFuncSetAttribute granted the kernel on the stream's GPU; 0:
 * not set. */
size_t emulated_asked(const void *kernel, cudaStream_t s);
void emulated_run(cudaStream_t s, dim3 grid, dim3 block, size_t shared, size_t asked,
                  emulated_body body, const void *env);

/* Waits for all threads of the block and orders their memory accesses. */
void emulated_barrier();
/* Waits for all lanes of the warp. Returns their 32 values, valid until the lane's next call. */
const uint64_t *emulated_exchange(unsigned mask, uint64_t value);
/* Waits for all lanes and, unlike the collectives, orders their memory accesses. */
void emulated_syncwarp(unsigned mask);
/* Announces an atomic operation of this thread at this address to the race detector. */
void emulated_atomic(const void *at, size_t bytes);
unsigned emulated_lane();
/* Exchanges the words of all lanes in one round, for tensor core instructions: all[lane][k]. */
const uint32_t (*emulated_gather(const uint32_t a[4], const uint32_t b[2]))[6];
/* Fails the launch unless p is aligned to 16 bytes. */
void emulated_expect_aligned(const void *p);
/* Fails the launch if p is in shared memory. */
void emulated_expect_global(const void *p);
/* The block's shared memory for this key, poisoned on first use. */
void *emulated_shared(const void *key, size_t bytes);
void *emulated_dynamic_shared();
/* Copies when the thread waits for it; until then the target holds NaN. */
void emulated_copy(void *to, const void *from, size_t bytes);
void emulated_commit();
void emulated_wait(int groups_left);

/* Queues work on a stream: it runs when the host waits for it, or becomes part of the recording
 * (emulated_graph.cpp). Its inputs must not change until it has run. */
void emulated_queue(cudaStream_t s, std::function<void()> work);
void emulated_queue_copied(cudaStream_t s, void (*work)(const void *args), const void *args,
                           size_t bytes);
bool emulated_recording(cudaStream_t s);
/* Begins (1) or ends (-1) a run of queued work; it may access device memory, the host may not. */
void emulated_batch(int change);
/* Adds a launch's needs to the stream's recording. */
void emulated_note_launch(const void *kernel, size_t shared);
/* emulated_place: the position of the next work in a queue. emulated_finish runs all work
 * before a position; emulated_passed: it has run. */
unsigned long long emulated_place(int queue);
void emulated_finish(int queue, unsigned long long place);
bool emulated_passed(int queue, unsigned long long place);
/* cudaErrorInvalidResourceHandle if the stream's GPU is not the current one. The emulation requires
 * this even of calls where CUDA does not document it. */
cudaError_t emulated_current(cudaStream_t s);
/* Stores the error of a launch for the next cudaGetLastError. */
void emulated_refuse(cudaError_t e);

/* static: kernels of two files may share a signature and a struct name */
template <class... P, class... A>
static void emulated_launch(dim3 grid, dim3 block, size_t shared, cudaStream_t s,
                            void (*kernel)(P...), A... args)
{
    const void *entry = reinterpret_cast<const void *>(kernel);
    const cudaError_t e = emulated_accepted(entry, s, grid, block, shared);
    if (e != cudaSuccess) return emulated_refuse(e);
    const size_t asked = emulated_asked(entry, s);
    emulated_queue(s, [=] {
        const auto call = [&] { kernel(args...); };
        emulated_run(
            s, grid, block, shared, asked,
            [](const void *env) { (*static_cast<decltype(&call)>(env))(); }, &call);
    });
}

template <class... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), enum cudaFuncAttribute what, int value)
{
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), what, value);
}

/* ---- stores to global memory ---- */

template <class T> void __stwb(T *to, T value)
{
    emulated_expect_global(to);
    *to = value;
}

/* ---- barriers and warp collectives ---- */

inline void __syncthreads()
{
    emulated_barrier();
}
inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emulated_syncwarp(mask);
}
inline void __threadfence() {}

template <class T> uint64_t emulated_bits(T v)
{
    static_assert(sizeof(T) <= 8, "at most 8 bytes");
    uint64_t u = 0;
    std::memcpy(&u, &v, sizeof v);
    return u;
}
template <class T> T emulated_value(uint64_t u)
{
    T v;
    std::memcpy(&v, &u, sizeof v);
    return v;
}

template <class T> T __shfl_sync(unsigned mask, T v, int lane, int width = 32)
{
    const unsigned first = emulated_lane() / unsigned(width) * unsigned(width);
    return emulated_value<T>(
        emulated_exchange(mask, emulated_bits(v))[first + unsigned(lane) % unsigned(width)]);
}
template <class T> T __shfl_xor_sync(unsigned mask, T v, int other, int width = 32)
{
    const unsigned me = emulated_lane(), from = me ^ unsigned(other);
    const uint64_t *all = emulated_exchange(mask, emulated_bits(v));
    return emulated_value<T>(all[from / unsigned(width) > me / unsigned(width) ? me : from]);
}
template <class T> T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32)
{
    const unsigned me = emulated_lane(), from = me + by;
    const uint64_t *all = emulated_exchange(mask, emulated_bits(v));
    return emulated_value<T>(all[from / unsigned(width) == me / unsigned(width) ? from : me]);
}
template <class T> T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32)
{
    const unsigned me = emulated_lane();
    const uint64_t *all = emulated_exchange(mask, emulated_bits(v));
    return emulated_value<T>(all[me % unsigned(width) >= by ? me - by : me]);
}
inline unsigned __ballot_sync(unsigned mask, int yes)
{
    const uint64_t *all = emulated_exchange(mask, yes != 0);
    unsigned bits = 0;
    for (unsigned i = 0; i < 32; i++) bits |= unsigned(all[i]) << i;
    return bits;
}
inline int __any_sync(unsigned mask, int yes)
{
    return __ballot_sync(mask, yes) != 0;
}
inline int __all_sync(unsigned mask, int yes)
{
    return __ballot_sync(mask, yes) == 0xffffffffu;
}

/* ---- integers, bits, mathematics ---- */

/* Keeps the race detector from counting the function's accesses as plain reads and writes. */
#define EMULATED_ATOMIC __attribute__((noinline, no_sanitize_thread))

template <class T, class V> EMULATED_ATOMIC T atomicAdd(T *at, V v)
{
    static_assert(std::is_integral<T>::value, "float atomics would make results depend on order");
    emulated_atomic(at, sizeof *at);
    const T old = *at;
    *at = T(old + T(v));
    return old;
}
template <class T, class V> EMULATED_ATOMIC T atomicMax(T *at, V v)
{
    emulated_atomic(at, sizeof *at);
    const T old = *at;
    *at = std::max(old, T(v));
    return old;
}
template <class T, class V, class W> EMULATED_ATOMIC T atomicCAS(T *at, V expected, W v)
{
    emulated_atomic(at, sizeof *at);
    const T old = *at;
    if (old == T(expected)) *at = T(v);
    return old;
}
inline unsigned __brev(unsigned u)
{
    unsigned v = 0;
    for (int i = 0; i < 32; i++) v |= (u >> i & 1u) << (31 - i);
    return v;
}
inline int __popc(unsigned u)
{
    return __builtin_popcount(u);
}
inline int __ffs(int u)
{
    return __builtin_ffs(u);
}
inline int __clz(int u)
{
    return u ? __builtin_clz(unsigned(u)) : 32;
}
inline uint64_t __umul64hi(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 u128;
    return uint64_t((u128)a * b >> 64);
}
inline unsigned __float_as_uint(float x)
{
    return emulated_value<unsigned>(emulated_bits(x));
}
inline float __uint_as_float(unsigned u)
{
    return emulated_value<float>(u);
}
inline float rsqrtf(float x)
{
    return 1.0f / std::sqrt(x);
}
inline float __expf(float x)
{
    return std::exp(x);
}
inline float __fdividef(float a, float b)
{
    return a / b;
}
template <class T> T __ldg(const T *p)
{
    return *p;
}

/* ---- tensor cores: fragments as in the PTX manual ---- */

/* D[16,8] = A[16,16] B[16,8] + C in bf16; in tf32 A is [16,8] and B [8,8]. */
void emulated_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4]);
void emulated_mma_tf32(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4]);
/* Loads four 8 x 8 matrices of 16-bit elements; lane l passes row l % 8 of matrix l / 8. */
void emulated_ldmatrix(uint32_t r[4], const void *row, bool transposed);

#endif
