/* amx.h - the tile instructions of AMX-BF16, and products of pairs of bf16 numbers by them.
 *
 * A thread that has configured its tiles has 8, each of 16 rows of 64 bytes: 16 floats, or pairs of
 * bf16 numbers. tile_multiply adds the product of a tile of A, 16 rows of 16 pairs along k, and one
 * of B, 16 pairs along k of 16 columns, to a tile of floats. Each element is the sum over the low
 * halves plus that over the high ones, both in f32, added to what it was; as in vdpbf16ps, rounding
 * is to nearest even and subnormal numbers count as 0, whatever the thread's mode.
 *
 * Only files for AVX-512 include this. Numbers of tiles are literals: they are part of the
 * instruction. Compilers do not know what the instructions read, hence TILE_MEMORY. */
#ifndef TP_AMX_H
#define TP_AMX_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "tensor/kernel.h"

#define TILES __attribute__((target("amx-tile,amx-bf16,avx512bf16")))

enum { TILE_ROWS = 16, TILE_PAIRS = 16, TILE_COLS = 16, TILE_LINE = 64 /* bytes of a row */ };

#define TILE_MEMORY __asm__ volatile("" : : : "memory")

/* Tile t = 16 rows, `bytes` apart. */
#define tile_load(t, from, bytes)                                                                  \
    do {                                                                                           \
        TILE_MEMORY;                                                                               \
        _tile_loadd(t, from, bytes);                                                               \
    } while (0)
#define tile_store(t, to, bytes)                                                                   \
    do {                                                                                           \
        _tile_stored(t, to, bytes);                                                                \
        TILE_MEMORY;                                                                               \
    } while (0)
#define tile_zero(t)           _tile_zero(t)
#define tile_multiply(c, a, b) _tile_dpbf16ps(c, a, b)

/* The operand of ldtilecfg. */
typedef struct tile_shapes {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16]; /* of a row of each tile */
    uint8_t rows[16];
} tile_shapes;

/* Configures the calling thread's tiles. Until tiles_end, which must follow before the op returns,
 * the system saves 8 KB more whenever it stops the thread or runs a signal handler on it. */
TILES static inline void tiles_begin(void)
{
    static const tile_shapes whole = { .palette = 1,
                                       .bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
                                       .rows = { 16, 16, 16, 16, 16, 16, 16, 16 } };
    TILE_MEMORY;
    _tile_loadconfig(&whole);
}

TILES static inline void tiles_end(void)
{
    _tile_release();
}

/* c[rows][cols] = or += a[rows][pairs] b[pairs][cols], row-major, in pairs and floats. b's rows may
 * be read up to a whole vector of 16. Nothing else is touched outside the operands, unless `padded`
 * is set: then a's rows may be read to a whole tile, and hold zeros there. */
typedef struct tp_amx_product {
    int64_t rows, cols, pairs;
    const void *a; /* turned: [pairs][rows] */
    int64_t lda;   /* bytes from a row to the next */
    const uint32_t *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
    bool add, turned, padded;
} tp_amx_product;

/* cpu/gemm_amx.c. Between amx_begin and amx_end, on one thread. */
void TP_KERNEL_FN(amx_begin)(void);
void TP_KERNEL_FN(amx_multiply)(const tp_amx_product *p);
void TP_KERNEL_FN(amx_end)(void);

#endif
