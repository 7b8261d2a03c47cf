/* bf16.h - bfloat16, the upper half of a float; rounds to nearest even and keeps NaN. */
#ifndef TP_BF16_H
#define TP_BF16_H

#include <stdint.h>
#include <string.h>

/* from tapegrad/device.h, absent in the emulated cuBLAS */
typedef struct tp_device tp_device;

static inline float tp__from_bf16(uint16_t h)
{
    const uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint16_t tp__to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u); /* quiet NaN */
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

/* Converts m rows of n bf16 numbers, ld apart, to f32, on the calling thread (cpu/bf16.c). */
void tp__widen_rows(const tp_device *D, const uint16_t *from, int64_t ld, float *to, int64_t ldt,
                    int64_t m, int64_t n);

/* The inverse, rounding. */
void tp__round_rows(const tp_device *D, const float *from, int64_t ld, uint16_t *to, int64_t ldt,
                    int64_t m, int64_t n);

#endif
