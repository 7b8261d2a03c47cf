/* emulated_mma.cpp - a warp's tensor core instructions: products of fragments, ldmatrix. */
#include "cuda_runtime.h"
#include "emulation.h"
#include "races.h"

/* The operands are registers of the kernels; checks of them would be most of its time. GCC inlines
 * only functions with the same checks. */
#define REGISTERS __attribute__((no_sanitize("address")))

namespace
{

REGISTERS inline float of_bits(uint32_t bits)
{
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}
REGISTERS inline float low(uint32_t pair)
{
    return of_bits(pair << 16);
}
REGISTERS inline float high(uint32_t pair)
{
    return of_bits(pair & 0xffff0000u);
}
REGISTERS inline float tf32(uint32_t bits)
{
    return of_bits(bits & 0xffffe000u);
}

} // namespace

REGISTERS void emulated_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2],
                                 const float c[4])
{
    const uint32_t(*all)[6] = emulated_gather(a, b);
    const int g = int(emulated_lane()) / 4, t = int(emulated_lane()) % 4;
    for (int i = 0; i < 4; i++) {
        const int row = g, half = i / 2, col = 2 * t + i % 2;
        float sum = 0.0f;
        for (int k = 0; k < 8; k++) { /* pairs of k: words half and half + 2 of lane row, k % 4 */
            const uint32_t x = all[row * 4 + k % 4][half + 2 * (k / 4)];
            const uint32_t y = all[col * 4 + k % 4][4 + k / 4];
            sum += low(x) * low(y) + high(x) * high(y);
        }
        d[i] = c[i] + sum;
    }
}

REGISTERS void emulated_mma_tf32(float d[4], const uint32_t a[4], const uint32_t b[2],
                                 const float c[4])
{
    const uint32_t(*all)[6] = emulated_gather(a, b);
    const int g = int(emulated_lane()) / 4, t = int(emulated_lane()) % 4;
    for (int i = 0; i < 4; i++) {
        const int half = i / 2, col = 2 * t + i % 2;
        float sum = 0.0f;
        for (int k = 0; k < 8; k++)
            sum += tf32(all[g * 4 + k % 4][half + 2 * (k / 4)]) *
                   tf32(all[col * 4 + k % 4][4 + k / 4]);
        d[i] = c[i] + sum;
    }
}

void emulated_ldmatrix(uint32_t r[4], const void *row, bool transposed)
{
    const unsigned lane = emulated_lane();
    emulated_expect_aligned(row);
    const uint64_t *rows = emulated_exchange(0xffffffffu, emulated_bits(row));
    for (unsigned m = 0; m < 4; m++) {
        uint16_t e[2];
        for (unsigned i = 0; i < 2; i++) {
            const unsigned across = 2 * (lane % 4) + i, along = lane / 4;
            const unsigned from = transposed ? across : along, at = transposed ? along : across;
            const uint16_t *p = emulated_value<const uint16_t *>(rows[8 * m + from]) + at;
            race_touch(p, sizeof *p, RACE_READ, __builtin_return_address(0));
            e[i] = *p;
        }
        r[m] = uint32_t(e[0]) | uint32_t(e[1]) << 16;
    }
    emulated_exchange(0xffffffffu, 0); /* no lane overwrites words before all read them */
}
