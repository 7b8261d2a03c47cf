/* cuda_bf16.h - bfloat16 for the emulation; conversion rounds to nearest even, as on the GPU. */
#ifndef EMULATED_CUDA_BF16_H
#define EMULATED_CUDA_BF16_H

#include "tensor/bf16.h"

struct __nv_bfloat16 {
    unsigned short bits;
};

inline float __bfloat162float(__nv_bfloat16 x)
{
    return tp__from_bf16(x.bits);
}
inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    return { tp__to_bf16(x) };
}

#endif
