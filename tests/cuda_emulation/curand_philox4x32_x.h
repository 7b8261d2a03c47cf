/* curand_philox4x32_x.h - cuRAND's Philox for the host: the toolkit's header if CMake found it
 * (TP_CURAND), else the same numbers from tensor/rng.h. */
#ifndef EMULATED_CURAND_PHILOX_H
#define EMULATED_CURAND_PHILOX_H

#include <cuda_runtime.h>

#ifdef TP_CURAND
#define QUALIFIERS static inline
#include TP_CURAND
#else
#include "tensor/rng.h"

static inline uint4 curand_Philox4x32_10(uint4 c, uint2 k)
{
    const tp_philox r =
        tp__philox(k.x | (uint64_t)k.y << 32, c.x | (uint64_t)c.y << 32, c.z | (uint64_t)c.w << 32);
    return { r.w[0], r.w[1], r.w[2], r.w[3] };
}
#endif

#endif
