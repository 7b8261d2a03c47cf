/* kernel.cuh - included by every cuda/NAME.cu: storage types, launches, loads, reductions.
 *
 * A file holds kernels, launchers and registered functions, in that order:
 *
 *     template <class S> __global__ void name_kernel(...) { ... }
 *     template <class S> static tp_code name_fwd(const tp_call *c) { ... tp_launch(...) ... }
 *     TP_CUDA_KERNEL(name_fwd)            defines tp_cuda_name_fwd, which the op refers to
 *
 * S is the type in memory of the call's first floating-point input: float or bf16. All arithmetic
 * is in float; sums that must not lose digits are in double. There is no f64 on the GPU.
 *
 * The tests compile the same source for the host (tests/cuda_emulation), so device code only uses
 * functions defined here or emulated there. TP_SHARED declares shared memory, and PTX is confined
 * to the wrappers of ptx.cuh: only these two files depend on the compiler. */
#ifndef TP_KERNEL_CUH
#define TP_KERNEL_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <curand_philox4x32_x.h>
#include <type_traits>

#include "cuda/device/inner.h"
#include "tensor/geometry/broadcast.h"
#include "tensor/rng.h"

typedef __nv_bfloat16 bf16;

/* ---- registration: TP_CUDA_KERNEL(softmax_fwd) defines tp_cuda_softmax_fwd ---- */

/* The dtype of the first floating-point input present, otherwise of the first output. */
static inline tp_dtype tp_storage(const tp_call *c)
{
    for (int i = 0; i < c->nx; i++)
        if (!tp_absent(&c->x[i]) && tp_is_float(c->x[i].dtype)) return c->x[i].dtype;
    return c->ny > 0 ? c->y[0].dtype : TP_F32;
}

static inline tp_code tp_no_dtype(const tp_call *c, tp_dtype dt)
{
    return tp__cuda_fail(c, TP_E_DTYPE, "%s is not supported on CUDA devices; use f32 or bf16",
                         tp_dtype_name(dt));
}

#define TP_CUDA_KERNEL(name)                                                                       \
    extern "C" tp_code tp_cuda_##name(const tp_call *c);                                           \
    extern "C" tp_code tp_cuda_##name(const tp_call *c)                                            \
    {                                                                                              \
        const tp_dtype dt = tp_storage(c);                                                         \
        return dt == TP_F32 ? name<float>(c) : dt == TP_BF16 ? name<bf16>(c) : tp_no_dtype(c, dt); \
    }

/* For kernels that only move bytes or dispatch on dtypes themselves: name is not a template. */
#define TP_CUDA_KERNEL_UNTYPED(name)                                                               \
    extern "C" tp_code tp_cuda_##name(const tp_call *c);                                           \
    extern "C" tp_code tp_cuda_##name(const tp_call *c)                                            \
    {                                                                                              \
        return name(c);                                                                            \
    }

/* Defines tp_cuda_name by name, which returns the bytes of c->work that the kernels need. */
#define TP_CUDA_WORK(name)                                                                         \
    extern "C" size_t tp_cuda_##name(const tp_call *c);                                            \
    extern "C" size_t tp_cuda_##name(const tp_call *c)                                             \
    {                                                                                              \
        return name(c);                                                                            \
    }

/* Dispatches on a second type, such as that of an f32 parameter with bf16 data:
 *     return tp_with_type(c, c->x[1].dtype, [&](auto b) { using B = decltype(b); ... }); */
template <class F> static tp_code tp_with_type(const tp_call *c, tp_dtype dt, F f)
{
    return dt == TP_F32 ? f(float()) : dt == TP_BF16 ? f(bf16()) : tp_no_dtype(c, dt);
}

/* ---- launching ---- */

enum { TP_THREADS = 256 }; /* of a block, unless a kernel has a reason for another number */

/* Queues a kernel. An empty grid does nothing. Dynamic and static shared memory are limited to 48
 * KiB unless more is requested; the static part is not known here, so this requests it above 24 KiB
 * of dynamic memory. */
template <class... P, class... A>
static tp_code tp_launch(const tp_call *c, void (*kernel)(P...), dim3 grid, int threads,
                         size_t shared, A... args)
{
    static_assert((sizeof(P) + ... + 0) <= 4096, "older drivers pass no more to a kernel");
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return TP_OK;
    const cudaStream_t stream = tp__cuda_stream(c->dev);
    if (shared > (size_t)(24 << 10)) {
        const void *entry = reinterpret_cast<const void *>(kernel);
        const tp_code code = tp__cuda_allow_shared(c, entry, shared);
        if (code != TP_OK) return code;
    }
#ifdef __CUDACC__
    kernel<<<grid, threads, shared, stream>>>(static_cast<P>(args)...);
#else
    emulated_launch(grid, dim3((unsigned)threads), shared, stream, kernel, static_cast<P>(args)...);
#endif
    return tp__cuda_launched(c);
}

/* Blocks for a grid-stride loop over n items, `threads` per block and round: enough to fill the GPU
 * several times. An item's result must not depend on the block that computes it. */
static inline unsigned tp_grid(const tp_call *c, int64_t n, int threads = TP_THREADS)
{
    const int64_t blocks = (n + threads - 1) / threads, limit = 16 * tp__cuda_processors(c->dev);
    return (unsigned)(blocks < limit ? blocks : limit);
}

/* for (int64_t i = ...): all i in [0,n), spread over the threads of the grid. */
#define TP_EACH(i, n)                                                                              \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                      \
         i += (int64_t)gridDim.x * blockDim.x)

/* for (int64_t r = ...): all r in [0,n), one per block and round. All threads of a block agree on
 * r, so the body may have barriers; it must end with one before shared memory is reused. */
#define TP_EACH_BLOCK(r, n) for (int64_t r = blockIdx.x; r < (n); r += gridDim.x)

/* for (int64_t i = tp_warp_number(); i < n; i += tp_warps()): all i in [0,n), one warp each. */
static __device__ inline int64_t tp_warp_number(void)
{
    return ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
}

static __device__ inline int64_t tp_warps(void)
{
    return (int64_t)gridDim.x * blockDim.x / 32;
}

/* ---- elements ---- */

static __device__ inline float tp_float(float x)
{
    return x;
}
static __device__ inline float tp_float(bf16 x)
{
    return __bfloat162float(x);
}
static __device__ inline void tp_put(float *p, float x)
{
    *p = x;
}
static __device__ inline void tp_put(bf16 *p, float x)
{
    *p = __float2bfloat16_rn(x);
}

/* N elements moved together, by default 16 bytes: 4 floats or 8 bf16. */
template <class S, int N = (int)(16 / sizeof(S))> struct tp_pack {
    S at[N];
};

/* The word type for moving a pack: the widest, up to 16 bytes, that divides its size. */
template <class P> struct tp_word {
    template <int BYTES, class Word, class Else>
    using pick = typename std::conditional<sizeof(P) % BYTES == 0, Word, Else>::type;
    typedef pick<16, uint4, pick<8, uint2, pick<4, uint32_t, uint16_t>>> type;
    static constexpr int n = (int)(sizeof(P) / sizeof(type));
};

template <class S, int N> static __device__ inline tp_pack<S, N> tp_load_n(const S *p)
{
    typedef tp_word<tp_pack<S, N>> W;
    typename W::type raw[W::n];
    tp_pack<S, N> v;
    for (int i = 0; i < W::n; i++) raw[i] = reinterpret_cast<const typename W::type *>(p)[i];
    memcpy(&v, raw, sizeof v);
    return v;
}

/* p is in global memory. Each word is one instruction: the compiler may split a plain assignment of
 * more than 4 bytes into pieces of 4. */
template <class S, int N> static __device__ inline void tp_store(S *p, const tp_pack<S, N> &v)
{
    typedef tp_word<tp_pack<S, N>> W;
    typename W::type raw[W::n];
    memcpy(raw, &v, sizeof raw);
    typename W::type *to = reinterpret_cast<typename W::type *>(p);
    for (int i = 0; i < W::n; i++)
        if (sizeof raw[i] > 4)
            __stwb(to + i, raw[i]);
        else
            to[i] = raw[i];
}

/* p is in shared memory. */
template <class S, int N>
static __device__ inline void tp_store_shared(S *p, const tp_pack<S, N> &v)
{
    typedef tp_word<tp_pack<S, N>> W;
    typename W::type raw[W::n];
    memcpy(raw, &v, sizeof raw);
    for (int i = 0; i < W::n; i++) reinterpret_cast<typename W::type *>(p)[i] = raw[i];
}

template <class S> static __device__ inline tp_pack<S> tp_load(const S *p)
{
    return tp_load_n<S, (int)(16 / sizeof(S))>(p);
}

/* Returns whether all pointers are aligned to packs. Buffers are; views into them may not be. */
template <class... T> static inline bool tp_aligned(const T *...p)
{
    uintptr_t bits = 0;
    const uintptr_t each[] = { reinterpret_cast<uintptr_t>(p)... };
    for (const uintptr_t u : each) bits |= u;
    return bits % 16 == 0;
}

template <class S> static inline const S *tp_in(const tp_view *v)
{
    return static_cast<const S *>(v->data);
}
template <class S> static inline S *tp_out(const tp_view *v)
{
    return static_cast<S *>(v->data);
}

/* ---- arithmetic ---- */

/* 1 / sqrt(v); NaN, not 0, if a variance v has overflowed: normalised values would all be 0. */
static __device__ inline float tp_inverse_root(float v)
{
    return v == INFINITY ? NAN : 1.0f / sqrtf(v);
}

/* a / b, in 32 bits if possible: 64-bit division costs many times more. */
static __device__ inline int64_t tp_div(int64_t a, int64_t b)
{
    return (a | b) >> 32 ? a / b : (int64_t)((uint32_t)a / (uint32_t)b);
}

/* ---- random numbers, equal to the CPU's ---- */

/* The random stream of an op. A recorded step runs later: *advance counts the random ops by which
 * the stream has advanced since recording. NULL: not recorded. */
struct tp_random {
    uint64_t seed, offset;
    const uint64_t *advance;
};

static inline tp_random tp_random_of(const tp_call *c)
{
    return { c->rng.seed, c->rng.offset, tp__cuda_advance(c->dev) };
}

/* Words 4 block .. 4 block + 3 of the op, with the counter and key of tensor/rng.h, by cuRAND's
 * function, which takes 20% fewer instructions than tp__philox. */
static __device__ inline tp_philox tp_random_block(const tp_random &r, uint64_t block)
{
    const uint64_t o = r.offset + (r.advance ? *r.advance : 0);
    const uint4 counter = { (uint32_t)o, (uint32_t)(o >> 32), (uint32_t)block,
                            (uint32_t)(block >> 32) };
    const uint2 key = { (uint32_t)r.seed, (uint32_t)(r.seed >> 32) };
    const uint4 w = curand_Philox4x32_10(counter, key);
    return { { w.x, w.y, w.z, w.w } };
}

/* ---- shared memory: TP_SHARED(float, tile, [32][33]), dynamic TP_SHARED_REST(float, tile) ---- */

#ifdef __CUDACC__
#define TP_SHARED(type, name, size) __shared__ type name size
#define TP_SHARED_REST(type, name)                                                                 \
    extern __shared__ __align__(16) unsigned char tp_shared_rest[];                                \
    type *const name = reinterpret_cast<type *>(tp_shared_rest)
#else
#define TP_SHARED(type, name, size)                                                                \
    typedef type name##_type size;                                                                 \
    static const char name##_key = 0;                                                              \
    name##_type &name =                                                                            \
        *static_cast<name##_type *>(emulated_shared(&name##_key, sizeof(name##_type)))
#define TP_SHARED_REST(type, name) type *const name = static_cast<type *>(emulated_dynamic_shared())
#endif

/* ---- reductions, bit-identical in every run ---- */

struct tp_sum_of {
    template <class T> static __device__ T none() { return T(0); }
    template <class T> static __device__ T join(T a, T b) { return a + b; }
};
/* NaN wins, as on the CPU. */
struct tp_max_of {
    template <class T> static __device__ T none() { return -T(INFINITY); }
    template <class T> static __device__ T join(T a, T b) { return a > b || a != a ? a : b; }
};

/* Reduces over the lanes of a warp; every lane gets the result. */
template <class Op, class T> static __device__ inline T tp_warp(T v)
{
    for (int d = 16; d > 0; d >>= 1) v = Op::join(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}

/* Reduces over the threads of a block (a multiple of 32); every thread gets the result. Has
 * barriers before and after, so calls may follow each other. All threads must call it. */
template <class Op, class T> static __device__ inline T tp_block(T v)
{
    TP_SHARED(T, part, [32]);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    v = tp_warp<Op>(v);
    if (lane == 0) part[warp] = v;
    __syncthreads();
    v = tp_warp<Op>(lane < warps ? part[lane] : Op::template none<T>());
    __syncthreads();
    return v;
}

/* Reduces over LANES neighbouring threads: a power of two up to 32, or the block. */
template <class Op, int LANES, class T> static __device__ inline T tp_group(T v)
{
    if constexpr (LANES > 32) {
        return tp_block<Op>(v);
    } else {
        for (int d = LANES / 2; d > 0; d >>= 1) v = Op::join(v, __shfl_xor_sync(0xffffffffu, v, d));
        return v;
    }
}

#endif
