/* ptx.cuh - wrappers of PTX: asynchronous copies, products on tensor cores, 2^x.
 *
 * All PTX is here. On the host each wrapper calls its emulation (tests/cuda_emulation). */
#ifndef TP_PTX_CUH
#define TP_PTX_CUH

#include "cuda/kit/kernel.cuh"

/* ---- asynchronous copies ---- */

/* Copies 16 bytes from device to shared memory, both aligned. They arrive after commit and wait<n>,
 * which leaves this thread's last n groups in flight; other threads see them after a barrier. */
static __device__ inline void tp_copy_async(void *shared, const void *from)
{
#ifdef __CUDACC__
    const unsigned to = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
#else
    emulated_copy(shared, from, 16);
#endif
}

/* The same, or without `ok` stores 16 zero bytes and does not read `from`. */
static __device__ inline void tp_copy_async_if(bool ok, void *shared, const void *from)
{
#ifdef __CUDACC__
    const unsigned to = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(ok ? 16 : 0)
                 : "memory");
#else
    static const uint4 zeros = { 0, 0, 0, 0 };
    emulated_copy(shared, ok ? from : &zeros, 16);
#endif
}

static __device__ inline void tp_copy_commit()
{
#ifdef __CUDACC__
    asm volatile("cp.async.commit_group;" ::: "memory");
#else
    emulated_commit();
#endif
}

template <int LEFT> static __device__ inline void tp_copy_wait()
{
#ifdef __CUDACC__
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#else
    emulated_wait(LEFT);
#endif
}

/* ---- tensor cores ---- */

/* Loads four 8 x 8 matrices of bf16 from shared memory. Lane l passes the address of row l % 8 of
 * matrix l / 8 and receives its mma fragment of each matrix. */
static __device__ inline void tp_ldmatrix(uint32_t r[4], const void *row)
{
#ifdef __CUDACC__
    const unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
#else
    emulated_ldmatrix(r, row, false);
#endif
}

/* The same, with each matrix transposed. */
static __device__ inline void tp_ldmatrix_t(uint32_t r[4], const void *row)
{
#ifdef __CUDACC__
    const unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
#else
    emulated_ldmatrix(r, row, true);
#endif
}

/* Packs two floats as bf16, rounded to nearest even: `low` in the low half. */
static __device__ inline uint32_t tp_pack_bf16(float low, float high)
{
#ifdef __CUDACC__
    uint32_t u;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(high), "f"(low));
    return u;
#else
    return (uint32_t)__float2bfloat16_rn(low).bits | (uint32_t)__float2bfloat16_rn(high).bits << 16;
#endif
}

/* 2^x, to 2 ulp; results below 2^-126 are 0. */
static __device__ inline float tp_exp2(float x)
{
#ifdef __CUDACC__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

/* D = A B + C: A [16,16], B [16,8] in bf16, C and D [16,8] in float; d and c may be the same. Lane
 * l with g = l / 4, t = l % 4 holds c of rows g, g + 8 and columns 2t, 2t + 1. */
static __device__ inline void tp_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2],
                                          const float c[4])
{
#ifdef __CUDACC__
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]),
                   "f"(c[1]), "f"(c[2]), "f"(c[3]));
#else
    emulated_mma_bf16(d, a, b, c);
#endif
}

/* The same in tf32: A [16,8], B [8,8]; words are floats, with the low 13 bits ignored. */
static __device__ inline void tp_mma_tf32(float d[4], const uint32_t a[4], const uint32_t b[2],
                                          const float c[4])
{
#ifdef __CUDACC__
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]),
                   "f"(c[1]), "f"(c[2]), "f"(c[3]));
#else
    emulated_mma_tf32(d, a, b, c);
#endif
}

#endif
